"""Sites whose rows are all in this process."""

import dataclasses
import hashlib
import hmac
import secrets
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, PyTree
from sklearn.utils.multiclass import check_classification_targets

from cofed._util import naming, trees
from cofed.algorithms.base import refusal
from cofed.engine.data import data_of
from cofed.engine.job import traced
from cofed.engine.plan import Plan, pose
from cofed.engine.server_rounds import ServerTask
from cofed.engine.state import State
from cofed.federation import Federation
from cofed.federation.rows import Rows, of_clients, tiers_of
from cofed.models import Weights
from cofed.sites.base import AbstractSites, AbstractTraining, QuestionRefused, TrainingPlan
from cofed.sites.exchanges import Exchange, Exchanges
from cofed.sites.follow_up import mistake
from cofed.sites.host_rows import SparseRows
from cofed.sites.matrix import padded_size
from cofed.sites.queries.base import AbstractQuery, Message
from cofed.sites.queries.private import AbstractPrivateQuery
from cofed.sites.questions import question_bytes
from cofed.sites.rows import SiteRows
from cofed.sites.scaling import Scaling
from cofed.sites.steps import Step
from cofed.statistics.survival import BaselineHazard, baseline_hazard


class MemorySites(AbstractSites):
    """Sites in this process: all rows in one table, so that a question is one compiled program.

    Parameters
    ----------
    rows : SiteRows
        The sites' rows.
    feature_names : tuple of str, optional
        The names of the features.
    secret : bytes, optional
        What the sites' noise is drawn from, of questions with noise; None is a new one. Who knows it can take the
        noise off, so a fixed one is for trials.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedLasso
    >>> from cofed.sites import MemorySites, SiteRows
    >>> X, y = [np.ones((2, 1)), np.zeros((3, 1))], [np.zeros(2), np.ones(3)]
    >>> sites = MemorySites(SiteRows.of_sites(("a", "b"), X, y))
    >>> FederatedLasso(alpha=0.06).fit(sites).coef_.round(6).tolist(), len(sites.exchanges) > 0
    ([-0.877526], True)
    """

    sums_only = True  # nobody looks at a single site's answer

    def __init__(self, rows: SiteRows, feature_names: tuple[str, ...] | None = None, secret: bytes | None = None):
        self.rows = rows
        self.secret = secrets.token_bytes(32) if secret is None else secret
        self.names, self.sizes, self.n_features = rows.names, rows.sizes, rows.X.shape[1]
        self.feature_names = feature_names
        self.exchanges = Exchanges()

    def exchange(self, query: AbstractQuery, message: Message) -> tuple[PyTree, int, int]:
        for m, name in enumerate(self.names):
            reason = query.refuses(*self.rows.of_site(m), message)
            if reason is not None:
                raise QuestionRefused(f"{reason} (client {name!r})")
        private = isinstance(query, AbstractPrivateQuery)
        answer = self.noised(query, message) if private else self.rows.answer(query, message)
        many = len(self.names)
        return answer, many * trees.nbytes(arrays_of(message)), many * trees.nbytes(answer)

    def noised(self, query: AbstractPrivateQuery, message: Message) -> PyTree:
        """The sum of the sites' noised answers: each site rounds its own, and draws its own noise."""
        asked = question_bytes(query, message)
        parts = [
            rows.answer(query, message, own_secret(self.secret, name, asked))
            for name, rows in zip(self.names, self.rows.each, strict=True)
        ]
        return np.sum(parts, axis=0)

    def ask_each(self, query: AbstractQuery, message: Message) -> dict[str, PyTree]:
        began = time.perf_counter()
        reason = query.refuses(self.rows.X, self.rows.y, message)
        if reason is not None:
            raise QuestionRefused(reason)
        answers = {name: self.rows.alone(m).answer(query, message) for m, name in enumerate(self.names)}
        down, up = len(answers) * trees.nbytes(arrays_of(message)), sum(trees.nbytes(one) for one in answers.values())
        self.exchanges.append(Exchange(query.name, 1, down, up, time.perf_counter() - began))
        return answers

    def alone(self, site: str) -> "MemorySites":
        return self.with_rows(self.rows.each[self.names.index(site)])

    def of_numbers(self) -> "MemorySites":
        self.require_target()
        if self.rows.y.ndim == 2:
            raise QuestionRefused(f"y must be numbers, but {self.several_columns}")
        try:
            return self.with_labels(np.asarray(self.rows.y, np.float64))
        except ValueError as error:
            raise QuestionRefused(f"y must be numbers, but {error}; encode text as numbers") from None

    def of_classes(self) -> tuple["MemorySites", np.ndarray]:
        self.require_target()
        if self.rows.y.ndim == 2:
            raise QuestionRefused(f"y must be the labels of classes, but {self.several_columns}")
        try:
            check_classification_targets(self.rows.y)
        except ValueError as error:
            raise QuestionRefused(f"y must be the labels of classes, but: {error}") from None
        classes = np.unique(self.rows.y)
        return self.with_labels(np.searchsorted(classes, self.rows.y).astype(np.int32)), classes

    @property
    def has_weights(self) -> bool:
        return self.rows.weight is not None

    @property
    def has_offsets(self) -> bool:
        return self.rows.offset is not None

    @property
    def offset_columns(self) -> int:
        return 1 if self.rows.offset is None or self.rows.offset.ndim == 1 else self.rows.offset.shape[1]

    def with_class_weight(self, weights: tuple[float, ...]) -> "MemorySites":
        before = 1.0 if self.rows.weight is None else self.rows.weight
        return self.with_rows(dataclasses.replace(self.rows, weight=np.asarray(weights)[self.rows.y] * before))

    def with_row_numbers(self, weight: np.ndarray | None, offset: np.ndarray | None) -> "MemorySites":
        """The same rows with weights and offsets; those of weight 0, and sites that have no others, are left out."""
        rows = dataclasses.replace(self.rows, weight=weight, offset=offset)
        if weight is not None and not weight.all():
            rows = rows.some(weight > 0).of_sites_with_rows()
        return self.with_rows(rows)

    @property
    def several_columns(self) -> str:
        """What labels of several columns are."""
        target = None if self.design is None else self.design.target
        if target is None:
            return "has several columns: FederatedCox is for times to an event, FederatedMultiTaskLasso for responses"
        if target.event is None:
            return "is several responses, which FederatedMultiTaskLasso is for"
        return "is times to an event, which FederatedCox is for"

    def of_responses(self) -> tuple["MemorySites", tuple[str, ...]]:
        self.require_target()
        if self.rows.y.ndim == 1:
            sites, columns = self.of_numbers(), 1
        else:
            sites, columns = self.with_labels(np.asarray(self.rows.y, np.float64)), self.rows.y.shape[1]
        target = None if self.design is None else self.design.target
        if target is not None and target.event is not None:
            raise QuestionRefused(f"y must be numbers, but {self.several_columns}")
        return sites, numbered(columns) if target is None else tuple(one.name for one in target.columns)

    def of_times(self) -> "MemorySites":
        self.require_target()
        y = self.rows.y
        target = None if self.design is None else self.design.target
        if y.ndim != 2 or (target is not None and target.event is None):
            raise QuestionRefused("the sites have numbers for a target; times to an event need a time and an event")
        wrong = mistake(y)
        if wrong is not None:
            raise QuestionRefused(wrong)
        return self.with_labels(y)

    def with_groups(self, group: np.ndarray) -> "MemorySites":
        """The same rows in groups, numbered as each site meets its own; what was asked counts on."""
        parts = np.split(group, self.rows.bounds[1:-1])
        return self.with_given_folds(np.concatenate([pd.factorize(own)[0] for own in parts]))

    def with_given_folds(self, fold: np.ndarray) -> "MemorySites":
        """The same rows with folds that were given; what was asked counts on."""
        return self.with_rows(dataclasses.replace(self.rows, group=fold))

    def with_clusters(self, cluster: np.ndarray) -> "MemorySites":
        """The same rows in groups, each of which is within a site; what was asked counts on."""
        return self.with_rows(dataclasses.replace(self.rows, cluster=cluster))

    def require_target(self) -> None:
        """Refuse sites whose rows have no labels."""
        if len(self.rows.site) and not len(self.rows.y):
            raise QuestionRefused("the sites have no target; name its column where they are made")

    def with_labels(self, y: np.ndarray) -> "MemorySites":
        """The same rows with other labels; what was asked counts on."""
        return self.with_rows(self.rows.with_labels(y))

    def with_rows(self, rows: SiteRows) -> "MemorySites":
        """The same sites with other rows; what was asked counts on."""
        other = MemorySites(rows, self.feature_names, self.secret)
        other.exchanges, other.sums_only, other.design = self.exchanges, self.sums_only, self.design
        return other

    def with_step(self, step: Step) -> AbstractSites:
        if self.design is not None:
            return super().with_step(step)
        X = self.rows.X
        if isinstance(X, SparseRows):
            raise ValueError("transformers' steps take dense features, got sparse rows: give X.toarray()")
        other = self.with_rows(dataclasses.replace(self.rows, X=step.apply(X)))
        other.feature_names = step.outputs
        return other

    def baseline_hazards(self, coef: np.ndarray, efron: bool) -> dict[str, BaselineHazard]:
        found = {}
        for name, rows in zip(self.names, self.rows.each, strict=True):
            risk = rows.X @ coef if rows.offset is None else rows.X @ coef + rows.offset
            found[name] = baseline_hazard(rows.y, risk, efron, rows.weight)
        return {name: hazard for name, hazard in found.items() if np.isfinite(hazard.cumulative).all()}

    def train(self, plan: TrainingPlan, w: Weights) -> "MemoryTraining":
        return MemoryTraining(self, plan, w)


class MemoryTraining(AbstractTraining):
    """Rounds of cofed's engine."""

    def __init__(self, sites: MemorySites, plan: TrainingPlan, w: Weights):
        if sites.has_weights or sites.has_offsets:
            name = type(plan.algorithm).__name__
            raise ValueError(
                f"{name} takes rows without weights and offsets; algorithm='auto', 'newton' or 'fista' takes them"
            )
        if not isinstance(sites.rows.X, np.ndarray):
            name = type(plan.algorithm).__name__
            raise ValueError(
                f"{name} takes rows as an array, and X is sparse: algorithm='auto', 'newton' or 'fista' takes it, or "
                "give X.toarray()"
            )
        data = data_of(stacked(sites.rows.without(plan.without, plan.folds), plan.scaling), "samples")
        rounds = Plan(plan.local_steps, True, None, None, data.clients, data.clients)
        posed = pose(plan.problem, rounds)
        reason = refusal(plan.algorithm, posed)
        if reason:
            raise ValueError(reason)
        self.sites = sites
        self.task = ServerTask(traced(plan.algorithm, data.dtype), posed, data, rounds)
        self.state = self.task.begin(w, jax.random.key(0), 0)
        self.down, self.up, _ = self.task.message_bytes(w)

    def advance(self, rounds: int) -> tuple[Weights, bool]:
        stop = int(self.state.round) + rounds
        self.state = rounds_up_to(self.task, self.state, jnp.asarray(stop, jnp.int32))
        many = rounds * len(self.sites.names)
        name = type(self.task.algorithm).__name__
        self.sites.exchanges.append(Exchange(name, rounds, many * self.down, many * self.up, 0.0))
        return self.task.model(self.state), int(self.state.failed_at) >= 0


@eqx.filter_jit
def rounds_up_to(task: ServerTask, state: State, stop: Array) -> State:
    """Rounds until the round `stop`, or until one fails."""
    return jax.lax.while_loop(
        lambda state: (state.round < stop) & (state.failed_at < 0), lambda state: task.one_round(state)[0], state
    )


def numbered(columns: int) -> tuple[str, ...]:
    """Names of responses that have none.

    >>> from cofed.sites.memory import numbered
    >>> numbered(1), numbered(2)
    (('y',), ('y0', 'y1'))
    """
    return ("y",) if columns == 1 else tuple(f"y{j}" for j in range(columns))


def own_secret(secret: bytes, site: str, question: bytes) -> bytes:
    """What a site's noise on an answer is drawn from: the same question has the same."""
    return hmac.new(secret, site.encode() + b"\0" + question, hashlib.sha256).digest()


def arrays_of(message: Message) -> PyTree:
    """What of a message are arrays; other numbers, such as a loss's, are a matter of its head."""
    return eqx.filter(message, lambda leaf: isinstance(leaf, (np.ndarray, jax.Array)))


def stacked(rows: SiteRows, scaling: Scaling) -> Federation:
    """The sites as a federation in these units: one padded stack where they are of similar size."""
    jax.config.update("jax_enable_x64", True)
    assert isinstance(rows.X, np.ndarray)
    X, y = scaling.rows(rows.X), scaling.labels(rows.y)
    own = [np.flatnonzero(rows.site == m) for m in range(len(rows.names))]
    sizes, ids = np.array(rows.sizes), naming.ranks(rows.names)
    if tiers_of(sizes) is not None:
        whole = of_clients([X[r] for r in own], [y[r] for r in own], np.float64, y.dtype)
        return Federation(whole, sizes.astype(np.int32), ids, rows.names)
    most = padded_size(int(sizes.max()))
    held, labels = np.empty((len(sizes), most, X.shape[1])), np.empty((len(sizes), most, *y.shape[1:]), y.dtype)
    for m, (n, r) in enumerate(zip(sizes, own, strict=True)):
        held[m, :n], labels[m, :n] = X[r], y[r]
        held[m, n:], labels[m, n:] = X[r[0]], y[r[0]]
    return Federation(Rows(held, labels), sizes.astype(np.int32), ids, rows.names)
