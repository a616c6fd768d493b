"""Which runs of an experiment diverged, and how that is said beside figures that are means over the others."""

import re
from collections.abc import Mapping
from typing import Any


def lost(config: Mapping[str, Any]) -> dict[tuple[str, str], list[int]]:
    """The seeds with which a method diverged, for each method and panel that has any.

    >>> outcomes = {"0": "completed", "1": "diverged", "2": "diverged"}
    >>> lost({"algorithms": [{"label": "FedMiD", "panel": "K = 1", "outcomes": outcomes}]})
    {('FedMiD', 'K = 1'): [1, 2]}
    """
    found = {(entry["label"], entry["panel"]): gone(entry) for entry in config["algorithms"]}
    return {method: seeds for method, seeds in found.items() if seeds}


def gone(entry: Mapping[str, Any]) -> list[int]:
    """The seeds with which a method's run diverged; `entry` is that of config.json."""
    return [int(seed) for seed, outcome in entry.get("outcomes", {}).items() if outcome == "diverged"]


def in_words(config: Mapping[str, Any]) -> str:
    """Which runs diverged, in words.

    >>> outcomes = {"0": "completed", "1": "diverged", "2": "diverged"}
    >>> in_words({"algorithms": [{"label": "FedMiD", "panel": "K = 1", "outcomes": outcomes}]})
    'FedMiD (K = 1) with seeds 1, 2'
    """
    said = []
    for (label, panel), seeds in lost(config).items():
        where = f" ({panel})" if panel else ""
        said.append(f"{label}{where} with seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}")
    return "; ".join(said)


def counted(entry: Mapping[str, Any]) -> str:
    """How many of a method's runs diverged, in words; nothing where none did.

    >>> counted({"outcomes": {"0": "completed", "1": "diverged"}})
    '1 of 2 diverged'
    """
    seeds = gone(entry)
    return f"{len(seeds)} of {len(entry['outcomes'])} diverged" if seeds else ""


def beside(measured: str, config: Mapping[str, Any]) -> str:
    """What to say after a sentence that was measured: how many runs of the methods that it names diverged.

    A sentence that names no method may be about any.

    >>> outcomes = {"0": "completed", "1": "diverged"}
    >>> entries = [{"label": "FedMiD", "panel": "", "outcomes": outcomes}, {"label": "FedMiD-OSP", "panel": ""}]
    >>> beside("F1 in the end: FedMiD 0.9, FedMiD-OSP 0.8.", {"algorithms": entries})
    'Of the runs of FedMiD 1 of 2 diverged; its means go on with the others.'
    >>> beside("F1 in the end: FedMiD-OSP 0.8.", {"algorithms": entries})
    ''
    """
    labels = sorted({entry["label"] for entry in config["algorithms"]}, key=len, reverse=True)
    names = "|".join(map(re.escape, labels)) or "(?!)"
    named = set(re.findall(rf"(?<![\w-])(?:{names})(?![\w-])", measured)) or set(labels)
    said = []
    for entry in config["algorithms"]:
        if entry["label"] in named and (count := counted(entry)):
            panel = f" ({entry['panel']})" if entry["panel"] else ""
            said.append(f"of {entry['label']}{panel} {count}")
    if not said:
        return ""
    return f"Of the runs {', '.join(said)}; {'its' if len(said) == 1 else 'their'} means go on with the others."
