"""Sites of one process, each with a guard at its door that sees what a guard sees over a network."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import PyTree

from cofed import Logistic
from cofed.sites import Design, Feature, MemorySites, QuestionRefused, SiteRows, SiteTable, Target
from cofed.sites.guard import AbstractGuard, Asked, Refusal, SumOver
from cofed.sites.policy import Policy, PolicyGuard
from cofed.sites.queries import LookMessage, Message
from cofed.sites.queries.base import AbstractQuery
from cofed.sites.questions import question_bytes, question_hash, read_question

# Nothing but rules about rows and points: the server sees the answers of the one site.
ALONE = {"sums": {"masked": "optional", "sites": 1, "colluding": 0}}


def alone(**tables: Mapping[str, object]) -> Policy:
    """A policy of a site whose answers are seen alone."""
    return Policy.model_validate({**ALONE, **tables})


def frame_of(X: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    """Rows as a table with the columns x0, x1, ... and y."""
    return pd.DataFrame({**{f"x{j}": column for j, column in enumerate(X.T)}, "y": y})


def design_of(p: int, classes: tuple[int, ...] | None = (0, 1), missing: str = "refuse") -> Design:
    """The design of such a table."""
    features = tuple(Feature(name=f"x{j}") for j in range(p))
    return Design(features=features, target=Target(name="y", classes=classes), missing=missing)


def over(rows: Mapping[str, int], **about: object) -> SumOver:
    """A sum over sites of an approved study."""
    return dataclasses.replace(SumOver("study", True, "run", dict(rows)), **about)


def asked(
    table: SiteTable, design: Design, query: AbstractQuery, message: Message, whom: SumOver | None = None
) -> Asked:
    """A question as it comes to a site: through its bytes."""
    data = question_bytes(query, message, {"design": design.model_dump(mode="json")})
    return Asked(read_question(data), question_hash(data), design, table, whom)


class Guarded(MemorySites):
    """Sites that ask their guards before they answer, and tell the server the rule's name alone."""

    def __init__(self, tables: Mapping[str, SiteTable], design: Design, guards: Mapping[str, AbstractGuard]):
        own = [table.rows(design) for table in tables.values()]
        super().__init__(SiteRows.of_sites(tuple(tables), [r.X for r in own], [r.y for r in own]), design.feature_names)
        self.tables, self.design, self.guards = dict(tables), design, dict(guards)
        self.over: SumOver | None = over(dict(zip(self.names, self.sizes, strict=True))) if len(tables) > 1 else None
        self.refusals: list[Refusal] = []

    def exchange(self, query: AbstractQuery, message: Message) -> tuple[PyTree, int, int]:
        for name, guard in self.guards.items():
            refusal = guard.refuses(asked(self.tables[name], self.design, query, message, self.over))
            if refusal is not None:
                self.refusals.append(refusal)
                raise QuestionRefused(f"the site {name} does not answer: {refusal.rule}")
        return super().exchange(query, message)

    def of_numbers(self) -> "Guarded":
        return self

    def of_responses(self) -> tuple["Guarded", tuple[str, ...]]:
        assert self.design.target is not None
        return self, tuple(one.name for one in self.design.target.columns)

    def of_times(self) -> "Guarded":
        return self

    def of_classes(self) -> tuple["Guarded", np.ndarray]:
        assert self.design.classes is not None
        return self, self.design.classes


def federation(
    frame: pd.DataFrame, design: Design, sites: int, policy: Policy | None = None, keep: Path | None = None
) -> Guarded:
    """Rows dealt to sites in turn, each with a guard of its own."""
    own = np.arange(len(frame)) % sites
    tables = {f"s{m}": SiteTable(frame[own == m].reset_index(drop=True), f"s{m}") for m in range(sites)}
    folder = lambda name: None if keep is None else keep / name  # noqa: E731
    guards = {name: PolicyGuard(policy or Policy(), folder(name), name) for name in tables}
    return Guarded(tables, design, guards)


def logistic_rows(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Normal features, of which some matter, and labels 0 and 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    slope = np.where(np.arange(p) < max(2, p // 5), rng.normal(size=p) * 0.7, 0)
    return X, (rng.random(n) < 1 / (1 + np.exp(-X @ slope))).astype(int)


def models(coef: np.ndarray, intercept: np.ndarray, hessians: bool = False, **about: object) -> LookMessage:
    """A look at models, a row each."""
    count, p = coef.shape
    closer = np.arange(count if hessians else 0, dtype=np.int32)
    where = np.tile(np.arange(p if hessians else 0, dtype=np.int32), (len(closer), 1))
    without = np.full(count, -1, np.int32)
    return LookMessage(coef[:, :, None], intercept[:, None], without, closer, where, loss=Logistic(), **about)
