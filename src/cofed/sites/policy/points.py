"""What a look at a model multiplies each row with, and in how many directions such multipliers differ.

The gradient of a model is the sum of the rows, each times the slope of its loss; a Hessian is the sum of the rows'
products, each times the bend of its loss. Whoever has several such sums can combine them, and so weigh the rows with
any combination of the slopes and bends: where a combination is large for one row alone, that row is read out.
"""

import functools
import hashlib
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array

from cofed.losses import AbstractLoss, Squared
from cofed.sites.matrix import DenseMatrix
from cofed.sites.queries import (
    ConcordanceMessage,
    DispersionMessage,
    GroupsMessage,
    HeldOutMessage,
    InterceptsMessage,
    LifeTableMessage,
    LookMessage,
    MeatMessage,
    Message,
    PermutedMessage,
    ProductMessage,
    ScoreMessage,
    look,
)
from cofed.sites.queries.at_risk import followed, partial_of
from cofed.sites.queries.base import Numbers, is_classes, n_outputs
from cofed.sites.queries.look import by_prediction
from cofed.sites.queries.meat import slopes
from cofed.sites.queries.own_class_intercepts import class_bends, class_loss_of, class_terms_of
from cofed.sites.queries.own_intercepts import loss_of, terms_of, within_bends
from cofed.sites.table import Table

# A direction counts from this size on, where each point has the size 1. To use it, an attacker must scale what the
# points have in common, and all that he does not know of the rows, by a hundred.
LEAST_SIZE = 0.01
FLOOR = LEAST_SIZE / 10  # smaller parts are forgotten
MOST_REFERENCES = 1024  # rows that stand for those of other sites
BLOCK = 1 << 21  # multipliers that are made at a time


def is_squared(loss: AbstractLoss | None) -> bool:
    """Whether slopes are linear in the rows, so that any number of points tells what the Gram matrix tells."""
    return loss is not None and isinstance(loss.of_rows, Squared)


def count_points(message: Message) -> int:
    """How many multipliers of rows a question has: one for each model and output, and more for Hessians."""
    match message:
        case HeldOutMessage():
            return int(np.size(message.intercept))
        case LookMessage():
            models, _, k = np.shape(message.coef)
            return models * k + len(message.closer) * k * (k + 1) // 2
        case ProductMessage():
            return int(np.size(message.direction_intercept))
        case DispersionMessage():
            return len(message.log_theta)
        case MeatMessage() | ScoreMessage():
            return int(np.size(message.intercept))
        case PermutedMessage():
            return len(message.seeds) * int(np.size(message.intercept))
        case InterceptsMessage() | ConcordanceMessage():
            return len(message.coef) * int(np.prod(np.shape(message.coef)[2:]))  # an intercept for each class
        case LifeTableMessage():  # its times count as columns
            return 0
        case GroupsMessage():
            return len(message.groups)
    return 0


def coefficients(message: Message) -> np.ndarray | None:
    """The models of a question that tells gradients or curvature, a column each; None where it tells none."""
    if isinstance(message, LookMessage):
        return models_of(message)
    return np.asarray(message.coef) if isinstance(message, (ProductMessage, MeatMessage)) else None


def models_of(message: Message) -> np.ndarray | None:
    """The models of a question that tells of single models' predictions, a column each; None where it tells none."""
    if isinstance(message, (LookMessage, HeldOutMessage)):
        return np.moveaxis(np.asarray(message.coef), 1, 0).reshape(np.shape(message.coef)[1], -1)
    if isinstance(message, (DispersionMessage, PermutedMessage)):
        return np.asarray(message.coef)
    return coefficients(message)


def multipliers(
    message: Message,
    X: np.ndarray,
    y: np.ndarray,
    fold: np.ndarray,
    offset: np.ndarray | None = None,
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """What each row is multiplied with, a column for each point.

    Parameters
    ----------
    message : LookMessage, ProductMessage or MeatMessage
        What the question says.
    X, y, fold : arrays
        Rows in the question's units, and their folds.
    offset : array, optional
        What is added to the rows' predictions.
    weight : array, optional
        How much the rows count.
    """
    added = np.zeros(len(X)) if offset is None else offset
    jax.config.update("jax_enable_x64", True)
    if message.half_deviance.of_times:  # whose hazards depend on the weights
        assert isinstance(message, (LookMessage, ProductMessage, MeatMessage))
        return of_times(message, one_site(X, y, fold, added, weight))
    found = of_rows(message, X, y, fold, added)
    return found if weight is None else found * weight[:, None]


def of_rows(message: Message, X: np.ndarray, y: np.ndarray, fold: np.ndarray, added: np.ndarray) -> np.ndarray:
    """What rows that count once are multiplied with, of a loss of rows or one with intercepts of the sites' own."""
    loss = message.half_deviance
    if not loss.rowwise:
        assert isinstance(message, (LookMessage, ProductMessage))
        return within_site(message, X, y, fold, added)
    if isinstance(message, LookMessage):
        models, closer = np.shape(message.coef)[0], len(message.closer)
        few = look.padded(message)
        near = np.asarray(few.closer)
        # A feature more, which every model multiplies with 1.
        coef = np.concatenate([few.coef, np.ones_like(few.coef[:, :1])], axis=1)
        slope, bend = of_models(loss, coef, few.intercept, near, np.column_stack([X, added]), y)
        learns = fold[:, None] != np.asarray(message.without)[None, :]
        own = np.asarray(slope)[:, :models] * learns[:, :, None]
        bent = np.asarray(bend)[:, :closer] * learns[:, np.asarray(message.closer)][:, :, None]
        return np.hstack([own.reshape(len(X), -1), bent.reshape(len(X), -1)])
    assert isinstance(message, (ProductMessage, MeatMessage))
    z = X @ message.coef + message.intercept[None, :] + added[:, None]
    slope, bend = slopes(loss, jnp.asarray(z), jnp.asarray(y))
    if isinstance(message, MeatMessage):
        return np.asarray(slope) ** 2
    moved = np.einsum("np,vpk->nvk", X, message.direction) + np.asarray(message.direction_intercept)[None]
    return np.einsum("nkl,nvl->nvk", np.asarray(bend), moved).reshape(len(X), -1)


def of_times(message: LookMessage | ProductMessage | MeatMessage, table: Table) -> np.ndarray:
    """What rows with times to an event are multiplied with, which depends on all of them.

    The gradient is a sum of the rows, each times its expected less its observed events. A Hessian is the sum of the
    rows' products, each times the row's expected events, less products of means over those at risk; products of scores
    are those of the rows, each times the square of that difference, and of such means.
    """
    if isinstance(message, ProductMessage):
        return np.asarray(bent_in_order(table, message))
    if isinstance(message, MeatMessage):
        return np.asarray(slope_in_order(table, message)) ** 2
    models, closer = np.shape(message.coef)[0], len(message.closer)
    slope, expected = slopes_in_order(table, look.padded(message))
    return np.hstack([np.asarray(slope)[:, :models], np.asarray(expected)[:, :closer]])


def within_site(
    message: LookMessage | ProductMessage, X: np.ndarray, y: np.ndarray, fold: np.ndarray, offset: np.ndarray
) -> np.ndarray:
    """What the rows of a site with an intercept of its own are multiplied with, which depends on all of them.

    A Hessian is the sum of the products of the rows less their mean, each times its bend.
    """
    table = one_site(X, y, fold, offset)
    if isinstance(message, ProductMessage):
        return np.asarray(bent_within(table, message)).reshape(len(X), -1)
    models, closer = np.shape(message.coef)[0], len(message.closer)
    slope, bend = slopes_within(table, look.padded(message))
    own, bent = np.asarray(slope)[:, :models], np.asarray(bend)[:, :closer]
    return np.hstack([own.reshape(len(X), -1), bent.reshape(len(X), -1)])


def one_site(
    X: np.ndarray, y: np.ndarray, fold: np.ndarray, offset: np.ndarray, weight: np.ndarray | None = None
) -> Table:
    """The rows of one site, each of which counts once, or by its weight."""
    whole, counts = np.zeros(len(X), np.int32), np.ones(len(X)) if weight is None else weight
    others = (y, counts, np.asarray(fold, np.int32), whole, offset, whole)
    return Table(DenseMatrix(jnp.asarray(X)), *map(jnp.asarray, others))


@eqx.filter_jit
def slopes_within(table: Table, message: LookMessage) -> tuple[Array, Array]:
    """The slopes of all models, and the bends of some; of k classes k slopes, and k (k + 1) / 2 bends."""
    coef, without, closer = (jnp.asarray(one) for one in (message.coef, message.without, message.closer))
    k = coef.shape[2]
    if k == 1:
        found = terms_of(table, loss_of(message), coef[..., 0], without)
        return found.slope, found.bend[:, closer]
    found = class_terms_of(table, class_loss_of(message), coef, without)
    share = found.share[:, closer]  # each row counts once
    bend = share[..., :, None] * (jnp.eye(k)[None, None] - share[..., None, :])
    return found.slope, bend[:, :, *np.triu_indices(k)]


@eqx.filter_jit
def bent_within(table: Table, message: ProductMessage) -> Array:
    """How the slopes change along directions, n x V or n x V x k."""
    bends = within_bends if np.shape(message.coef)[1] == 1 else class_bends
    return jnp.moveaxis(bends(table, message), 0, 1)


@eqx.filter_jit
def slopes_in_order(table: Table, message: LookMessage) -> tuple[Array, Array]:
    """The slopes of all models, and the expected events of some, in the order of the table."""
    rows = followed(table, partial_of(message))
    found = rows.terms(rows.predictions(jnp.asarray(message.coef)[..., 0].T), jnp.asarray(message.without))
    back = jnp.argsort(rows.order)
    return found.slope[back], found.expected[back][:, jnp.asarray(message.closer)]


@eqx.filter_jit
def slope_in_order(table: Table, message: MeatMessage) -> Array:
    """The slopes of a model, in the order of the table."""
    rows = followed(table, partial_of(message))
    return rows.terms(rows.predictions(jnp.asarray(message.coef)), None).slope[jnp.argsort(rows.order)]


@eqx.filter_jit
def bent_in_order(table: Table, message: ProductMessage) -> Array:
    """How the slopes change along directions, in the order of the table."""
    rows = followed(table, partial_of(message))
    z = rows.predictions(jnp.asarray(message.coef))

    def one(direction: Array) -> Array:
        return jax.jvp(lambda z: rows.terms(z, None).slope, (z,), (rows.moves(direction),))[1][:, 0]

    return jax.lax.map(one, jnp.asarray(message.direction)).T[jnp.argsort(rows.order)]


@eqx.filter_jit
def of_models(
    loss: AbstractLoss, coef: Numbers, intercept: Numbers, closer: Numbers, X: Numbers, y: Numbers
) -> tuple[Array, Array]:
    """The slopes of all models, n x M x k, and the bends of some, n x A x k (k + 1) / 2."""
    z = jnp.einsum("np,mpk->nmk", jnp.asarray(X), jnp.asarray(coef)) + jnp.asarray(intercept)[None]
    slope = by_prediction(loss, z, jnp.asarray(y))[1]
    k = z.shape[2]
    bend = jax.vmap(lambda one: slopes(loss, one, jnp.asarray(y))[1], in_axes=1, out_axes=1)(z[:, closer])
    return slope, bend[:, :, *np.triu_indices(k)]


def in_blocks(count: int, points: int) -> Iterator[slice]:
    """Some of so many rows at a time, such that there is room for their multipliers at so many points."""
    size = max(64, BLOCK // max(points, 1))
    for first in range(0, count, size):
        yield slice(first, first + size)


@functools.lru_cache(maxsize=4)
def reference_rows(features: tuple[str, ...], rows: int) -> np.ndarray:
    """Rows that stand for those that nobody here may see: normal numbers, the same for a feature in every question."""
    return np.column_stack([normal(f"feature {name}", rows) for name in features])


def reference_labels(loss: AbstractLoss, rows: int) -> np.ndarray:
    """Labels of such rows: classes, 0 and 1, numbers (normal ones, or their exponentials), or times and events."""
    u = generator("labels").random(rows)
    if loss.of_times:
        return np.column_stack([np.exp(normal("number", rows)), u < 0.5])
    k, loss = n_outputs(loss), loss.of_rows
    if is_classes(loss):
        return (u * k).astype(np.int32)
    if k > 1:
        return np.column_stack([normal(f"number {j}", rows) for j in range(k)])
    if loss.excludes_least_label:
        return np.exp(normal("number", rows))
    if loss.has_accuracy or loss.least_label is not None:
        return (u < 0.5).astype(float)
    return normal("number", rows)


def normal(what: str, rows: int) -> np.ndarray:
    """Normal numbers, always the same ones for the same purpose; those of fewer rows are the first of those of more."""
    return generator(what).standard_normal(rows)


def generator(what: str) -> np.random.Generator:
    """Random numbers for a purpose."""
    return np.random.default_rng(np.frombuffer(hashlib.sha256(f"cofed reference {what}".encode()).digest(), np.uint32))


def reference_multipliers(message: Message, features: tuple[str, ...], rows: int) -> np.ndarray:
    """What a question multiplies the reference rows with."""
    assert message.loss is not None
    X, y = reference_rows(features, rows), reference_labels(message.loss, rows)
    return multipliers(message, X, y, np.arange(rows) % message.n_folds)


def joined(factor: np.ndarray | None, new: np.ndarray) -> np.ndarray:
    """The directions of earlier points and of new ones together.

    Parameters
    ----------
    factor : array of shape (rows, r) or None
        Orthogonal columns, each as long as the points together reach into its direction.
    new : array of shape (rows, points)
        The multipliers of new points, which count as having the size 1.

    Returns
    -------
    array of shape (rows, any)
        The same for all points, without what is too small to matter.
    """
    size = np.linalg.norm(new, axis=0)
    known = size > 0
    if not np.isfinite(size).all():
        raise ValueError("the multipliers of rows are not finite")
    both = new[:, known] / size[known]
    if factor is not None:
        both = np.hstack([factor, both])
    is_wide = both.shape[1] > len(both)
    products = both @ both.T if is_wide else both.T @ both  # the smaller one
    values, vectors = scipy.linalg.eigh(products, subset_by_value=(FLOOR**2, np.inf))
    return vectors * np.sqrt(values) if is_wide else both @ vectors


def directions(factor: np.ndarray) -> int:
    """How many directions the points differ in."""
    return int((np.linalg.norm(factor, axis=0) > LEAST_SIZE).sum())


def leverages(factor: np.ndarray) -> np.ndarray:
    """How much of each row combinations of the points isolate: 1 is all of it."""
    size = np.linalg.norm(factor, axis=0)
    return ((factor / np.maximum(size, LEAST_SIZE)) ** 2)[:, size > LEAST_SIZE].sum(axis=1)
