"""`cofed fit` with a process for each site, and the page that follows it when one of them is killed."""

import json
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest

from cofed.sites.audit import verify
from cofed.sites.policy import default_policy_toml
from cofed.studies import approved_studies
from tests import pages
from tests.fitting import hospitals
from tests.report.browser import Page
from tests.report.conftest import browser

__all__ = ["browser"]
pytestmark = pytest.mark.network
GIVEN = ["--target", "cost", "--features", "age,glucose,sex,distance"]


def command(folder: Path, out: Path, *options: object) -> list[str]:
    """The words of a fit."""
    return [sys.executable, "-m", "cofed", "fit", str(folder), *GIVEN, *map(str, options), "--out", str(out)]


def coefficients(out: Path) -> pd.DataFrame:
    return pd.read_csv(out / "coefficients.csv").set_index("feature")


def events(out: Path) -> list[dict]:
    """What was told so far."""
    path = out / "progress.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def site_of(fit: subprocess.Popen, name: str) -> psutil.Process:
    """The process of a site that a fit has started."""
    children = psutil.Process(fit.pid).children(recursive=True)
    [found] = [one for one in children if {"site", name} <= set(one.cmdline())]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return hospitals.write(tmp_path_factory.mktemp("sites") / "hospitals", hospitals.pooled())


def test_processes_give_the_model_of_one_process_over_tls(folder, tmp_path):
    options = ("--select", "1se", "--infer")
    here = subprocess.run(command(folder, tmp_path / "here", *options, "--in-process"), capture_output=True, text=True)
    assert here.returncode == 0, here.stderr
    there = subprocess.run(command(folder, tmp_path / "there", *options, "--secure"), capture_output=True, text=True)
    assert there.returncode == 0, there.stderr
    one, other = coefficients(tmp_path / "here"), coefficients(tmp_path / "there")
    assert one.index.tolist() == other.index.tolist()
    assert other.to_numpy() == pytest.approx(one.to_numpy(), rel=1e-12, abs=1e-14, nan_ok=True)
    asked = [pd.read_csv(tmp_path / where / "exchanges.csv")["what"].tolist() for where in ("here", "there")]
    assert asked[0] == asked[1]
    assert {event["site"] for event in events(tmp_path / "there") if event["kind"] == "heard"} == set(hospitals.SIZES)
    assert not (tmp_path / "there" / "network" / "log").exists()  # the next fit begins anew


def test_a_fit_that_was_stopped_goes_on_by_the_same_command(folder, tmp_path):
    out = tmp_path / "out"
    with subprocess.Popen(command(folder, out, "--alpha", 0.1), stderr=subprocess.PIPE, text=True) as fit:
        assert fit.stderr is not None
        said = ""
        while "exchange 2:" not in said:
            line = fit.stderr.readline()
            assert line, said
            said += line
        fit.send_signal(signal.SIGINT)
        rest = fit.communicate()[1]
    assert fit.returncode == 130, said + rest
    assert "The same command goes on from there" in " ".join(rest.split())
    done = len((out / "network" / "log" / "exchanges.jsonl").read_text().splitlines()) - 1
    assert done >= 1
    again = subprocess.run(command(folder, out, "--alpha", 0.1), capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    numbers = [event for event in events(out) if event["kind"] == "heard"]
    asked = len(pd.read_csv(out / "exchanges.csv")) - 1  # without that of the columns, at the hello
    assert len(numbers) == (asked - done) * len(hospitals.SIZES)  # what is in the log was not asked again


def test_the_strict_rules_can_be_rehearsed(folder, tmp_path):
    """By them sites answer for an approved study with keys alone: the fit's own draft is approved by each, on the way.

    A server that wants to see each site's answers is refused, and the fit ends: nobody would change anything.
    """
    rules = tmp_path / "policy.toml"
    rules.write_text(default_policy_toml())
    options = ("--alpha", 0.1, "--policy", rules)
    done = subprocess.run(command(folder, tmp_path / "out", *options), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    near = subprocess.run(command(folder, tmp_path / "near", "--alpha", 0.1, "--in-process"), capture_output=True)
    assert near.returncode == 0
    one, other = coefficients(tmp_path / "near"), coefficients(tmp_path / "out")
    assert other.to_numpy() == pytest.approx(one.to_numpy(), rel=1e-12, abs=1e-14)
    keeps = [tmp_path / "out" / "network" / "sites" / site for site in hospitals.SIZES]
    [study] = {study.digest for keep in keeps for study in approved_studies(keep)}
    for keep in keeps:
        lines = verify(keep / "audit.jsonl").lines
        assert {line.study for line in lines if line.event == "answer"} == {study}
    plain = subprocess.run(command(folder, tmp_path / "plain", *options, "--plain"), capture_output=True, text=True)
    assert plain.returncode == 1, plain.stderr
    assert "its rule 'masked' forbids it. What can be done" in " ".join(plain.stderr.split())


@pytest.mark.parametrize("group", [(), ("--group", "arm")], ids=["one curve", "groups"])
def test_the_strict_rules_can_be_rehearsed_for_survival_curves(group, tmp_path):
    """As for a fit: each site approves the study that the curves are of, and its other columns stay out of it."""
    rng, folder = np.random.default_rng(0), tmp_path / "sites"
    folder.mkdir()
    for site in ("bern", "bonn", "oslo"):
        columns = {"days": rng.integers(1, 40, 90), "dead": rng.integers(0, 2, 90), "arm": rng.integers(0, 2, 90)}
        pd.DataFrame(columns | {"note": None}).to_csv(folder / f"{site}.csv", index=False)
    rules = tmp_path / "policy.toml"
    rules.write_text(default_policy_toml())
    words = [sys.executable, "-m", "cofed", "survival", str(folder), "--time", "days", "--event", "dead", *group]
    words += ["--times", "10,20,30"]
    for out, options in (("near", []), ("far", ["--processes", "--policy", str(rules)])):
        done = subprocess.run([*words, *options, "--out", str(tmp_path / out)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    near, far = (pd.read_csv(tmp_path / out / "curves.csv") for out in ("near", "far"))
    pd.testing.assert_frame_equal(near, far)


def test_the_example_finds_the_four_features_that_matter(tmp_path):
    [line] = [one for one in pages.commands("examples/hospitals/README.md") if one.startswith("cofed fit ")]
    place = tmp_path / "hospitals"
    shutil.copytree(pages.ROOT / "examples" / "hospitals", place)
    words = [word for word in shlex.split(line)[1:] if word != "--watch"]
    done = subprocess.run([sys.executable, "-m", "cofed", *words], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [_, said] = [block.text.strip() for block in pages.blocks("examples/hospitals/README.md", "text")][::-1]
    assert said in done.stdout
    found = pd.read_csv(place / "readmitted" / "coefficients.csv").set_index("feature")
    used = found.index[found["coef"] != 0]
    assert set(used) == {"(intercept)", "age", "creatinine", "stays", "smoker[yes]"}
    truth = {"age": 0.05, "creatinine": 0.02, "stays": 0.6, "smoker[yes]": 0.9}
    assert all(found["low"][name] < value < found["high"][name] for name, value in truth.items())


@pytest.mark.browser
def test_a_site_that_is_killed_while_one_looks_is_seen_to_come_back(folder, tmp_path, browser):
    out = tmp_path / "out"
    look = Page(browser, Path("unused"))
    with subprocess.Popen(command(folder, out, "--alpha", 0.1, "--watch"), stderr=subprocess.PIPE, text=True) as fit:
        assert fit.stderr is not None
        url = next(line.split()[-1] for line in fit.stderr if line.startswith("Watch it at"))
        browser.get(url)
        look.until(lambda: look.texts("#sites tbody th") == list(hospitals.SIZES))
        look.until(lambda: look.all("#exchanges tbody tr"))
        site_of(fit, "padua").kill()
        fit.stderr.read()
        look.until(lambda: look.one("#verdict").text == "✓ converged")
    assert fit.returncode == 0
    assert any("padua" in words for words in look.texts("#happened li"))
    assert look.texts("#sites tbody tr:nth-child(3) td")[1] == "answered"
    assert look.errors() == []
