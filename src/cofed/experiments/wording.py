"""The words beside published numbers: quotes, criteria, reasons and notes are those of the code, without a new run.

Words are no part of an experiment's definition, so that they may be mended while numbers and verdicts stay.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cofed._util.files import write_json
from cofed.experiments import results
from cofed.experiments.specification import Experiment
from cofed.experiments.verdicts import one_line, word_of, words_of


def what_has_changed(experiment: Experiment, config: Mapping[str, Any]) -> str:
    """What is another definition than that of the run; the data folder does not count, it may be elsewhere now."""
    text = results.definition(experiment, config["size"], config["seeds"])
    if "defined_by" in config:
        before, now = json.loads(config["defined_by"]), json.loads(text)
        for definition in (before, now):
            definition.pop("data", None)
        if before != now:
            return results.what_changed(json.dumps(before), json.dumps(now))
    elif config["definition"] != results.fingerprint(text):  # written by an older version, which kept no more
        return "its settings were others"
    return ""


def what_is_earlier(experiment: Experiment, config: Mapping[str, Any], claims: Sequence[Mapping[str, Any]]) -> str:
    """What has changed in the experiment since it ran, its claims too."""
    judged = [one_line(claim["claim"]) for claim in claims]
    others = judged != [one_line(claim.text) for claim in experiment.claims]
    return what_has_changed(experiment, config) or ("other claims were judged" if others else "")


def present_claims(
    experiment: Experiment, config: Mapping[str, Any], claims: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Published claims with the words that the code has now, where it has a claim of the same text."""
    known = {one_line(claim.text): claim for claim in experiment.claims}
    told = []
    for claim in claims:
        own = known.get(one_line(claim["claim"]))
        told.append(dict(claim) | ({} if own is None else words_of(own, word_of(claim), config["size"])))
    return told


def present_config(experiment: Experiment, config: Mapping[str, Any]) -> dict[str, Any]:
    """A published configuration with the note and title that the code has now, where the definition is the same."""
    if what_has_changed(experiment, config):
        return dict(config)
    return dict(config) | {"title": experiment.title, "note": one_line(experiment.note)}


def reword(experiment: Experiment, folder: Path) -> None:
    """Write the present words into the folder of published results; numbers and verdicts stay as they are."""
    config, claims = (results.read(folder / name) for name in ("config.json", "claims.json"))
    if (mended := present_claims(experiment, config, claims)) != claims:
        write_json(folder / "claims.json", mended, shown=True)
    if (named := present_config(experiment, config)) != config:
        results.read_config(folder)  # which refuses one that somebody has changed
        results.write_config(folder, named)
