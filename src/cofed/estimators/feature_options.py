"""What a user says of single features: how much each is penalised, which are left out, and limits of coefficients."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from cofed._util import naming
from cofed._util.types import Given
from cofed.sites.intake import is_list

PerFeature = Given[npt.ArrayLike | Mapping[str, float] | None]
LIMITS = ("low", "high")
FEATURE_OPTIONS = ("penalty_factor", "exclude", *LIMITS)  # the parameters
Chosen = Given[Sequence[str] | Sequence[int] | None]


@dataclasses.dataclass(frozen=True)
class FeatureOptions:
    """The penalty's factors, and the limits of the user's coefficients, by feature."""

    factor: np.ndarray  # 0 is not penalised, infinite is left out
    low: np.ndarray  # at most 0
    high: np.ndarray  # at least 0

    @property
    def is_bounded(self) -> bool:
        """Whether a coefficient has a limit."""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    @property
    def excluded(self) -> np.ndarray:
        """Whether each feature is left out."""
        return np.isinf(self.factor)


@dataclasses.dataclass(frozen=True)
class FeatureNames:
    """The features of a fit: their names, and the columns of the tables that they are made from."""

    owner: str  # the estimator
    names: Sequence[str]
    columns: Sequence[str]

    def places(self, what: str, name: object) -> list[int]:
        """The positions of a feature, or of all that a column becomes."""
        found = []
        if isinstance(name, str):
            found = [j for j, own in enumerate(self.names) if own == name]
            found = found or [j for j, own in enumerate(self.columns) if own == name]
        elif isinstance(name, (int, np.integer)) and not isinstance(name, bool) and 0 <= int(name) < len(self.names):
            found = [int(name)]
        if not found:
            raise ValueError(
                f"{self.owner}: {what} has {name!r}, which is no feature; they are {naming.listed(self.names)}"
            )
        return found

    def numbers(self, what: str, given: PerFeature, default: float) -> np.ndarray:
        """A number for each feature: one for all, one each, or by name, with a default for the others."""
        p = len(self.names)
        if given is None:
            return np.full(p, default)
        if isinstance(given, Mapping):
            found, told = np.full(p, default), np.zeros(p, bool)
            for name, value in given.items():
                where = self.places(what, name)
                if told[where].any():
                    twice = self.names[where[int(np.argmax(told[where]))]]
                    raise ValueError(f"{self.owner}: {what} has the feature {twice!r} twice")
                found[where], told[where] = self.number(what, value), True
            return found
        try:
            values = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            values = np.full((), np.nan)
        if isinstance(given, (bool, str)) or values.shape not in ((), (p,)) or np.isnan(values).any():
            raise ValueError(
                f"{self.owner}: {what} must be a number, one per feature ({p}) or a dict of features and numbers, got "
                f"{given!r}"
            )
        return np.broadcast_to(values, (p,)).astype(float)

    def number(self, what: str, value: object) -> float:
        """A number of a dict."""
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or np.isnan(value):
            raise ValueError(f"{self.owner}: {what} must have numbers, got {value!r}")
        return float(value)

    def options(self, factor: PerFeature, exclude: Chosen, low: PerFeature, high: PerFeature) -> FeatureOptions:
        """The options of all features, checked."""
        owner = self.owner
        factors = self.numbers("penalty_factor", factor, 1.0)
        if (factors < 0).any() or np.isinf(factors).any():
            raise ValueError(f"{owner}: penalty_factor must be finite and >= 0, got {factor!r}")
        if exclude is not None and (isinstance(exclude, str) or not is_list(exclude)):
            raise ValueError(f"{owner}: exclude must be a list of names or positions of features, got {exclude!r}")
        for name in () if exclude is None else np.asarray(exclude, object):
            factors[self.places("exclude", name)] = np.inf
        if np.isinf(factors).all():
            raise ValueError(f"{owner}: exclude leaves no feature")
        lows, highs = self.numbers("low", low, -np.inf), self.numbers("high", high, np.inf)
        if (lows > 0).any() or (highs < 0).any():
            raise ValueError(f"{owner}: low must be at most 0 and high at least 0, got low={low!r} and high={high!r}")
        return FeatureOptions(factors, lows, highs)

    def require_one_factor(self, options: FeatureOptions, labels: np.ndarray) -> None:
        """Refuse different factors in a group of features, whose coefficients are in one norm."""
        first = np.unique(labels, return_index=True)[1][labels]  # of each feature's group
        unlike = np.flatnonzero(options.factor != options.factor[first])
        if not len(unlike):
            return
        here, there = int(first[unlike[0]]), int(unlike[0])
        one, other, told = self.names[here], self.names[there], options.factor[[here, there]]
        if np.isinf(told).any():
            out, kept = (one, other) if np.isinf(told[0]) else (other, one)
            raise ValueError(
                f"{self.owner}: exclude leaves out {out!r} and not {kept!r}, which is in the same group: leave out all "
                "of a group, or none"
            )
        raise ValueError(
            f"{self.owner}: the features of a group have one penalty_factor, but {one!r} has {told[0]:g} and "
            f"{other!r}, in the same group, has {told[1]:g}"
        )
