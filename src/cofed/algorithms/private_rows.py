"""PrivateRows: FedDualAvg whose clients' gradients are private, row by row, with noise that is made for running sums.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), psi convex
Local       as FedDualAvg, with  G_k(x) = (sum_{i in batch k} min(1, c / ||g_i||) g_i + n_k) / b,  g_i the gradient of
            sample i at x, b the samples of a whole batch. Each sample is in one batch of a round (one local epoch).
Noise       n_k = sum_{j<=k} r_{k-j} z_j,  z_j independent N(0, (sigma c s)^2 I),  s^2 = sum_{j<K} a_j^2,
            a_j and r_j the coefficients of (1 - t)^(-1/2) and of (1 - t)^(1/2)
Server      as FedDualAvg
Privacy     Dual averaging adds gradients up. The running sums are L G, with L the lower triangle of ones, and L = S S
            with S the lower triangle of the a_j; what a client computes is a function of S G + z. Replacing a sample
            moves one column of G by 2 c at most, and so S G by 2 c s: Gaussian noise of the multiplier sigma / 2, once
            in a round, whatever K is, also where later gradients depend on earlier sums. Rounds compose.
Error       The sum of K gradients has noise of the spread sigma c s^2 in each entry, s^2 = 1 + log(K)/pi or so, where
            independent noise has sigma c sqrt(K): at K = 64 2.4 instead of 8.
Reference   Abadi et al. 2016, CCS (clipped gradients); Kairouz et al. 2021, ICML (DP-FTRL); Denisov et al. 2022,
            NeurIPS (adaptive sums); Fichtenberger, Henzinger, Upadhyay 2023, ICML (the root of L).
Deviations  Every client adds all of its noise, so that nobody has to be trusted with sums; it is drawn from the run's
            seed as floating-point numbers, so that it is for simulations, and runs over a network refuse it.
"""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cofed._util import trees
from cofed._util.checks import shown
from cofed._util.extras import imported
from cofed._util.scalars import is_auto, number, require_positive
from cofed._util.types import Given, Hyperparameter
from cofed.algorithms.base import AbstractWrapper, LocalSteps
from cofed.algorithms.base.local_steps import Carry
from cofed.algorithms.feddualavg import FedDualAvg, Server
from cofed.problem import Problem

NOTHING_ELSE = "of private rows there are gradients with noise, and nothing else"


def column_norm(count: Float[Array, ""]) -> Float[Array, ""]:
    """s: the norm of the first column of S, the longest, for so many steps."""

    def add(j: Int[Array, ""], pair: tuple[Array, Array]) -> tuple[Array, Array]:
        a, total = pair
        return a * (2 * j + 1).astype(a.dtype) / (2 * j + 2).astype(a.dtype), total + a**2

    one = jnp.ones((), count.dtype)
    return jnp.sqrt(jax.lax.fori_loop(0, count.astype(jnp.int32), add, (one, 0 * one))[1])


def correlated(key: PRNGKeyArray, k: Float[Array, ""], like: PyTree) -> PyTree:
    """n_k for z_j of the variance 1, in the shapes of `like`; z_j is drawn by (key, j)."""
    leaves, tree = jax.tree.flatten(like)
    last = jnp.asarray(k).astype(jnp.int32)

    def drawn(j: Int[Array, ""]) -> list[Array]:
        keys = jax.random.split(jax.random.fold_in(key, j), len(leaves))
        return [jax.random.normal(one, leaf.shape, leaf.dtype) for one, leaf in zip(keys, leaves, strict=True)]

    def add(i: Int[Array, ""], pair: tuple[Array, list[Array]]) -> tuple[Array, list[Array]]:
        r, total = pair
        total = [leaf + r.astype(leaf.dtype) * z for leaf, z in zip(total, drawn(last - i), strict=True)]
        return r * (2 * i - 1).astype(r.dtype) / (2 * i + 2).astype(r.dtype), total

    start = jnp.ones((), trees.dtype(like)), [jnp.zeros(leaf.shape, leaf.dtype) for leaf in leaves]
    return jax.tree.unflatten(tree, jax.lax.fori_loop(0, last + 1, add, start)[1])


class PrivateSteps(eqx.Module):
    """A client's local steps, whose gradients are clipped and noised; there is nothing else of the samples."""

    steps: LocalSteps
    round: Float[Array, ""]
    count: Float[Array, ""]
    clip: Hyperparameter
    spread: Float[Array, ""]  # sigma c s, of the z_j
    noise: PRNGKeyArray
    key: PRNGKeyArray

    @property
    def shared_key(self) -> PRNGKeyArray:
        """Of draws that all clients share."""
        return self.steps.shared_key

    def gradient(self, w: PyTree, k: Float[Array, ""]) -> PyTree:
        """G_k(w)"""
        total, many = self.steps.clipped_sum(w, k, jnp.asarray(self.clip, trees.dtype(w)))
        noised = trees.axpy(self.spread, correlated(self.noise, k, w), total)
        return jax.tree.map(lambda leaf: leaf / many.astype(leaf.dtype), noised)

    def loss_and_gradient(self, w: PyTree, k: Float[Array, ""]) -> tuple[Float[Array, ""], PyTree]:
        """Refused: a loss would tell of the samples without noise."""
        raise TypeError(NOTHING_ELSE)

    def full_gradient(self, w: PyTree) -> PyTree:
        """Refused, as it has no noise."""
        raise TypeError(NOTHING_ELSE)

    def clipped_sum(self, w: PyTree, k: Float[Array, ""], clip: Float[Array, ""]) -> tuple[PyTree, Float[Array, ""]]:
        """Refused, as it has no noise."""
        raise TypeError(NOTHING_ELSE)

    def hessian(self, w: PyTree, k: Float[Array, ""], where: Int[Array, " s"]) -> Float[Array, "s s"]:
        """Refused, as it has no noise."""
        raise TypeError(NOTHING_ELSE)

    def run(self, step: Callable[[Float[Array, ""], Carry], Carry], carry: Carry) -> Carry:
        """carry <- step(k, carry) for k = 0..K_m-1"""
        return self.steps.run(step, carry)


def dual_averaging(method: object) -> FedDualAvg:
    """The method, which must be FedDualAvg: it takes one gradient in a step, and adds it up."""
    if not isinstance(method, FedDualAvg):
        raise TypeError(f"PrivateRows: algorithm must be a cofed.FedDualAvg, got {shown(method)}")
    if is_auto(method.client_lr) or is_auto(method.server_lr):
        raise ValueError("PrivateRows: client_lr and server_lr must be numbers, as 'auto' looks at rows without noise")
    return method


class PrivateRows(AbstractWrapper):
    """FedDualAvg with differential privacy of each row (see cofed.algorithms.private_rows for the update).

    It needs `local_epochs=1` and a `batch_size`, as each row may be in one local step of a round.

    Parameters
    ----------
    algorithm : FedDualAvg
        The method.
    clip : float
        c, the norm that a row's gradient is cut to.
    noise : float
        sigma, the noise in units of `clip`.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> rng = np.random.default_rng(0)
    >>> clients = [(X := rng.normal(size=(640, 5)), X[:, 0] + rng.normal(size=640)) for _ in range(4)]
    >>> federation, problem = cofed.Federation.from_arrays(clients), cofed.Problem(regularizer=cofed.L1(0.1))
    >>> method = cofed.PrivateRows(cofed.FedDualAvg(0.05), clip=2.0, noise=8.0)
    >>> result = cofed.run(problem, federation, method, rounds=5, local_epochs=1, batch_size=20)
    >>> bool(0.5 < result.model.coef[0] < 0.9), round(method.epsilon(rounds=5, delta=1e-5), 1)
    (True, 2.5)
    """

    algorithm: FedDualAvg = eqx.field(converter=dual_averaging)
    clip: Hyperparameter = eqx.field(converter=number)
    noise: Hyperparameter = eqx.field(converter=number)

    needs: ClassVar[tuple[str, ...]] = FedDualAvg.needs

    def __check_init__(self):
        require_positive("PrivateRows", clip=self.clip, noise=self.noise)

    @property
    def is_row_private(self) -> bool:
        return True

    def epsilon(self, rounds: Given[int], delta: Given[float]) -> float:
        """The privacy loss of a row whose client takes part in so many rounds, by the package dp-accounting.

        Parameters
        ----------
        rounds : int
            The rounds.
        delta : float
            Between 0 and 1.

        Returns
        -------
        float
            Epsilon, where a row is replaced by any other, for those who see all that clients send.

        Examples
        --------
        >>> import cofed
        >>> method = cofed.PrivateRows(cofed.FedDualAvg(0.1), clip=1.0, noise=8.0)
        >>> method.epsilon(rounds=0, delta=1e-6), method.epsilon(1, 1e-6) < method.epsilon(2, 1e-6)
        (0.0, True)
        """
        if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 0:
            raise ValueError(f"PrivateRows: rounds must be an integer >= 0, got {rounds!r}")
        if isinstance(delta, bool) or not isinstance(delta, float) or not 0 < delta < 1:
            raise ValueError(f"PrivateRows: delta must be a number between 0 and 1, got {delta!r}")
        if jnp.ndim(self.noise):
            raise ValueError(f"PrivateRows: noise must be one number, got an array of shape {jnp.shape(self.noise)}")
        if rounds == 0:
            return 0.0
        rdp = imported("dp_accounting.rdp", "Differential privacy", "dp-accounting", "privacy")
        events = imported("dp_accounting.dp_event", "Differential privacy", "dp-accounting", "privacy")
        accountant = rdp.RdpAccountant()
        accountant.compose(events.GaussianDpEvent(float(self.noise) / 2), rounds)
        return float(accountant.get_epsilon(delta))

    def own_server(self, server: Server) -> Server:
        return server

    def own_client(self, client: tuple[()]) -> tuple[()]:
        return client

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return self.algorithm.init(problem, w0)

    def init_client(self, problem: Problem, w0: PyTree) -> tuple[()]:
        return self.algorithm.init_client(problem, w0)

    def local(self, problem: Problem, down: Server, client: tuple[()], steps: LocalSteps):
        noise, key = jax.random.split(steps.key)
        spread = jnp.asarray(self.noise * self.clip, steps.count.dtype) * column_norm(steps.count)
        private = PrivateSteps(steps, steps.round, steps.count, self.clip, spread, noise, key)
        return self.algorithm.local(problem, down, client, private)

    def aggregate(self, problem: Problem, server: Server, up: Server, share: Float[Array, ""]) -> Server:
        return self.algorithm.aggregate(problem, server, up, share)
