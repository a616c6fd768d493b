"""A sum over sites with noise of which every site adds a share, on a grid of whole numbers."""

import dataclasses
import hashlib
import hmac
import math

import numpy as np

from cofed.privacy.accounting import Release
from cofed.privacy.skellam import skellam

STEPS = 20  # the noise has a standard deviation of 2^20 to 2^21 steps of the grid
LARGEST = 2.0**53  # whole numbers up to it are exact in float64


@dataclasses.dataclass(frozen=True)
class NoisedSum:
    """How a sum over sites is noised, so that the shares of all honest sites together are enough.

    A site rounds its own part to a grid and adds its share (`part`); whoever adds the parts up has the sum, with the
    noise that a trusted server would have added. The grid is a power of two, so parts are float64 numbers that any
    exact addition, masked or not, brings through unchanged; attacks on the low bits of noise have none to look at.

    Parameters
    ----------
    sensitivity : float
        How far the sum can move in the l2 norm where the data of what is protected (a row, or a whole site) are
        replaced by others: 2 C for vectors that are clipped to C.
    sigma : float
        The standard deviation of the noise on every entry of the sum.
    size : int
        How many entries what is protected can change.
    shares : int
        How many sites' shares are enough: the sites of the sum less those that might tell the server their own
        shares; 1 where the server sees each site's part, which then has all of the noise.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.privacy import NoisedSum
    >>> noised = NoisedSum(sensitivity=2.0, sigma=10.0, size=3, shares=2)
    >>> secrets = b"of Oslo", b"of Rome"
    >>> total = sum(noised.part(np.array([0.5, 0.0, -0.5]), secret) for secret in secrets)
    >>> bool(np.all(abs(total - [1, 0, -1]) < 60)), (total / noised.grid % 1).tolist()
    (True, [0.0, 0.0, 0.0])
    >>> noised.release.variance >= (10.0 / noised.grid) ** 2
    True
    """

    sensitivity: float | int
    sigma: float | int
    size: int
    shares: int = 1

    def __post_init__(self):
        for name in ("sensitivity", "sigma"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"the {name} of a noised sum must be a finite number > 0, got {value!r}")
        for name in ("size", "shares"):
            if getattr(self, name) < 1:
                raise ValueError(f"the {name} of a noised sum must be at least 1, got {getattr(self, name)!r}")
        if self.shares > 2**STEPS:
            raise ValueError(f"a noised sum has at most {2**STEPS} shares, got {self.shares}")

    @property
    def grid(self) -> float:
        """The step of the grid, a power of two."""
        return 2.0 ** (math.floor(math.log2(self.sigma)) - STEPS)

    @property
    def share_variance(self) -> int:
        """The variance of a site's share, in steps of the grid: even, and never too small."""
        return 2 * math.ceil((self.sigma / self.grid) ** 2 / (2 * self.shares))

    @property
    def release(self) -> Release:
        """What the sum costs: rounding moves every entry by up to half a step, on either side of a comparison."""
        l2 = self.sensitivity / self.grid + math.sqrt(self.size)
        # A whole number is at most its square, so the l1 norm is at most the l2 norm squared, too.
        return Release(l2, l2 * min(math.sqrt(self.size), l2), float(self.share_variance * self.shares))

    def part(self, values: np.ndarray, secret: bytes) -> np.ndarray:
        """What a site sends: its own part on the grid, with its share of the noise.

        Parameters
        ----------
        values : ndarray
            The site's part of the sum. That it changes by no more than `sensitivity` is up to the caller.
        secret : bytes
            HMAC(the site's own secret, all that tells this sum from others: what is asked, in which run and round, of
            which sites). Two sums over other sites, or of other rounds, must not have noise in common.

        Returns
        -------
        ndarray
            Multiples of `grid`. The noise depends on the secret and on the values: asked again, the same data have the
            same answer, so that nothing can be averaged; other data have other noise.
        """
        whole = self.encoded(values)
        seed = hmac.new(secret, whole.tobytes(), hashlib.sha256).digest()
        noise = skellam(seed, self.share_variance, whole.size).reshape(whole.shape)
        return self.decoded(whole + noise)

    def encoded(self, values: np.ndarray) -> np.ndarray:
        """The nearest points of the grid, as whole numbers."""
        scaled = np.rint(np.asarray(values, np.float64) / self.grid)
        if not (np.abs(scaled) <= LARGEST / 4).all():
            raise ValueError(
                f"a part of a noised sum must be finite and at most {self.grid * LARGEST / 4:.3g}, which is what its "
                f"grid of {self.grid:.3g} can hold"
            )
        return scaled.astype(np.int64)

    def decoded(self, whole: np.ndarray) -> np.ndarray:
        """Points of the grid as numbers: exact."""
        return whole.astype(np.float64) * self.grid
