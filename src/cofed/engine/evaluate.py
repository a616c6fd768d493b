"""The columns of the history: computed inside the compiled program, on all clients' data."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Scalar

from cofed import metrics
from cofed._util import trees
from cofed.engine.collectives import block_of, only
from cofed.engine.data import Data, means, shares
from cofed.metrics import AbstractDataMetric
from cofed.problem import Problem

ROWS = 1024  # the most samples of a pass
ROOM = 2**25  # bytes of all intermediate arrays of a pass: those of a network then stay near the caches


class Measures(NamedTuple):
    """What samples add to the loss, to its gradient and, where the loss has one, to the accuracy."""

    loss: Scalar
    gradient: PyTree
    accuracy: Scalar | None


def rows_at_once(problem: Problem, w: PyTree, x: Array) -> int:
    """Samples per pass, from one of them."""
    steps = jax.make_jaxpr(problem.model)(w, x).eqns
    made = sum(value.aval.size for step in steps for value in step.outvars) * x.dtype.itemsize
    return min(ROWS, max(ROWS // 32, ROOM // max(1, made)))


def by_blocks(f: Callable[..., PyTree], data: Data, rows: int = ROWS) -> PyTree:
    """The sum of f(X, y, share) over blocks of samples, with shares in sum_m pi_m F_m; the data is not copied."""
    return data.total(by_blocks_here(f, data, rows))


def by_blocks_here(f: Callable[..., PyTree], data: Data, rows: int) -> PyTree:
    """The same over the clients of this device."""
    return over(f, *data.flat(), data.shares(), rows)


def over(f: Callable[..., PyTree], X: Array, y: Array, share: Array, rows: int = ROWS) -> PyTree:
    """The sum of f(X, y, share) over blocks of these samples."""
    total, rows = X.shape[0], min(rows, X.shape[0])
    blocks = -(-total // rows)
    if blocks == 1:
        return f(X, y, share)

    @functools.partial(jax.jit, inline=True)  # traced once for its shapes and for the sum
    def block(i):
        # The last block begins early enough to be full; what an earlier block counted already counts 0 in it.
        start = jnp.minimum(i * rows, total - rows)
        part = [jax.lax.dynamic_slice_in_dim(a, start, rows) for a in (X, y, share)]
        new = start + jnp.arange(rows, dtype=jnp.int32) >= i * rows
        return f(part[0], part[1], jnp.where(new, part[2], 0))

    def body(total, i):
        return trees.add(total, block(i)), None

    # From zero, and not from the first block, so that the program holds the gradient of a network once.
    parts = jax.eval_shape(block, jnp.zeros((), jnp.int32))
    nothing = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), parts)
    return jax.lax.scan(body, nothing, jnp.arange(blocks, dtype=jnp.int32))[0]


def over_all(f: Callable[..., PyTree], problem: Problem, data: Data, w: PyTree) -> PyTree:
    """The sum of f(problem, w, X, y, share) over all samples, in passes that suit the model."""
    rows = rows_at_once(problem, w, data.flat()[0][0])
    return by_blocks(lambda X, y, s: f(problem, w, X, y, s), data, rows)


def smooth(problem: Problem, data: Data, w: PyTree) -> tuple[Scalar, PyTree]:
    """sum_m pi_m F_m(w), and its gradient."""
    return over_all(lambda problem, *given: jax.value_and_grad(problem.mean_loss)(*given), problem, data, w)


def each_client(f: Callable[..., PyTree], data: Data, w: PyTree) -> Float[Array, " clients"]:
    """f(w, X_m, y_m, share_m) of each client with the same model."""
    if data.tiers is not None:
        return over_clients(lambda _, *own: f(w, *own), data, ())
    return data.everybody(jax.lax.map(lambda one: f(w, *one), (data.X, data.y, shares(data))))


def per_client(f: Callable[..., PyTree], data: Data, models: PyTree) -> Float[Array, "clients ..."]:
    """f(w_m, X_m, y_m, share_m) of each client with its own model, a block of clients at a time."""
    if data.tiers is not None:
        return over_clients(f, data, models)
    size = max(1, ROWS // data.widest)
    here = jax.lax.map(lambda one: f(*one), (models, data.X, data.y, shares(data)), batch_size=size)
    return data.everybody(here)


def over_clients(f: Callable[..., PyTree], data: Data, stacked: PyTree) -> Float[Array, " clients"]:
    """f(own, X_m, y_m, share_m) of each client, where clients lie in rows: those of a tier in blocks; `own` is the
    client's part of what is stacked."""
    assert data.tiers is not None
    here, found = jnp.arange(data.clients, dtype=jnp.int32), None
    tier = data.tier(here)
    for place, (width, clients) in enumerate(data.tiers):

        def one(client, own, width=width):
            real = jnp.arange(width, dtype=jnp.int32) < data.sizes[client]
            return f(own, *data.whole(client, width), means(real, data.dtype))

        block = block_of(clients, max(1, ROWS // width))
        found = only(tier == place, block)(one, here, stacked, found=found)
    return data.everybody(found)


def right(problem: Problem, w: PyTree, X: Array, y: Array, share: Array) -> Scalar | None:
    """The part of the samples that the model gets right, each counted by its share; None where there is no right."""
    if not problem.loss.has_accuracy:
        return None
    return jax.vmap(problem.loss.correct)(problem.predict(w, X), y) @ share


def of_data(own: dict[str, Callable]) -> dict[str, AbstractDataMetric]:
    """The metrics that see data."""
    return {name: metric for name, metric in own.items() if isinstance(metric, AbstractDataMetric)}


def of_models(own: dict[str, Callable]) -> dict[str, Callable]:
    """The metrics that see the model alone."""
    return {name: metric for name, metric in own.items() if not isinstance(metric, AbstractDataMetric)}


def on_data(problem: Problem, own: dict[str, Callable]) -> dict[str, Callable[..., Scalar]]:
    """The metrics that see data, as functions (w, X, y, share) of a client's samples."""

    def measured(metric: AbstractDataMetric) -> Callable[..., Scalar]:
        return lambda w, X, y, share: jnp.asarray(metric(problem.predict(w, X), y, share)).astype(share.dtype)

    return {name: measured(metric) for name, metric in of_data(own).items()}


def scores(problem: Problem) -> dict[str, Callable[..., Any]]:
    """Loss, and accuracy where the loss has one, as functions (w, X, y, share) of a client's samples."""
    found: dict[str, Callable[..., Any]] = {"loss": problem.mean_loss}
    if problem.loss.has_accuracy:
        found["accuracy"] = functools.partial(right, problem)
    return found


def client_scores(problem: Problem, data: Data, models: PyTree) -> dict[str, Float[Array, " clients"]]:
    """Loss, and accuracy where the loss has one, of each client's own model on its own data."""
    return {name: per_client(f, data, models) for name, f in scores(problem).items()}


def owned(models: PyTree, held_out: Data) -> PyTree:
    """The models of the clients that the held-out parts are of."""
    return jax.tree.map(lambda leaf: leaf[held_out.owners], models)


def personal(
    problem: Problem,
    data: Data,
    held_out: Data | None,
    own: dict[str, Callable],
    by_client: bool,
    models: PyTree,
) -> dict[str, Array]:
    """What clients' own models add to a row: weighted means over the clients, and the range of own metrics."""
    asked = scores(problem) | on_data(problem, own)
    table = {name: per_client(f, data, models) for name, f in asked.items()}
    weights = data.everybody(data.weights)
    values: dict[str, Array] = {f"personal_{name}": each @ weights for name, each in table.items()}
    penalties = data.everybody(jax.vmap(problem.regularizer.value)(models))
    values["personal_objective"] = (table["loss"] + penalties) @ weights
    if held_out is not None and held_out.owners is not None:
        theirs = owned(data.everybody(models), held_out)
        tests = {f"test_{name}": per_client(f, held_out, theirs) for name, f in asked.items()}
        values |= {f"personal_{name}": each @ held_out.weights for name, each in tests.items()}
        table |= tests
    for name, metric in of_models(own).items():
        each = data.everybody(jax.vmap(metric)(models).astype(data.dtype))
        values |= spread_of(name, each)
    return values | (named_table(table) if by_client else {})


def named_table(table: dict[str, Array]) -> dict[str, Array]:
    """What a row records of every client: arrays, by names of their own."""
    return {f"client_{name}": each for name, each in table.items()}


def spread_of(name: str, each: Float[Array, " clients"]) -> dict[str, Scalar]:
    """The columns that show a number which every client or node has."""
    return {f"{name}_min": each.min(), f"{name}_mean": each.mean(), f"{name}_max": each.max()}


def fits(problem: Problem, data: Data, w: PyTree) -> tuple[Scalar, Scalar | None]:
    """sum_m pi_m F_m(w), and where the loss has one the accuracy."""
    fit = lambda problem, *given: (problem.mean_loss(*given), right(problem, *given))  # noqa: E731
    return over_all(fit, problem, data, w)


def row(
    problem: Problem, data: Data, held_out: Data | None, own: dict[str, Callable], per_client: bool, w: PyTree
) -> dict[str, Array]:
    """One row of the history, but for what the engine itself counts."""
    values = shown(problem, over_all(measures, problem, data, w), held_out, own, w)
    asked = on_data(problem, own)
    table = {name: each_client(f, data, w) for name, f in (asked | (scores(problem) if per_client else {})).items()}
    values |= {name: table[name] @ data.everybody(data.weights) for name in asked}
    if not per_client:
        return values
    if held_out is not None:
        asked = scores(problem) | asked
        table |= {f"test_{name}": each_client(f, held_out, w) for name, f in asked.items()}
    return values | named_table(table)


def measures(problem: Problem, w: PyTree, X: Array, y: Array, share: Array) -> Measures:
    """What samples add to the loss, to its gradient and, where the loss has one, to the accuracy."""
    loss, gradient = jax.value_and_grad(problem.mean_loss)(w, X, y, share)
    return Measures(loss, gradient, right(problem, w, X, y, share))


def shown(
    problem: Problem, found: Measures, held_out: Data | None, own: dict[str, Callable], w: PyTree
) -> dict[str, Array]:
    """A row, of what was measured on the data."""
    loss, gradient, accuracy = found
    psi = problem.regularizer
    # How far from stationary: ||w - prox_1(w - grad F(w))||, zero exactly at stationary points.
    residual = trees.sub(w, psi.prox(trees.sub(w, gradient), 1.0))
    values = {"objective": loss + psi.value(w), "loss": loss, "prox_gradient": trees.norm(residual)}
    structure = psi.structure
    if structure == "density":
        values["density"] = metrics.density()(psi.part(w))
    if structure == "rank":
        values["rank"] = sum_of_ranks(psi.part(w))
    if accuracy is not None:
        values["accuracy"] = accuracy
    if held_out is not None:
        values["test_loss"], test_accuracy = fits(problem, held_out, w)
        if test_accuracy is not None:
            values["test_accuracy"] = test_accuracy
        for name, f in on_data(problem, own).items():
            values[f"test_{name}"] = each_client(f, held_out, w) @ held_out.weights
    for name, metric in of_models(own).items():
        values[name] = jnp.asarray(metric(w)).astype(loss.dtype)
    return values


def sum_of_ranks(w: PyTree) -> Scalar:
    """The rank, to round-off, of the model's matrices."""
    matrices = [leaf for leaf in jax.tree.leaves(w) if leaf.ndim == 2]
    ranks = []
    for matrix in matrices:
        values = jnp.linalg.svd(matrix, compute_uv=False)
        level = values.max() * max(matrix.shape) * jnp.finfo(matrix.dtype).eps
        ranks.append(jnp.sum((values > level).astype(matrix.dtype)))
    return jnp.stack(ranks).sum()
