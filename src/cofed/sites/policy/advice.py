"""What can be done where a rule of a site forbids a question: all that the server knows of it is the rule's name."""

from cofed.sites.base import SiteRefused

ADVICE = {
    "masked": "it answers under masks only, for a study with the keys of all sites that it has approved: leave out "
    "--plain, and let it approve the study",
    "sites": "let more sites take part",
    "site sets": "a site that has come or gone must release itself (cofed study release there, --release here, or "
    "releasable = true in the study), or all sites of earlier fits must take part again",
    "columns": "leave out columns that vary at few of the sites",
    "rows": "it has too few rows to take part",
    "folds": "ask for fewer folds",
    "clusters": 'take other standard errors (errors = "hc1"): it has rows of too few clusters',
    "cells": "leave out columns, or join levels, that few of its rows have",
    "row sets": "ask about the same rows with the same folds (--seed) as before",
    "parameters": "fit fewer features, or with fewer folds",
    "bins": "let sites with more rows take part, or ask for a measure without bins (deviance)",
    "points": "ask for fewer strengths and folds, or for one strength (--alpha)",
    "size": "ask for stronger penalties, which give smaller models",
    "queries": "ask for what it answers: its policy lists the questions",
    "algorithms": "run an algorithm that its policy lists",
    "exchanges": "it has answered enough for today, or for good",
    "failures": "it answers no more in this study, as too many questions failed",
    "text": "shorten the names of columns and levels in the study",
    "noise": "let more sites take part, or ask for noise that counts on fewer",
    "epsilon": "its privacy budget is spent: ask for a smaller epsilon",
    "ledger": "its record of earlier answers cannot be read or written, which its operator has to mend",
}


def advice(refused: SiteRefused) -> str:
    """What can be done about a refusal, in sentences.

    >>> from cofed.sites import SiteRefused
    >>> from cofed.sites.policy import advice
    >>> advice(SiteRefused("rome does not answer", "rome", "folds"))
    "What can be done: ask for fewer folds. What the rule allows is in rome's own log; only its policy can change it."
    """
    if not refused.site:
        return "Let each site look into its own log; what it says depends on the rows, so nobody else is told"
    if refused.rule not in ADVICE:
        return f"What can be done about it is for {refused.site} to say"
    rest = f"What the rule allows is in {refused.site}'s own log; only its policy can change it."
    return f"What can be done: {ADVICE[refused.rule]}. {rest}"
