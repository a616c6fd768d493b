"""Numbers as wide integers, whose sums are exact and the same in any order.

A float64 x becomes the integer rint(x 2^fraction) in two's complement, in `limbs` words of 64 bits, the lowest first. A
list of numbers is an array with a row for each word. Sums are modulo 2^(64 limbs), with carries: sums word by word
would tell how many carries there were.

What no such integer stands for (NaN, an infinity, a number beyond `WideFormat.most`) is sent as random words, which
only its site can make. The sum is random too then, and in all but one of 2^40 cases beyond every sum of numbers: it
decodes to infinity. One fixed huge number would not do: less that number, the sum is the sum of the other sites.
"""

import dataclasses

import numpy as np

MOST_SITES = 256  # in one sum
BITS = 64
SPARE = 40  # bits: random words look like a sum of numbers once in 2^SPARE


@dataclasses.dataclass(frozen=True)
class WideFormat:
    """A kind of wide integers.

    Parameters
    ----------
    limbs : int
        Words of 64 bits for each number.
    fraction : int
        Bits after the point.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.sites.secure.wide import SCALED, add
    >>> total = add(SCALED.encode(np.array([0.5, -3.0])), SCALED.encode(np.array([1.0, 1.0])))
    >>> SCALED.decode(total).tolist()
    [1.5, -2.0]
    >>> SCALED.fits(np.array([0.5, np.inf, 1e300])).tolist()
    [True, False, False]
    """

    limbs: int
    fraction: int

    @property
    def most(self) -> float:
        """The largest number: sums of `MOST_SITES` of them use all but a sign and `SPARE` bits."""
        return 2.0 ** (BITS * self.limbs - 1 - SPARE - self.fraction) / MOST_SITES

    def fits(self, x: np.ndarray) -> np.ndarray:
        """Which numbers an integer stands for; not so NaN, infinities, and what is larger than `most`."""
        return np.abs(x) <= self.most

    def encode(self, x: np.ndarray) -> np.ndarray:
        """Numbers as wide integers.

        Parameters
        ----------
        x : ndarray of float64
            n numbers that fit.

        Returns
        -------
        ndarray of uint64
            `limbs` rows of n words.
        """
        x = np.asarray(x, np.float64).ravel()
        if not self.fits(x).all():
            raise ValueError(f"numbers must be finite and at most {self.most:g} to become wide integers")
        # A number is a whole number below 2^53 times a power of two. Where that power is below the last bit, it is
        # rounded: rint of the scaled number, which is then small enough to be exact.
        fine = np.ldexp(np.abs(x), min(self.fraction, 1000))
        small = fine < 2.0**53
        mantissa, exponent = np.frexp(np.abs(x))
        whole = np.where(small, np.rint(np.where(small, fine, 0)), np.ldexp(mantissa, 53)).astype(np.uint64)
        shift = np.where(small, 0, exponent - 53 + self.fraction)
        planes = np.zeros((self.limbs, x.size), np.uint64)
        word, bit = shift // BITS, (shift % BITS).astype(np.uint64)
        above = np.where(bit > 0, whole >> ((np.uint64(BITS) - bit) & np.uint64(BITS - 1)), np.uint64(0))
        for limb in range(self.limbs):
            planes[limb] = np.where(word == limb, whole << bit, np.where(word == limb - 1, above, np.uint64(0)))
        return np.where(x < 0, negated(planes), planes)

    def decode(self, planes: np.ndarray) -> np.ndarray:
        """The numbers that wide integers stand for, rounded to float64.

        Parameters
        ----------
        planes : ndarray of uint64
            `limbs` rows of n words.

        Returns
        -------
        ndarray of float64
            n numbers; infinite where it is no sum of numbers that fit.
        """
        negative = planes[-1] >> np.uint64(BITS - 1) == 1
        size = np.where(negative, negated(planes), planes)
        x = np.zeros(planes.shape[1])
        for limb in range(self.limbs):  # from the smallest part on
            x += np.ldexp(size[limb].astype(np.float64), BITS * limb - self.fraction)
        x = np.where(negative, -x, x)
        return np.where(np.abs(x) <= MOST_SITES * self.most, x, np.inf)


SCALED = WideFormat(3, 92)  # of questions in scaled units: from 2^-92 to 2^51
RAW = WideFormat(6, 160)  # of questions in the units of the tables: from 2^-160 to 2^175
FORMATS = (SCALED, RAW)


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sums of wide integers.

    Parameters
    ----------
    a, b : ndarray of uint64
        The same number of rows and columns.
    """
    total = np.empty_like(a)
    carry: np.ndarray | None = None
    for limb in range(len(a)):
        one = a[limb] + b[limb]
        over = one < a[limb]
        if carry is not None:
            more = one + carry
            over |= more < one
            one = more
        total[limb], carry = one, over.astype(np.uint64)
    return total


def negated(a: np.ndarray) -> np.ndarray:
    """The negatives of wide integers.

    Parameters
    ----------
    a : ndarray of uint64
        Rows of words.
    """
    total = np.empty_like(a)
    carry = np.ones(a.shape[1], np.uint64)
    for limb in range(len(a)):
        total[limb] = ~a[limb] + carry
        carry = carry & (total[limb] == 0)
    return total
