"""Which intervals a fit gets, and the table of them.

Where the rows are enough for a model without a penalty (a linear model needs more rows than parameters; others ten
events per parameter, of the rarest class), it is that model's: least squares, or the maximum of the likelihood,
whatever was selected. Else it is the debiased lasso.
"""

import dataclasses
import warnings

import numpy as np
import pandas as pd
from scipy.stats import norm, t

from cofed._util.types import Given
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.fitted_state import output_names
from cofed.estimators.inference.debiased import EVENTS, debiased
from cofed.estimators.inference.errors import Estimates, Spread, spread
from cofed.estimators.inference.likelihood import Likelihood
from cofed.estimators.inference.unpenalised import Separated, newton_step, unpenalised
from cofed.estimators.penalty import elastic_net
from cofed.estimators.progress import LARGEST
from cofed.estimators.solver import solve
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.losses import AbstractLoss
from cofed.sites import ExchangeTotal
from cofed.sites.intake import feature_names, is_list
from cofed.sites.queries.base import n_responses

Chosen = Given[list[str] | list[int] | str | int | None]
SOLVED = 1e-10  # of the model without a penalty from which Newton's steps begin
SHOWN = 5  # columns that are named in a sentence


@dataclasses.dataclass(frozen=True)
class Inference:
    """A table of intervals, and how they came about, in words."""

    table: pd.DataFrame
    note: str


def keep_inference(model: FederatedLinearModel, found: Inference, problem: StandardizedProblem) -> None:
    """Keep the intervals of a fit, and count what they took."""
    spent = vars(model)
    down, up = sum(one.down for one in problem.exchanges), sum(one.up for one in problem.exchanges)
    spent["inference_"], spent["inference_note_"] = found.table, found.note
    spent["n_rounds_"], spent["bytes_"] = spent["n_rounds_"] + problem.n_rounds, spent["bytes_"] + down + up
    spent["exchanges_"] = (*spent["exchanges_"], ExchangeTotal("inference", problem.n_rounds, down, up))


def infer(
    model: FederatedLinearModel, problem: StandardizedProblem, coefficients: Chosen, level: Given[float], errors: str
) -> Inference:
    """The table of `FederatedLinearModel.infer`; errors is "model", "hc1", "hc3", "site" or "cluster"."""
    owner, names = type(model).__name__, feature_names(model)
    if errors == "model" and vars(model).get("class_weight") is not None:
        raise ValueError(
            f"{owner}: with class_weight the model does not know the variances of its coefficients; take robust "
            "standard errors, such as errors='hc1'"
        )
    check_possible(owner, problem, level, errors)
    options = model._feature_options()
    if options is not None and options.is_bounded:
        raise ValueError(f"{owner}: there are no intervals for coefficients with limits (low, high)")
    excluded = np.zeros(len(names), bool) if options is None else options.excluded
    likelihood = Likelihood(problem, excluded, errors == "model")
    chosen = [j for j in positions(owner, names, coefficients) if coefficients is not None or not excluded[j]]
    if excluded[chosen].any():
        raise ValueError(
            f"{owner}: {names[chosen[int(excluded[chosen].argmax())]]!r} is left out of the model (exclude)"
        )
    fitted = parameters(model, likelihood)
    check_outputs(owner, likelihood)
    try:
        if enough(likelihood):
            found = without_penalty(likelihood, start(model, likelihood), chosen)
        elif not likelihood.problem.survey.loss.has_dispersion:
            raise ValueError(
                f"{owner}: intervals need {EVENTS} rows for each of the {len(likelihood.used)} parameters, and there "
                f"are {likelihood.n}"
            )
        elif excluded.any():
            raise ValueError(
                f"{owner}: with so few rows, intervals are for all features: leave columns out of X, not by exclude"
            )
        else:
            found = debiased(likelihood, fitted, chosen)
    except Separated as error:
        raise ValueError(
            f"{owner}: no intervals: without a penalty the coefficients grow without end, most of all that of "
            f"{names[error.column]!r}, as where features tell the labels of some rows with certainty (separation); "
            "leave such features out, or have more rows"
        ) from None
    errors_of = spread(owner, likelihood, found, errors)
    table = tabulated(model, likelihood, chosen, fitted, found, errors_of)
    finished(table, float(level), errors_of.freedom)
    dependent = {names[j]: [names[i] for i in on] for j, on in found.unknown.items() if j in chosen}
    if dependent:
        warnings.warn(f"{owner}: {about_dependent(dependent, found.within)}", stacklevel=3)
    return Inference(table, note(float(level), found, errors_of, dependent))


def enough(likelihood: Likelihood) -> bool:
    """Whether there are rows enough for a model without a penalty."""
    parameters = of_an_output(likelihood)
    return likelihood.n > parameters if likelihood.is_linear else likelihood.events >= EVENTS * parameters


def of_an_output(likelihood: Likelihood) -> int:
    """How many parameters a response, or a class beside the first, has: those of the sites count."""
    return len(likelihood.used) + likelihood.at_sites // len(likelihood.contrasts)


def check_outputs(owner: str, likelihood: Likelihood) -> None:
    """Refuse several classes or responses of too few rows: a debiased lasso is of one vector of coefficients."""
    if enough(likelihood) or likelihood.outputs == 1:
        return
    if likelihood.is_linear:
        raise ValueError(
            f"{owner}: intervals for several responses need more rows than the {len(likelihood.used)} parameters of a "
            f"response, and there are {likelihood.n}; FederatedLasso has them for each response by itself"
        )
    raise ValueError(
        f"{owner}: intervals for several classes need {EVENTS} rows of the rarest class for each of the "
        f"{of_an_output(likelihood)} parameters of a class, and it has {likelihood.events:g}"
    )


def check_possible(owner: str, problem: StandardizedProblem, level: Given[float], errors: str) -> None:
    """Refuse what no interval is known for."""
    features = len(problem.units.mean)
    if np.ndim(problem.start.coef) > 1 + (np.size(problem.null.mean) > 1):
        raise ValueError(f"{owner}: intervals are for a vector of coefficients, not for a matrix")
    if not problem.survey.loss.has_dispersion and errors == "model":
        raise ValueError(
            f"{owner}: {type(problem.survey.loss).__name__} is no likelihood that would know the variances of its "
            "coefficients; take robust standard errors, such as errors='hc1'"
        )
    if features * n_responses(problem.survey.loss) > LARGEST:
        raise ValueError(
            f"{owner}: intervals need the Hessian of all features, at most {LARGEST}, and there are {features}"
            f"{' of each response' if n_responses(problem.survey.loss) > 1 else ''}"
        )
    if isinstance(level, bool) or not isinstance(level, (int, float, np.number)) or not 0 < level < 1:
        raise ValueError(f"{owner}: level must be a number between 0 and 1, got {level!r}")


def parameters(model: FederatedLinearModel, likelihood: Likelihood) -> np.ndarray:
    """The parameters of the fit."""
    coef = np.atleast_2d(model.coef_).reshape(likelihood.outputs, -1)
    return likelihood.vector(coef.T, np.atleast_1d(model.intercept_))


def start(model: FederatedLinearModel, likelihood: Likelihood) -> np.ndarray:
    """Where to begin without a penalty: the weakest of a path is nearest, where there is a path.

    Newton's steps alone may not get there for a loss that is straight nearly everywhere: it is solved for beforehand.
    """
    problem = likelihood.problem
    if not problem.survey.loss.has_dispersion:
        psi = elastic_net(0.0, 1.0, problem.units, options=model._feature_options())
        found = solve(problem, psi, "auto", SOLVED, 1000)
        return np.append(found.w.coef, [] if found.w.intercept is None else found.w.intercept)
    path = vars(model).get("path_")
    if path is None:
        return parameters(model, likelihood)
    coef = np.reshape(path.coefs[-1], (likelihood.outputs, -1))
    return likelihood.vector(coef.T, np.reshape(path.intercepts[-1], -1))


def without_penalty(likelihood: Likelihood, begin: np.ndarray, chosen: list[int]) -> Estimates:
    """Estimates of the model without a penalty, from a start."""
    found = unpenalised(likelihood, begin, likelihood.used)
    asked, p = likelihood.positions(np.array(chosen, int)), likelihood.features
    place = {int(at): i for i, at in enumerate(found.where)}
    several = likelihood.is_linear and likelihood.outputs > 1
    loss, rank = likelihood.problem.survey.loss, len(found.where) + likelihood.at_sites
    rank = rank // likelihood.outputs if several else rank
    free, information, inverse, value = likelihood.n - rank, found.information, found.inverse, found.loss
    if loss.has_variance and likelihood.expected:
        seen = likelihood.scored(found.theta, found.where)
        information, inverse, value = seen.information, newton_step(seen).inverse, seen.loss
    dispersion: float | np.ndarray = 1.0
    if several:
        spent = likelihood.response_losses(found.theta) / likelihood.n
        dispersion = np.array([loss.dispersion(one, likelihood.n, free) for one in spent])[asked % likelihood.outputs]
    elif loss.has_dispersion:
        dispersion = loss.dispersion(max(value, 0.0) / likelihood.n, likelihood.n, free)
    influence = np.array([inverse[place[at]] if at in place else np.zeros(len(place)) for at in asked])
    return Estimates(
        value=found.theta[asked],
        influence=influence.reshape(len(asked), -1),
        theta=found.theta,
        where=found.where,
        information=information,
        inverse=inverse,
        dispersion=dispersion,
        rank=rank,
        freedom=float(free) if loss.of_rows.estimates_dispersion else np.inf,
        how=without_penalty_in_words(loss.of_rows),
        unknown={j: [i for i in on if i < p] for j, on in found.columns.dependent.items()},
        within=likelihood.within,
    )


def without_penalty_in_words(loss: AbstractLoss) -> str:
    """What the estimates are of."""
    if loss.quadratic:
        return "least squares"
    return "maximum likelihood, without the penalty" if loss.has_dispersion else "the least loss, without the penalty"


def tabulated(
    model: FederatedLinearModel,
    likelihood: Likelihood,
    chosen: list[int],
    fitted: np.ndarray,
    found: Estimates,
    errors: Spread,
) -> pd.DataFrame:
    """Coefficients, estimates and standard errors in the user's units, NaN where there is none."""
    names, asked, k = feature_names(model), likelihood.positions(np.array(chosen, int)), likelihood.outputs
    unit = likelihood.problem.units.coef[asked // k]
    lacking = np.isin(asked // k, list(found.unknown))
    table = pd.DataFrame(
        {
            "coef": fitted[asked] * unit,
            "debiased": np.where(lacking, np.nan, found.value * unit),
            "se": np.where(lacking, np.nan, errors.error * np.abs(unit)),
        },
        index=pd.Index([names[at // k] for at in asked]),
    )
    if k > 1:
        outputs = output_names(model)
        table.index = pd.Index([f"{outputs[at % k]}: {names[at // k]}" for at in asked])
    return table


def finished(table: pd.DataFrame, level: float, freedom: float) -> None:
    """Add intervals and p-values."""
    reference = norm if np.isinf(freedom) else t(freedom)
    width = reference.ppf(0.5 + level / 2)
    table["low"], table["high"] = table.debiased - width * table.se, table.debiased + width * table.se
    with np.errstate(divide="ignore", invalid="ignore"):
        table["z"] = table.debiased / table.se
    table["p_value"] = 2 * reference.sf(np.abs(table.z))


def about_dependent(dependent: dict[str, list[str]], within: str) -> str:
    """Which columns have no coefficient of their own, in a sentence."""
    parts = [f"{name!r} {of(columns)}{within}" for name, columns in list(dependent.items())[:SHOWN]]
    more = len(dependent) - SHOWN
    listed = ", ".join(parts) + (f" and {more} more" if more > 0 else "")
    return f"columns that depend on others have no interval of their own (NaN): {listed}"


def of(columns: list[str]) -> str:
    """What a column depends on."""
    if not columns:
        return "is constant"
    more = len(columns) - SHOWN
    return "depends on " + ", ".join(map(repr, columns[:SHOWN])) + (f" and {more} more" if more > 0 else "")


def note(level: float, found: Estimates, errors: Spread, dependent: dict[str, list[str]]) -> str:
    """How the intervals came about."""
    reference = "normal" if np.isinf(errors.freedom) else f"t with {errors.freedom:g} degrees of freedom"
    said = f"{100 * level:g} %, {found.how}; {errors.how}; {reference}"
    return f"{said}; {about_dependent(dependent, found.within)}" if dependent else said


def positions(owner: str, names: list[str], coefficients: Chosen) -> list[int]:
    """Where the asked-for coefficients are; None is all."""
    if coefficients is None:
        return list(range(len(names)))
    found = []
    for one in np.asarray(coefficients, object) if is_list(coefficients) else [coefficients]:
        if isinstance(one, (int, np.integer)) and not isinstance(one, bool) and 0 <= one < len(names):
            found.append(int(one))
        elif isinstance(one, str) and one in names:
            found.append(names.index(one))
        else:
            raise ValueError(f"{owner}: there is no feature {one!r}; give names or positions of {len(names)} features")
    return found
