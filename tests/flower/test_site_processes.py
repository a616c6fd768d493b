"""Sites in processes of their own on loopback: the same coefficients as in this process, whoever is killed."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from sklearn.pipeline import make_pipeline

from cofed import advise_sites, describe, estimators, survival_curves, transformers
from cofed.flower.local_sites import await_sites, start_sites
from cofed.flower.processes import MARK, free_ports
from cofed.flower.site_process import SiteOptions, check_folder, server_address
from cofed.sites import SiteTable, Target, agree, table_sites
from cofed.sites.audit import verify
from cofed.sites.chosen_columns import ChosenColumns
from cofed.sites.exchange_log import read_log
from cofed.sites.policy import TRIAL, Policy, policy_toml
from cofed.sites.secure.invitation import PLAIN
from cofed.sites.secure.keys import SiteKeys
from cofed.studies import approve, draft, write, write_release
from cofed.studies.schema import StudySite

# The signal lets a test that hangs stop what it has started, which the thread that ends other tests would not.
pytestmark = [pytest.mark.network, pytest.mark.timeout(900, method="signal")]
ROOT = Path(__file__).parents[2]
FIT = """
import sys
from pathlib import Path
from cofed import estimators
from cofed.flower.local_sites import start_sites
from cofed.sites.chosen_columns import ChosenColumns

where = Path(sys.argv[1])
files = {path.stem: path for path in sorted((where / "tables").iterdir())}
with start_sites(files, where / "out", ChosenColumns(target="ill")) as sites:
    found = estimators.FederatedLogisticRegression(alpha=0.01).fit(sites)
    print(found.coef_.tobytes().hex())
"""


MANY = 8  # times the rows: the rules of a site let nobody look at many models of few rows


def tables(times=1):
    """Three sites with a factor, in columns of different orders."""
    rng, found = np.random.default_rng(0), {}
    for site, n in (("aachen", 60 * times), ("basel", 45 * times), ("cork", 52 * times)):
        age, sex = rng.normal(50, 9, n), rng.choice(["female", "male"], n)
        odds = (age - 50) / 9 + (sex == "male") + rng.normal(size=n)
        frame = pd.DataFrame(
            {"age": age, "sex": sex, "dose": rng.normal(size=n), "ill": np.where(odds > 0, "yes", "no")}
        )
        found[site] = frame[list(rng.permutation(frame.columns))]
    return found


def written(folder, times=1):
    """A file for each site."""
    (folder / "tables").mkdir()
    for site, frame in tables(times).items():
        frame.to_csv(folder / "tables" / f"{site}.csv", index=False)
    return {path.stem: path for path in sorted((folder / "tables").iterdir())}


def in_this_process():
    """The fit in this process."""
    return estimators.FederatedLogisticRegression(alpha=0.01).fit(table_sites(tables(), "ill"))


def leftovers(mark):
    """The living processes of a start."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_the_coefficients_are_those_of_this_process_though_a_site_is_killed(tmp_path, secure):
    files, killed = written(tmp_path), []

    def kill_once(kind, **details):
        if kind == "asked" and details["site"] == "cork" and len(sites.exchanges) == 2 and not killed:
            killed.extend(
                process for process in leftovers(mark) if process.cmdline()[-1:] and "cork" in process.cmdline()
            )
            for process in killed:
                process.send_signal(signal.SIGKILL)

    with start_sites(files, tmp_path / "out", ChosenColumns(target="ill"), secure=secure) as sites:
        mark = (tmp_path / "out" / "mark").read_text()
        sites.exchanges.listeners.append(kill_once)
        found = estimators.FederatedLogisticRegression(alpha=0.01).fit(sites)
        assert len(killed) == 1
    np.testing.assert_allclose(found.coef_, in_this_process().coef_, rtol=1e-12)
    assert leftovers(mark) == []
    assert all(one.up > 0 for one in sites.exchanges)


def roads(sites):
    """Numbers of every kind of question that a fit asks, by what they are of."""
    chosen = sites.with_columns(group="person", cluster="person")
    by_person = estimators.FederatedLogisticRegressionCV(cv=("person", 3), measure="auc", n_alphas=6).fit(chosen)
    yield "the AUC of persons held out", by_person.cv_mean_
    yield "their model", by_person.coef_
    yield "errors by person", by_person.infer(chosen, errors="person").to_numpy(float)
    by_site = {"cv": "leave-one-site-out", "measure": "misclassification", "n_alphas": 6}
    elsewhere = estimators.FederatedLogisticRegressionCV(**by_site).fit(sites)
    yield "mistakes at a site that is held out", elsewhere.cv_mean_
    yield "its model", elsewhere.coef_
    times = sites.with_design(agree(sites.infos, Target(name="days", event="dead"), ["age", "sex", "dose"]))
    cox = estimators.FederatedCoxCV(cv=3, n_alphas=6).fit(times)
    yield "Cox's model", cox.coef_
    yield "its intervals", cox.infer(times).to_numpy(float)
    curves = survival_curves(sites, "days", "dead", group="sex", times=[10.0, 50.0, 100.0])
    yield "Kaplan and Meier's curves", np.array([one.survival for one in curves.curves.values()])
    yield "the log-rank test", np.array([curves.log_rank.statistic, curves.by_site.statistic])
    yield "Table 1", overall(describe(sites).table)


def test_every_road_of_a_fit_leads_where_it_leads_in_this_process(tmp_path):
    rng, frames = np.random.default_rng(1), tables()
    for site, frame in frames.items():
        n = len(frame)
        person, days = [f"{site} {one}" for one in rng.integers(0, n // 3, n)], rng.exponential(50, n).round(1) + 0.1
        frames[site] = frame.assign(person=person, days=days, dead=rng.integers(0, 2, n))
    features = ("age", "sex", "dose")
    with start_sites(frames, tmp_path / "out", ChosenColumns(target="ill", features=features)) as sites:
        there = dict(roads(sites))
    for what, numbers in roads(table_sites(frames, "ill", list(features))):
        np.testing.assert_allclose(there[what], numbers, rtol=1e-12, atol=1e-13, err_msg=what)


def plain_roads(sites):
    """Numbers of what asks each site by itself, permutes rows at the sites, or transforms them there."""
    numbers = sites.with_design(agree(sites.infos, "dose", ["age", "sex"]))
    mixed = estimators.FederatedMixedModel(slopes=["age"]).fit(numbers)
    yield "effects in common", mixed.fixed_effects_.to_numpy()
    yield "between sites", mixed.covariance_.to_numpy()
    yield "of classes", estimators.FederatedMixedGLM("binomial").fit(sites).fixed_effects_.to_numpy()
    yield "advice", advise_sites("binomial", sites).table.to_numpy(float)
    model = estimators.FederatedLogisticRegression(0.01).fit(sites)
    yield "importances", estimators.permutation_importance(model, sites, n_repeats=2, measure="auc").scores
    steps = (
        transformers.FederatedSplineTransformer(2, 2, knots="uniform", tol=0.01),
        estimators.FederatedStandardScaler(),
    )
    # Splines of a column with two values are collinear: with a ridge their coefficients are one answer, not many.
    pipeline = make_pipeline(*steps, estimators.FederatedElasticNet(0.01)).fit(numbers)
    yield "a pipeline", pipeline[-1].coef_
    yield "its score", np.array([pipeline.score(numbers)])


def test_what_asks_each_site_leads_where_it_leads_in_this_process(tmp_path):
    frames = tables()
    chosen = ChosenColumns(target="ill", features=("age", "sex", "dose"))
    with start_sites(frames, tmp_path / "out", chosen, plain=True) as sites:
        there = dict(plain_roads(sites))
    for what, numbers in plain_roads(table_sites(frames, "ill", ["age", "sex", "dose"])):
        np.testing.assert_allclose(there[what], numbers, rtol=1e-6, atol=1e-9, err_msg=what)


def test_a_killed_server_goes_on_to_the_same_bits(tmp_path):
    written(tmp_path)
    (tmp_path / "fit.py").write_text(FIT)
    command = [sys.executable, str(tmp_path / "fit.py"), str(tmp_path)]
    out, log = tmp_path / "out", tmp_path / "out" / "log"
    first = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    began = time.monotonic()
    while len(read_log(log)) < 3:
        assert first.poll() is None
        assert time.monotonic() - began < 600
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    mark, known = (out / "mark").read_text(), read_log(log)
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    assert leftovers(mark) == []  # what the first start could not stop
    whole = read_log(log)
    assert whole[: len(known)] == known
    assert len(whole) > len(known)
    (tmp_path / "out").rename(tmp_path / "interrupted")
    undisturbed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    assert again.stdout == undisturbed.stdout
    assert len(bytes.fromhex(again.stdout.strip())) == 3 * 8
    assert [line.get("question") for line in read_log(log)] == [line.get("question") for line in whole]


def test_a_site_with_a_table_that_cannot_be_read_says_so(tmp_path):
    files = written(tmp_path)
    files["cork"].write_bytes(os.urandom(300))
    began = time.monotonic()
    with (
        pytest.raises(RuntimeError, match="the site cork ended") as caught,
        start_sites(files, tmp_path / "out", ChosenColumns(target="ill")),
    ):
        pass
    assert "cork.csv" in str(caught.value)
    assert time.monotonic() - began < 300  # and not after `patience`


def overall(described):
    """The numbers of a description of all sites together."""
    whole = described[described["site"].isin(["", np.nan])].sort_values(["variable", "level"])
    return whole[["rows", "missing", "mean", "sd", "p25", "p50", "p75", "count", "share"]].to_numpy(float)


def test_tables_are_described_by_processes_as_by_this_one(tmp_path):
    written(tmp_path)
    command = [
        sys.executable,
        "-m",
        "cofed",
        "describe",
        str(tmp_path / "tables"),
        "--csv",
        str(tmp_path / "found.csv"),
    ]
    done = subprocess.run([*command, "--processes"], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = pd.read_csv(tmp_path / "found.csv")
    assert found["site"].isna().all()  # nobody learns a site's own numbers
    np.testing.assert_allclose(overall(found), overall(describe(tables()).table))


def test_a_study_is_served_to_sites_that_were_there_first(tmp_path):
    files, [port] = written(tmp_path, MANY), free_ports(1)
    infos = {site: SiteTable(frame, site).info() for site, frame in tables(MANY).items()}
    study = draft(infos, target="ill").study
    one = study.analyses[0].model_copy(update={"alpha": 0.01, "cv": None, "select": None})
    keys = {site: SiteKeys.of_folder(tmp_path / "kept" / site).public for site in files}
    named = tuple(StudySite(name=site, key=key) for site, key in keys.items())
    study = study.model_copy(update={"analyses": (one,), "sites": named})
    write(tmp_path / "study.toml", study)
    for site in files:
        approve(tmp_path / "kept" / site, study)
    cofed, at = [sys.executable, "-m", "cofed"], f"127.0.0.1:{port}"
    started = []
    try:
        for site, path in files.items():
            own = ["--data", str(path), "--keep", str(tmp_path / "kept" / site), "--server", at, "--insecure"]
            with open(tmp_path / f"{site}.log", "w") as log:
                started.append(subprocess.Popen([*cofed, "site", *own], cwd=ROOT, stdout=log, stderr=log))
        own = ["--host", "127.0.0.1", "--port", str(port), "--insecure", "--out", str(tmp_path / "out")]
        command = [*cofed, "serve", str(tmp_path / "study.toml"), *own]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        command.append("--describe")  # the sites wait for the next server
        shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        assert shown.returncode == 0, shown.stderr[-3000:]
    finally:
        for process in started:
            process.terminate()
    assert [process.wait(120) for process in started] == [0, 0, 0]
    found = pd.read_csv(tmp_path / "out" / "coefficients.csv").set_index("feature")["coef"]
    near = table_sites(tables(MANY), "ill", list(one.features))
    expected = estimators.FederatedLogisticRegression(alpha=0.01).fit(near)
    np.testing.assert_allclose(found[list(near.feature_names)], np.ravel(expected.coef_), rtol=1e-10)
    assert "The sites' answers were masked" in done.stdout
    assert "aachen is there" in " ".join((tmp_path / "out" / "progress.jsonl").read_text().split())
    np.testing.assert_allclose(overall(pd.read_csv(tmp_path / "out" / "table1.csv")), overall(describe(near).table))
    logs = [tmp_path / "kept" / site / "audit.jsonl" for site in files]
    for path, key in zip(logs, keys.values(), strict=True):
        verdict = verify(path, key, [other for other in logs if other != path])
        assert verdict.holds
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert {line["is_masked"] for line in lines if line["event"] == "answer"} == {True}
    assert not list((tmp_path / "kept").glob("*/runs/*/key"))  # the fit is over, and its masks can never be made again


def test_a_study_goes_on_without_a_released_site_that_never_came(tmp_path):
    """Also when the server is killed after that and started again."""
    frames = tables(MANY)
    frames["dover"] = frames["basel"].sample(frac=1, random_state=1).assign(dose=lambda one: one["dose"] + 1)
    [port] = free_ports(1)
    study = draft({site: SiteTable(frame, site).info() for site, frame in frames.items()}, target="ill").study
    one = study.analyses[0].model_copy(update={"alpha": 0.01, "cv": None, "select": None})
    keys = {site: SiteKeys.of_folder(tmp_path / "kept" / site).public for site in frames}
    named = tuple(StudySite(name=site, key=key) for site, key in keys.items())
    study = study.model_copy(update={"analyses": (one,), "sites": named})
    write(tmp_path / "study.toml", study)
    write_release(tmp_path / "dover.json", tmp_path / "kept" / "dover", study, "dover")
    cofed, at, started = [sys.executable, "-m", "cofed"], f"127.0.0.1:{port}", []
    own = ["--host", "127.0.0.1", "--port", str(port), "--insecure", "--out", str(tmp_path / "out"), "--patience", "60"]
    own += ["--missing", "drop", "--release", str(tmp_path / "dover.json")]
    command, log = [*cofed, "serve", str(tmp_path / "study.toml"), *own], tmp_path / "out" / "network" / "log"
    try:
        for site in ("aachen", "basel", "cork"):
            approve(tmp_path / "kept" / site, study)
            frames[site].to_csv(tmp_path / f"{site}.csv", index=False)
            data = ["--data", str(tmp_path / f"{site}.csv"), "--keep", str(tmp_path / "kept" / site)]
            words = [*cofed, "site", *data, "--server", at, "--insecure"]
            with open(tmp_path / f"{site}.log", "w") as said:
                started.append(subprocess.Popen(words, cwd=ROOT, stdout=said, stderr=said))
        for site, process in zip(("aachen", "basel", "cork"), started, strict=True):
            while "no server answers" not in (tmp_path / f"{site}.log").read_text():
                assert process.poll() is None, (tmp_path / f"{site}.log").read_text()
                time.sleep(0.1)
        with open(tmp_path / "server.log", "w") as said:
            first = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)
        while len(read_log(log / "without-1")) < 3:
            assert first.poll() is None, (tmp_path / "server.log").read_text()
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
        first.wait()
        known = read_log(log / "without-1")
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    finally:
        for process in started:
            process.terminate()
    assert [process.wait(120) for process in started] == [0, 0, 0]
    assert read_log(log / "without-1")[: len(known)] == known
    assert (tmp_path / "out" / "summary.txt").read_text().startswith("WITHOUT dover: ")
    found = pd.read_csv(tmp_path / "out" / "coefficients.csv").set_index("feature")["coef"]
    near = table_sites(tables(MANY), "ill", list(one.features))
    expected = estimators.FederatedLogisticRegression(alpha=0.01).fit(near)
    np.testing.assert_allclose(found[list(near.feature_names)], np.ravel(expected.coef_), rtol=1e-10)


def test_a_site_waits_for_a_server_and_for_the_next_one(tmp_path):
    file, [port] = written(tmp_path)["cork"], free_ports(1)
    (tmp_path / "policy.toml").write_text(policy_toml(TRIAL))
    own = ["--data", str(file), "--keep", str(tmp_path / "kept"), "--server", f"127.0.0.1:{port}", "--insecure"]
    own += ["--policy", str(tmp_path / "policy.toml")]
    said = tmp_path / "said"
    with said.open("w") as log:
        site = subprocess.Popen([sys.executable, "-m", "cofed", "site", *own], cwd=ROOT, stdout=log, stderr=log)
    try:
        began = time.monotonic()
        while f"no server answers at 127.0.0.1:{port}; trying again" not in said.read_text():
            assert time.monotonic() - began < 300
            time.sleep(0.1)
        found = []
        for out in ("first", "second"):
            columns = ChosenColumns(target="ill")
            at = ("127.0.0.1", port)
            with await_sites(["cork"], tmp_path / out, columns, at=at, patience=300.0, invitation=PLAIN) as sites:
                found.append(estimators.FederatedLogisticRegression(alpha=0.01).fit(sites).coef_.tobytes())
        assert found[0] == found[1]
        assert site.poll() is None
        assert "looking for it again" in said.read_text()
    finally:
        site.terminate()
        code = site.wait(120)
    assert code == 0


def started_keep(folder, policy=TRIAL):
    """The options of a site that has been started once in a folder."""
    options = SiteOptions(folder / "cork.csv", "127.0.0.1:1", "cork", folder / "keep", policy)
    check_folder(options)
    return options


def test_a_site_logs_its_start_and_by_which_rules(tmp_path):
    options = started_keep(tmp_path)
    check_folder(dataclasses.replace(options, policy=Policy()))
    lines = [json.loads(line) for line in (options.keep / "audit.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["started", "started"]
    assert lines[0]["note"] != lines[1]["note"]
    assert all(line["note"].startswith("the server is 127.0.0.1:1, the policy's hash is ") for line in lines)
    assert verify(options.keep / "audit.jsonl", SiteKeys.of_folder(options.keep).public).holds


def test_a_site_does_not_start_with_keys_for_all_to_read_or_a_damaged_log(tmp_path):
    options = started_keep(tmp_path)
    check_folder(options)
    log = options.keep / "audit.jsonl"
    whole = log.read_text()
    log.write_text(whole.replace('"started"', '"ended"', 1))
    with pytest.raises(ValueError, match="begin a new one"):
        check_folder(options)
    log.write_text(whole)
    (options.keep / "secret.key").chmod(0o644)
    with pytest.raises(ValueError, match="can be read or changed by others"):
        check_folder(options)
    (options.keep / "secret.key").chmod(0o600)
    (options.keep / "policy").write_text("no folder")  # in the place of the record of what was answered
    with pytest.raises(ValueError, match="policy"):
        check_folder(dataclasses.replace(options, policy=Policy()))


@pytest.mark.parametrize("server", ["nonsense", "example.org", "example.org:", "https://example.org:9092", "a:0"])
def test_a_server_that_is_no_host_and_port_is_refused(server):
    with pytest.raises(ValueError, match="--server must be a host and a port"):
        server_address(server)


def test_a_wrong_address_is_said_before_anything_starts(tmp_path):
    command = [sys.executable, "-m", "cofed", "site", "--data", __file__, "--server", "nonsense", "--insecure"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert "Error: --server must be a host and a port, such as fl.example.org:9092, got 'nonsense'." in done.stderr
