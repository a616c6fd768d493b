"""One experiment on the page of all results: figure, claims with their verdicts, hyperparameters with their grids."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cofed._util import machine
from cofed.experiments import PAPERS, divergence, results
from cofed.experiments.gather import on_edge
from cofed.experiments.specification import Experiment, Sweep
from cofed.experiments.verdicts import FAILS, HOLDS, UNDECIDED, UNJUDGED, one_line, word_of

VERDICTS = {HOLDS: "**holds**", FAILS: "**does not hold**", UNDECIDED: "**undecided**", UNJUDGED: "not judged"}
PRINTED = "as printed"
SIZES = {"full": "the full setup", "quick": "the quick size"}
SEEDS = 5  # with fewer, a verdict is preliminary


class Finished(NamedTuple):
    """An experiment with its results."""

    experiment: Experiment
    config: Mapping[str, Any]
    claims: Sequence[Mapping[str, Any]]
    earlier: str  # what differs from the experiment as it is now, where its results are of an earlier version

    @property
    def form(self) -> str:
        """Whose settings these are: those that the paper prints, or others."""
        return self.experiment.form if self.experiment.released_form_of else PRINTED

    @property
    def seeds(self) -> int:
        """How many seeds ran."""
        return len(self.config["seeds"])

    @property
    def few_seeds(self) -> bool:
        """Whether there are too few seeds for more than a preliminary verdict, and one has not enough in it either."""
        return self.seeds < SEEDS and not self.experiment.in_a_seed

    @property
    def swept(self) -> bool:
        """Whether the values of hyperparameters are points or grids of a sweep, of which none is chosen for all."""
        return isinstance(self.experiment.measure, Sweep)

    def claim(self, text: str) -> Mapping[str, Any] | None:
        """The verdict on a claim, where it has one."""
        return next((claim for claim in self.claims if one_line(claim["claim"]) == text), None)


def section(main: Experiment, forms: Sequence[Finished]) -> str:
    """One experiment in all its forms."""
    number = re.search(r"-fig(\d+)", main.id)
    figure = f"Figure {number[1]} of " if number else ""
    paper = PAPERS.get(main.paper, "")
    lines = [f"## {main.id}", "", f"{main.title}." + (f" {figure}{paper}." if paper else ""), ""]
    for form in forms:
        lines += ran(form, len(forms) > 1)
    for text in texts(forms):
        lines += claim(text, forms)
    for form in forms:
        lines += hyperparameters(form, len(forms) > 1)
    return "\n".join(lines)


def ran(form: Finished, named: bool) -> list[str]:
    """How and where a form ran, its note and its figure."""
    config, name = form.config, form.experiment.id
    size = SIZES.get(config["size"], "own size")
    within = f" ({form.experiment.in_a_seed})" if form.experiment.in_a_seed else ""
    said = [size, counted(form.seeds, "seed") + within, took(config), date(config), *surroundings(config)]
    title = f"{form.form.capitalize()}: " if named else ""
    lines = [capital(f"{title}{', '.join(part for part in said if part)}."), ""]
    if form.earlier:
        lines += [f"These results are of an earlier version of the experiment: {form.earlier}.", ""]
    if form.experiment.smaller and config["size"] == "full":
        lines += [f"Smaller than the paper's: {one_line(form.experiment.smaller)}.", ""]
    if source := results.source(config):
        lines += [f"Data: {source}.", ""]
    if diverged := divergence.in_words(config):
        lines += [f"Diverged: {diverged}. Where a run stopped early, means go on with the other seeds.", ""]
    if config["note"]:
        lines += [config["note"], ""]
    return [*lines, f"![{name}]({name}/figure.png)", ""]


def took(config: Mapping[str, Any]) -> str:
    """The time that a run took, by the wall's clock and of the processor: a busy machine lengthens the first."""
    processor = f" ({config['processor_seconds']:.0f} s of processor time)" if "processor_seconds" in config else ""
    return f"{config['seconds']:.0f} s{processor}"


def date(config: Mapping[str, Any]) -> str:
    """The day of the run."""
    return str(config.get("created", "")).partition("T")[0]


def surroundings(config: Mapping[str, Any]) -> list[str]:
    """Versions and hardware; results of older versions know less."""
    versions = config.get("versions") or {"cofed": config.get("cofed", "")}
    said = [f"{name} {version}" for name, version in versions.items() if version]
    if there := config.get("hardware"):
        memory = [f"{machine.size(there['memory_bytes'])} of memory"] if there["memory_bytes"] else []
        said += [there["processor"], counted(there["cores"], "core"), *memory]
    return said


def texts(forms: Sequence[Finished]) -> list[str]:
    """The claims of all forms, each once."""
    return list(dict.fromkeys(one_line(claim["claim"]) for form in forms for claim in form.claims))


def claim(text: str, forms: Sequence[Finished]) -> list[str]:
    """A claim: the paper's words, the criterion, and a row for each form."""
    found = [(form, own) for form in forms if (own := form.claim(text)) is not None]
    quotes = list(dict.fromkeys(own["quote"] for _, own in found if own.get("quote")))
    criteria = list(dict.fromkeys(own["criterion"] for _, own in found if own.get("criterion")))
    lines = [f"**{text}**", ""]
    lines += [line for quote in quotes for line in (f"> {quote}", "")]
    lines += [line for criterion in criteria for line in (f"Criterion: {criterion}", "")]
    lines += ["| form | verdict | holds for | measured | why |", "| --- | --- | --- | --- | --- |"]
    for form, own in found:
        why = own["why"] or ("not found yet" if word_of(own) in (FAILS, UNDECIDED) else "")
        measured = f"{own['measured']} {divergence.beside(own['measured'], form.config)}"
        lines.append(row((form.form, VERDICTS[word_of(own)], for_seeds(own, form.seeds), measured, why)))
    return [*lines, ""]


def for_seeds(claim: Mapping[str, Any], seeds: int) -> str:
    """With how many seeds a claim holds alone.

    >>> for_seeds({"holds": True, "seeds": {"0": True, "1": True, "2": False}}, 3)
    '2 of 3 seeds'
    >>> for_seeds({"holds": False}, 1)
    '0 of 1 seed'
    """
    alone = claim.get("seeds")
    if alone:
        return f"{list(alone.values()).count(True)} of {counted(len(alone), 'seed')}"
    return "" if claim["holds"] is None or seeds > 1 else f"{int(claim['holds'])} of 1 seed"


def hyperparameters(form: Finished, named: bool) -> list[str]:
    """What every method ran with, the grid it was chosen from, and what it reached."""
    entries = [entry for entry in form.config["algorithms"] if entry["hyperparameters"]]
    if not entries:
        return []
    panels, grids = any(entry["panel"] for entry in entries), {grid(entry) for entry in entries} - {""}
    heads = [
        "method",
        *["panel"] * panels,
        "hyperparameters",
        *["grid"] * (len(grids) > 1),
        "the paper's",
        "in the end",
    ]
    lines = [f"{form.form.capitalize()}:", ""] if named else []
    lines += [row(heads), row(["---"] * len(heads))]
    for entry in entries:
        chosen = values(entry, form.swept)
        theirs = [f"{k} {v}" for k, v in (entry["paper_hyperparameters"] or {}).items()]
        cells = [entry["label"], *[entry["panel"]] * panels, ", ".join(chosen), *[grid(entry)] * (len(grids) > 1)]
        lines.append(row([*cells, ", ".join(theirs), reached(entry, form.seeds)]))
    told = "Swept values are" if form.swept else "Tuned values were chosen from"
    shared = [f"{told} {grids.pop()}.", ""] if len(grids) == 1 else []
    return [*lines, "", *shared]


def grid(entry: Mapping[str, Any]) -> str:
    """The values that were tried, or why there are none.

    >>> grid({"grid": {"client_lr": [0.1, 0.3], "server_lr": [1.0]}})
    'client_lr 0.1, 0.3'
    """
    if entry.get("beside"):
        return f"off the grid of {entry['beside']}"
    tried = {name: values for name, values in (entry["grid"] or {}).items() if len(values) > 1}
    return "; ".join(f"{name} {', '.join(str(value) for value in values)}" for name, values in tried.items())


def values(entry: Mapping[str, Any], swept: bool) -> list[str]:
    """The hyperparameters of a method; in a sweep those of several values are points or tuned anew at every point.

    >>> entry = {"grid": {"client_lr": [0.1, 0.3], "server_lr": [1]}, "hyperparameters": {"client_lr": 0.1}}
    >>> values(entry, swept=False), values(entry, swept=True)
    (['client_lr 0.1 (edge)'], ['client_lr swept'])
    """
    chosen, edges = entry["hyperparameters"], on_edge(entry["grid"], entry["hyperparameters"])
    if swept:
        several = {name for name, tried in (entry["grid"] or {}).items() if len(tried) > 1}
        return [f"{name} swept" if name in several else f"{name} {value}" for name, value in chosen.items()]
    return [f"{name} {value}" + (" (edge)" if name in edges else "") for name, value in chosen.items()]


def reached(entry: Mapping[str, Any], seeds: int) -> str:
    """What a method has in the end of the column by which methods are tuned, with the deviation over seeds.

    Where runs diverged, it is a mean over the others; older results have one over all, with the last values of those.

    >>> end = {"column": "f1", "mean": 0.9992, "deviation": 0.0001, "over": 3}
    >>> outcomes = {"0": "completed", "1": "completed", "2": "completed", "3": "diverged", "4": "diverged"}
    >>> reached({"reached": end, "outcomes": outcomes}, 5)
    'f1 0.9992 ± 0.0001; 2 of 5 diverged'
    """
    end, gone = entry.get("reached"), divergence.counted(entry)
    if not end or end["mean"] is None:
        return gone
    several = end.get("over", seeds) > 1 and end["deviation"] is not None
    spread = f" ± {end['deviation']:.2g}" if several else ""
    number = f"{end['column']} {end['mean']:.4g}{spread}"
    with_theirs = f"; {gone}" + ("" if "over" in end else ", whose last values are in this mean, and not in verdicts")
    return number + (with_theirs if gone else "")


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "seed"), counted(5, "seed")
    ('1 seed', '5 seeds')
    """
    return f"{number} {what}" + "s" * (number != 1)


def capital(text: str) -> str:
    """The text with a capital at its beginning; the rest stays as it is."""
    return text[:1].upper() + text[1:]


def row(cells: Sequence[object]) -> str:
    """A row of a table."""
    return "| " + " | ".join(" ".join(str(text).split()).replace("|", "\\|") for text in cells) + " |"
