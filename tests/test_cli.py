"""The command line, by real runs: what it prints, what it writes, how it refuses and how it is stopped."""

import json
import os
import re
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pandas as pd
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import cofed
from cofed import demo
from cofed.cli import app
from cofed.demo import Row, sentence
from cofed.engine.history import Outcome
from cofed.engine.progress import Bar

METHODS = ["FedAvg", "FedMiD", "FedDualAvg"]
FILES = ["demo.png", "history.csv", "history.parquet"]


def invoke(*arguments: str):
    """A command, in this process, on a terminal of 80 columns."""
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"})


def flat(text: str) -> str:
    """Text without its line breaks and boxes, so that a wrapped sentence can be found."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """One quick demo, for several tests."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    return invoke("demo", "--quick", "--out", str(folder)), folder


def test_demo_ends_well_and_is_quick(quick):
    result, folder = quick
    assert result.exit_code == 0, result.output
    rounds = pd.read_csv(folder / "history.csv").groupby("method")["round"].max()
    assert rounds.sum() == len(METHODS) * demo.QUICK_ROUNDS <= 300  # a fifth of the whole demo's


def test_demo_writes_a_picture_and_the_history_twice(quick):
    _, folder = quick
    assert sorted(os.listdir(folder)) == FILES
    picture = (folder / "demo.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(picture) > 10_000
    csv, parquet = pd.read_csv(folder / "history.csv"), pd.read_parquet(folder / "history.parquet")
    assert list(csv.columns) == list(parquet.columns)
    assert list(csv.columns[:3]) == ["method", "round", "objective"]
    pd.testing.assert_frame_equal(csv, parquet, check_dtype=False)
    assert list(csv["method"].unique()) == METHODS
    assert (csv.groupby("method")["round"].agg(["min", "max"]) == [0, demo.QUICK_ROUNDS]).all(axis=None)


def test_table_says_what_the_files_say(quick):
    result, folder = quick
    last = pd.read_csv(folder / "history.csv").groupby("method").last()
    for method in METHODS:
        line = next(line for line in result.output.splitlines() if line.strip().startswith(method))
        row = last.loc[method]
        megabytes = (row["bytes_down"] + row["bytes_up"]) / 1e6
        for text in (f"{row['f1']:.3f}", f"{row['density']:.3f}", f"{row['objective']:.2f}", f"{megabytes:.1f}"):
            assert text in line.split()
    assert "…" not in result.output  # nothing is cut off at 80 columns
    for method, (client_lr, server_lr) in demo.RATES.items():
        assert f"{method} {client_lr:g}/{server_lr:g}" in flat(result.output)


def test_sentence_agrees_with_the_files(quick):
    result, folder = quick
    last = pd.read_csv(folder / "history.csv").groupby("method").last()
    said = flat(result.output)
    others = [method for method in METHODS if method != "FedDualAvg"]
    wins = all(round(last.loc["FedDualAvg", "f1"], 3) > round(last.loc[method, "f1"], 3) for method in others)
    assert ("FedDualAvg recovers the support best" in said) == wins
    assert ("does not win" in said) == (not wins)
    denser = (last.loc[others, "density"] > max(0.5, last.loc["FedDualAvg", "density"])).all()
    assert ("denser than the truth" in said) == (wins and denser)
    assert f"F1 {last.loc['FedDualAvg', 'f1']:.3f} at density {last.loc['FedDualAvg', 'density']:.3f}" in said


def test_demo_shows_the_curse(quick):
    _, folder = quick
    last = pd.read_csv(folder / "history.csv").groupby("method").last()
    assert last.loc["FedDualAvg", "f1"] > 0.99
    assert last.loc["FedDualAvg", "density"] < 0.52
    assert last.loc[["FedAvg", "FedMiD"], "density"].min() > 0.8


def row(method: str, f1: float, density: float = 0.5, round: int = 9, outcome=Outcome.COMPLETED) -> Row:
    return Row(method, f1, density, 50.0, round, 1.0, 1.0, None, outcome)


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        (
            [row("FedAvg", 0.8, 0.7), row("FedMiD", 0.9, 0.6), row("FedDualAvg", 1.0)],
            ["After 9 rounds FedDualAvg recovers", "F1 1.000", "FedMiD 0.900 at 0.600 and FedAvg 0.800", "denser than"],
        ),
        (
            [row("FedMiD", 0.9, 0.45), row("FedDualAvg", 1.0)],
            ["FedDualAvg recovers the support best", "0.900 at 0.450 (truth: 1 at 0.500)."],
        ),
        (
            [row("FedAvg", 0.8), row("FedMiD", 0.99), row("FedDualAvg", 0.95)],
            ["FedDualAvg does not win: FedMiD recovers the support best, with F1 0.990", "FedDualAvg has 0.950"],
        ),
        (
            [row("FedAvg", 0.8), row("FedMiD", 0.95001), row("FedDualAvg", 0.95)],
            ["FedDualAvg does not win alone: it is level with FedMiD at F1 0.950"],
        ),
        (
            [row("FedMiD", 0.6, 0.8), row("FedDualAvg", 0.666, 0.998)],
            ["no method has found the support: the best is FedDualAvg 0.666 at 0.998", "has F1 0.667"],
        ),
        ([row("FedAvg", 0.8, round=5)], ["Stopped before FedDualAvg ran", "FedAvg 0.800"]),
        (
            [row("FedAvg", 0.6, 0.9, 3, Outcome.DIVERGED), row("FedDualAvg", 1.0)],
            ["As far as the runs went, FedDualAvg recovers", "denser than"],
        ),
    ],
)
def test_sentence_follows_the_numbers(rows, parts):
    said = sentence(rows, rounds=9)
    for part in parts:
        assert part in said
    assert said.endswith(".")
    assert not re.search(r"\.\s", said)  # one sentence
    assert ("denser" in said) == ("denser than" in parts)


def test_ctrl_c_keeps_and_shows_what_was_done(monkeypatch, tmp_path):
    def update(self, done, objective):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Bar, "update", update)
    result = invoke("demo", "--quick", "--clients", "4", "--rounds", "1000", "--out", str(tmp_path))
    assert result.exit_code == 130, result.output
    assert "FedAvg, " in result.output
    assert "FedDualAvg 0" not in result.output
    assert "Stopped before FedDualAvg ran" in flat(result.output)
    assert "Stopped by Ctrl-C" in result.output
    assert "Traceback" not in result.output
    assert sorted(os.listdir(tmp_path)) == FILES
    assert set(pd.read_csv(tmp_path / "history.csv")["method"]) == {"FedAvg"}


def test_ctrl_c_before_the_first_method(monkeypatch, tmp_path):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cofed.datasets, "yuan_lasso", interrupt)
    result = invoke("demo", "--out", str(tmp_path))
    assert result.exit_code == 130
    assert "nothing to show" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rounds", "0"], "'--rounds': it must be at least 1, got 0."),
        (["--rounds", "many"], "Invalid value for '--rounds': it must be a whole number, got 'many'."),
        (["--clients", "0"], "'--clients': it must be from 1 to 1024, got 0."),
        (["--seed", "-1"], "'--seed': it must be from 0 to 2147483647, got -1."),
        (["--speed", "3"], "No such option: --speed"),
    ],
)
def test_bad_options_get_a_sentence(arguments, words, tmp_path):
    result = invoke("demo", "--out", str(tmp_path), *arguments)
    assert result.exit_code == 2
    assert words in flat(result.output)
    assert "Traceback" not in result.output
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("demo", "--rounds", "0"),
        ("demo", "--speed", "3"),
        ("demo", "--out", "/dev/null/at.all"),
        ("dmo",),
        ("run", "no.toml"),
        ("plan", "no.toml", "--seconds", "0"),
        ("reproduce", "no-figure"),
        ("advise", "no.csv", "--target", "y", "--client", "site"),
        ("report", "no/folder"),
    ],
)
def test_bad_input_looks_the_same_whoever_refuses_it(arguments):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    error, usage = result.stderr.splitlines()
    assert error.startswith("Error: ")
    assert error.endswith(".")
    assert usage.startswith("Usage: ")
    assert usage.endswith("--help)")


def test_a_bad_end_has_no_usage():
    result = invoke("init", "/dev/null/at.all")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: /dev/null/at.all cannot be written")
    assert len(result.stderr.splitlines()) == 1


def test_a_file_is_no_folder_to_write_into(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("here")
    for out in ("taken", "taken/deeper"):
        result = invoke("demo", "--out", out)
        assert result.exit_code == 2
        assert f"{out} or a part of it is a file; give the name of a folder." in flat(result.output)
    assert Path("taken").read_text() == "here"


def test_algorithms_names_all():
    result = invoke("algorithms")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    for name in (*cofed.algorithms.__all__, "DFedDA", "MReFedDAGT", "DASM"):
        assert any(line[:1] == [name] for line in lines)
    assert "…" not in result.output


def test_algorithms_as_json():
    result = invoke("algorithms", "--json")
    methods = {method["name"]: method for method in json.loads(result.output)}
    assert set(methods) == {*cofed.algorithms.__all__, *cofed.gossip.__all__} - {"topologies"}
    assert methods["DFedDA"]["talks"] == ["a topology"]
    assert methods["ReFedDAGT"]["talks"] == ["a server", "a topology"]
    assert all(method["description"] and method["paper"] for method in methods.values())
    about = methods["FastFedDA"]
    assert (about["vectors_down"], about["vectors_up"]) == (3, 2)
    assert about["needs"] == ["a convex regularizer", "the same number of local steps on all clients"]
    assert methods["FedDualAvg"]["hyperparameters"][:2] == [
        {"name": "client_lr", "symbol": "η_c", "required": True, "default": None},
        {"name": "server_lr", "symbol": "η_s", "required": False, "default": "1.0"},
    ]
    assert methods["Scaffold"]["needs"] == ["no regularizer, that is Zero()"]


def test_help_teaches_and_every_option_explains_itself():
    general = flat(invoke("--help").output)
    for example in ("cofed demo", "cofed fit hospitals", "cofed study check", "cofed reproduce", "cofed.run("):
        assert example in general
    assert flat(invoke("-h").output) == general
    options = flat(invoke("demo", "--help").output)
    for option in ("--rounds", "--clients", "--seed", "--out", "--quick"):
        assert option in options


def words_of_commands(command, words=()):
    """Every command, as the words that call it."""
    for name, one in command.commands.items():
        yield (*words, name)
        yield from words_of_commands(one, (*words, name)) if hasattr(one, "commands") else ()


@pytest.mark.parametrize("words", list(words_of_commands(get_command(app))), ids=" ".join)
def test_the_help_of_every_command_has_an_example_that_it_would_take(words):
    command = get_command(app)
    for word in words:
        command = command.commands[word]
    _, found, example = command.help.partition(f"cofed {' '.join(words)}")
    assert found
    known = {option for parameter in command.params for option in parameter.opts}
    if not hasattr(command, "commands"):
        own = example.partition("\n")[0].partition("cofed ")[0]
        assert set(re.findall(r"--[a-z-]+", own)) <= known


def test_times_that_are_no_numbers_are_named(tmp_path):
    done = invoke("survival", str(tmp_path), "--time", "days", "--event", "dead", "--times", "30,soon")
    assert done.exit_code == 2
    assert "--times: 'soon' is no number; give numbers with commas between them" in flat(done.output)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["fit", "none", "--target", "ill"], "SITES"),
        (["fit", "none", "--target", "ill", "--client", "site"], "SITES"),
        (["fit", "pyproject.toml", "--data", "none"], "--data"),
        (["describe", "none"], "SITES"),
        (["survival", "none", "--time", "days", "--event", "dead"], "SITES"),
        (["advise", "none", "--target", "ill"], "DATA"),
    ],
)
def test_a_path_with_nothing_there_is_named_with_what_takes_it(words, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").touch()
    done = invoke(*words)
    assert done.exit_code == 2
    assert f"Error: {name}: there is no file or folder none; expected: " in flat(done.output)


def test_help_groups_commands_by_what_brings_a_user_here():
    general = invoke("--help").output
    sites = "Sites and servers (a site begins with study check)"
    heads = ["First steps", "Models of several sites' tables", sites, "Algorithms and experiments"]
    places = [general.index(f"─ {head} ") for head in heads]
    assert places == sorted(places)
    assert places[1] < general.index("│ study ") < places[2]
    assert "--install-completion" in general


def test_help_of_fit_groups_its_options():
    shown = invoke("fit", "--help").output
    heads = ["Options", "Penalty and its strength", "Intervals", "Rows and columns", "Where the sites are"]
    places = [shown.index(f"─ {head}") for head in heads]
    assert places == sorted(places)
    assert places[1] < shown.index("│ --alpha ") < places[2]
    assert places[4] < shown.index("│ --patience ")


@pytest.mark.parametrize("name", ["audit", "describe", "fit", "reproduce", "run"])
def test_an_argument_keeps_its_help_where_click_forgets_it(name):
    command = get_command(app).commands[name]
    [argument] = [param for param in command.params if param.param_type_name == "argument"]
    argument.help = None
    command.make_context(name, [], resilient_parsing=True)
    assert argument.help


def test_what_may_be_given_several_times_is_named_without_python_s_words():
    for command in ("audit", "report", "reproduce"):
        assert "list[" not in invoke(command, "--help").output


def test_the_doctor_says_what_is_there_and_what_is_wrong(monkeypatch, tmp_path):
    monkeypatch.setenv("COFED_DATA", str(tmp_path))
    found = {one["what"]: one for one in json.loads(invoke("doctor", "--json").output)}
    assert found["cofed"]["found"] == cofed.__version__
    assert re.fullmatch(r"[\d.]+ [kMGT]?B of [\d.]+ [kMGT]?B available", found["memory"]["found"])
    assert found["jax"]["state"] == found["extra watch"]["state"] == found["data sets"]["state"] == "fine"
    monkeypatch.setenv("COFED_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr(metadata, "version", without("cryptography"))
    shown = invoke("doctor")
    assert shown.exit_code == 1
    assert "without" in flat(shown.output)
    assert "cryptography" in flat(shown.output)
    assert "pip install 'cofed[flower]'" in flat(shown.output)
    assert 'which is no folder the page "data" of the documentation' in flat(shown.output)


def test_the_doctor_finds_versions_that_will_not_do(monkeypatch):
    known, old = metadata.version, {"jax": "0.6.1", "tensorboardx": "1.0"}
    monkeypatch.setattr(metadata, "version", lambda name: old.get(name) or known(name))
    shown = invoke("doctor", "--json")
    found = {one["what"]: one for one in json.loads(shown.output)}
    assert shown.exit_code == 1
    assert found["jax"] == {
        "what": "jax",
        "found": "0.6.1, which is not >=0.8",
        "state": "wrong",
        "advice": "pip install 'jax>=0.8'",
    }
    assert found["extra tensorboard"]["found"] == "without tensorboardx (1.0, which is not >=2.6)"
    assert found["extra tensorboard"]["state"] == "missing"


def without(package):
    """The versions of packages, where one is not installed."""
    known = metadata.version

    def version(name):
        if name == package:
            raise metadata.PackageNotFoundError(name)
        return known(name)

    return version


def test_help_pages_read_as_those_of_other_programs():
    general = flat(invoke("--help").output)
    codes = "0 success, 1 failure (a run diverged, a file could not be written), 2 bad input, 130 interrupted."
    assert codes in general
    assert codes in flat(invoke("run", "--help").output)
    assert "Print the version and exit." in general
    assert "<bool>" not in general
    plan = invoke("plan", "--help").output
    assert "plan [OPTIONS] EXPERIMENT " in plan
    assert " of its rounds and evaluations, so it takes some seconds for each algorithm. " in plan
    assert "report [OPTIONS] DIR... " in invoke("report", "--help").output


def test_a_mistyped_word_is_said_with_what_is_near_and_what_was_given():
    assert "Error: No such command 'rnu' (did you mean 'run'?).\n" in invoke("rnu").stderr
    said = invoke("fit", "x", "--taget").stderr
    assert re.search(r"No such option.*--taget'? \(did you mean '?--data'? or '?--target'?\?\)\.\n", said)
    said = invoke("plan", "no.toml", "--seconds", "abc").stderr
    assert "Invalid value for '--seconds': it must be a number, got 'abc'.\n" in said


def test_version_and_refusal_through_the_module_and_the_entry_point():
    module = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-m", "cofed.cli"]
    done = subprocess.run([*module, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"cofed {cofed.__version__}\n", "")
    script = Path(sys.executable).with_name("cofed")
    command = [str(script)] if script.exists() else module
    done = subprocess.run([*command, "demo", "--rounds", "0"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "it must be at least 1, got 0." in flat(done.stderr)
    assert "Traceback" not in done.stderr
