"""Estimators under differential privacy: fits from noised sums alone, and what they may say of themselves.

A linear model is known from its second moments: they are noised once, and path, choice of strength and model come from
them. A logistic model takes noised gradients, in dual averaging: with H, the curvature as noised second moments tell
it, each gradient g at a model t tells a linear function g - H t, and the next model is the minimiser of the mean of
all, + t' H t / 2 + penalty. The noise of many gradients so averages out, and more rounds cost little but exchanges. It
is independent from round to round: correlated noise gains nothing where every row is in every round (the page
"privacy").
"""

import warnings
from typing import TypeVar

import numpy as np
from scipy.special import expit

from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.cross_validation import CrossValidated
from cofed.estimators.fitted_path import RegularizationPath
from cofed.estimators.fitted_state import forget_inference
from cofed.estimators.guesses import assumed, doubts
from cofed.estimators.noised import (
    MeanQuadratic,
    NoisedMoments,
    NoisePlan,
    PublicUnits,
    plan,
    public_units,
    squared_loss,
)
from cofed.estimators.path import ordered
from cofed.privacy import Privacy, PrivacyReport, epsilon_of
from cofed.sites import AbstractSites, Folds, spent, totals
from cofed.sites.intake import feature_names

LARGEST = 2048  # features whose products are noised
NOT_NOISED = (
    "the number of rows of every site, columns, levels and classes are not noised; there is no certificate, as the "
    "objective of the rows themselves is known to nobody, and there are no intervals"
)

Model = TypeVar("Model", bound=FederatedLinearModel)


def fit(model: Model, sites: AbstractSites) -> Model:
    """Fit an estimator with `privacy` to sites."""
    before, privacy, loss = len(sites.exchanges), privacy_of(model), model._loss()
    noised = planned(model, sites, privacy)
    folds = None
    if isinstance(model, CrossValidated) and model.criterion in ("min", "1se"):
        assert isinstance(model.cv, (int, np.integer))  # checked with the parameters
        folds = Folds(int(model.cv), int(model.random_state))
    moments = noised.ask_moments(sites, folds, labels=loss.quadratic)
    names = [*feature_names(model), *(["y"] if loss.quadratic else [])]
    doubt = doubts(moments, noised.units, sum(sites.sizes), names)
    if doubt:
        warnings.warn(f"{type(model).__name__}: {doubt}", UserWarning, stacklevel=3)
    if isinstance(model, CrossValidated):
        parameters = chosen(model, moments, noised.units, sum(sites.sizes))
    elif loss.quadratic:
        parameters = along(model, whole(moments, noised.units), noised.units, np.array([vars(model)["alpha"]]))[0]
    else:
        parameters = dual_averaging(model, sites, noised, moments)
    forget_inference(model)
    coef, intercept = noised.units.original(parameters)
    shown, found = model._output(coef + 0.0, intercept), totals(sites.exchanges[before:])
    taken = spent(found)
    vars(model).update(
        coef_=shown[0],
        intercept_=shown[1],
        support_=coef != 0,
        certificate_=None,
        algorithm_="noised moments" if loss.quadratic else "noised dual averaging",
        n_rounds_=taken.rounds,
        n_iter_=taken.rounds,
        bytes_=taken.bytes,
        exchanges_=found,
        clients_=sites.names,
        client_sizes_=sites.sizes,
        privacy_=PrivacyReport(
            epsilon=epsilon_of([one.release for one in noised.releases], float(privacy.delta)),
            delta=float(privacy.delta),
            level="row",
            releases=tuple(f"{one.what} {one.rounds}" for one in found),
            shares=noised.moments.shares,
            sentence=NOT_NOISED,
            assumed=assumed(privacy, loss.quadratic),
        ),
    )
    return model


def privacy_of(model: FederatedLinearModel) -> Privacy:
    """What the user asked for."""
    found = vars(model)["privacy"]
    assert isinstance(found, Privacy)
    return found


def ratio_of(model: FederatedLinearModel) -> float:
    """The part of the penalty that is the l1 norm."""
    given = vars(model)
    return float(given.get("l1_ratio", 1.0)) if given.get("penalty", "elasticnet") == "elasticnet" else 1.0


def planned(model: FederatedLinearModel, sites: AbstractSites, privacy: Privacy) -> NoisePlan:
    """The noised sums of a fit; what cannot be fitted from them is refused before anything is asked."""
    name, p, loss = type(model).__name__, sites.n_features, model._loss()
    if p > LARGEST:
        raise ValueError(f"{name}: privacy takes at most {LARGEST} features, whose products are noised; got {p}")
    if len(vars(model).get("classes_", ())) > 2:
        raise ValueError(f"{name}: privacy is for two classes, got {len(vars(model)['classes_'])}")
    if vars(model).get("penalty") == "group":
        raise ValueError(f"{name}: privacy is for the penalties l1 and elasticnet, got 'group'")
    if not isinstance(model.algorithm, str) or model.algorithm != "auto":
        raise ValueError(f"{name}: privacy has an algorithm of its own; leave algorithm at 'auto'")
    units = public_units(privacy, p, bool(model.fit_intercept), bool(model.standardize), loss.quadratic)
    return plan(privacy, sites, units, gradients=not loss.quadratic)


def whole(moments: NoisedMoments, units: PublicUnits, fold: int = -1) -> MeanQuadratic:
    """The loss of all rows, or of all folds but one."""
    found = moments.without(fold)
    return squared_loss(found, units, found[-1, -1])


def along(model: FederatedLinearModel, loss: MeanQuadratic, units: PublicUnits, alphas: np.ndarray) -> np.ndarray:
    """The parameters for every strength, the strongest first."""
    found, t = [], np.zeros(len(loss.g))
    for alpha in alphas:
        t = loss.minimiser(*units.weights(float(alpha), ratio_of(model)), t)
        found.append(t)
    return np.stack(found)


def dual_averaging(
    model: FederatedLinearModel, sites: AbstractSites, noised: NoisePlan, moments: NoisedMoments
) -> np.ndarray:
    """The parameters of a logistic model, whose gradients are asked for; later ones count more.

    A mean of gradients has noise of the standard deviation s, and a model from them noise of s / h, h the curvature. A
    ridge of s^2 / h shrinks as much as is best where coefficients in these units are about 1; without noise it is 0.
    """
    assert noised.gradient is not None
    loss, units, found = model._loss(), noised.units, moments.without()
    weights = units.weights(float(vars(model)["alpha"]), ratio_of(model))
    z = [*range(units.n_features), units.n_features + 1]
    rows, B = found[-1, -1], units.basis
    M = found[np.ix_(z, z)] / rows
    t, gradients, models, total = np.zeros(B.shape[1]), np.zeros(B.shape[1]), np.zeros(B.shape[1]), 0
    fourths = 0
    for k in range(1, noised.rounds + 1):
        at = B @ t + units.origin
        gradient = B.T @ noised.ask_gradient(sites, at, loss) / rows
        gradients, models, total = gradients + k**2 * gradient, models + k**2 * t, total + k**2
        fourths += k**4
        noise = noised.gradient.sigma * noised.excess / rows * np.sqrt(fourths) / total
        H = curvature(at, M) * B.T @ M @ B
        shrunk = weights[1] + noise**2 / np.mean(np.diag(H))
        t = MeanQuadratic(H, (gradients - H @ models) / total).minimiser(weights[0], shrunk, t)
    return t


def curvature(model: np.ndarray, M: np.ndarray) -> float:
    """The mean second derivative of the logistic loss, if predictions are normal with these second moments.

    It is at most 0.25, and here at least 0.1, so that no step is far too long.
    """
    mean = float(M[-1] @ model)
    spread = np.sqrt(max(float(model @ M @ model) - mean**2, 0.0))
    points, weight = np.polynomial.hermite_e.hermegauss(40)
    chance = expit(mean + spread * points)
    return max(float(weight @ (chance * (1 - chance)) / weight.sum()), 0.1)


def strongest(loss: MeanQuadratic, units: PublicUnits, ratio: float) -> float:
    """The least strength at which no feature is used."""
    l1, _ = units.weights(1.0, max(ratio, 1e-3))
    t = MeanQuadratic(loss.H, loss.g).minimiser(np.where(l1 > 0, 1e100, 0), np.zeros_like(l1), np.zeros_like(l1))
    slope = np.abs(loss.g + loss.H @ t)
    used = l1 > 0
    return float(np.max(slope[used] / l1[used])) * (1 + 1e-12)


def chosen(model: CrossValidated, moments: NoisedMoments, units: PublicUnits, rows: int) -> np.ndarray:
    """The parameters of the strength that the noised sums of held-out rows, or a criterion, choose."""
    loss = whole(moments, units)
    top = strongest(loss, units, ratio_of(model))
    given = None if model.alphas is None else ordered(type(model).__name__, model.alphas)
    model.alphas_ = np.geomspace(top, float(model.eps) * top, int(model.n_alphas)) if given is None else given
    found = along(model, loss, units, model.alphas_)
    made = [units.original(one) for one in found]
    coefs = np.stack([coef for coef, _ in made])
    model.path_ = RegularizationPath(
        alphas=model.alphas_,
        coefs=coefs,
        scale=units.units.standard,
        intercepts=np.array([intercept for _, intercept in made]),
        deviance=2 * units.units.objective * loss(found),
        nonzero=np.count_nonzero(coefs, axis=1),
        gaps=np.full(len(made), np.inf),  # there are no certificates
        converged=np.zeros(len(made), bool),
        n=rows,
        n_rounds=1,
        bytes=0,
        gaussian=True,
        feature_names=tuple(feature_names(model)),
    )
    if model.criterion in ("aic", "bic"):
        best = int(np.argmin(model.path_.criterion(model.criterion)))
    else:
        best = cross_validated(model, moments, units)
    model.alpha_ = float(model.alphas_[best])
    return found[best]


def cross_validated(model: CrossValidated, moments: NoisedMoments, units: PublicUnits) -> int:
    """The place of the chosen strength. The noise of a fold is not in the models that the fold judges."""
    count = len(moments.folds)
    rows = moments.without()[-1, -1] / count
    held = [
        squared_loss(moments.folds[k], units, rows)(along(model, whole(moments, units, k), units, model.alphas_))
        for k in range(count)
    ]
    table = 2 * units.units.objective * np.stack(held)
    model.cv_mean_, model.cv_se_ = table.mean(axis=0), table.std(axis=0) / np.sqrt(count - 1)
    best = int(np.argmin(model.cv_mean_))
    close = int(np.flatnonzero(model.cv_mean_ <= model.cv_mean_[best] + model.cv_se_[best])[0])
    model.alpha_min_, model.alpha_1se_ = model.alphas_[best], model.alphas_[close]
    return best if model.criterion == "min" else close
