"""`cofed audit`, by real commands."""

import pytest
from typer.testing import CliRunner

from cofed.cli import app
from tests.sites.audit.worlds import Signer, fit


def invoke(*arguments: object):
    environment = {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
    return CliRunner().invoke(app, ["audit", *map(str, arguments)], env=environment)


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def logs(tmp_path):
    return fit(tmp_path)


def keys(*sites: str) -> list[str]:
    return [word for site in sites for word in ("--key", Signer(site).public)]


def test_whole_logs_end_well(logs, tmp_path):
    done = invoke(logs["oslo"], logs["rome"].parent, *keys("oslo", "rome"), "--html", tmp_path / "a.html")
    assert done.exit_code == 0, done.output
    said = flat(done.output)
    assert said.count("✓ It holds: 7 lines") == 2
    assert said.count("Every line is signed with the site's key.") == 2
    assert "6 of its heads are in the logs of rome." in said
    assert "6 answers left, all masked" in said
    assert (tmp_path / "a.html").exists()


STUDY = """
[study]
name = "stroke"

[variables.age]
kind = "number"
"""


def write_study(path, *sites):
    """A study file that names the keys of these sites."""
    path.write_text(STUDY + "".join(f'[[sites]]\nname = "{s}"\nkey = "{Signer(s).public}"\n' for s in sites))


def test_keys_come_from_the_study_file(logs, tmp_path):
    write_study(tmp_path / "study.toml", "oslo", "rome")
    done = invoke(logs["rome"], logs["oslo"], "--study", tmp_path / "study.toml")
    assert done.exit_code == 0, done.output
    assert flat(done.output).count("Every line is signed with the site's key.") == 2
    done = invoke(logs["bern"], "--study", tmp_path / "study.toml")
    assert done.exit_code == 2
    assert "names no key for the site 'bern'" in flat(done.output)
    done = invoke(logs["oslo"], "--study", tmp_path / "study.toml", *keys("oslo"))
    assert done.exit_code == 2
    assert "--key and --study both say which keys sign" in flat(done.output)


def test_a_changed_line_ends_with_one_and_its_number(logs, tmp_path):
    path = logs["oslo"]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"size":1440', b'"size":1441'), *lines[3:]]))
    done = invoke(path, "--html", tmp_path / "a.html")
    assert done.exit_code == 1
    assert "✗ It does not hold: 3 lines" in flat(done.output)
    assert f"Error: {path} does not hold: line 4 does not follow on line 3" in flat(done.output)
    assert "1 answer left by these lines" in flat(done.output)  # without line 3, which was changed
    assert (tmp_path / "a.html").exists()  # with what is wrong on it
    done = invoke(path, *keys("oslo"))
    assert "Line 3 is not signed with the site's key." in flat(done.output)


def test_a_cut_log_ends_with_one_beside_another_sites(logs):
    path = logs["oslo"]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    assert invoke(path).exit_code == 0
    done = invoke(path, logs["rome"])
    assert done.exit_code == 1
    assert "holds a head of 'oslo' that is not here: lines were cut off" in flat(done.output)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["none.jsonl"], "none.jsonl cannot be read: No such file or directory"),
        (["empty.jsonl"], "empty.jsonl has no whole line: it is not a log of what left"),
        (["."], "audit.jsonl cannot be read: No such file or directory"),
        (["oslo", "--key", "ab"], "--key must be 64 hexadecimal digits (0-9, a-f), as in the study file, got 'ab'"),
        (["oslo", "rome", "--key", "ab" * 32], "--key: 1 given for 2 files; one for each, in their order"),
        (["oslo", "--study", "none.toml"], "none.toml"),
        (["oslo", "--html", "a.txt"], "--html: a.txt must end in .html or .htm"),
    ],
)
def test_bad_input_is_refused(logs, tmp_path, monkeypatch, given, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    done = invoke(*given)
    assert done.exit_code == 2
    assert sentence in flat(done.output)


def test_a_file_that_is_no_log_does_not_hold(tmp_path):
    (tmp_path / "table.csv").write_text("age,ill\n61,yes\n")
    done = invoke(tmp_path / "table.csv")
    assert done.exit_code == 1
    assert "line 1 cannot be read: it is not JSON" in flat(done.output)
