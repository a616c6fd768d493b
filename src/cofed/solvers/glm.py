"""Generalised linear models of all clients, in one set of coordinates and in 64 bits, for Newton's method."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from cofed._util.checks import shown
from cofed.federation import Federation
from cofed.losses import AbstractLoss
from cofed.models import Linear, Weights
from cofed.problem import Problem

ENTRIES = 2**16  # of the array of all samples' scores that is worked on at a time: it fits into a cache
T = TypeVar("T")


class Glm(eqx.Module):
    """One client's data (or, with a leading axis, several clients'), and the sum of its losses as a function of theta.

    theta holds the coefficients, feature by feature with the intercept last, along those directions of the outputs that
    data can tell apart. `basis` turns them into the model's outputs; it is orthonormal, so distances between models are
    distances between thetas.
    """

    X: Float[Array, "*clients n p"]  # a column of ones last, where the model has an intercept
    y: Num[Array, "*clients n"]
    w: Float[Array, "*clients n"]  # 1, or 0 for padding
    basis: Float[Array, "k r"]
    loss: AbstractLoss

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.X.shape[-1] * self.basis.shape[1]

    def linear(self, theta: Float[Array, " q"]) -> Float[Array, "n r"]:
        """The linear predictor of each sample."""
        return self.X @ theta.reshape(self.X.shape[1], -1)

    def of_sample(self, u: Float[Array, " r"], label: Num[Array, ""]) -> Float[Array, ""]:
        """The loss of one sample, by its linear predictor."""
        z = self.basis @ u
        return self.loss(z[0] if self.basis.shape == (1, 1) else z, label)

    def losses(self, theta: Float[Array, " q"]) -> Float[Array, " n"]:
        """The loss of each sample."""
        return jax.vmap(self.of_sample)(self.linear(theta), self.y)

    def total(self, theta: Float[Array, " q"]) -> Float[Array, ""]:
        """The sum of the losses."""
        return self.losses(theta) @ self.w

    def scores(self, theta: Float[Array, " q"]) -> Float[Array, "n q"]:
        """The gradient of each sample's loss."""
        slopes = jax.vmap(jax.grad(self.of_sample))(self.linear(theta), self.y)
        return (self.X[:, :, None] * slopes[:, None, :]).reshape(-1, self.size) * self.w[:, None]

    def curvatures(self, theta: Float[Array, " q"]) -> Float[Array, "n r r"]:
        """The second derivatives of each sample's loss by its linear predictor."""
        return jax.vmap(jax.hessian(self.of_sample))(self.linear(theta), self.y) * self.w[:, None, None]

    def information(self, theta: Float[Array, " q"]) -> Float[Array, "q q"]:
        """The Hessian of the sum of the losses."""
        hessian = jnp.einsum("np,nq,nab->paqb", self.X, self.X, self.curvatures(theta), optimize=True)
        return hessian.reshape(self.size, self.size)


def has_intercept(problem: Problem) -> bool:
    """Whether the linear model has an intercept."""
    assert isinstance(problem.model, Linear)  # see `check`
    return problem.model.intercept


def at_once(data: Glm) -> int:
    """How many clients to work on at a time: many small ones, a large one alone."""
    return max(1, ENTRIES // (data.X.shape[-2] * data.size))


class ClientStacks(eqx.Module):
    """All clients: those of similar size form one stack, and `places` are their positions among all clients."""

    stacks: list[Glm]
    places: list[Int[Array, " some"]]

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.stacks[0].size

    def each(self, f: Callable[..., T], *stacked: Array) -> T:
        """f(a client's data, its part of what is stacked) of every client, stacked in the clients' order.

        Only some clients are worked on at a time, so that their arrays stay small."""
        if len(self.stacks) == 1:  # all clients, in their order
            return over_stack(f, self.stacks[0], *stacked)
        found = [
            over_stack(f, stack, *(array[places] for array in stacked))
            for stack, places in zip(self.stacks, self.places, strict=True)
        ]
        back = jnp.argsort(jnp.concatenate(self.places))
        return jax.tree.map(lambda *parts: jnp.concatenate(parts)[back], *found)


def over_stack(f: Callable[..., T], data: Glm, *stacked: Array) -> T:
    """f(a client's data, ...) of every client of a stack, some at a time."""

    def one(part):
        (X, y, w), rest = part
        return f(Glm(X, y, w, data.basis, data.loss), *rest)

    return jax.lax.map(one, ((data.X, data.y, data.w), stacked), batch_size=at_once(data))


def of_clients(
    problem: Problem,
    federation: Federation,
    basis: np.ndarray,
    counted: Sequence[np.ndarray] | np.ndarray | None = None,
) -> ClientStacks:
    """All clients; `counted` marks the samples of each that count (default: all). Call it in JAX's 64-bit mode."""
    found = ClientStacks([], [])
    for places, part in federation.by_size():
        marks = np.array(part.mask())
        if counted is not None:
            for row, place, n in zip(marks, places, np.asarray(part.sizes), strict=True):
                row[:n] &= counted[place][:n]
        found.stacks.append(of_stack(problem, part, basis, marks))
        found.places.append(jnp.asarray(places, jnp.int32))
    return found


def of_stack(problem: Problem, federation: Federation, basis: np.ndarray, counted: Bool[np.ndarray, "m n"]) -> Glm:
    """The clients of a federation whose clients are about equally large, as one stack."""
    X, y = np.asarray(federation.X, np.float64), np.asarray(federation.y)
    if has_intercept(problem):
        X = np.concatenate([X, np.ones((*X.shape[:2], 1))], axis=2)
    return Glm(
        jnp.asarray(X),
        jnp.asarray(y.astype(np.float64) if y.dtype.kind == "f" else y),
        jnp.asarray(counted, jnp.float64),
        jnp.asarray(basis, jnp.float64),
        problem.loss,
    )


def directions(problem: Problem, federation: Federation) -> np.ndarray:
    """Orthonormal directions of the outputs that data can tell apart: the one output, or k - 1 for k classes."""
    k = problem.loss.outputs(federation.labels())
    if k is None:
        return np.ones((1, 1))
    # The columns of Q that are orthogonal to the vector of ones.
    return np.linalg.qr(np.column_stack([np.ones(k), np.eye(k)[:, : k - 1]]))[0][:, 1:]


def as_model(problem: Problem, theta: np.ndarray, basis: np.ndarray) -> Weights:
    """theta, of one model or stacked over clients, as the parameters of the problem's model."""
    table = theta.reshape(*theta.shape[:-1], -1, basis.shape[1]) @ basis.T
    if basis.shape == (1, 1):
        table = table[..., 0]
        return Weights(*((table[..., :-1], table[..., -1]) if has_intercept(problem) else (table, None)))
    return Weights(*((table[..., :-1, :], table[..., -1, :]) if has_intercept(problem) else (table, None)))


def check(what: str, problem: object, federation: object) -> None:
    """Refuse anything but a generalised linear model on fixed samples."""
    if not isinstance(problem, Problem) or not isinstance(federation, Federation):
        raise TypeError(
            f"{what} expects a cofed.Problem and a cofed.Federation, got problem={shown(problem)} and "
            f"federation={shown(federation)}"
        )
    if not isinstance(problem.model, Linear) or not problem.loss.likelihood:
        raise ValueError(
            f"{what} is for Linear() with Squared(), Logistic(), Softmax() or Poisson(), got "
            f"{type(problem.model).__name__} with {type(problem.loss).__name__}"
        )
    if federation.draw is not None:
        raise ValueError(f"{what} needs fixed samples, and this federation is a stream")
    if federation.target_shape:
        raise ValueError(f"{what} is for one target, got several")
    problem.check(federation)
