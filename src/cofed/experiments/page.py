"""The page of all results: how many claims hold, what ran and what is missing, then a section for each experiment."""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cofed._util.files import atomically
from cofed.experiments import expected, results, wording
from cofed.experiments.data_files import PATTERNS, data_files
from cofed.experiments.gather import on_edge
from cofed.experiments.sections import PRINTED, VERDICTS, Finished, counted, row, section, surroundings, texts
from cofed.experiments.specification import Experiment
from cofed.experiments.verdicts import FAILS, HOLDS, UNDECIDED, UNJUDGED, one_line, word_of

LARGEST = 300_000  # bytes of a file that is worth keeping beside a page
ALWAYS = ("figure.png", "claims.json", "config.json")  # what a published folder has
IF_SMALL = ("figure.svg", "numbers.csv")
OLDER = " (fewer than five seeds, or an earlier version)"
NAMES = {"femnist": "FEMNIST", "haxby": "Haxby's scans", "mnist": "MNIST"}  # of data that experiments read
HEAD = """# The papers' claims, measured

Every claim of a paper is judged by a program on measured numbers: "as printed" with the settings in the paper, "as
released" with those of the authors' public code where they differ, and in another form where the printed settings were
found to be those of other data. It is judged on the means over the seeds and then
on every seed alone; where fewer than four in five of the seeds share the verdict, it is undecided. Criteria stand in
the code with their reasons; those that were chosen after something had been seen are listed in
[experiments.md](../experiments.md#chosen-after-looking). A claim that does not hold is left so, with what was found
about why. Bands in the figures are one standard deviation over the seeds; a line ends in a cross where the first of a
method's runs diverges, and goes on thinner as the mean of the others.

Written by `cofed reproduce --all --page docs/results`; each folder has the figure, the verdicts (`claims.json`), the
exact configuration (`config.json`) and, where they are few, the numbers (`numbers.csv`).
"""


def publish(source: Path, target: Path, experiments: Sequence[Experiment]) -> Path:
    """Copy finished results from one folder to another, and write a README.md there that shows all of them."""
    for experiment in experiments:
        folder = source / experiment.id
        if source.resolve() == target.resolve():
            continue
        if (folder / "config.json").exists():
            copy(folder, target / experiment.id)
        elif (folder / expected.FILE).exists():
            (target / experiment.id).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / expected.FILE, target / experiment.id / expected.FILE)
    for experiment in experiments:
        if (target / experiment.id / "config.json").exists():
            without_large(target / experiment.id)
            wording.reword(experiment, target / experiment.id)
    page = target / "README.md"
    atomically(page, lambda name: Path(name).write_text(written(experiments, target)), shown=True)
    return page


def copy(folder: Path, kept: Path) -> None:
    """Copy what a page needs of an experiment's folder."""
    kept.mkdir(parents=True, exist_ok=True)
    for name in ALWAYS:
        shutil.copyfile(folder / name, kept / name)
    (kept / expected.FILE).unlink(missing_ok=True)
    for name in IF_SMALL:
        shutil.copyfile(folder / name, kept / name)


def without_large(kept: Path) -> None:
    """Remove those files of a published folder that are too large to keep, such as figures that were drawn there."""
    for name in IF_SMALL:
        if (kept / name).exists() and (kept / name).stat().st_size >= LARGEST:
            (kept / name).unlink()


def written(experiments: Sequence[Experiment], folder: Path) -> str:
    """The page's text."""
    finished = {one.id: read(one, folder / one.id) for one in experiments if (folder / one.id / "config.json").exists()}
    forms: dict[str, list[Finished]] = {}
    for experiment in experiments:
        if experiment.id in finished:
            main = experiment.released_form_of or experiment.id
            forms.setdefault(main, []).append(finished[experiment.id])
    mains = [experiment for experiment in experiments if experiment.id in forms]
    parts = [HEAD, *counts(experiments, list(finished.values())), *overview(mains, forms)]
    absent = [experiment for experiment in experiments if experiment.id not in finished]
    parts += [*missing(absent, folder), *real_data(list(finished.values()))]
    return "\n".join([*parts, *(section(main, forms[main.id]) for main in mains)])


def read(experiment: Experiment, folder: Path) -> Finished:
    """The results of an experiment, with the words that the code has now."""
    config, claims = (results.read(folder / name) for name in ("config.json", "claims.json"))
    earlier = wording.what_is_earlier(experiment, config, claims)
    words = wording.present_claims(experiment, config, claims)
    return Finished(experiment, wording.present_config(experiment, config), words, earlier)


def counts(experiments: Sequence[Experiment], finished: Sequence[Finished]) -> list[str]:
    """How many experiments there are and ran, and how many claims hold."""
    few = sum(form.few_seeds for form in finished)
    earlier = sum(bool(form.earlier) for form in finished)
    said = f"Of {counted(len(experiments), 'experiment')} {len(finished)} ran"
    details = [f"{few} of them with fewer than five seeds"] * bool(few)
    details += [f"{earlier} in an earlier version"] * bool(earlier)
    said += f" ({', '.join(details)})" if details else ""
    lines = [f"{said}, {len(experiments) - len(finished)} are missing.", ""]
    heads = ("claims", "hold", "do not hold", "undecided", "not judged")
    lines += [row(heads), row(["---"] * len(heads))]
    for name in sorted({kind(form) for form in finished}, key=lambda name: (OLDER in name, PRINTED not in name, name)):
        found = Counter(word_of(claim) for form in finished if kind(form) == name for claim in form.claims)
        lines.append(row([name, *(found[word] for word in (HOLDS, FAILS, UNDECIDED, UNJUDGED))]))
    if gained := only_otherwise(finished):
        lines += ["", f"Of the claims that do not hold as printed, {gained} hold in another form."]
    tuned = [entry for form in finished if not form.swept for entry in form.config["algorithms"] if entry["tuned"]]
    edges = sum(bool(on_edge(entry["grid"], entry["hyperparameters"])) for entry in tuned)
    if tuned:
        lines += [
            "",
            f"Of {len(tuned)} tuned methods, {edges} have a value on the edge of its grid (marked in the tables).",
        ]
    return [*lines, ""]


def kind(form: Finished) -> str:
    """Under which name the verdicts of a form are counted: those that are preliminary stand apart."""
    return form.form + OLDER * (form.few_seeds or bool(form.earlier))


def only_otherwise(finished: Sequence[Finished]) -> int:
    """How many claims do not hold as printed, and hold with other settings."""
    printed = {form.experiment.id: form for form in finished}
    return sum(
        word_of(claim) == HOLDS and word_of(theirs) == FAILS
        for form in finished
        if form.experiment.released_form_of in printed
        for claim in form.claims
        if (theirs := printed[form.experiment.released_form_of].claim(one_line(claim["claim"]))) is not None
    )


def overview(mains: Sequence[Experiment], forms: dict[str, list[Finished]]) -> list[str]:
    """Every claim with its verdicts, side by side."""
    lines = [row(["experiment", "claim", PRINTED, "in another form"]), row(["---"] * 4)]
    for main in mains:
        for text in texts(forms[main.id]):
            found = [(form, verdict(claim, form)) for form in forms[main.id] if (claim := form.claim(text)) is not None]
            printed = [said for form, said in found if form.form == PRINTED]
            others = [f"{form.form}: {said}" for form, said in found if form.form != PRINTED]
            lines.append(row([f"[{main.id}](#{main.id})", text, "; ".join(printed), "; ".join(others)]))
    return [*lines, ""]


def verdict(claim: Mapping[str, Any], form: Finished) -> str:
    """A verdict, with what a reader must know to weigh it."""
    alone = form.seeds == 1 and form.few_seeds
    return VERDICTS[word_of(claim)] + ", 1 seed" * alone + ", earlier version" * bool(form.earlier)


def missing(absent: Sequence[Experiment], folder: Path) -> list[str]:
    """The experiments that have no results, why, and the command that makes them."""
    if not absent:
        return []
    heads = ["experiment", "what it shows", "why", "how its full setup is smaller than the paper's", "run it with"]
    lines = ["## Missing", "", row(heads), row(["---"] * len(heads))]
    for experiment in absent:
        lacks = experiment.reads and not data_files(experiment.reads)
        why = f"no data: it reads {places(experiment)}" if lacks else "not run yet at this size"
        if ahead := results.read(folder / experiment.id / expected.FILE):
            why += f"; it takes {expected.words(ahead)}"
            why += f" ({', '.join(surroundings(ahead))})" if ahead["seconds"] is not None else ""
        smaller = one_line(experiment.smaller)
        lines.append(row([experiment.id, one_line(experiment.title), why, smaller, command(experiment)]))
    return [*lines, ""]


def real_data(finished: Sequence[Finished]) -> list[str]:
    """On which data the experiments ran that read some, and how to run them on others."""
    reading = [form for form in finished if form.experiment.reads]
    if not reading:
        return []
    lines = ["## Data that are read", "", row(["experiment", "ran on", "looks for", "run it with"]), row(["---"] * 4)]
    for form in reading:
        lines.append(
            row([form.experiment.id, results.source(form.config), places(form.experiment), command(form.experiment)])
        )
    return [*lines, ""]


def places(experiment: Experiment) -> str:
    """Where an experiment looks for its data, below the data folder."""
    return " or ".join(f"{NAMES[name]} (`{PATTERNS[name][0]}`)" for name in experiment.reads)


def command(experiment: Experiment) -> str:
    """The command that runs an experiment in its full setup."""
    return f"`cofed reproduce {experiment.id}{' --data DIR' if experiment.reads else ''}`"
