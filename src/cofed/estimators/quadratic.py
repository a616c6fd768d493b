"""A squared loss that is wholly known to the server, which then solves by itself."""

import equinox as eqx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from cofed._util.programs import program
from cofed.estimators.certificate import FirstOrder
from cofed.models import Weights
from cofed.regularizers import AbstractRegularizer
from cofed.solvers.quadratic import VectorPenalty, minimise


class Quadratic(eqx.Module):
    """A quadratic loss, wholly known: its gradient, Hessian and value at the model without features."""

    hessian: Array
    gradient: Weights
    origin: Weights
    value: Array

    def at(self, w: Weights) -> FirstOrder:
        """The loss and its gradient."""
        start, back = ravel_pytree(self.origin)
        move = ravel_pytree(w)[0] - start
        g, bent = ravel_pytree(self.gradient)[0], self.hessian @ move
        return FirstOrder(w, self.value + move @ (g + bent / 2), back(g + bent))


@program
def refined(psi: AbstractRegularizer, quadratic: Quadratic, w: Weights) -> Weights:
    """The minimiser of the quadratic loss + psi, sought from w."""
    v, back = ravel_pytree(w)
    g = ravel_pytree(quadratic.at(w).gradient)[0]
    prox = lambda u, step: ravel_pytree(psi.prox(back(u), step))[0]  # noqa: E731
    z = minimise(quadratic.hessian, g, v, VectorPenalty(prox, lambda u: psi.value(back(u)), psi.separable))
    return back(z)
