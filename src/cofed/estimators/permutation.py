"""Permutation importance: how much worse a fitted model does when a feature is dealt anew to the rows of each site.

The rows stay where they are. Each site permutes a feature among its own rows, by a seed that all have in common, and
sends sums of the model's errors; their total over all sites is the measure of the pooled rows, permuted so.
"""

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.utils.validation import check_is_fitted

from cofed._util.types import Given
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.checks import check_choice, check_count, named_refusals
from cofed.estimators.fitted_state import check_row_options, refuse_privacy
from cofed.estimators.measures import (
    MEASURES,
    HeldOutModels,
    area_under_curve,
    bins_of,
    check_measure,
    mean_error,
    spread_edges,
)
from cofed.estimators.plots import COLOURS
from cofed.plotting import save
from cofed.plotting.styles import LARGE, SMALL
from cofed.sites import AbstractSites, Scaling, spent
from cofed.sites.intake import Clients, FitFeatures, Labels, aligned, encoded, feature_names, without_client_column
from cofed.sites.queries import ConcordanceAnswer, HeldOutAnswer, PermutedMessage, permuted
from cofed.sites.row_options import RowNumbers, row_options, with_row_options

OWNER = "permutation_importance"
ROLES = ("weight", "offset")  # columns of the sites' tables that are no features
DRAWN = 30  # bars of a figure, at most


@dataclasses.dataclass(frozen=True)
class PermutationImportance:
    """How much worse a model does without what each feature tells; `permutation_importance` makes it.

    Attributes
    ----------
    measure : str
        What was measured.
    baseline : float
        The measure of the model as it is.
    scores : ndarray of shape (features, repeats)
        The measure with a feature permuted.
    feature_names : tuple of str
        The features; of a factor, the column that its levels are of.
    bound : float
        By how much a score may be off, as predictions are counted in bins; 0 but for "auc".
    n_rounds : int
        The exchanges.
    bytes : int
        Their size, both ways, of all clients.
    """

    measure: str
    baseline: float
    scores: np.ndarray
    feature_names: tuple[str, ...]
    bound: float
    n_rounds: int
    bytes: int

    @property
    def importances(self) -> np.ndarray:
        """How much worse each permutation is than the model as it is: above 0 where the feature tells something."""
        worse = self.scores - self.baseline
        return -worse if MEASURES[self.measure].is_better_large else worse

    @property
    def table(self) -> pd.DataFrame:
        """A row per feature, the most important first: the mean over the repeats, and their standard deviation."""
        found = self.importances
        sd = found.std(axis=1, ddof=1) if found.shape[1] > 1 else np.full(len(found), np.nan)
        table = pd.DataFrame({"importance": found.mean(axis=1), "sd": sd}, index=pd.Index(self.feature_names))
        return table.sort_values("importance", ascending=False, kind="stable")

    def plot(self, path: str | Path | None = None) -> Figure:
        """A bar for each of the most important features, with a standard deviation to both sides.

        Parameters
        ----------
        path : str or Path, optional
            A file to write the figure to.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        shown = self.table.iloc[:DRAWN]
        figure = Figure(figsize=(7.2, 1.2 + 0.26 * len(shown)), dpi=110, layout="constrained")
        panel = figure.subplots()
        error = None if self.scores.shape[1] == 1 else shown["sd"].to_numpy()
        panel.barh(
            np.arange(len(shown)), shown["importance"], xerr=error, color=COLOURS[0], ecolor="#6B6B6B", capsize=2
        )
        names = [str(name) for name in shown.index]
        panel.set_yticks(range(len(shown)), [name if len(name) <= 30 else name[:29] + "…" for name in names])
        panel.invert_yaxis()
        panel.axvline(0, color="#BBBBBB", linewidth=0.8)
        words = MEASURES[self.measure].words
        change = "lost" if MEASURES[self.measure].is_better_large else "gained"
        panel.set_xlabel(f"{words}, {change} when the feature is permuted", fontsize=LARGE)
        panel.tick_params(labelsize=SMALL)
        panel.grid(True, axis="x", color="#E9E9E9", linewidth=0.6)
        panel.set_axisbelow(True)
        if path is not None:
            save(figure, path)
        return figure


def permutation_importance(
    model: Given[FederatedLinearModel],
    X: FitFeatures,
    y: Labels = None,
    clients: Clients = None,
    *,
    sample_weight: RowNumbers = None,
    offset: RowNumbers = None,
    measure: Given[str | None] = None,
    n_repeats: Given[int] = 5,
    random_state: Given[int] = 0,
) -> PermutationImportance:
    """How much worse a fitted model does when each feature in turn is permuted among the rows of each site.

    What a feature tells beyond the site stays: its values are dealt anew within sites, so that its means there are as
    they were. The columns of a factor are permuted together. A feature that the model does not use has exactly 0; of
    two that tell the same, neither may seem to matter.

    Parameters
    ----------
    model : FederatedLinearModel
        A fitted estimator.
    X, y, clients, sample_weight, offset
        Rows as in `fit`, best those that the model has not learnt from; or sites, wherever their rows are.
    measure : {"deviance", "mse", "mae", "misclassification", "auc", "c_index"}, optional
        What is measured; None is the C-index of times to an event, and the deviance of all others.
    n_repeats : int, default=5
        How often each feature is permuted.
    random_state : int, default=0
        What the permutations are drawn from.

    Returns
    -------
    PermutationImportance
        With `table`, `importances` and `plot`. One exchange; of "auc" two.

    Raises
    ------
    ValueError
        Where the model has no such measure, or the rows are not such as it was fitted to.

    Examples
    --------
    >>> from cofed.estimators import FederatedLasso
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(200, 3)), np.arange(200) % 3
    >>> y = 2 * X[:, 1] + rng.normal(size=200)
    >>> found = permutation_importance(FederatedLasso(0.1).fit(X, y, site), X, y, site)
    >>> found.table.index[0], found.scores.shape, found.n_rounds
    ('x1', (3, 5), 1)
    """
    check_model(model)
    loss = model._loss()
    if measure is not None:
        check_choice(OWNER, "measure", measure, tuple(MEASURES))
    chosen = measure or ("c_index" if loss.of_times else "deviance")
    if loss.of_times and chosen == "deviance":
        raise ValueError(f"{OWNER}: of times to an event the measure is 'c_index', got 'deviance'")
    check_measure(OWNER, chosen, loss)
    check_count(OWNER, "n_repeats", n_repeats, high=1000)
    check_count(OWNER, "random_state", random_state, low=0, high=2**62)
    sites = sites_of(model, X, y, clients, sample_weight, offset)
    names, columns = features_of(model)
    repeats, begun = int(n_repeats), len(sites.exchanges)
    moved = np.full((1 + len(names) * repeats, max(map(len, columns))), -1, np.int32)  # the first: nothing
    for place, own in enumerate(columns):
        moved[1 + place * repeats : 1 + (place + 1) * repeats, : len(own)] = own
    coef = np.atleast_2d(model.coef_).T
    intercept = np.broadcast_to(np.ravel(vars(model).get("intercept_", 0.0)), coef.shape[1]).astype(np.float64)
    with named_refusals(OWNER):
        edges = np.zeros((1, 0)) if chosen != "auc" else edges_of(sites, model, coef, intercept)
        drawn = seeds_of(int(random_state), repeats)
        seeds = np.concatenate([drawn[:1], np.tile(drawn, len(names))])
        found = sites.ask(permuted, PermutedMessage(coef, intercept, moved, seeds, edges, loss=loss))
    scores, bound = measured(found, chosen)
    taken = spent(sites.exchanges[begun:])
    return PermutationImportance(
        measure=chosen,
        baseline=float(scores[0]),
        scores=scores[1:].reshape(len(names), repeats),
        feature_names=names,
        bound=bound,
        n_rounds=taken.rounds,
        bytes=taken.bytes,
    )


def seeds_of(random_state: int, repeats: int) -> np.ndarray:
    """A seed for each repeat."""
    return (np.random.SeedSequence(random_state).generate_state(repeats) >> 1).astype(np.int32)


def check_model(model: Given[FederatedLinearModel]) -> None:
    """Refuse what is no fitted model of rows, or one whose sites may not be asked without noise."""
    if not isinstance(model, FederatedLinearModel):
        raise TypeError(f"{OWNER}: model must be a fitted estimator, such as FederatedLasso(), got {model!r}")
    check_is_fitted(model)
    refuse_privacy(model, "importances", "their sums would not be noised")
    if model._has_site_effects:
        raise ValueError(f"{OWNER}: models with an intercept of each site's (site_effects) are not judged elsewhere")


def sites_of(
    model: FederatedLinearModel,
    X: FitFeatures,
    y: Labels,
    clients: Clients,
    sample_weight: RowNumbers,
    offset: RowNumbers,
) -> AbstractSites:
    """The rows, with the features and classes of the fit."""
    own, owner = copy.copy(model), type(model).__name__
    if isinstance(X, AbstractSites):
        if y is not None or clients is not None:
            raise ValueError(f"{OWNER}: sites carry their own targets; leave y and clients out")
        said = {} if X.design is None else X.design.row_columns  # of rows, which the fit's design need not know
        fitting = aligned(own, X).with_columns(*(said[role].name if role in said else None for role in ROLES))
        chosen = row_options(OWNER, fitting, sample_weight, offset).X
        assert isinstance(chosen, AbstractSites)
        sites = own._labelled(chosen)
    else:
        given = row_options(OWNER, X, sample_weight, offset)
        assert not isinstance(given.X, AbstractSites)
        rows, whose = without_client_column(OWNER, given.X, clients)
        given = given._replace(X=encoded(model, rows))
        sites = with_row_options(OWNER, own._intake(given.X, y, whose), given, whose)
        if feature_names(own) != feature_names(model):
            raise ValueError(f"{OWNER}: {owner} was fitted to other features than those of X")
        classes, known = (np.asarray(vars(one).get("classes_", ())) for one in (own, model))
        if not np.array_equal(classes, known):
            raise ValueError(f"{OWNER}: {owner} was fitted to the classes {known}, but y has {classes}")
    check_row_options(own, sites)
    if sites.has_offsets != bool(vars(model).get("has_offset_", False)):
        raise ValueError(f"{OWNER}: give offset= where {owner} was fitted with one, and only there")
    return sites


def features_of(model: FederatedLinearModel) -> tuple[tuple[str, ...], list[list[int]]]:
    """What is permuted: columns of a table, each with the positions of the features that are made from it."""
    design, names = vars(model).get("design_"), feature_names(model)
    groups = names if design is None else list(design.groups)
    found: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        found.setdefault(group, []).append(place)
    return tuple(found), list(found.values())


def edges_of(sites: AbstractSites, model: FederatedLinearModel, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Edges between bins of the predictions; permuted within sites, these have the same mean. One exchange."""
    plain = Scaling(np.zeros(len(coef)), np.ones(len(coef)))
    alone = HeldOutModels(sites, coef[None], intercept[None], np.array([-1], np.int32), plain, None, model._loss())
    found = alone.errors()
    return spread_edges(found, bins_of(found, sites.has_weights))


def measured(found: HeldOutAnswer | ConcordanceAnswer, measure: str) -> tuple[np.ndarray, float]:
    """The measure of each permutation, and by how much it may be off."""
    if isinstance(found, ConcordanceAnswer):
        concordant, tied, pairs = found
        if not (pairs > 0).all():
            raise ValueError(f"{OWNER}: of no two rows of a site it is known who had the event first")
        return np.asarray((concordant + tied / 2) / pairs), 0.0
    if measure == "auc":
        area, bound = area_under_curve(found)
        return area, float(bound.max())
    return mean_error(found, measure, 1.0), 0.0
