"""Simulated time: how long each client works in a round, and whom the server waits for.

`cofed.run(..., clients_per_round=8, clock=cofed.Clock(seconds))` runs in buffered, asynchronous rounds: every client
works all the time, a round ends when the first 8 have answered, and only these get the next model.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cofed._util import checks
from cofed._util.scalars import number, require_nonnegative
from cofed._util.types import Given, Hyperparameter


def given_seconds(given: Given[npt.ArrayLike]) -> Array:
    """Seconds as an array: one number, or one per client; an array of JAX passes as it is."""
    if isinstance(given, jax.Array):
        return given if jnp.issubdtype(given.dtype, jnp.floating) else given.astype(float)
    try:
        found = np.asarray(given)
    except ValueError:  # such as lists of different lengths
        found = np.asarray(None)
    if found.dtype.kind not in "fiu" or found.ndim > 1 or not found.size or np.ma.isMaskedArray(given):
        raise ValueError(f"Clock: seconds must be a positive number, or one for each client, got {checks.shown(given)}")
    return jnp.asarray(found.astype(float))


class Clock(eqx.Module):
    """How long clients work, and what late updates count.

    A piece of work of client m takes ``seconds_m exp(spread N_m + jitter N)`` seconds, where N_m is drawn once for each
    client and N for each piece of work, both standard normal and by the run's seed: log-normal speeds.

    Parameters
    ----------
    seconds : float or array_like of shape (n_clients,)
        The seconds of a client's work in a round, from getting a model to the server's having the update: one number
        for all, or one for each in the federation's order.
    spread : float, default 0.0
        How different clients are: the standard deviation of the logarithm of their speeds.
    jitter : float, default 0.0
        How different one client's pieces of work are, in the same way.
    staleness : float, default 0.5
        a: an update that was begun t rounds before the present one counts (1 + t)^-a of its weight.

    Examples
    --------
    Four clients, one of them ten times as slow; a round waits for three of them:

    >>> import numpy as np, cofed
    >>> federation = cofed.Federation.from_arrays([(np.eye(2), np.ones(2))] * 4)
    >>> clock = cofed.Clock(seconds=[1.0, 1.0, 1.0, 10.0])
    >>> waiting = cofed.run(cofed.Problem(), federation, cofed.FedAvg(0.1), rounds=4, clock=clock)
    >>> waiting.history["simulated_seconds"].tolist()
    [0.0, 10.0, 20.0, 30.0, 40.0]
    >>> going_on = cofed.run(cofed.Problem(), federation, cofed.FedAvg(0.1), rounds=4, clients_per_round=3, clock=clock)
    >>> going_on.history["simulated_seconds"].tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """

    seconds: Float[Array, "..."] = eqx.field(converter=given_seconds)
    spread: Hyperparameter = eqx.field(converter=number, default=0.0)
    jitter: Hyperparameter = eqx.field(converter=number, default=0.0)
    staleness: Hyperparameter = eqx.field(converter=number, default=0.5)

    def __check_init__(self):
        require_nonnegative("Clock", spread=self.spread, jitter=self.jitter, staleness=self.staleness)
        for name, value in (("spread", self.spread), ("jitter", self.jitter), ("staleness", self.staleness)):
            if np.ndim(value):
                raise ValueError(f"Clock: {name} must be one number, got {checks.shown(value)}")
        if isinstance(self.seconds, Tracer) or not isinstance(self.seconds, jax.Array):
            return
        seconds = np.asarray(self.seconds)
        if not np.isfinite(seconds).all() or not (seconds > 0).all():
            raise ValueError(
                f"Clock: seconds must be a positive number, or one for each client, got {checks.shown(seconds)}"
            )

    def check(self, clients: int) -> None:
        """Refuse a federation with another number of clients.

        Parameters
        ----------
        clients : int
            How many clients there are.
        """
        if self.seconds.ndim and self.seconds.shape != (clients,):
            raise ValueError(f"Clock: there are {self.seconds.shape[0]} seconds, but {clients} clients")

    def work(self, key: PRNGKeyArray, told: Int[Array, " m"], ids: Int[Array, " m"]) -> Float[Array, " m"]:
        """How long clients work on the model of a round.

        Parameters
        ----------
        key : jax.random.key
            Of the run's seed.
        told : int array of shape (n_clients,)
            The rounds whose models they have.
        ids : int array of shape (n_clients,)
            Their ids, all clients in the federation's order.

        Returns
        -------
        array of shape (n_clients,)
            Seconds.
        """
        dtype = self.seconds.dtype

        def normals(round, client):
            of_client = jax.random.fold_in(jax.random.fold_in(key, FOR_ALL), client)
            of_work = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, round), client + 1), OF_WORK)
            return jax.random.normal(of_client, (), dtype), jax.random.normal(of_work, (), dtype)

        own, each = jax.vmap(normals)(told, ids)
        return self.seconds * jnp.exp(jnp.asarray(self.spread, dtype) * own + jnp.asarray(self.jitter, dtype) * each)

    def weight(self, late: Int[Array, " m"]) -> Float[Array, " m"]:
        """What updates count that were begun so many rounds ago: 1 where they are fresh.

        Parameters
        ----------
        late : int array of shape (m,)
            t, rounds between the one whose model a client got and the present one.

        Returns
        -------
        array of shape (m,)
            (1 + t)^-a.
        """
        a = jnp.asarray(self.staleness, self.seconds.dtype)
        return jnp.where(late > 0, (1 + late).astype(a.dtype) ** -a, 1)


# Numbers that no round and no batch takes: see `cofed.engine.sampling`.
FOR_ALL = 2**32 - 1
OF_WORK = 2**32 - 2


def first_to_finish(finish: Float[Array, " clients"], ids: Int[Array, " clients"], count: int) -> Int[Array, " count"]:
    """The positions of those that finish first, in their order; of two at the same time, the one with the lower id."""
    return jnp.sort(jnp.lexsort((ids, finish))[:count]).astype(jnp.int32)
