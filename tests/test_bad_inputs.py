"""Bad inputs of every kind, to everything that is public: refused in words that name the parameter, or right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bad_inputs import calls, calls_of_data, calls_of_engine, commands
from tests.bad_inputs.discover import public

LEAST = {calls: 10_000, calls_of_data: 10_000, calls_of_engine: 5_000, commands: 200}  # inputs of each part


# An eighth of them with every commit, and all where there is time.
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("part", LEAST, ids=lambda part: part.__name__.rpartition(".")[2])
def test_no_bad_input_is_taken_silently_or_ends_in_a_raw_error(part, every):
    # A process of its own: with limits on memory and time, and without the type checks that only tests have.
    ran = subprocess.run(
        [sys.executable, "-m", "tests.bad_inputs", part.__name__.rpartition(".")[2], "--json", f"--every={every}"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    assert ran.stdout, ran.stderr[-2000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["bad"] == []
    assert sum(found["counts"].values()) > 0.9 * LEAST[part] / every


def test_every_public_callable_is_in_the_table():
    assert sorted(set(public()) - set(calls.CALLS)) == [], "public, without enrol(...) in tests/bad_inputs/calls*.py"
    assert sorted(set(calls.CALLS) - set(public())) == [], "in tests/bad_inputs/calls*.py, but no longer public"


def test_every_command_is_in_the_table():
    assert commands.command_names() == set(commands.CALLS) | commands.SKIPPED
    for command, (_, kinds) in commands.CALLS.items():
        assert set(kinds) <= set(commands.parameters(command)), command


@pytest.mark.parametrize("name", sorted(calls.CALLS))
def test_every_parameter_has_a_kind(name):
    assert calls.CALLS[name]().kinds
