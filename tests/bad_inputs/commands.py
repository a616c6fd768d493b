"""The commands' own table: every option and argument, with odd texts that cannot be right there."""

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pandas as pd
import typer
from typer.testing import CliRunner

from cofed.cli import app
from cofed.sites.audit import AuditEvent, AuditLog
from tests.bad_inputs.judge import Case, TooLong, guarded, is_chosen

FOLDER = Path(tempfile.mkdtemp())
TABLE, BINARY, EMPTY, RAGGED = (FOLDER / name for name in ("table.csv", "binary.csv", "empty.csv", "ragged.csv"))
pd.DataFrame({"site": ["a", "b"] * 30, "age": range(60), "ill": [0, 0, 1] * 20}).to_csv(TABLE, index=False)
BINARY.write_bytes(bytes(range(256)) * 4)
EMPTY.write_text("")
RAGGED.write_text("site,age,ill\na,1,2,3,4\nb,1\n")
EXAMPLE, STUDY = FOLDER / "example.toml", FOLDER / "study.toml"
CliRunner().invoke(app, ["init", str(EXAMPLE)])
CliRunner().invoke(app, ["study", "init", str(TABLE), "--out", str(STUDY)])
LOG = FOLDER / "log.jsonl"
AuditLog(LOG, "oslo").add(AuditEvent(event="hello"))

TEXTS = {
    "empty": "",
    "text": "odd",
    "-1": "-1",
    "0": "0",
    "0.5": "0.5",
    "10**12": str(10**12),
    "NaN": "nan",
    "inf": "inf",
    "below a file": "/dev/null/at.all",
    "a folder": str(FOLDER),
    "a binary file": str(BINARY),
    "an empty file": str(EMPTY),
    "a ragged file": str(RAGGED),
    "no UTF-8": "\udcff",
}

# A call of each command, and for each parameter which texts may be right: these are not tried, for commands take long.
Right = Callable[[str], bool]
nothing: Right = lambda text: False  # noqa: E731
whole: Right = lambda text: text == "0"  # noqa: E731
name: Right = lambda text: text not in ("", "/dev/null/at.all", str(FOLDER), str(BINARY), str(EMPTY), str(RAGGED))  # noqa: E731
folder: Right = lambda text: text not in ("/dev/null/at.all", str(BINARY), str(EMPTY), str(RAGGED))  # noqa: E731
ADVISE = ["advise", str(TABLE), "--target", "ill", "--client", "site"]
FIT = ["fit", str(TABLE), "--target", "age", "--client", "site", "--cv", "5", "--infer"]
FIT += ["--in-process", "--out", str(FOLDER / "fit")]
CALLS: dict[str, tuple[list[str], dict[str, Right]]] = {
    "demo": (["demo", "--quick"], {"rounds": nothing, "clients": nothing, "seed": whole, "out": folder}),
    "advise": (
        ADVISE,
        {
            "data": nothing,
            "target": nothing,
            "client": nothing,
            "group": nothing,
            "features": lambda text: text == "",
            "drop": lambda text: text == "",
            "model": nothing,
            "folds": nothing,
            "seed": whole,
            "html": nothing,
            "figure": nothing,
        },
    ),
    "fit": (
        [*FIT],
        {
            "sites": nothing,
            "target": nothing,
            "event": nothing,
            "entry": nothing,
            "family": nothing,
            "penalty": nothing,
            "l1_ratio": nothing,
            "cv": nothing,
            "measure": nothing,
            "select": nothing,
            "alpha": nothing,
            "level": lambda text: text == "0.5",
            "features": lambda text: text == "",
            "weight": nothing,
            "offset": nothing,
            "epsilon": nothing,  # beside intervals
            "delta": nothing,  # without an epsilon
            "guesses": nothing,
            "class_weight": nothing,
            "client": nothing,
            "missing_values": nothing,
            "errors": nothing,
            "data": nothing,
            "analysis": nothing,
            "patience": nothing,
            "missing": nothing,
            "seed": whole,
            "out": folder,
        },
    ),
    "algorithms": (["algorithms"], {}),
    "reproduce": (["reproduce", "--quick"], {"ids": nothing, "seeds": nothing}),
    "run": (["run", str(EXAMPLE)], {"experiment": nothing, "out": folder, "seeds": nothing}),
    "tune": (["tune", str(EXAMPLE)], {"experiment": nothing}),
    "plan": (
        ["plan", str(EXAMPLE)],
        {"experiment": nothing, "seeds": nothing, "seconds": lambda text: text in ("0.5", str(10**12))},
    ),
    "init": (["init"], {"path": lambda text: text not in ("/dev/null/at.all", str(FOLDER))}),
    "report": (["report"], {"folders": lambda text: text == ""}),
    "describe": (
        ["describe", str(TABLE), "--client=site"],
        {"sites": nothing, "client": nothing, "csv": lambda text: text.endswith(".csv"), "html": nothing},
    ),
    "doctor": (["doctor"], {}),
    "survival": (
        ["survival", str(TABLE), "--client=site", "--time=age", "--event=ill", "--out", str(FOLDER / "survival")],
        {"sites": nothing, "time": nothing, "event": nothing, "group": nothing, "entry": nothing, "client": nothing},
    ),
    "audit": (["audit", str(LOG)], {"files": nothing, "key": nothing, "study": nothing, "html": nothing}),
    "study init": (
        ["study", "init", str(TABLE), "--out", str(FOLDER / "new" / "study.toml")],
        {
            "table": lambda text: text in ("", str(FOLDER)),
            "target": nothing,
            "event": nothing,
            "family": nothing,
            "out": lambda text: True,
        },
    ),
    "study check": (
        ["study", "check", str(STUDY), f"--data={TABLE}"],
        {"study": nothing, "data": nothing, "policy": lambda text: text == str(EMPTY)},
    ),
    "study approve": (
        ["study", "approve", str(STUDY), f"--data={TABLE}"],
        {"study": nothing, "data": nothing, "keep": folder, "policy": lambda text: text == str(EMPTY)},
    ),
    "study key": (["study", "key"], {"keep": folder}),
    "study policy": (["study", "policy"], {}),
    "study release": (
        ["study", "release", str(STUDY), "--site=oslo"],
        {"study": nothing, "site": nothing, "keep": folder},
    ),
}
# Three need Flower, which has an environment of its own; a race takes minutes where it is not refused: tests/race.
SKIPPED = {"federate", "site", "serve", "race"}


def all_commands(group: click.Group, before: str = "") -> dict[str, click.Command]:
    """The commands by their names; those of a group after the group's name."""
    found: dict[str, click.Command] = {}
    for label, command in group.commands.items():
        inside = getattr(command, "commands", None)
        found |= {f"{before}{label}": command} if inside is None else all_commands(command, f"{before}{label} ")  # type: ignore[arg-type]
    return found


COMMANDS = all_commands(typer.main.get_command(app))  # type: ignore[arg-type]


def parameters(command: str) -> dict[str, click.Parameter]:
    """What can be given to a command, but for flags."""
    found = COMMANDS[command].params
    return {str(one.name): one for one in found if one.name != "help" and not getattr(one, "is_flag", False)}


def command_names() -> set[str]:
    """All commands that there are."""
    return set(COMMANDS)


def cases(every: int = 1) -> Iterator[Case]:
    """Every odd text in the place of every parameter that is known, or every so many of them."""
    for command, (base, kinds) in CALLS.items():
        there = parameters(command)
        for parameter, right in kinds.items():
            if parameter not in there:
                continue
            for place, (label, text) in enumerate(TEXTS.items()):
                if not right(text) and is_chosen(place, f"{command} {parameter}", every):
                    yield tried(command, base, there[parameter], label, text)


def tried(command: str, base: list[str], parameter: click.Parameter, label: str, text: str) -> Case:
    """How the command ends with this text."""
    where = f"cofed {command}({parameter.name})"
    arguments = list(base)
    if parameter.param_type_name == "option":
        option = max(parameter.opts, key=len)
        arguments = [*without(arguments, option), f"{option}={text}"]
    else:
        files = (str(TABLE), str(EXAMPLE), str(STUDY), str(LOG))
        arguments = [arguments[0], *(one for one in arguments[1:] if one not in files), "--", text]
    try:
        with guarded():
            ended = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    except TooLong:
        return Case(where, label, "raw", "did not end")
    said = " ".join(re.sub("[│╭╮╰╯─]", " ", ended.output).split())
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        return Case(where, label, "raw", f"{type(ended.exception).__name__}: {ended.exception}"[:200])
    if ended.exit_code == 0:
        return Case(where, label, "silent", said[:120])
    words = [str(parameter.name), str(parameter.name).replace("_", "-"), str(Path(text)), repr(text)[1:-1]]
    named = any(word.lower() in said.lower() for word in words) or "Usage" in said
    return Case(where, label, "refused" if named else "raw", said[-200:])


def without(arguments: list[str], option: str) -> list[str]:
    """The arguments without an option and its value."""
    if option not in arguments:
        return arguments
    place = arguments.index(option)
    return arguments[:place] + arguments[place + 2 :]
