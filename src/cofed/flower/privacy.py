"""Differential privacy of a site's updates: clipped and noised at the site, before they are sent.

What is sent is  centre + clip(up - centre, C) + N(0, (sigma C)^2),  where the centre is what a client without any
gradient would send: it depends on the server's message alone. Parts of the update that depend on no gradient at all
(the elapsed time of dual averaging) are sent as the centre has them. The noise's seed is a secret of the site's (from
the operating system, or, under masks, from its keys and the message), not the run's, which the server knows.

Under masks the noise is in whole steps of a grid (Skellam's), and what counts is the noise of the sum: a site that
knows the others' keys by a roster adds its share of it, and any other site all of it (`SiteSum.noise`).

Two updates of one site, on whatever data, differ by at most 2 C after clipping, so a round is one Gaussian mechanism
with noise multiplier sigma/2, and the rounds compose. This protects all of a site's data at once (client level, one
client's data replaced by any other), against everybody who sees its messages, the server included.
"""

import math
from typing import NamedTuple

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
from cofed.privacy import Release, epsilon_of
from cofed.privacy.accounting import epsilon_at, of_sampled
from cofed.privacy.noised_sum import STEPS


class ClientPrivacy(eqx.Module):
    """Client-level differential privacy of the sites' updates.

    Parameters
    ----------
    clip : float
        The norm that a site's update is clipped to (C).
    noise : float
        The standard deviation of the noise on every entry, in units of `clip` (sigma): of a site's update where the
        server sees that, else of the sum, for the site that weighs most.
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
        if checked_rounds(rounds) == 0:
            return 0.0
        from dp_accounting import dp_event, privacy_accountant, rdp

        # Replacing a site's data is already in the sensitivity (2 C), so the accountant needs no relation of its own.
        accountant = rdp.RdpAccountant(neighboring_relation=privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE)
        accountant.compose(dp_event.GaussianDpEvent(self.noise / 2), rounds)
        return float(accountant.get_epsilon(self.delta))

    def epsilon_of_sums(self, rounds: Given[int], size: Given[int]) -> float:
        """The privacy loss of a site in so many masked sums of updates, whose noise is in whole steps of a grid.

        Parameters
        ----------
        rounds : int
            How many updates the site was asked for.
        size : int
            How many entries an update has: they are rounded, which costs a little.

        Returns
        -------
        float
            The epsilon at this `delta`, whatever the sites weigh, as long as the noise of one of them may be known.

        Examples
        --------
        >>> from cofed.flower import ClientPrivacy
        >>> local = ClientPrivacy(clip=1.0, noise=8.0)
        >>> bool(1 <= local.epsilon_of_sums(10, 1000) / local.epsilon(10) < 1.01)
        True
        """
        return epsilon_of([self.release(size)] * checked_rounds(rounds), self.delta)

    def epsilon_of_models(self, rounds: Given[int], size: Given[int], share: Given[float]) -> float:
        """The privacy loss against those who see the models alone, where a share of the sites is drawn in each round.

        It does not hold against the server and the sites, who know the run's seed, and so who was drawn: for these a
        site has spent `epsilon_of_sums` of the rounds that it was asked in, which is what `result.json` says. It holds
        against others if the seed was drawn at random and is told to nobody (the default, 0, is known to all).

        Parameters
        ----------
        rounds : int
            How many rounds the run has, whoever took part.
        size : int
            How many entries an update has.
        share : float
            `clients_per_round` of all clients. They are drawn without replacement, in whole cohorts.

        Returns
        -------
        float
            The epsilon at this `delta`.

        Examples
        --------
        >>> from cofed.flower import ClientPrivacy
        >>> privacy = ClientPrivacy(clip=1.0, noise=4.0)
        >>> known, hidden = privacy.epsilon_of_sums(10, 1000), privacy.epsilon_of_models(100, 1000, share=0.1)
        >>> bool(0 < hidden < known)
        True
        """
        one = self.release(size).divergences()
        return epsilon_at(checked_rounds(rounds) * of_sampled(one, float(share)), self.delta)

    def release(self, size: int) -> Release:
        """What a masked sum of updates with so many entries costs, at the coarsest grid that it may have."""
        steps = 2.0**STEPS  # by comparison with its noise
        l2 = 2 * steps / self.noise + math.sqrt(size)
        return Release(l2, l2 * math.sqrt(size), steps**2)


Privacy = ClientPrivacy  # its name in earlier versions; cofed.Privacy is that of rows


def checked_rounds(rounds: object) -> int:
    """A number of rounds, refused where it is none."""
    if isinstance(rounds, bool) or not isinstance(rounds, (int, np.integer)) or not 0 <= rounds < 2**31:
        raise ValueError(f"rounds must be an integer from 0 to 2**31 - 1, got {rounds!r}")
    return int(rounds)


@eqx.filter_jit
def probed(work: RoundWork, first_state: PyTree, steps: int, value: float) -> PyTree:
    """What a client that keeps `first_state` would send if every gradient had this value in every entry."""
    since = work.stage_round
    probe = Probe(since, jnp.asarray(steps, since.dtype), value, steps)
    return work.algorithm.local(work.problem, work.down, first_state, probe)[0]


class Centre(NamedTuple):
    """What a client without any gradient would send, and which leaves of an update depend on gradients."""

    values: PyTree
    moves: PyTree


def centre_of(work: RoundWork, first_state: PyTree, steps: int) -> Centre:
    """The centre of the updates of a round; `first_state` is what a client keeps before its first round."""
    centre, other = (probed(work, first_state, steps, value) for value in (0.0, 1.0))
    return Centre(centre, jax.tree.map(lambda a, b: not np.array_equal(a, b), centre, other))


def bounded(centre: Centre, up: PyTree, most: float) -> tuple[PyTree, float]:
    """The update, as it is or cut to a distance of `most` from the centre, and how far from it it was."""
    length = length_of(change_of(*centre, up))
    if length <= most:
        return up, length
    cut = clipped(*centre, up, most)
    return jax.tree.map(lambda new, old: new.astype(np.asarray(old).dtype), cut, up), length


def change_of(centre: PyTree, moves: PyTree, up: PyTree) -> PyTree:
    """How far an update is from the centre, in the leaves that depend on gradients; float64."""
    return jax.tree.map(lambda a, b, m: (np.asarray(a, float) - np.asarray(b, float)) * m, up, centre, moves)


def length_of(change: PyTree) -> float:
    """The l2 norm of all leaves together."""
    leaves = jax.tree.leaves(change)
    largest = max((float(np.max(np.abs(leaf), initial=0.0)) for leaf in leaves), default=0.0)
    if largest == 0:
        return 0.0
    return largest * math.sqrt(sum(float(np.sum((leaf / largest) ** 2)) for leaf in leaves))  # its square may be large


def clipped(centre: PyTree, moves: PyTree, up: PyTree, clip: float) -> PyTree:
    """centre + clip(up - centre) in the leaves that depend on gradients (`moves`), the centre in others; float64."""
    change = change_of(centre, moves, up)
    length = length_of(change)
    scale = min(1.0, clip / length) if length > 0 else 1.0
    return jax.tree.map(lambda a, b: np.asarray(np.asarray(a, float) + scale * b), centre, change)


def noised(centre: PyTree, moves: PyTree, up: PyTree, clip: float, noise: float, rng: np.random.Generator) -> PyTree:
    """centre + clip(up - centre) + noise, in the leaves that depend on gradients (`moves`)."""

    def sent(middle: npt.ArrayLike, value: np.ndarray, move: bool) -> np.ndarray:
        middle = np.asarray(middle)
        return (value + rng.normal(0, noise * clip, middle.shape)).astype(middle.dtype) if move else middle

    return jax.tree.map(sent, centre, clipped(centre, moves, up, clip), moves)
