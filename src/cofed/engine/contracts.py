"""A model, a loss, a regularizer and an algorithm, tried on shapes where they meet: nothing is computed or compiled.

What is a user's own may lack a member, give another shape or dtype, or not be a JAX function at all. All of that shows
in the shapes, and is told in a sentence before a run begins.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from cofed._util import trees
from cofed._util.caller import raised_at
from cofed._util.scalars import constant
from cofed.algorithms.base import AbstractAlgorithm, AbstractGossipAlgorithm, AbstractServerAlgorithm
from cofed.algorithms.probe import Probe
from cofed.federation import AbstractFederation
from cofed.losses import FunctionLoss
from cofed.metrics import AbstractDataMetric
from cofed.problem import Problem

TRIED = 16  # samples on which an own loss is differentiated


def in_a_line(error: Exception) -> str:
    """An error's kind and its first line, with the next one where that ends in a colon: JAX's go on for a page."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = " ".join(lines[:2]) if lines and lines[0].endswith(":") else "".join(lines[:1])
    return f"{type(error).__name__}: {told}"


def metric_arguments(problem: Problem, federation: AbstractFederation, metric: Callable, start: PyTree) -> tuple:
    """The shapes of what a metric is given: the model's or, of one that sees data, those of some samples."""
    if not isinstance(metric, AbstractDataMetric):
        return (start,)
    x, y = (jax.ShapeDtypeStruct((TRIED, *part.shape), part.dtype) for part in federation.example())
    predictions = jax.eval_shape(problem.predict, start, x)
    return predictions, y, jax.ShapeDtypeStruct((TRIED,), x.dtype)


def check_parameters(problem: Problem, federation: AbstractFederation, start: PyTree) -> None:
    """The parameters of a model are floating arrays of the data's dtype."""
    for name, leaf in zip(trees.names(start), jax.tree.leaves(start), strict=True):
        if leaf.dtype != federation.dtype:
            raise ValueError(
                f"model: {problem.model.title}.init must give parameters of the data's dtype, {federation.dtype}, but "
                f"{name!r} is of {leaf.dtype}; make them with x.dtype"
            )
    if not jax.tree.leaves(start):
        raise ValueError(f"model: {problem.model.title}.init gives no parameters, so there is nothing to train")


def predicted(problem: Problem, start: PyTree, x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """The shape of a model's prediction, with draws as without; refused where it cannot be computed."""
    model = problem.model
    try:
        prediction = eqx.filter_eval_shape(lambda model, w, x: model(w, x), model, start, x)
    except Exception as error:
        hint = "; it is measured without draws, an equinox module with key=None" if model.is_random else ""
        raise ValueError(
            model.obstacle
            or f"the model {model.title} cannot predict from one sample of shape {x.shape} by JAX "
            f"({in_a_line(error)}){hint}"
        ) from error
    if model.is_random:
        try:
            drawn = eqx.filter_eval_shape(
                lambda model, w, x, key: model.train(w, x, key), model, start, x, jax.random.key(0)
            )
        except Exception as error:
            raise ValueError(
                f"the model {model.title} cannot be trained on one sample of shape {x.shape} and a key by JAX "
                f"({in_a_line(error)})"
            ) from error
        same_shapes(f"the model {model.title} must predict in training", drawn, prediction)
    return prediction


def check_prediction(problem: Problem, federation: AbstractFederation, start: PyTree) -> None:
    """The loss of a sample must be one floating number, made of a prediction that fits the label."""
    x, y = (jax.ShapeDtypeStruct(part.shape, part.dtype) for part in federation.example())
    prediction = predicted(problem, start, x)
    try:
        loss = eqx.filter_eval_shape(lambda loss, p, y: jnp.asarray(loss(p, y)), problem.loss, prediction, y)
    except Exception as error:
        raise ValueError(
            f"the loss cannot be computed for one prediction ({described(prediction)}) and label of shape {y.shape} by "
            f"JAX ({in_a_line(error)}); an own loss is a function of (prediction, y) in jax.numpy"
        ) from error
    if loss.shape != ():
        raise ValueError(f"the loss of one sample must be one number, got an array of shape {loss.shape}")
    if not jnp.issubdtype(loss.dtype, jnp.floating):
        raise ValueError(f"the loss of one sample must be a floating number, got {loss.dtype}, which has no gradient")
    name = type(problem.loss).__name__
    if problem.loss.elementwise and prediction.shape != y.shape:
        raise ValueError(
            f"{name} compares a prediction of shape {prediction.shape} with a label of shape {y.shape}; they must agree"
        )
    classes = problem.loss.outputs(federation.labels())
    if classes is not None:
        check_outputs(problem, classes, prediction.shape)


def check_outputs(problem: Problem, classes: int, shape: tuple[int, ...]) -> None:
    """The model must have an output for every class: JAX takes the last one for a label beyond them."""
    if len(shape) != 1 or shape[0] < classes:
        raise ValueError(
            f"the labels go up to {classes - 1}, so that {type(problem.loss).__name__} needs {classes} outputs, but "
            f"the model {problem.model.title} predicts an array of shape {shape}"
        )


def check_gradient(problem: Problem, federation: AbstractFederation, start: PyTree) -> None:
    """An own loss whose gradient is zero wherever it is tried trains nothing: it counts, or compares."""
    if type(problem.loss).__module__.startswith("cofed.") and not isinstance(problem.loss, FunctionLoss):
        return
    x, y = federation.example()
    shape = eqx.filter_eval_shape(lambda model, w, x: model(w, x), problem.model, start, jnp.asarray(x))
    draws = np.random.default_rng(0).normal(size=(TRIED, *shape.shape)) * 10.0 ** np.arange(-2, 2).repeat(4).reshape(
        TRIED, *(1,) * len(shape.shape)
    )
    slope = jax.jit(jax.vmap(jax.grad(lambda p: jnp.asarray(problem.loss(p, jnp.asarray(y))))))
    if not np.any(np.asarray(slope(jnp.asarray(draws, shape.dtype)))):
        raise ValueError(
            "the gradient of the loss is zero at every prediction that was tried, so that nothing can be learned; a "
            "loss must change with the prediction, and not only count or compare"
        )


def check_regularizer(problem: Problem, start: PyTree, with_subgradient: bool) -> None:
    """The regularizer must have one value at the model, and a prox that is a model again."""
    psi, name = problem.regularizer, problem.regularizer.title
    step = constant(1, trees.dtype(start))
    maps: dict[str, Callable[[PyTree], PyTree]] = {"prox(v, step)": lambda w: psi.prox(w, step)}
    if with_subgradient:
        maps["subgradient(w)"] = psi.subgradient
    value = tried(f"{name}.value(w)", lambda w: jnp.asarray(psi.value(w)), start)
    if value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(
            f"regularizer: {name}.value(w) must give one floating number, got an array of shape {value.shape} and "
            f"{value.dtype}"
        )
    for method, function in maps.items():
        same_shapes(
            f"regularizer: {name}.{method} must give a model", tried(f"{name}.{method}", function, start), start
        )


def tried(what: str, function: Callable, start: PyTree) -> PyTree:
    """The shapes that a function of the model gives, or a sentence."""
    try:
        return jax.eval_shape(function, start)
    except Exception as error:
        raise ValueError(f"{what} cannot be computed for this model by JAX ({in_a_line(error)})") from error


def same_shapes(what: str, found: PyTree, expected: PyTree) -> None:
    """Refuse another structure, shape or dtype."""
    got, wanted = described(found), described(expected)
    if jax.tree.structure(found) != jax.tree.structure(expected) or got != wanted:
        raise ValueError(f"{what} like {wanted}, got {got}")


def described(tree: PyTree) -> str:
    """The leaves of a tree, with their shapes and dtypes.

    >>> import numpy as np
    >>> from cofed.engine.contracts import described
    >>> described({"coef": np.zeros(3)}), described(np.zeros(3)), described(())
    ('coef float64[3]', 'one array float64[3]', 'nothing')
    """
    leaves = zip(trees.names(tree), jax.tree.leaves(tree), strict=True)
    return "; ".join(f"{name or 'one array'} {leaf.dtype}{list(leaf.shape)}" for name, leaf in leaves) or "nothing"


def odd_fields(algorithm: AbstractAlgorithm, dtype: np.dtype) -> str:
    """The fields that may be the reason why a round cannot be computed.

    Those that were given None where that is not the default, or else the static ones that hold a number of NumPy's in
    another dtype, which JAX does not adapt to the model's.
    """
    empty = [
        field.name
        for field in dataclasses.fields(algorithm)
        if getattr(algorithm, field.name) is None and field.default is not None
    ]
    if empty:
        return f" (but None was given for {', '.join(empty)})"
    found = [
        f"{field.name} is {value.dtype} of NumPy's"
        for field in dataclasses.fields(algorithm)
        if field.metadata.get("static", False)
        and isinstance(value := getattr(algorithm, field.name), (np.floating, np.ndarray))
        and value.dtype != dtype
    ]
    return f" (but {', '.join(found)} and static: leave out static=True, or give float(...))" if found else ""


def round_of(problem: Problem, start: PyTree, by_gossip: bool) -> Callable[[AbstractAlgorithm, PyTree], PyTree]:
    """One round of a method on one client without data, as a function of the method and its start.

    It gives a state before and after the round, what a client (or node) kept before and after it, and the model.
    """
    zero = jnp.zeros((), trees.dtype(start))
    steps = Probe(zero, zero + 1, 0.0, 1)

    def with_server(algorithm: AbstractServerAlgorithm, w0: PyTree) -> tuple[PyTree, ...]:
        server, client = algorithm.init(problem, w0), algorithm.init_client(problem, w0)
        up, kept = algorithm.local(problem, algorithm.broadcast(server), client, steps)
        mean = algorithm.expand(up)
        after = algorithm.aggregate(problem, server, mean, zero + 1)
        return server, after, client, kept, algorithm.model(problem, server)

    def with_neighbours(algorithm: AbstractGossipAlgorithm, w0: PyTree) -> tuple[PyTree, ...]:
        node = algorithm.init_node(problem, w0)
        kept, up = algorithm.local_node(problem, node, steps)
        after = algorithm.mix(problem, kept, up)
        return node, after, node, kept, algorithm.model_node(problem, node)

    return with_neighbours if by_gossip else with_server  # pyright: ignore[reportReturnType]  # each takes its form


def check_round(algorithm: AbstractAlgorithm, problem: Problem, start: PyTree, by_gossip: bool) -> None:
    """One round of an own algorithm, on shapes: what is kept from round to round must keep its form."""
    if type(algorithm).__module__.startswith("cofed."):
        return
    name, dtype = algorithm.name, trees.dtype(start)
    # Hyperparameters are traced in a run, and so here.
    numbers = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype) if isinstance(leaf, float) else leaf, algorithm)
    try:
        found = eqx.filter_eval_shape(round_of(problem, start, by_gossip), numbers, start)
    except Exception as error:
        raise ValueError(
            f"a round of {name} cannot be computed for this model by JAX ({in_a_line(error)}"
            f"{raised_at(error, algorithm)}); its methods are functions in jax.numpy, and its numbers are traced"
            f"{odd_fields(algorithm, dtype)}"
        ) from error
    before, after, client, kept, model = found
    step = "mix" if by_gossip else "aggregate"
    same_shapes(f"{name}.{step} must give a state", after, before)
    same_shapes(f"{name}.local must keep a client's state", kept, client)
    same_shapes(f"{name}.model must give a model", model, start)
