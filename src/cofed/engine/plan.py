"""What one run does in every round, settled and checked before anything is compiled."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from cofed._util import checks
from cofed.batches import AbstractBatches
from cofed.engine.contracts import in_a_line
from cofed.federation import AbstractFederation
from cofed.problem import PosedProblem, Problem
from cofed.samplers import AbstractSampler, Draw, Uniform

CACHE = 2**20  # bytes
GATHERED = 2 * CACHE  # bytes of the batches of a block of clients, up to which they are gathered before the local steps


@dataclasses.dataclass(frozen=True)
class Plan:
    """The shape of a round. It is static: a change of it compiles a new program."""

    steps: int  # the most local steps of any client
    equal: bool  # whether all clients take that many
    epochs: int | None  # local epochs, or None where local steps are given
    batch: int | None  # samples per batch; None: the full local gradient
    participants: int  # clients per round
    clients: int  # M
    plain: bool = True  # whether all clients that are drawn take part, and count what their weights say
    block: int | None = None  # clients that are worked on at once, as one array axis; None: all
    gathered: bool = False  # whether a client's batches are gathered before its local steps, and not one by one

    @property
    def one_pass(self) -> bool:
        """Whether each sample of a client is in one local step of a round."""
        return self.epochs == 1 or (self.batch is None and self.steps == 1)

    @property
    def everyone(self) -> bool:
        """Whether all clients take part in every round."""
        return self.plain and self.participants == self.clients


def make_plan(
    federation: AbstractFederation,
    local_steps: int | None,
    local_epochs: int | None,
    batch_size: int | AbstractBatches | None,
    clients_per_round: int | AbstractSampler | None,
) -> Plan:
    """The shape of a run's rounds; settings that contradict each other, or the federation, are refused."""
    clients = federation.n_clients
    participants, plain = clients, True
    if isinstance(clients_per_round, AbstractSampler):
        participants, plain = checked_draw(clients_per_round, clients)
    elif clients_per_round is not None:
        participants = Uniform(clients_per_round).count(clients)
    sizes = np.asarray(federation.sizes)
    if isinstance(batch_size, AbstractBatches):
        return sampled_plan(batch_size, local_steps, local_epochs, int(sizes.max()), (participants, clients, plain))
    batch = checks.optional_integer("batch_size", batch_size)
    if batch is not None and federation.draw is None:
        batch = min(batch, int(sizes.max()))  # a larger batch is the same, at the cost of its padding
    if local_steps is not None and local_epochs is not None:
        raise ValueError(f"give local_steps or local_epochs, not both (got {local_steps} and {local_epochs})")
    if local_steps is not None:
        return Plan(checks.integer("local_steps", local_steps), True, None, batch, participants, clients, plain)
    epochs = 1 if local_epochs is None else checks.integer("local_epochs", local_epochs)
    if batch is None:  # one full gradient is one pass over the data
        return Plan(epochs, True, None, None, participants, clients, plain)
    most, least = math.ceil(sizes.max() / batch), math.ceil(sizes.min() / batch)
    return Plan(epochs * most, most == least, epochs, batch, participants, clients, plain)


def sampled_plan(
    batches: AbstractBatches, local_steps: int | None, local_epochs: int | None, most: int, who: tuple[int, int, bool]
) -> Plan:
    """The shape of rounds whose batches a sampler draws; `who` is what a plan says of the clients."""
    name, size = type(batches).__name__, batches.size(most)
    if local_steps is None or local_epochs is not None:
        raise ValueError(f"batch_size={name} draws the batches of local steps: give local_steps, and no local_epochs")
    if not checks.is_integer(size) or size < 1:
        raise ValueError(f"{name}.size({most}) must be an integer >= 1, got {checks.shown(size)}")
    return Plan(checks.integer("local_steps", local_steps), True, None, int(size), *who)


def checked_draw(sampler: AbstractSampler, clients: int) -> tuple[int, bool]:
    """How many clients a sampler draws, and whether all of them always take part; tried without data."""
    name, count = type(sampler).__name__, sampler.count(clients)
    if not checks.is_integer(count) or not 1 <= count <= clients:
        raise ValueError(f"{name}.count({clients}) must be an integer from 1 to {clients}, got {checks.shown(count)}")
    try:
        draw = jax.eval_shape(lambda key, r: sampler.draw(key, r, clients), jax.random.key(0), jnp.zeros((), jnp.int32))
    except Exception as error:
        raise ValueError(
            f"{name}.draw(key, round, {clients}) must be computed by JAX, but {in_a_line(error)}"
        ) from error
    if not isinstance(draw, Draw) or draw.clients.shape != (count,) or draw.clients.dtype != jnp.int32:
        raise ValueError(
            f"{name}.draw(key, round, {clients}) must give a cofed.samplers.Draw of {count} ids as int32, got "
            f"{checks.shown(draw)}"
        )
    for part, kind in ((draw.present, jnp.bool_), (draw.chance, jnp.floating)):
        if part is not None and (part.shape != (count,) or not jnp.issubdtype(part.dtype, kind)):
            raise ValueError(
                f"{name}.draw: present must be {count} truth values and chance {count} floats, got {checks.shown(draw)}"
            )
    tried = sampler.draw(jax.random.key(0), jnp.zeros((), jnp.int32), clients)
    first = np.asarray(tried.clients)
    if tried.chance is not None and not ((tried.chance > 0) & (tried.chance <= 1)).all():
        raise ValueError(
            f"{name}.draw: a chance must be above 0 and at most 1, got {np.asarray(tried.chance).tolist()}"
        )
    if len(np.unique(first)) < count or first.min() < 0 or first.max() >= clients:
        raise ValueError(f"{name}.draw must give {count} distinct ids from 0 to {clients - 1}, got {first.tolist()}")
    return int(count), draw.present is None and draw.chance is None


def in_cache(plan: Plan, sample: int, parameters: int) -> Plan:
    """The plan with clients in blocks whose local steps fit into a core's cache, and with a block's batches gathered at
    once where all of them stay near it.

    A step reads a batch and works on a few vectors of the model's size; `sample` and `parameters` are in bytes.
    """
    one = (plan.batch or 1) * sample + 4 * parameters
    block = max(1, CACHE // max(1, one))
    batches = min(block, plan.participants) * plan.steps * (plan.batch or 1) * sample
    return dataclasses.replace(plan, block=block, gathered=plan.batch is not None and batches <= GATHERED)


def pose(problem: Problem, plan: Plan) -> PosedProblem:
    """The problem, together with what an algorithm may know of the rounds."""
    return PosedProblem(
        problem.model,
        problem.loss,
        problem.regularizer,
        local_steps=plan.steps if plan.equal else None,
        everyone=plan.everyone,
        participation=plan.participants / plan.clients,
    )
