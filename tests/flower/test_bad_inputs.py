"""Whatever is given to a public function of cofed.flower, or to `cofed federate`: it is right, or refused in words."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cofed
from cofed.cli import app
from cofed.flower import Privacy, certificates, read_saved, serve
from tests.flower import bad_inputs
from tests.flower.loopback import Loopback, network
from tests.test_files import NAMES, assert_private, umask  # noqa: F401

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tried():
    """What came of every case, in a process without the tests' checks of types, as users have it."""
    command = [sys.executable, "-m", "tests.flower.bad_inputs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(case):
    """In a sentence that names the parameter, or, for a path, what was given."""
    ours = case["kind"] in ("ValueError", "TypeError", "RuntimeError")
    named = case["parameter"] in case["words"] or f"/{bad_inputs.VALUES[case['value']]} " in case["words"]
    return ours and named and "\n" not in case["words"]


@pytest.mark.parametrize("call", bad_inputs.CALLS)
def test_every_value_is_right_or_refused_in_words(call, tried):
    cases = [case for case in tried if case["call"] == call]
    parameters = {case["parameter"] for case in cases}
    assert parameters == set(bad_inputs.CALLS[call].right(Path()))
    assert len(cases) == len(parameters) * len(bad_inputs.VALUES)
    wrong = [case for case in cases if not ((case["kind"] == "") if case["allowed"] else refused(case))]
    assert wrong == []


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_a_key_is_never_written_outside_its_folder(name, tmp_path):
    with pytest.raises(ValueError, match="cannot name one of the sites"):
        certificates.make(tmp_path / "keys", ["localhost"], ["oslo", name])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sites", [["ca"], ["Server"], ["oslo", "OSLO"]])
def test_a_site_is_not_called_like_another_file(sites, tmp_path):
    with pytest.raises(ValueError, match=r"sites: .* is the name of a file of the server's|would be the same file"):
        certificates.make(tmp_path / "keys", ["localhost"], sites)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["", "a b", "-a.org", "a..org", "http://a.org", "münchen.de", "a/b", "x" * 64, "a\n"])
def test_a_host_is_a_name_or_an_address(host, tmp_path):
    with pytest.raises(ValueError, match=r"hosts: .* is neither an address nor a name such as fl\.example\.org"):
        certificates.make(tmp_path / "keys", ["localhost", host], [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["fl.example.org", "*.example.org", "10.0.0.1", "::1", ".".join(["x" * 60] * 4)])
def test_hosts_of_all_kinds(host, tmp_path):
    from cryptography import x509

    certificates.make(tmp_path / "keys", [host], [])
    found = x509.load_pem_x509_certificate((tmp_path / "keys" / "server.pem").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == [host]


def test_keys_are_the_owners_alone(tmp_path, umask):  # noqa: F811
    certificates.make(tmp_path / "keys", ["localhost"], ["oslo"])
    assert_private(tmp_path / "keys")


def test_certificates_from_the_command_line(tmp_path):
    command = [sys.executable, "-m", "cofed.flower.certificates", str(tmp_path / "keys"), "--site"]
    done = subprocess.run([*command, "../outside"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "'../outside' cannot name one of the sites" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert subprocess.run([*command, "oslo"], capture_output=True).returncode == 0


def test_what_a_run_and_its_sites_keep_is_the_owners_alone(tmp_path, umask):  # noqa: F811
    federation = bad_inputs.FEDERATION
    method, problem = cofed.Scaffold(0.05), cofed.Problem()
    (tmp_path / "sites").mkdir(mode=0o700)
    grid, _ = network(problem, method, federation, folder=tmp_path / "sites")
    serve(grid, problem, method, rounds=2, clients=2, checkpoint=tmp_path / "run", local_steps=1)
    assert (tmp_path / "run" / "history.csv").stat().st_mode & 0o777 == 0o666 & ~umask  # it is made to be shown
    (tmp_path / "run" / "history.csv").unlink()
    assert_private(tmp_path / "run")
    for site in federation.names:
        kept = tmp_path / "sites" / site
        assert kept.stat().st_mode & 0o777 == 0o700
        assert [path for path in kept.glob("*.safetensors") if path.stat().st_mode & 0o777 != 0o600] == []
        assert len(list(kept.glob("*.safetensors"))) >= 2


@pytest.mark.parametrize("damage", ["result.json", "model.safetensors", "history.csv", "entry"])
def test_a_damaged_result_is_a_sentence(damage, tmp_path):
    grid, _ = network(bad_inputs.PROBLEM, bad_inputs.METHOD, bad_inputs.FEDERATION)
    serve(grid, bad_inputs.PROBLEM, bad_inputs.METHOD, rounds=1, clients=2, checkpoint=tmp_path)
    assert read_saved(tmp_path).outcome == "COMPLETED"
    if damage == "entry":
        (tmp_path / "result.json").write_text('{"outcome": "COMPLETED"}')
    else:
        (tmp_path / damage).write_bytes(b"")
    with pytest.raises(ValueError, match=r"holds no finished run|holds a run whose files are damaged"):
        read_saved(tmp_path)


@pytest.mark.parametrize("gives", [None, 3, np.ones(3), (np.ones((2, 3)),), ("a", "b"), (np.ones((2, 3)), np.ones(5))])
def test_a_load_that_gives_no_data_leaves_its_site_out_and_its_words_in_the_log(gives, tmp_path, caplog):
    from cofed.flower import client_app
    from cofed.sites.policy import TRIAL

    grid = Loopback()
    grid.add(client_app(bad_inputs.PROBLEM, bad_inputs.METHOD, lambda node: gives, policy=TRIAL), site="oslo")
    with pytest.raises(RuntimeError, match="only 0 of 1 sites have told their names"):
        serve(grid, bad_inputs.PROBLEM, bad_inputs.METHOD, rounds=1, clients=1, deadline=0.3, patience=0.3, plain=True)
    [first, *_] = [record for record in caplog.records if record.exc_info]
    assert "oslo failed" in first.getMessage()
    assert isinstance(first.exc_info[1], (TypeError, ValueError))
    assert re.search("load|client 'oslo'", str(first.exc_info[1]))


def test_epsilon_grows_with_the_rounds():
    privacy = Privacy(clip=1.0, noise=8.0)
    assert 0 == privacy.epsilon(0) < privacy.epsilon(1) < privacy.epsilon(10)


WORDS = ["", "abc", "nan", "inf", "-1", "0", "2.5", "1e9", "[]", "None", "=1+1", "ü", "9" * 30, "../x", "--"]
SEVERAL = {  # options, and the values above that are right for them
    "--target": set(),
    "--algorithm": set(),
    "--loss": set(),
    "--regularizer": set(),
    "--rounds": set(),
    "--local-steps": set(),
    "--batch-size": set(),
    "--quorum": set(),
    "--deadline": set(),
    "--patience": set(),
    "--weights": set(),
    "--seed": {"0"},
}


@pytest.mark.parametrize("option", SEVERAL)
def test_what_is_given_to_cofed_federate_is_refused_with_exit_code_2(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sites").mkdir()
    for site in ("oslo", "rome"):
        pd.DataFrame({"age": [1.0, 2.0], "cost": [1.0, 2.0]}).to_csv(tmp_path / "sites" / f"{site}.csv", index=False)
    monkeypatch.setattr("cofed.flower.show.watch", None)  # nothing may get as far as that
    for word in WORDS:
        if word in SEVERAL[option]:
            continue
        target = [] if option == "--target" else ["--target", "cost"]
        arguments = ["federate", "sites", *target, f"{option}={word}", "--out", "out"]
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
        assert result.exit_code == 2, (word, result.output, result.exception)
        assert "Traceback" not in result.output
        assert "Usage: " in result.output
        assert set(os.listdir(tmp_path)) <= {"sites", "out"}
        assert set(os.listdir("out")) <= {".in-use"} if Path("out").exists() else True


@pytest.mark.parametrize("name", ["a b", "a.b", ".x", "CON", "a;b", "a'b", "x" * 101])
def test_files_whose_names_are_no_sites_are_refused(name, tmp_path):
    for site in (name, "rome"):
        pd.DataFrame({"age": [1.0, 2.0], "cost": [1.0, 2.0]}).to_csv(tmp_path / f"{site}.csv", index=False)
    arguments = ["federate", str(tmp_path), "--target", "cost", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "400", "TERM": "dumb", "NO_COLOR": "1"})
    assert result.exit_code == 2, result.output
    assert re.search("cannot name a site|a site's name is made of letters", " ".join(result.output.split()))
