"""What mixed models of sites share: rows in, effects of all sites and of each out."""

import dataclasses
from typing import TypeVar

import numpy as np
import pandas as pd
import scipy.sparse
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cofed._util import checks, naming
from cofed._util.pandas_types import Frame
from cofed.estimators.checks import check_choice, named_refusals
from cofed.estimators.inference.table import positions
from cofed.losses import AbstractLoss
from cofed.sites import AbstractSites, spent, totals
from cofed.sites.intake import (
    Clients,
    Features,
    FitFeatures,
    Labels,
    encoded,
    feature_names,
    gather,
    is_list,
    numbers,
    refuse_masked,
    refuse_other_order,
)
from cofed.sites.queries import GramAnswer, GramMessage, Message, gram, sums
from cofed.sites.row_options import RowNumbers, predicted_offset
from cofed.solvers.curvature import unpack
from cofed.statistics.mixed_model import MixedFit

METHODS = {"reml": "restricted maximum likelihood", "ml": "maximum likelihood"}
INTERCEPT = "(Intercept)"
DEPENDENT = 1e-10  # the part of a column's variance that others leave, from which on it is none
SHOWN = 40  # coefficients of a summary

Mixed = TypeVar("Mixed", bound="AbstractMixedModel")


@dataclasses.dataclass(frozen=True)
class SiteMoments:
    """What every site has told of its columns, around means of all rows: 1, then the features, then the labels.

    Rows count by their weights, which are 1 in the mean.
    """

    rows: np.ndarray  # of each site
    centre: np.ndarray  # p
    label_centre: float
    products: np.ndarray  # m x (p + 2) x (p + 2)
    mean_weight: float  # of the weights as they were given

    @property
    def sizes(self) -> np.ndarray:
        """The standard deviations of features and labels."""
        whole = self.products.sum(axis=0)
        return np.sqrt(np.maximum(np.diag(whole)[1:], 0) / whole[0, 0])


class AbstractMixedModel(BaseEstimator):
    """A linear predictor with effects of all sites, and some that every site draws from one normal distribution."""

    slopes: list[str] | list[int] | str | int | None
    method: str
    level: float

    def predict(self, X: Features, clients: Clients = None, offset: RowNumbers = None) -> np.ndarray:
        """The predictions for new rows.

        Parameters
        ----------
        X : array-like of shape (n, p) or pandas.DataFrame
            New rows, with the features of the fit (a column of client names is no feature).
        clients : array-like of shape (n,) or str, optional
            The rows' clients, whose own effects are added; None is the column of the fit, where X has it, else no
            effects are added, as for a site that was not there.
        offset : array-like of shape (n,) or str, optional
            The rows' offsets, or the name of that column of a pandas X, of a model that was fitted with one.

        Returns
        -------
        ndarray of shape (n,)
            The means.
        """
        check_is_fitted(self)
        return self._mean(self._linear(X, clients, offset))

    def summary(self) -> str:
        """The fit as text.

        Returns
        -------
        str
            The effects of all sites, the variation between sites, and what it rests on.
        """
        check_is_fitted(self)
        fixed, between = self.fixed_effects_, self.covariance_
        deviations = np.sqrt(np.diag(between))
        with np.errstate(divide="ignore", invalid="ignore"):
            correlation = between.to_numpy() / np.outer(deviations, deviations)
        spread = pd.DataFrame({"sd": deviations}, index=between.index)
        for place, name in enumerate(between.columns[:-1]):
            spread[f"corr. {name}"] = [np.nan] * (place + 1) + correlation[place + 1 :, place].tolist()
        shown = lambda value: f"{value:.5g}"  # noqa: E731
        more = len(fixed) - SHOWN
        lines = [
            f"{type(self).__name__}: {sum(self.client_sizes_)} rows at {len(self.clients_)} sites, by "
            f"{METHODS[self.method]}",
            "",
            fixed.head(SHOWN).to_string(float_format=shown),
            *([f"... and {more} more"] if more > 0 else []),
            "",
            "between sites",
            spread.to_string(float_format=shown, na_rep=""),
            "",
            *self._notes(),
            f"exchanges     {', '.join(f'{one.rounds} {one.what}' for one in self.exchanges_)}; {self.bytes_} bytes",
        ]
        if self.is_singular_:
            lines.append(
                "Between sites there is no variation in some direction (a variance of 0, or a correlation of 1)."
            )
        return "\n".join(lines)

    # Of a family

    def _mean(self, predictor: np.ndarray) -> np.ndarray:
        """The mean of a row with this linear predictor."""
        raise NotImplementedError

    def _notes(self) -> list[str]:
        """Lines of a summary."""
        raise NotImplementedError

    # Rows

    def _taken_in(self, X: FitFeatures, y: Labels, clients: Clients, classifies: bool) -> AbstractSites:
        """The sites, with their targets as they are, of which there must be two or more."""
        owner = type(self).__name__
        check_choice(owner, "method", self.method, tuple(METHODS))
        checks.share(f"{owner}: level", self.level)
        if scipy.sparse.issparse(X):
            raise TypeError(
                f"{owner}: Sparse data was passed for X, and mixed models take dense rows: X.toarray() makes them"
            )
        self.client_column_ = clients if isinstance(clients, str) else None
        sites = gather(self, X, y, clients, classifies)
        self._random()  # refuses slopes that are none
        if len(sites.names) < 2:
            raise ValueError(
                f"{owner}: there must be two sites or more, and there is 1; name the rows' sites (clients=)"
            )
        return sites

    def _random(self) -> np.ndarray:
        """The positions of the columns with effects of the sites' own: 0 is the intercept."""
        names = feature_names(self)
        chosen = [] if self.slopes is None else positions(f"{type(self).__name__}: slopes", names, self.slopes)
        naming.require_different(f"{type(self).__name__}: slopes", [names[j] for j in chosen])
        return np.array([0, *(1 + j for j in chosen)])

    def _asked(self, sites: AbstractSites, loss: AbstractLoss) -> SiteMoments:
        """What every site tells of its columns, which must tell such a model."""
        moments = ask_moments(type(self).__name__, sites, loss)
        self._check_rows(moments)
        return moments

    def _check_rows(self, moments: SiteMoments) -> None:
        """Refuse rows that tell no such model."""
        owner, names, whole = type(self).__name__, feature_names(self), moments.products.sum(axis=0)
        p, n = len(names), int(moments.rows.sum())
        if n <= p + 1:
            raise ValueError(f"{owner}: there are {n} rows for {p + 1} fixed effects; there must be more rows")
        size = np.r_[1.0, moments.sizes[:p]]
        flat = np.flatnonzero(size <= 1e-12 * np.r_[1.0, np.abs(moments.centre)])
        if len(flat):
            raise ValueError(f"{owner}: the column {names[flat[0] - 1]!r} does not vary; leave it out")
        column = dependent(whole[: p + 1, : p + 1] / np.outer(size, size) / n)
        if column is not None:
            raise ValueError(f"{owner}: the column {names[column - 1]!r} depends on those before it; leave it out")
        some = self._random()
        own = moments.products[:, some[:, None], some[None, :]] / np.outer(size[some], size[some])
        ranks = np.minimum(np.linalg.matrix_rank(own, tol=1e-9 * n, hermitian=True), moments.rows)
        if int((moments.rows - ranks).sum()) < 1:
            raise ValueError(
                f"{owner}: the effects of the sites' own explain every row: {n} rows at {len(ranks)} sites with "
                f"{len(some)} each; there must be more rows or fewer slopes"
            )

    # What was found

    def _set_effects(self, sites: AbstractSites, found: MixedFit, turn: np.ndarray, shift: float) -> None:
        """Set what all families have; `turn` takes parameters to the user's units, and `shift` is of the intercept."""
        some, names = self._random(), [INTERCEPT, *feature_names(self)]
        own, seen, scale = turn[np.ix_(some, some)], found.profile, found.profile.scale
        beta = turn @ seen.beta
        beta[0] += shift
        covariance = scale * turn @ np.linalg.inv(seen.information) @ turn.T
        self.coef_, self.intercept_ = beta[1:], float(beta[0])
        self.fixed_effects_ = fixed_effects(names, beta, np.sqrt(np.diag(covariance)), float(self.level))
        labels = pd.Index([names[j] for j in some])
        between = scale * own @ found.factor @ found.factor.T @ own.T
        self.covariance_ = pd.DataFrame((between + between.T) / 2, index=labels, columns=labels)
        each = pd.Index(sites.names, name="site")
        self.random_effects_ = pd.DataFrame(seen.effects @ own.T, index=each, columns=labels)
        errors = np.sqrt(np.maximum(np.einsum("aq,mqr,ar->ma", own, seen.effect_covariances, own), 0))
        self.random_effects_se_ = pd.DataFrame(errors, index=each, columns=labels)
        sizes = np.linalg.svd(found.factor, compute_uv=False)
        self.is_singular_ = bool(sizes[-1] <= 1e-4 * max(1.0, sizes[0]))
        self.is_settled_ = found.is_settled
        self.clients_, self.client_sizes_ = sites.names, sites.sizes

    def _set_exchanges(self, sites: AbstractSites, before: int) -> None:
        """Set what was asked."""
        self.exchanges_ = totals(sites.exchanges[before:])
        self.n_rounds_, self.bytes_ = spent(self.exchanges_)

    def _linear(self, X: Features, clients: Clients, offset: RowNumbers = None) -> np.ndarray:
        """The linear predictor of new rows, with the effects of their sites where those are named."""
        owner = type(self).__name__
        if isinstance(X, AbstractSites):
            raise TypeError(f"{owner}: predictions are made of rows, and those of sites stay there")
        refuse_masked(owner, "X", X)
        added = predicted_offset(owner, X, offset, len(X), bool(vars(self).get("has_offset_")))  # pyright: ignore[reportArgumentType]
        if isinstance(X, pd.DataFrame):
            X = X.drop(columns=[name for name in vars(self).get("row_columns_", ()) if name in X.columns])
            column = self.client_column_ if clients is None else clients
            if isinstance(column, str) and column in X.columns:
                X, clients = X.drop(columns=column), X[column]
        refuse_other_order(owner, X, "clients", clients)
        rows = np.asarray(numbers(self, encoded(self, X), reset=False))
        fixed = rows @ self.coef_ + self.intercept_ + added
        if clients is None:
            return fixed
        if not is_list(clients) or len(np.asarray(clients)) != len(rows):
            raise ValueError(
                f"{owner}: clients must name a column of a pandas X, or one client per row: {len(rows)} rows, got "
                f"{checks.shown(clients)}"
            )
        names = [str(name) for name in np.asarray(clients)]
        strange = next((name for name in names if name not in self.random_effects_.index), None)
        if strange is not None:
            raise ValueError(
                f"{owner}: {strange!r} is none of the sites of the fit, {naming.listed(self.clients_)}, and has no "
                "effects of its own; leave clients out (also of X) for a site that was not there"
            )
        some = np.column_stack([np.ones(len(rows)), rows])[:, self._random()]
        return fixed + np.sum(some * self.random_effects_.loc[names].to_numpy(), axis=1)


def ask_moments(owner: str, sites: AbstractSites, loss: AbstractLoss) -> SiteMoments:
    """Means of all rows, and the products of every site's columns around them: two exchanges."""
    with named_refusals(owner):
        found = sites.ask(sums, Message(loss=loss))
        counts = np.array(sites.sizes, float)
        if sites.has_weights:
            alone = sites.ask_each(sums, Message(loss=loss))
            counts = np.array([float(np.sum(alone[name].n)) for name in sites.names])
        centre, label_centre = (np.sum(part, axis=0) / np.sum(found.n) for part in (found.X, found.labels))
        where = np.arange(sites.n_features, dtype=np.int32)
        question = GramMessage(centre, label_centre, where, np.zeros_like(label_centre), False, loss=loss)
        told = sites.ask_each(gram, question)
    rows = np.array(sites.sizes)
    mean = float(counts.sum() / rows.sum())
    products = np.array([products_of(told[name], count) for name, count in zip(sites.names, counts, strict=True)])
    return SiteMoments(rows, centre, float(label_centre[0]), products / mean, mean)


def products_of(told: GramAnswer, count: float) -> np.ndarray:
    """The products of 1, the features and the label of a site, around the centre; its rows, or weights, add up to
    `count`."""
    X, cross = np.asarray(told.X)[0], np.asarray(told.cross)[0, :, 0]
    p = len(X)
    made = np.empty((p + 2, p + 2))
    made[0, 0], made[0, 1:-1], made[0, -1] = count, X, float(told.labels[0, 0])
    made[1:-1, 1:-1], made[1:-1, -1] = unpack(np.asarray(told.products)[0], p), cross
    made[-1, -1] = float(told.label_squares[0, 0])
    return np.triu(made) + np.triu(made, 1).T


def dependent(correlations: np.ndarray) -> int | None:
    """The first column that those before it tell, of a matrix of products of columns of size 1."""
    root = np.zeros_like(correlations)
    for j in range(len(correlations)):
        root[j, :j] = np.linalg.solve(root[:j, :j], correlations[:j, j]) if j else 0.0
        left = correlations[j, j] - root[j, :j] @ root[j, :j]
        if left <= DEPENDENT:
            return j
        root[j, j] = np.sqrt(left)
    return None


def fixed_effects(names: list[str], beta: np.ndarray, se: np.ndarray, level: float) -> Frame:
    """The table of effects of all sites, with normal limits."""
    width, z = float(norm.ppf(0.5 + level / 2)), beta / se
    about = {"coef": beta, "se": se, "low": beta - width * se, "high": beta + width * se}
    return pd.DataFrame({**about, "z": z, "p_value": 2 * norm.sf(np.abs(z))}, index=pd.Index(names))


def to_units(centre: np.ndarray, size: np.ndarray) -> np.ndarray:
    """What takes the parameters of 1 and (x - centre) / size to those of 1 and x."""
    turn = np.diag(np.r_[1.0, 1 / size])
    turn[0, 1:] = -centre / size
    return turn
