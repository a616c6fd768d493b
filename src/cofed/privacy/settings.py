"""What a user asks for, and what was paid."""

import dataclasses
import sys

import numpy as np
import numpy.typing as npt

from cofed._util.types import Given

ROUNDS = 20  # noised gradients of a fit that needs several


@dataclasses.dataclass(frozen=True)
class Privacy:
    """Differential privacy of the rows of a fit: each row, replaced by any other, against all but its own site.

    Whatever the server sees is noised at the sites, each of which adds its share. What the noise must hide is bounded
    by public guesses of what rows are like, which must not come from the rows themselves: a code book, the
    literature, an older study. Where they are wrong, the model is worse, and no less private.

    Parameters
    ----------
    epsilon : float
        The privacy loss of the whole fit.
    delta : float, default=1e-6
        The probability that goes with it: well below one over the number of rows.
    centre, spread : float or array-like of shape (p,), default=0.0 and 1.0
        Guesses of the features' means and standard deviations. The defaults are for features that are standardised
        already; a fit warns where its noised sums show that guesses are far off.
    label_centre, label_spread : float, default=0.0 and 1.0
        Guesses of the mean and standard deviation of y, of a linear model.
    colluding : int, default=1
        How many sites may tell the server their own noise and still not weaken the others' protection.
    rounds : int, default=20
        How many noised gradients a model takes that needs several; a linear model is fitted from one noised sum.

    Examples
    --------
    >>> import numpy as np
    >>> import cofed
    >>> from cofed.estimators import FederatedLasso
    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(5000, 3)), np.arange(5000) % 5
    >>> y = X[:, 0] + rng.normal(size=5000)
    >>> model = FederatedLasso(0.1, privacy=cofed.Privacy(epsilon=1, delta=1e-6)).fit(X, y, clients=sites)
    >>> bool(0.6 < model.coef_[0] < 1), model.privacy_.epsilon <= 1, model.certificate_
    (True, True, None)
    """

    epsilon: Given[float]
    delta: Given[float] = 1e-6
    centre: Given[npt.ArrayLike] = 0.0
    spread: Given[npt.ArrayLike] = 1.0
    label_centre: Given[float] = 0.0
    label_spread: Given[float] = 1.0
    colluding: Given[int] = 1
    rounds: Given[int] = ROUNDS

    def __post_init__(self):
        for name in ("epsilon", "delta", "label_centre", "label_spread"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
                raise TypeError(f"Privacy: {name} must be a number, got {value!r}")
            if not abs(value) <= sys.float_info.max or (name != "label_centre" and value <= 0):
                raise ValueError(f"Privacy: {name} must be a finite number{positive(name)}, got {value!r}")
            object.__setattr__(self, name, float(value))
        if self.delta >= 1:
            raise ValueError(f"Privacy: delta must be below 1, got {self.delta}")
        for name in ("colluding", "rounds"):
            value, least = getattr(self, name), 0 if name == "colluding" else 1
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(f"Privacy: {name} must be an integer, got {value!r}")
            if not least <= value <= 10_000:
                raise ValueError(f"Privacy: {name} must be an integer from {least} to 10000, got {value!r}")
            object.__setattr__(self, name, int(value))
        for name in ("centre", "spread"):
            object.__setattr__(self, name, guess(name, getattr(self, name)))


def noise_shares(privacy: Privacy, sites: int) -> int:
    """How many sites' shares of the noise must be enough, of so many sites in a sum; 1 is all of it from every site.

    >>> import cofed
    >>> from cofed.privacy import noise_shares
    >>> noise_shares(cofed.Privacy(1), sites=5), noise_shares(cofed.Privacy(1), sites=1)
    (4, 1)
    """
    return max(1, sites - privacy.colluding)


def guesses(privacy: Privacy, features: int) -> tuple[np.ndarray, np.ndarray]:
    """The guessed centres and spreads of so many features.

    >>> import cofed
    >>> from cofed.privacy import guesses
    >>> guesses(cofed.Privacy(1, spread=[1.0, 2.0]), 2)
    (array([0., 0.]), array([1., 2.]))
    """
    found = []
    for name in ("centre", "spread"):
        value = np.asarray(getattr(privacy, name), np.float64)
        if value.ndim and value.shape != (features,):
            raise ValueError(
                f"Privacy: {name} must be one number, or one for each of {features} features, got {len(value)}"
            )
        found.append(np.broadcast_to(value, (features,)).copy())
    return found[0], found[1]


def positive(name: str) -> str:
    """What else is asked of a number."""
    return "" if name.endswith("centre") else " > 0"


def guess(name: str, value: Given[npt.ArrayLike]) -> float | tuple[float, ...]:
    """A number, or one for each feature, as Python holds them: so that settings can be compared."""
    if np.ma.isMaskedArray(value):
        raise TypeError(f"Privacy: {name} must be numbers, none of them masked, got {value!r}")
    try:
        given = np.asarray(value)
    except ValueError:
        given = np.zeros((0, 0))
    if given.dtype.kind not in "fiu" or given.ndim > 1 or not given.size:
        raise TypeError(f"Privacy: {name} must be a number, or one for each feature, got {value!r}")
    if not np.isfinite(given).all() or (name == "spread" and not (given > 0).all()):
        raise ValueError(f"Privacy: {name} must be finite numbers{positive(name)}, got {value!r}")
    return tuple(map(float, given)) if given.ndim else float(given)


@dataclasses.dataclass(frozen=True)
class PrivacyReport:
    """What a private fit has cost, and what it protects.

    Attributes
    ----------
    epsilon, delta : float
        The privacy loss of all noised sums together.
    level : str
        What is protected: "row".
    releases : tuple of str
        The noised sums, with how many there were of each.
    shares : int
        How many sites' shares make up the noise; 1 where every site has added all of it.
    sentence : str
        What is not noised, and what the fit can therefore not tell.
    assumed : str
        What rows were taken to be like, by the guesses.
    """

    epsilon: float
    delta: float
    level: str
    releases: tuple[str, ...]
    shares: int
    sentence: str
    assumed: str = ""
