"""What stands at a site's door: whether a question is answered is decided here, by rules of the site's own."""

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import numpy as np

from cofed.sites.design import Design
from cofed.sites.questions import Question
from cofed.sites.rows import SiteRows
from cofed.sites.site_table import SiteTable


@dataclasses.dataclass(frozen=True)
class SumOver:
    """Over whom a site's answer will be added up; the answer itself is masked, and nobody sees it alone.

    Attributes
    ----------
    study : str
        The hash of the study; empty where there is none.
    is_pinned : bool
        Whether this site has approved the study, and so the others' keys.
    run : str
        Which fit it is.
    rows : mapping of str to int
        The sites of the sum and the rows of each, as its own signed card says.
    released : frozenset of str
        Sites that agree to sums with and without them, by a signature of their own.
    varying : mapping of str to int
        At how many of the sites a column has more than one value; columns that were not counted are not there.
    keys : mapping of str to str
        The long-term keys of these sites, and of others of the study where this site has approved it: by them sites
        are known again in another study, whatever they are called there.
    """

    study: str
    is_pinned: bool
    run: str
    rows: Mapping[str, int]
    released: frozenset[str] = frozenset()
    varying: Mapping[str, int] = dataclasses.field(default_factory=dict)
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def known_as(self, names: Iterable[str]) -> dict[str, str]:
        """By long-term key, or by name where no key is known, the names of these sites."""
        return {self.keys.get(name, name): name for name in names}


@dataclasses.dataclass(frozen=True)
class Asked:
    """A question as a site's rules judge it, before anything is computed.

    Attributes
    ----------
    question : Question
        What is asked.
    digest : str
        The hash of the question alone, without over whom it is summed: the same question has the same.
    design : Design
        How the table becomes the rows that it is about.
    table : SiteTable
        The site's table.
    over : SumOver or None
        Over whom the answer is added up; None where the server sees this site's own answer.
    """

    question: Question
    digest: str
    design: Design
    table: SiteTable
    over: SumOver | None

    @property
    def rows(self) -> SiteRows:
        """The rows that the question is about, in their own units."""
        return self.table.rows(self.design)

    @property
    def kept(self) -> np.ndarray:
        """Which rows of the table those are."""
        return self.table.kept(self.design)


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why a question is not answered.

    Attributes
    ----------
    rule : str
        The rule's name, which is all that the server is told.
    sentence : str
        For the site's own log: what was asked, what is allowed, and what can be done.
    is_silent : bool
        Whether it depends on the rows' values, so that nobody else may know of it.
    counts_rows : bool
        Whether the sentence tells how many rows have a value, which is not for a log that others may be given.
    """

    rule: str
    sentence: str
    is_silent: bool = False
    counts_rows: bool = False

    @property
    def told(self) -> str:
        """What the server is told: the rule's name, or of what is no rule the sentence."""
        return f"its rule {self.rule!r} forbids it" if self.rule else self.sentence

    @property
    def noted(self) -> str:
        """What the log of what left says of it."""
        return self.told if self.is_silent or self.counts_rows else self.sentence


def rule_in(told: str) -> str:
    """The name of the rule in what a server was told of a refusal; empty where it was none.

    >>> from cofed.sites.guard import Refusal, rule_in
    >>> rule_in(Refusal("site sets", "the sum would tell what rome answered").told)
    'site sets'
    """
    found = re.fullmatch(r"its rule '([a-z ]+)' forbids it", told)
    return found[1] if found else ""


class AbstractGuard(ABC):
    """The rules of a site."""

    def refuses_hello(self, is_pinned: bool) -> Refusal | None:
        """Judge whether a server may hear of the table: it asks for an approved study with keys, or it does not."""
        return None

    @abstractmethod
    def refuses(self, asked: Asked) -> Refusal | None:
        """Judge a question; where it may be answered (None), what later judgements need is on disk by then."""


class OpenGuard(AbstractGuard):
    """No rules: for rows of one's own, as in tests and trials."""

    def refuses(self, asked: Asked) -> Refusal | None:
        return None
