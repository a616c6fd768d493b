"""Client samplers: who takes part in a round, as pure functions of (key, round).

`cofed.run(..., clients_per_round=10)` is `Uniform(10)`; a sampler in its place draws in another way. Samplers speak of
clients by their ids, the ranks of their names, so that a draw does not depend on the clients' order.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cofed._util import checks
from cofed._util.draws import some_of
from cofed._util.scalars import number, require_between, require_positive
from cofed._util.types import Given, Hyperparameter

__all__ = ["AbstractSampler", "Availability", "Cyclic", "Draw", "Importance", "Uniform"]

GOLDEN = 0.6180339887498949  # its multiples, modulo 1, are spread evenly over a day


class Draw(eqx.Module):
    """The clients of one round.

    Parameters
    ----------
    clients : int array of shape (count,)
        The ids of distinct clients.
    present : bool array of shape (count,), optional
        Which of these take part; None is all of them. Those that do not send nothing and keep what they have.
    chance : float array of shape (count,), optional
        The probability with which each of them is in a round. With it the server's mean is sum_S (pi_m / chance_m)
        up_m, whose expectation is the mean over all clients; None is the mean by the weights of those that take part.
    """

    clients: Int[Array, " count"]
    present: Bool[Array, " count"] | None = None
    chance: Float[Array, " count"] | None = None


class AbstractSampler(eqx.Module):
    """Who takes part in a round. One of your own derives from this class and gives `count` and `draw`.

    Its numbers are fields, so that another value compiles nothing.

    Examples
    --------
    The clients with even and with odd ids, by turns:

    >>> import jax.numpy as jnp, numpy as np, cofed
    >>> class Turns(cofed.samplers.AbstractSampler):
    ...     def count(self, clients):
    ...         return clients // 2
    ...
    ...     def draw(self, key, round, clients):
    ...         return cofed.samplers.Draw(2 * jnp.arange(clients // 2, dtype=jnp.int32) + round % 2)
    >>> federation = cofed.Federation.from_arrays([(np.eye(2), np.ones(2))] * 4)
    >>> result = cofed.run(cofed.Problem(), federation, cofed.FedAvg(0.1), rounds=2, clients_per_round=Turns())
    >>> result.history.participants()["client"].tolist()
    ['0', '2', '1', '3']
    """

    @abstractmethod
    def count(self, clients: int) -> int:
        """How many clients are drawn for a round, at most.

        Parameters
        ----------
        clients : int
            How many there are.

        Returns
        -------
        int
            The same in every round.
        """

    @abstractmethod
    def draw(self, key: PRNGKeyArray, round: int | Int[Array, ""], clients: int) -> Draw:
        """The clients of a round, by JAX.

        Parameters
        ----------
        key : jax.random.key
            Of this round's draw.
        round : int or int array
            The round, over all stages.
        clients : int
            How many clients there are.

        Returns
        -------
        Draw
            `count(clients)` of them.
        """

    def placed(self, order: np.ndarray) -> "AbstractSampler":
        """The sampler with what it has of each client, given in the federation's order, in the order of the ids.

        Parameters
        ----------
        order : int array of shape (clients,)
            The position of the client with each id.

        Returns
        -------
        AbstractSampler
            Itself, where it has nothing of the kind.
        """
        return self


Drawing = Callable[[PRNGKeyArray, Int[Array, ""]], npt.ArrayLike]  # (key, round) -> the ids of the round's clients


class ByFunction(AbstractSampler):
    """What a plain function of (key, round) given as `clients_per_round` stands for.

    Parameters
    ----------
    function : callable
        Gives the ids of a round's clients, by JAX: distinct, and as many in every round.

    Examples
    --------
    >>> import jax
    >>> from cofed.samplers import ByFunction
    >>> turns = ByFunction(lambda key, round: (2 * round + jax.numpy.arange(2)) % 6)
    >>> turns.count(6), turns.draw(jax.random.key(0), 2, 6).clients.tolist()
    (2, [4, 5])
    """

    function: Callable[..., npt.ArrayLike] = eqx.field(static=True)

    @property
    def name(self) -> str:
        """What the function is called in sentences."""
        return checks.called(self.function)

    def count(self, clients: int) -> int:
        try:
            drawn = jax.eval_shape(self.ids, jax.random.key(0), jax.ShapeDtypeStruct((), jnp.int32))
        except Exception as error:
            why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"  # JAX's errors go on for a page
            raise ValueError(
                f"clients_per_round: {self.name}(key, round) must be computed by JAX, of traced arguments, but {why}"
            ) from error
        if len(drawn.shape) != 1 or not drawn.size or not jnp.issubdtype(drawn.dtype, jnp.integer):
            raise ValueError(
                f"clients_per_round: {self.name}(key, round) must give the ids of a round's clients, a list of "
                f"integers, got an array of shape {drawn.shape} of {drawn.dtype}"
            )
        return checked_count(drawn.size, clients)

    def draw(self, key: PRNGKeyArray, round: int | Int[Array, ""], clients: int) -> Draw:
        return Draw(self.ids(key, jnp.asarray(round, jnp.int32)).astype(jnp.int32))

    def ids(self, key: PRNGKeyArray, round: Int[Array, ""]) -> Array:
        """What the function gives."""
        with jax.numpy_dtype_promotion("standard"):  # a user's function may mix what it likes
            return jnp.asarray(self.function(key, round))


def number_of_clients(value: object) -> int:
    """How many clients are drawn."""
    return checks.integer("a sampler's clients", value)


def checked_count(count: int, clients: int) -> int:
    """So many clients, if there are so many."""
    if count > clients:
        raise ValueError(f"clients_per_round is {count}, but there are only {clients} clients")
    return count


class Uniform(AbstractSampler):
    """A uniform random subset: what `clients_per_round=10` stands for.

    Parameters
    ----------
    clients : int
        How many clients take part in a round.

    Examples
    --------
    >>> import jax, cofed
    >>> cofed.samplers.Uniform(2).draw(jax.random.key(0), 0, 5).clients.shape
    (2,)
    """

    clients: int = eqx.field(static=True, converter=number_of_clients)

    def count(self, clients: int) -> int:
        return checked_count(self.clients, clients)

    def draw(self, key: PRNGKeyArray, round: int | Int[Array, ""], clients: int) -> Draw:
        return Draw(some_of(key, clients, self.clients))


def product_modulo(a: Int[Array, ""], b: int, n: int) -> Int[Array, ""]:
    """(a * b) modulo n by doubling, since the product may be too large for 32 bits.

    >>> import jax.numpy as jnp
    >>> from cofed.samplers import product_modulo
    >>> int(product_modulo(jnp.asarray(2_000_000_000), 70_000, 100_003)) == 2_000_000_000 * 70_000 % 100_003
    True
    """

    def bit(i, carry):
        total, power = carry
        return (total + (a >> i) % 2 * power) % n, 2 * power % n

    return jax.lax.fori_loop(0, 31, bit, (jnp.zeros((), jnp.int32), jnp.asarray(b % n, jnp.int32)))[0]


class Cyclic(AbstractSampler):
    """Clients by turns, in the order of their names: the first ones, the next ones, and so on round after round.

    Parameters
    ----------
    clients : int
        How many clients take part in a round.

    Examples
    --------
    >>> import jax, cofed
    >>> [cofed.samplers.Cyclic(2).draw(jax.random.key(0), r, 5).clients.tolist() for r in range(3)]
    [[0, 1], [2, 3], [4, 0]]
    """

    clients: int = eqx.field(static=True, converter=number_of_clients)

    def count(self, clients: int) -> int:
        return checked_count(self.clients, clients)

    def draw(self, key: PRNGKeyArray, round: int | Int[Array, ""], clients: int) -> Draw:
        turn = jnp.arange(self.clients, dtype=jnp.int32)
        return Draw((product_modulo(jnp.asarray(round, jnp.int32), self.clients, clients) + turn) % clients)


def given_sizes(given: Given[npt.ArrayLike]) -> Array:
    """Sizes as an array; one of JAX passes as it is."""
    if isinstance(given, jax.Array):
        return given
    try:
        found = np.asarray(given)
    except ValueError:  # such as lists of different lengths
        found = np.asarray(None)
    if found.dtype.kind not in "fiu" or np.ma.isMaskedArray(given):
        raise ValueError(f"Importance: sizes must be positive numbers, one per client, got {checks.shown(given)}")
    return jnp.asarray(found.astype(float))


class Importance(AbstractSampler):
    """Some clients more often than others, counted so that the mean stays unbiased.

    Client m is in a round with probability p_m = clients * size_m / sum(sizes), by random systematic sampling, and its
    update counts pi_m / p_m: the expectation of the server's mean is that over all clients. For methods whose clients
    keep nothing between rounds.

    Parameters
    ----------
    clients : int
        How many clients take part in a round, all distinct.
    sizes : array_like of shape (n_clients,)
        Positive numbers that the chances are proportional to, in the federation's order, such as `federation.sizes` or
        the clients' smoothness constants. No client's chance may be above 1.

    Examples
    --------
    >>> import jax, cofed
    >>> sampler = cofed.samplers.Importance(2, [1.0, 1.0, 2.0])
    >>> sampler.chances().tolist()
    [0.5, 0.5, 1.0]
    """

    clients: int = eqx.field(static=True, converter=number_of_clients)
    sizes: Float[Array, " n_clients"] = eqx.field(converter=given_sizes)

    def __check_init__(self):
        if isinstance(self.sizes, Tracer) or not isinstance(self.sizes, jax.Array):
            return
        sizes = np.asarray(self.sizes)
        if sizes.ndim != 1 or not sizes.size or not np.isfinite(sizes).all() or not (sizes > 0).all():
            raise ValueError(f"Importance: sizes must be positive numbers, one per client, got {checks.shown(sizes)}")
        if self.clients * sizes.max() > sizes.sum() * (1 + 1e-6):
            raise ValueError(
                f"Importance: the largest of sizes is {sizes.max():.3g} of {sizes.sum():.3g}, so with {self.clients} "
                "clients in a round its client would be needed more than once; take fewer clients, or more equal sizes"
            )

    def count(self, clients: int) -> int:
        if self.sizes.shape != (clients,):
            raise ValueError(f"Importance: there are {self.sizes.shape[0]} sizes, but {clients} clients")
        return checked_count(self.clients, clients)

    def chances(self) -> Float[Array, " n_clients"]:
        """p_m, the probability that a client is in a round.

        Returns
        -------
        array of shape (n_clients,)
            In the order of the sizes.
        """
        return jnp.minimum(self.clients * self.sizes / jnp.sum(self.sizes), 1.0)

    def draw(self, key: PRNGKeyArray, round: int | Int[Array, ""], clients: int) -> Draw:
        chances = self.chances()
        order = jax.random.permutation(jax.random.fold_in(key, 0), clients)
        # A comb of teeth 1 apart, at a random place over the clients' chances laid end to end.
        start = jax.random.uniform(jax.random.fold_in(key, 1), (), chances.dtype)
        ends = jnp.cumsum(chances[order]).at[-1].set(self.clients)
        teeth = start + jnp.arange(self.clients, dtype=chances.dtype)
        who = order[jnp.searchsorted(ends, teeth, side="right")].astype(jnp.int32)
        return Draw(who, chance=chances[who])

    def placed(self, order: np.ndarray) -> "Importance":
        return dataclasses.replace(self, sizes=self.sizes[jnp.asarray(order)])


class Availability(AbstractSampler):
    """Clients that sleep and drop out: a uniform subset of those that are awake, of which some do not answer.

    Each client is awake in the first part of a day of its own, which begins at frac(0.618... id) of everybody's; the
    days of any few clients are so spread evenly. Where fewer are awake than asked for, fewer take part; with nobody,
    the server waits. Bytes are counted of those that take part.

    Parameters
    ----------
    clients : int
        How many clients are asked in a round.
    day : float
        The length of a day in rounds.
    awake : float
        The part of its day, in (0, 1], in which a client can be asked.
    dropout : float
        The probability, in [0, 1), that a client which is asked does not answer.

    Examples
    --------
    >>> import jax, cofed
    >>> draw = cofed.samplers.Availability(3, day=24.0, awake=0.5).draw(jax.random.key(0), 0, 4)
    >>> [int(m) for m, there in zip(draw.clients, draw.present) if there]
    [0, 2]
    """

    clients: int = eqx.field(static=True, converter=number_of_clients)
    day: Hyperparameter = eqx.field(converter=number, default=24.0)
    awake: Hyperparameter = eqx.field(converter=number, default=1.0)
    dropout: Hyperparameter = eqx.field(converter=number, default=0.0)

    def __check_init__(self):
        require_positive("Availability", day=self.day, awake=self.awake)
        require_between("Availability", 0.0, 1.0, awake=self.awake, dropout=self.dropout)
        for name, value in (("day", self.day), ("awake", self.awake), ("dropout", self.dropout)):
            if np.ndim(value):
                raise ValueError(f"Availability: {name} must be one number, got {checks.shown(value)}")
        if isinstance(self.dropout, float) and not 0 <= self.dropout < 1:
            raise ValueError(f"Availability: dropout is a probability in [0, 1), got {self.dropout}")

    def count(self, clients: int) -> int:
        return checked_count(self.clients, clients)

    def draw(self, key: PRNGKeyArray, round: int | Int[Array, ""], clients: int) -> Draw:
        ids, dtype = jnp.arange(clients, dtype=jnp.int32), jnp.result_type(self.day, float)
        begin = (ids.astype(dtype) * jnp.asarray(GOLDEN, dtype)) % 1
        hour = (jnp.asarray(round).astype(dtype) / jnp.asarray(self.day, dtype) + begin) % 1
        awake = hour < jnp.asarray(self.awake, dtype)
        order = jax.random.uniform(jax.random.fold_in(key, 0), (clients,), dtype)
        who = jnp.argsort(jnp.where(awake, order, 2))[: self.clients].astype(jnp.int32)
        lost = jax.random.uniform(jax.random.fold_in(key, 1), (clients,), dtype) < jnp.asarray(self.dropout, dtype)
        who = jnp.sort(who)
        return Draw(who, (awake & ~lost)[who])
