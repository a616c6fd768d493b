"""Differential privacy of a site's updates: clipped and noised at the site, before they are sent.

What is sent is  centre + clip(up - centre, C) + N(0, (sigma C)^2),  where the centre is what a client without any
gradient would send: it depends on the server's message alone. Parts of the update that depend on no gradient at all
(the elapsed time of dual averaging) are sent as the centre has them. The noise's seed is a secret of the site's (from
the operating system, or, under masks, from its keys and the message), not the run's, which the server knows.

Two updates of one site, on whatever data, differ by at most 2 C after clipping, so a round is one Gaussian mechanism
with noise multiplier sigma/2, and the rounds compose. This protects all of a site's data at once (client level, one
client's data replaced by any other), against everybody who sees its messages, the server included.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import PyTree

from cofed._util.scalars import require_positive
from cofed._util.types import Given
from cofed.algorithms.probe import Probe
from cofed.flower.local_work import RoundWork
from cofed.flower.messages import RoundInstructions


class ClientPrivacy(eqx.Module):
    """Client-level differential privacy of the sites' updates.

    Parameters
    ----------
    clip : float
        The norm that a site's update is clipped to (C).
    noise : float
        The standard deviation of the Gaussian noise on every entry, in units of `clip` (sigma).
    delta : float
        The delta at which epsilon is reported.

    Examples
    --------
    >>> from cofed.flower import ClientPrivacy
    >>> ClientPrivacy(clip=1.0, noise=8.0, delta=1e-6)
    ClientPrivacy(clip=1.0, noise=8.0, delta=1e-06)
    """

    clip: float
    noise: float
    delta: float = 1e-5

    def __check_init__(self):
        for name, value in (("clip", self.clip), ("noise", self.noise), ("delta", self.delta)):
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not np.isrealobj(value):
                raise TypeError(f"ClientPrivacy: {name} must be a number, got {value!r}")
        require_positive("ClientPrivacy", clip=self.clip, noise=self.noise, delta=self.delta)
        if self.delta >= 1:
            raise ValueError(f"ClientPrivacy: delta must be below 1, got {self.delta}")

    def epsilon(self, rounds: Given[int]) -> float:
        """The privacy loss of a site that takes part in so many rounds, by the package dp-accounting.

        Parameters
        ----------
        rounds : int
            How many updates the site was asked for.

        Returns
        -------
        float
            The epsilon at this `delta`.

        Examples
        --------
        >>> from cofed.flower import ClientPrivacy
        >>> ClientPrivacy(clip=1.0, noise=8.0).epsilon(0)
        0.0
        """
        if isinstance(rounds, bool) or not isinstance(rounds, (int, np.integer)) or not 0 <= rounds < 2**31:
            raise ValueError(f"rounds must be an integer from 0 to 2**31 - 1, got {rounds!r}")
        if rounds == 0:
            return 0.0
        from dp_accounting import dp_event, privacy_accountant, rdp

        # Replacing a site's data is already in the sensitivity (2 C), so the accountant needs no relation of its own.
        accountant = rdp.RdpAccountant(neighboring_relation=privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE)
        accountant.compose(dp_event.GaussianDpEvent(self.noise / 2), rounds)
        return float(accountant.get_epsilon(self.delta))


Privacy = ClientPrivacy  # its name in earlier versions; cofed.Privacy is that of rows


@eqx.filter_jit
def probed(work: RoundWork, first_state: PyTree, steps: int, value: float) -> PyTree:
    """What a client that keeps `first_state` would send if every gradient had this value in every entry."""
    since = work.stage_round
    probe = Probe(since, jnp.asarray(steps, since.dtype), value, steps)
    return work.algorithm.local(work.problem, work.down, first_state, probe)[0]


def privatised(work: RoundWork, first_state: PyTree, instructions: RoundInstructions, up: PyTree, seed: int) -> PyTree:
    """The update as it may be sent; `first_state` is what a client keeps before its first round.

    The seed of the noise is the site's secret.
    """
    centre, other = (probed(work, first_state, instructions.steps, value) for value in (0.0, 1.0))
    moves = jax.tree.map(lambda a, b: not np.array_equal(a, b), centre, other)
    return noised(centre, moves, up, instructions.clip, instructions.noise, np.random.default_rng(seed))


def noised(centre: PyTree, moves: PyTree, up: PyTree, clip: float, noise: float, rng: np.random.Generator) -> PyTree:
    """centre + clip(up - centre) + noise, in the leaves that depend on gradients (`moves`)."""
    change = jax.tree.map(lambda a, b, m: (np.asarray(a, float) - np.asarray(b, float)) * m, up, centre, moves)
    length = np.sqrt(sum(float(np.sum(leaf**2)) for leaf in jax.tree.leaves(change)))
    scale = min(1.0, clip / length) if length > 0 else 1.0

    def sent(middle: npt.ArrayLike, change: np.ndarray | np.floating, move: bool) -> np.ndarray:
        middle = np.asarray(middle)
        if not move:
            return middle
        return (middle + scale * change + rng.normal(0, noise * clip, middle.shape)).astype(middle.dtype)

    return jax.tree.map(sent, centre, change, moves)
