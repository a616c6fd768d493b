"""What SDANE and AccSDANE share: the work of a client around a centre, and the test of a step.

With psi, everything is done to phi_i = F_i + psi, whose mean is F + psi, and with subgradients G_i of phi_i. The
paper's proof uses of its functions only that they are convex, that G_i is a subgradient at x_i, and

    mean phi_i(x_i) >= phi(x) + mean <h_i(x), x_i - v>,   x = mean x_i,   h_i(x) = grad F_i(x) - grad F(x),

which also holds with psi: mean F_i(x_i) >= F(x) + mean <grad F_i(x), x_i - x> as F_i is convex, mean psi(x_i) >= psi(x)
as psi is, and the h_i(x) add up to zero. So where the test accepts a step, it brings what the paper's does.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from cofed._util import trees
from cofed.algorithms.base import LocalSteps
from cofed.problem import Problem


class Down(NamedTuple):
    centre: PyTree  # v (y where accelerated): around which clients work, or are about to
    other: PyTree  # grad F(centre) where clients work, else x: what their work has come to
    strength: Float[Array, ""]  # lambda
    works: Float[Array, ""]  # 1 where clients work, 0 where they look at what has come of it


class Up(NamedTuple):
    first: PyTree  # x_i; looking, grad F_i(centre)
    second: PyTree  # G_i; looking, grad F_i(x)
    number: Float[Array, ""]  # |grad F_i(centre)|^2; looking, <G_i + grad F(v) - grad F_i(x), v - x_i>


class Client(NamedTuple):
    moved: PyTree  # x_i - v, of its last work
    subgradient: PyTree  # G_i + grad F(v), G_i in grad F_i(x_i) + subdifferential psi(x_i)
    curvature: Float[Array, ""]  # L_i, the largest curvature of its loss that its steps have met


class Search(NamedTuple):
    """The state of a client's search for x_i."""

    x: PyTree  # x_i, where zeros are exact
    moved: PyTree  # x_i - v
    gradient: PyTree  # grad F_i(x_i)
    subgradient: PyTree  # G_i
    curvature: Float[Array, ""]  # L_i
    done: Bool[Array, ""]  # |G_i - h_i + lambda (x_i - v)| <= lambda/2 |x_i - v|


def idle(w0: PyTree) -> Client:
    """A client before its first work."""
    return Client(trees.zeros_like(w0), trees.zeros_like(w0), jnp.zeros((), trees.dtype(w0)))


def client_round(problem: Problem, down: Down, client: Client, steps: LocalSteps) -> tuple[Up, Client]:
    """What a client sends and keeps: of its work, or of what it sees at the server's next points."""
    return jax.lax.cond(down.works > 0, lambda: work(problem, down, client, steps), lambda: looked(down, client, steps))


def looked(down: Down, client: Client, steps: LocalSteps) -> tuple[Up, Client]:
    """The gradients that the next work and the test of the last need."""
    at_x = steps.gradient(down.other, 0 * steps.count)
    product = -trees.dot(trees.sub(client.subgradient, at_x), client.moved)
    return Up(steps.gradient(down.centre, 0 * steps.count), at_x, product), client


def work(problem: Problem, down: Down, client: Client, steps: LocalSteps) -> tuple[Up, Client]:
    """min F_i(x) - <h_i, x> + lambda/2 |x - v|^2 + psi(x) by proximal gradient steps, until it is solved well enough.

    A step that meets more curvature than the client has known is taken again, shorter.
    """
    v, strength = down.centre, down.strength
    at_v = steps.gradient(v, 0 * steps.count)
    h = trees.sub(at_v, down.other)

    def step(k, search: Search) -> Search:
        rate = 1 / (search.curvature + strength)
        slope = trees.axpy(strength, search.moved, trees.sub(search.gradient, h))
        ahead = trees.axpy(-rate, slope, search.x)
        x = problem.regularizer.prox(ahead, rate)
        moved, gradient = trees.sub(x, v), steps.gradient(x, k)
        change, bent = trees.sub(moved, search.moved), trees.sub(gradient, search.gradient)
        square = trees.dot(change, change)
        seen = trees.dot(change, bent) / jnp.where(square > 0, square, 1)
        tiny = jnp.finfo(square.dtype).eps ** 2 * trees.dot(x, x)  # of a step of that size, rounding tells the rest
        overflow = ~jnp.isfinite(seen)
        short = overflow | ((seen > search.curvature) & (square > tiny))
        subgradient = trees.axpy(1 / rate, trees.sub(ahead, x), gradient)
        off = trees.axpy(strength, moved, trees.sub(subgradient, h))
        done = trees.dot(off, off) <= strength**2 / 4 * trees.dot(moved, moved)
        new = Search(x, moved, gradient, subgradient, search.curvature, done)
        again = search._replace(curvature=jnp.where(overflow, 2 / rate, 1.05 * seen))
        return trees.where(search.done, search, trees.where(short, again, new))

    start = Search(v, trees.zeros_like(v), at_v, trees.zeros_like(v), client.curvature, jnp.zeros((), bool))
    end = steps.run(step, start)
    kept = Client(end.moved, trees.add(end.subgradient, down.other), end.curvature)
    return Up(end.x, end.subgradient, trees.dot(at_v, at_v)), kept


def enough(look: Up, work: Up, centre: PyTree, gradient: PyTree, strength: Float[Array, ""]) -> Bool[Array, ""]:
    """The test of a step from what came of work and look: mean <G_i - h_i(x), v - x_i> >= |mean G_i|^2/(2 lambda).

    Where psi is not zero, neither are grad F(x) and G_i - grad F_i(x), whose products with v - x and v - x_i cancel. So
    both are taken from grad F(v) (`gradient`), near which they are: else rounding decides once v - x is of the size of
    the square root of its unit.
    """
    product = look.number + trees.dot(trees.sub(look.second, gradient), trees.sub(centre, work.first))
    return product >= trees.dot(work.second, work.second) / (2 * strength)


def still(work: Up) -> Bool[Array, ""]:
    """Whether the mean G_i is zero but for rounding, which leaves a test nothing to judge, and lambda as it is."""
    rounding = 64 * jnp.finfo(work.number.dtype).eps
    return trees.dot(work.second, work.second) <= rounding**2 * work.number


def nothing(w0: PyTree) -> Up:
    """The mean of what clients sent of their work, before the first."""
    return Up(w0, trees.zeros_like(w0), jnp.zeros((), trees.dtype(w0)))
