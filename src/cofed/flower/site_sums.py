"""A site's part in the masked sums of a run: its card, and its update and scores as wide integers under masks."""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from cofed.federation import Federation
from cofed.flower import wire
from cofed.flower.messages import SCORES, SumTerms
from cofed.privacy import NoisedSum
from cofed.sites.base import QuestionRefused
from cofed.sites.guard import SumOver
from cofed.sites.secure.cards import Card
from cofed.sites.secure.site_end import RunKeys, SiteMasks, reply_words

STUDY = ""  # runs of algorithms belong to no study file


def data_digest(federation: Federation) -> bytes:
    """A hash of a site's data: other data have other keys, so that no mask covers the numbers of both."""
    X, y = federation.pooled()
    whole = hashlib.sha256(repr([(part.dtype.str, part.shape) for part in (X, y)]).encode())
    for part in (X, y):
        whole.update(np.ascontiguousarray(part).tobytes())
    return whole.digest()


def card_in_run(masks: SiteMasks, run: str, federation: Federation) -> Card:
    """The site's card in a run."""
    return masks.card(STUDY, run, federation.n_samples, data_digest(federation))


class UpdateNoise(NamedTuple):
    """The noise of a sum of updates, and the leaves that get it."""

    total: NoisedSum
    moves: PyTree

    def where(self, up: PyTree) -> np.ndarray:
        """The entries of the update, one after the other, that get it."""
        sizes = [np.size(leaf) for leaf in jax.tree.leaves(up)]
        return np.repeat(np.array(jax.tree.leaves(self.moves), bool), sizes)


@dataclasses.dataclass(frozen=True)
class SiteSum:
    """What a site needs to answer one message under masks."""

    masks: SiteMasks
    keys: RunKeys
    terms: SumTerms
    mark: str  # the hash of the whole message
    over: SumOver

    @classmethod
    def checked(
        cls, masks: SiteMasks, terms: SumTerms, mark: str, federation: Federation, roster: Mapping[str, str] | None
    ) -> "SiteSum":
        """A site's part in the sum that a message is about, once all is checked that the site can check.

        Parameters
        ----------
        masks : SiteMasks
            The site's keys.
        terms : SumTerms
            What the message says of the sum.
        mark : str
            The hash of the whole message.
        federation : Federation
            The site's data.
        roster : mapping of str to str, optional
            The sites of the sum and their long-term keys, where this site insists on them.
        """
        total = terms.total
        if roster is not None and set(total.names) != set(roster):
            raise QuestionRefused(f"the sum is over {wire.clipped(total.names)}, which are not the sites of its roster")
        over = masks.over(total, card_in_run(masks, total.run, federation), roster)
        keys = masks.run_keys(STUDY, total.run, data_digest(federation))
        keys.stay_with(total.names)
        return cls(masks, keys, terms, mark, over)

    def noise(self, clip: float, noise: float, size: int, colluding: int = 1) -> NoisedSum:
        """How the sum of updates with so many entries is noised; what is protected is all of a site's data.

        Of n sites one may tell the server its own noise, so the others' shares must be enough: 1/(n - 1) each. A site
        that wants to be safe from more of them adds so many shares. Without a roster a server could pose as all other
        sites, and know their noise: then a site adds all of it.
        """
        names = self.terms.total.names
        shares = max(1, (len(names) - 1) // max(1, colluding)) if self.over.is_pinned else 1
        reach = clip * max(self.terms.weight(site) for site in names)
        return NoisedSum(2 * reach, noise * reach, size, shares)

    def masked(
        self, up: PyTree, scores: Mapping[str, float], is_finite: bool, noise: UpdateNoise | None = None
    ) -> tuple[np.ndarray, str]:
        """The weighted update and scores under masks, and the site's signature; with its share of the noise, if any.

        An update that is not finite, or beyond what the integers hold, is random numbers and a mark that only the
        masked sum shows: the server learns how many there are, and not whose.
        """
        kind, weight = self.terms.total.kind, self.terms.weight(self.masks.site)
        parts = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(up)]
        update = weight * np.concatenate([np.zeros(0), *parts])
        if noise is not None and is_finite:
            # A repeated message gets the same noise, so that nothing can be averaged.
            secret = self.masks.keys.mark(b"noise of an update", self.mark.encode())
            update[noise.where(up)] = noise.total.part(update[noise.where(up)], secret)
        said = weight * np.array([scores[name] for name in SCORES if name in scores], np.float64)
        fits = is_finite and bool((np.abs(update) <= kind.most).all())
        values = np.concatenate([update, said]) if fits else update.size + said.size
        planes = self.masks.masked(self.terms.total, self.mark, self.keys, values)
        return planes, self.masks.keys.sign(reply_words(self.mark, planes))

    def end(self) -> None:
        """Forget the run's keys where it is over: what was sent in it can never be unmasked from here."""
        if self.terms.ends:
            self.masks.end_run(self.keys)
