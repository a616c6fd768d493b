"""A claim's verdict: that of the means over the seeds, if the seeds alone share it."""

from collections.abc import Mapping
from typing import Any

from cofed.experiments.json_values import json_number
from cofed.experiments.measurements import Measurements
from cofed.experiments.specification import Claim

AGREEING = 0.8  # of the seeds must share a verdict; four of five are few enough for one unlucky draw of the data
HOLDS, FAILS, UNDECIDED, UNJUDGED = "holds", "does not hold", "undecided", "not judged"


def judged(claim: Claim, seen: Measurements, size: str) -> dict[str, Any]:
    """A claim with its verdict, as claims.json has it."""
    verdict = claim.judge(seen)
    word, alone = UNJUDGED, {}
    if verdict.holds is not None and (claim.quick or size != "quick"):
        alone = {str(seed): answer(claim, seen.of_seed(seed)) for seed in seen.seeds}
        word = decided(bool(verdict.holds), list(alone.values()))
    return {
        "claim": claim.text,
        **words_of(claim, word, size),
        "holds": {HOLDS: True, FAILS: False}.get(word),
        "verdict": word,
        "seeds": alone,
        "measured": verdict.measured,
        "figures": {name: json_number(value) for name, value in verdict.figures.items()},
    }


def words_of(claim: Claim, word: str, size: str) -> dict[str, str]:
    """The words beside a verdict: the paper's, the criterion and, where it does not hold in the full setup, the reason.

    >>> words_of(Claim("It is sparse.", lambda seen: None, why="Noise.", quote="sparse"), "undecided", "full")
    {'quote': 'sparse', 'criterion': '', 'why': 'Noise.'}
    """
    why = one_line(claim.why) if word in (FAILS, UNDECIDED) and size == "full" else ""
    return {"quote": one_line(claim.quote), "criterion": one_line(claim.criterion), "why": why}


def answer(claim: Claim, seen: Measurements) -> bool | None:
    """Whether a claim holds for these measurements alone."""
    holds = claim.judge(seen).holds
    return None if holds is None else bool(holds)


def decided(holds: bool, alone: list[bool | None]) -> str:
    """The verdict in words, from that of the means and those of the seeds.

    >>> decided(True, [True, True, False, True, True]), decided(False, [False, True, True])
    ('holds', 'undecided')
    """
    if alone.count(holds) < AGREEING * len(alone):
        return UNDECIDED
    return HOLDS if holds else FAILS


def word_of(claim: Mapping[str, Any]) -> str:
    """The verdict of an entry of claims.json, also of one that was written before verdicts had words.

    >>> word_of({"claim": "It is sparse.", "holds": False})
    'does not hold'
    """
    return claim.get("verdict") or {True: HOLDS, False: FAILS}.get(claim["holds"], UNJUDGED)


def one_line(text: str) -> str:
    """Text that was written over several lines."""
    return " ".join(text.split())
