"""What the server learns of rows under differential privacy: noised sums in public units, and quadratics from them.

The noise of second moments is a symmetric random matrix, whose eigenvalues reach up to sigma sqrt(2 d). Directions in
which the moments are below that cannot be told from noise: they are given that size, so that a model does not make
much of them. Nothing here asks for more than the noised sums, so nothing here costs privacy.
"""

import dataclasses

import numpy as np

from cofed.estimators.penalty import elastic_net
from cofed.estimators.units import Units
from cofed.losses import AbstractLoss, LabelUnits
from cofed.privacy import NoisedSum, Privacy, check_budget, guesses, noise_shares, sigma_for
from cofed.sites import AbstractSites, Folds, Scaling
from cofed.sites.queries import (
    AbstractPrivateQuery,
    PrivateGradientMessage,
    PrivateMomentsMessage,
    moments_of,
    private_gradient,
    private_moments,
)
from cofed.solvers.active_set import ElasticQuadratic, minimise

PART = 0.2  # of the budget of a fit with gradients, for the second moments


@dataclasses.dataclass(frozen=True)
class PublicUnits:
    """The units of a private fit, from the user's guesses; and how the parameters make a model in them.

    The parameters are the coefficients, and the intercept where it is free; without one, predictions of the features
    as they were given are 0 where these are.
    """

    units: Units
    fit_intercept: bool

    @property
    def n_features(self) -> int:
        """p"""
        return len(self.units.mean)

    @property
    def scaling(self) -> Scaling:
        """What the sites do to their rows."""
        labels = self.units.labels
        return Scaling(self.units.mean, self.units.width, float(labels.centre), float(labels.size))

    @property
    def basis(self) -> np.ndarray:
        """Coefficients and intercept in these units are basis @ parameters + origin."""
        if self.fit_intercept:
            return np.eye(self.n_features + 1)
        return np.vstack([np.eye(self.n_features), self.units.mean / self.units.width])

    @property
    def origin(self) -> np.ndarray:
        """The model in these units whose prediction is 0 everywhere, where no intercept is free."""
        labels = self.units.labels
        away = 0.0 if self.fit_intercept else -labels.shift / labels.stretch
        return np.append(np.zeros(self.n_features), away)

    def weights(self, alpha: float, ratio: float) -> tuple[np.ndarray, np.ndarray]:
        """The elastic net's weights of the parameters, l1 and ridge."""
        net = elastic_net(alpha, ratio, self.units)
        free = np.zeros(1 if self.fit_intercept else 0)
        return np.append(np.asarray(net.l1), free), np.append(np.asarray(net.ridge), free)

    def original(self, parameters: np.ndarray) -> tuple[np.ndarray, float]:
        """Coefficients and intercept for the features as they were given."""
        model, labels = self.basis @ parameters + self.origin, self.units.labels
        coef = model[:-1] * self.units.coef
        if not self.fit_intercept:
            return coef, 0.0
        return coef, float(labels.shift + labels.stretch * model[-1] - self.units.mean @ coef)


def public_units(privacy: Privacy, features: int, fit_intercept: bool, standardize: bool, linear: bool) -> PublicUnits:
    """The units that the guesses make; standardised features are those divided by the guessed spreads."""
    centre, spread = guesses(privacy, features)
    size, at = (float(privacy.label_spread), float(privacy.label_centre)) if linear else (1.0, 0.0)
    labels = LabelUnits(at, size, size, at, size**2) if linear else LabelUnits()
    standard = spread if standardize else np.ones(features)
    return PublicUnits(Units(centre, spread, np.ones(features), standard, labels), fit_intercept)


@dataclasses.dataclass(frozen=True)
class NoisedMoments:
    """Second moments of rows z = (x, y, 1) with noise, in public units.

    Attributes
    ----------
    folds : ndarray of shape (K, p + 2, p + 2)
        Of each fold.
    sigma : float
        The standard deviation of the noise on a diagonal entry of one of them.
    """

    folds: np.ndarray
    sigma: float

    def without(self, fold: int = -1) -> np.ndarray:
        """The moments of all folds but one, where they are above the noise; -1 leaves none out."""
        keep = np.arange(len(self.folds)) != fold
        values, vectors = np.linalg.eigh(self.folds[keep].sum(axis=0))
        size = len(values)
        least = max(self.sigma * np.sqrt(2 * keep.sum() * size), size * np.finfo(float).eps * np.abs(values).max())
        return (vectors * np.maximum(values, least)) @ vectors.T


@dataclasses.dataclass(frozen=True)
class MeanQuadratic:
    """constant + <g, t> + t' H t / 2: a mean loss, as far as it is known, of the parameters t."""

    H: np.ndarray
    g: np.ndarray
    constant: float = 0.0

    def __call__(self, t: np.ndarray) -> np.ndarray:
        """Its value, or those of many parameters in rows."""
        return self.constant + t @ self.g + np.sum((t @ self.H) * t, axis=-1) / 2

    def minimiser(self, l1: np.ndarray, ridge: np.ndarray, start: np.ndarray) -> np.ndarray:
        """With an elastic net."""
        nothing = np.zeros_like(start)
        return minimise(ElasticQuadratic(self.H, self.g, nothing, l1, ridge), start)


def squared_loss(moments: np.ndarray, units: PublicUnits, rows: float) -> MeanQuadratic:
    """The mean squared loss, halved, of rows with these moments and this number."""
    p = units.n_features
    z = [*range(p), p + 1]
    M, y = moments / rows, p
    B, o = units.basis, units.origin
    H, cross = M[np.ix_(z, z)], M[z, y]
    constant = M[y, y] / 2 - o @ cross + o @ H @ o / 2
    return MeanQuadratic(B.T @ H @ B, B.T @ (H @ o - cross), float(constant))


@dataclasses.dataclass(frozen=True)
class NoisePlan:
    """The noised sums of a fit, chosen before the first is asked for, such that all together meet the budget."""

    units: PublicUnits
    bound: float
    moments: NoisedSum
    gradient: NoisedSum | None
    rounds: int  # gradients
    excess: float  # the noise of a sum over all sites, beside that which would be enough

    @property
    def releases(self) -> list[NoisedSum]:
        """All of them."""
        return [self.moments] + [self.gradient] * self.rounds if self.gradient is not None else [self.moments]

    def ask_moments(self, sites: AbstractSites, folds: Folds | None, labels: bool) -> NoisedMoments:
        """The noised second moments; one exchange."""
        message = PrivateMomentsMessage(
            *self.numbers(self.moments), np.array([float(labels)]), scaling=self.units.scaling, folds=folds
        )
        packed = np.asarray(sites.ask(private_moments, message))
        folded = np.stack([moments_of(one, self.units.n_features) for one in packed])
        return NoisedMoments(folded, self.moments.sigma * self.excess)

    def ask_gradient(self, sites: AbstractSites, model: np.ndarray, loss: AbstractLoss) -> np.ndarray:
        """The noised gradient at a model; one exchange."""
        assert self.gradient is not None
        message = PrivateGradientMessage(
            *self.numbers(self.gradient), model[:-1], model[-1:], scaling=self.units.scaling, loss=loss
        )
        return np.asarray(sites.ask(private_gradient, message))

    def numbers(self, noised: NoisedSum) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What a private question says of itself."""
        return np.array([self.bound]), np.array([noised.sigma]), np.array([float(noised.shares)])


def plan(privacy: Privacy, sites: AbstractSites, units: PublicUnits, gradients: bool) -> NoisePlan:
    """The noise of a fit: all of the budget for second moments, or most of it for gradients."""
    p, eps, delta = units.n_features, float(privacy.epsilon), float(privacy.delta)
    shares = noise_shares(privacy, len(sites.names)) if sites.sums_only else 1
    rounds, size = int(privacy.rounds) if gradients else 0, (p + 2) * (p + 3) // 2
    part = PART if gradients else 1.0
    of_moments = sigma_for(eps, delta, 1 / part, size)
    excess = float(np.sqrt(len(sites.names) / shares))
    # Where the guesses are right, a row is so long on average.
    bound = float(np.sqrt(p + 1)) if gradients else longest(p, of_moments * excess / sum(sites.sizes))

    def noised(query: AbstractPrivateQuery, size: int, multiplier: float) -> NoisedSum:
        sensitivity = query.sensitivity(bound)
        return NoisedSum(sensitivity, sensitivity * multiplier, size, shares)

    moments = noised(private_moments, size, of_moments)
    gradient = None
    if gradients:
        gradient = noised(private_gradient, p + 1, sigma_for(eps, delta, rounds / (1 - part), p + 1))
    found = NoisePlan(units, bound, moments, gradient, rounds, excess)
    check_budget([one.release for one in found.releases], eps, delta)
    return found


def longest(p: int, noise: float) -> float:
    """How long a row (x, y, 1) may be, where a mean has so much noise for each unit of sensitivity.

    Rows that are weighted down for a long y bend the model (by 8% for three features, 4% for ten, where the bound is
    the mean length), and room for longer ones costs noise. So the bound on the squared length is its mean plus 0 to 4
    of its standard deviations, as those of normal numbers would be: more, the less noise there is. The numbers are from
    trials with 3 to 30 features and 1,000 to 100,000 rows, and public.
    """
    matters = np.sqrt(2) * noise * (p + 2) * np.sqrt(2 * (p + 2))  # the noise's largest eigenvalue beside 1
    room = np.clip(0.75 * np.log2(0.08 / matters), 0, 4)
    return float(np.sqrt(p + 2 + room * np.sqrt(2 * (p + 1))))
