"""Over real processes on loopback: the same models as in process, and every fault survived."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from safetensors.numpy import load_file

import cofed
from cofed.flower import read_saved
from cofed.flower.certificates import make
from cofed.sites.secure.keys import SiteKeys
from tests.flower.app.netapp import apps
from tests.flower.harness import SITES, Network, in_process, network
from tests.flower.reference import faulty_run

# The signal lets a test that hangs stop what it has started, which the thread that ends other tests would not.
pytestmark = [pytest.mark.network, pytest.mark.timeout(1500, method="signal")]
METHODS = ["FedDualAvg", "FastFedDA", "FedDecouple", "Scaffold", "FedProx", "Compressed"]


def same_model(saved, expected):
    for name in ("coef", "intercept"):
        found, wanted = saved.model[name], np.asarray(getattr(expected.model, name))
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14 if found.dtype == np.float64 else 1e-6)


def same_bits(saved, other):
    for name in ("coef", "intercept"):
        np.testing.assert_array_equal(saved.model[name], other.model[name])


@pytest.fixture(scope="module")
def steady(tmp_path_factory):
    """A federation whose sites stay, for runs one after another."""
    with network(tmp_path_factory.mktemp("steady")) as net:
        for site in SITES:
            net.site(site)
        yield net


def run_on(net, name, **config):
    """A run with a result folder of its own."""
    process = net.run_app(name, **config)
    saved = net.end(name=name)
    assert process.wait() == 0
    return saved


def undisturbed(net, method):
    """The run of five rounds in which nothing happens, once for all tests."""
    if (net.result(method) / "result.json").exists():
        return read_saved(net.result(method))
    return run_on(net, method, method=method)


@pytest.mark.parametrize("method", METHODS)
def test_three_supernodes_give_the_model_of_the_process(steady, method):
    saved = undisturbed(steady, method)
    expected = in_process(method)
    same_model(saved, expected)
    assert saved.outcome == "COMPLETED"
    assert saved.left_out == []
    np.testing.assert_allclose(saved.history["objective"], expected.history["objective"], rtol=1e-12)
    np.testing.assert_array_equal(saved.history["bytes_up"], expected.history["bytes_up"])
    if method == "FedProx":
        for site, coef in zip(SITES, expected.personal_models.coef, strict=True):
            own = load_file(steady.folder / "kept" / site / "personal.safetensors")
            np.testing.assert_allclose(own["coef"], coef, rtol=0, atol=1e-14)


def test_a_float32_run_stays_float32(tmp_path):
    with network(tmp_path, np.float32) as net:
        for site in SITES:
            net.site(site)
        same_model(run_on(net, "single", rounds=2), in_process("FedDualAvg", np.float32, rounds=2))


FAULTS = "nan@0:cork shape@1:cork round@2:cork algorithm@3:cork garbage@4:cork"


@pytest.fixture(scope="module")
def faults(steady):
    """One run in which a site goes wrong in five ways, one after another."""
    return run_on(steady, "faults", method="Scaffold", fault=FAULTS, quorum=2, rounds=6, deadline=600.0)


@pytest.mark.parametrize(
    ("round", "words"),
    [
        (0, "not finite"),
        (1, "expected float64[20]"),
        (2, "the message is of round 99, expected 2"),
        (3, "the message is of algorithm 'FedSecret', expected 'Scaffold'"),
        (4, "the message is of format None"),
    ],
    ids=["nan", "shape", "round", "algorithm", "garbage"],
)
def test_a_bad_reply_is_left_out_and_named(faults, round, words):
    [event] = [event for event in faults.left_out if event.round == round]
    assert event.client == "cork"
    assert words in event.why
    assert faults.history["participants"].tolist() == [0, 2, 2, 2, 2, 2, 3]


def test_the_model_after_bad_replies_is_right(faults):
    same_model(faults, faulty_run("Scaffold", FAULTS, rounds=6, quorum=2))


def right_without(saved, method, rounds):
    """The model is that of exactly the updates that were not left out."""
    gone = " ".join(f"gone@{event.round}:{event.client}" for event in saved.left_out if event.round < rounds)
    same_model(saved, faulty_run(method, gone, rounds=rounds, quorum=2))


def test_a_slow_site_is_not_waited_for_beyond_the_deadline(steady):
    process = steady.run_app("slow", fault="slow@1:cork", quorum=2, rounds=3, deadline=45.0)
    steady.until("round 1: without cork: it did not answer in time", name="slow")
    steady.until('"kind": "round", "round": 2', name="slow")  # while cork still works on round 1
    (steady.folder / apps.RELEASE).touch()
    saved = steady.end("slow")
    assert process.wait() == 0
    assert saved.outcome == "COMPLETED"
    right_without(saved, "FedDualAvg", 3)


def test_a_client_killed_in_mid_round_is_not_waited_for(steady):
    saved = run_on(steady, "mid-round", fault="killed@1:basel", quorum=2, rounds=3, deadline=45.0)
    assert (steady.folder / "killed-once").exists()
    missed = {(event.round, event.client) for event in saved.left_out}
    assert (1, "basel") in missed or steady.lines("mid-round").count("round 1: asked basel") > 1
    assert saved.outcome == "COMPLETED"
    right_without(saved, "FedDualAvg", 3)


def test_a_site_that_is_absent_from_the_start_is_named_and_comes_later(tmp_path):
    with network(tmp_path) as net:
        for site in ("aachen", "basel"):
            net.site(site)
        process = net.run_app("absent", clients=" ".join(SITES), quorum=2, rounds=6, deadline=45.0)
        net.until("round 0: without cork: it is absent", name="absent")
        net.site("cork")
        saved = net.end("absent")
        assert process.wait() == 0
    assert saved.outcome == "COMPLETED"
    assert (0, "cork", "it is absent") in [(event.round, event.client, event.why) for event in saved.left_out]
    assert saved.history["participants"].iloc[-1] == 3, "it never came"


def test_the_server_killed_and_started_again_ends_with_the_undisturbed_model(steady):
    steady.run_app("killed-server", method="FedDecouple")
    steady.until('"kind": "round", "round": 2', name="killed-server")
    [server] = steady.named("flwr-serverapp")
    server.kill()
    saved = run_on(steady, "killed-server", method="FedDecouple")
    assert '"kind": "resumed"' in steady.lines("killed-server")
    same_model(saved, in_process("FedDecouple"))
    same_bits(saved, undisturbed(steady, "FedDecouple"))


def test_a_site_that_is_killed_and_comes_back_goes_on(tmp_path):
    with network(tmp_path) as net:
        for site in SITES:
            net.site(site)
        process = net.run_app("back", method="Scaffold", quorum=2, rounds=7, deadline=60.0)
        net.until('"kind": "round", "round": 1', name="back")
        net.kill("cork")
        net.until("without cork", name="back")
        net.site("cork")
        saved = net.end(name="back")
        assert process.wait() == 0
    assert "cork" in {event.client for event in saved.left_out}
    assert saved.history["participants"].iloc[-1] == 3, "it never came back"
    right_without(saved, "Scaffold", 7)


def test_everything_killed_and_started_again_ends_with_the_undisturbed_model(steady, tmp_path):
    with network(tmp_path) as net:
        for site in SITES:
            net.site(site)
        net.run_app("all", method="Scaffold")
        net.until('"kind": "round", "round": 2', name="all")
        for name in ("superlink", *SITES):
            net.kill(name)
        net.superlink()
        for site in SITES:
            net.site(site)
        saved = run_on(net, "all", method="Scaffold")
    same_model(saved, in_process("Scaffold"))
    same_bits(saved, undisturbed(steady, "Scaffold"))


def test_below_the_quorum_it_waits_says_so_and_stops_with_all_it_has(tmp_path):
    with network(tmp_path) as net:
        for site in SITES:
            net.site(site)
        net.run_app("starved", quorum=3, deadline=30.0, patience=120.0)
        net.until('"kind": "round", "round": 1', name="starved")
        net.kill("cork")
        saved = net.end(name="starved")
        assert "2 of 3 sites that it needs have answered; waiting" in net.lines("starved")
    assert saved.outcome == "STARVED"
    done = int(saved.history["round"].iloc[-1])
    assert 1 <= done < 5
    assert saved.left_out[-1].client == "cork"
    same_model(saved, in_process("FedDualAvg", rounds=done))


HOSPITALS = Path(__file__).parent.parent.parent / "examples" / "hospitals"


def test_the_example_runs_over_tls_and_lets_in_nobody_without_a_key(tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    sites = sorted(folder.name for folder in (HOSPITALS / "data").iterdir())
    make(good, ["127.0.0.1", "localhost"], sites)
    make(bad, ["127.0.0.1", "localhost"], ["stranger"])
    keys = {site: SiteKeys.of_folder(tmp_path / "kept" / site).public for site in sites}
    roster = tmp_path / "roster.toml"
    roster.write_text("".join(f'{site} = "{key}"\n' for site, key in keys.items()))
    with Network(tmp_path, good) as net:
        net.superlink()
        for site in sites:
            net.register(site, good / f"{site}.key.pub")
            own = {"keep": str(tmp_path / "kept" / site), "roster": str(roster)}
            net.supernode(site, data=str(HOSPITALS / "data" / site), **own)
        net.supernode("misled", root=bad / "ca.crt", key=good / "padua.key")
        net.supernode("stranger", key=bad / "stranger.key")
        net.run(HOSPITALS, "hospitals", rounds=2, quorum=4, checkpoint=str(net.result("hospitals")))
        saved = net.end("hospitals")
        misled, stranger = (net.log(name).read_text() for name in ("misled", "stranger"))
        text = net.lines("hospitals")
    tables = {site: pd.read_csv(HOSPITALS / "data" / site / "patients.csv") for site in sites}
    federation = cofed.Federation.from_arrays({s: (t.drop(columns=["cost"]), t["cost"]) for s, t in tables.items()})
    problem = cofed.Problem(cofed.Linear(), cofed.Squared(), cofed.On(cofed.L1(0.05), "coef"))
    options = {"rounds": 2, "local_steps": 20, "batch_size": 32, "weights": "samples"}
    same_model(saved, cofed.run(problem, federation, cofed.FedDualAvg(0.02), **options))
    for name in ("misled", "stranger"):
        assert f'"site": "{name}"' not in text
    assert "certificate verify failed" in misled.lower()
    assert "failed to activate supernode" in stranger.lower()


def test_cofed_federate_runs_and_stops_all_it_started(tmp_path):
    command = [sys.executable, "-m", "cofed", "federate", str(HOSPITALS / "data"), "--target", "cost", "--out"]
    options = ["--rounds", "2", "--algorithm", "FedDualAvg(client_lr=0.02)", "--secure"]
    done = subprocess.run([*command, str(tmp_path / "out"), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "completed after 2 rounds, objective" in done.stdout
    assert "turku has answered" in (tmp_path / "out" / "run" / "progress.jsonl").read_text()
    assert "round 2 of 2: 4 of 4 sites" in done.stderr
    assert homes(tmp_path / "out") == []


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_ctrl_c_stops_all_that_cofed_federate_started(tmp_path, number, word):
    command = [sys.executable, "-m", "cofed", "federate", str(HOSPITALS / "data"), "--target", "cost", "--out"]
    process = subprocess.Popen([*command, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    try:
        while not (tmp_path / "run" / "progress.jsonl").exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.2)
        assert len(homes(tmp_path)) >= 6
        process.send_signal(number)
        _, words = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 130
    assert f"Stopped by {word}; all processes are ended" in " ".join(words.split())
    assert "Traceback" not in words
    assert homes(tmp_path) == []


def homes(out):
    """The processes whose Flower home is in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("FLWR_HOME") == str(out.resolve() / "flwr"):
                found.append(process.cmdline())
        except (psutil.Error, OSError):
            continue
    return found


def addresses(net):
    """To whom our processes talk, and where they listen."""
    found = set()
    for process in net.ours():
        try:
            for connection in process.net_connections("inet"):
                found |= {end.ip for end in (connection.laddr, connection.raddr) if end}
        except psutil.Error:  # gone by now
            continue
    return found


def test_processes_talk_to_nobody_else_and_nothing_is_left_running(tmp_path):
    with network(tmp_path) as net:
        for site in SITES:
            net.site(site)
        net.run_app("short", rounds=50)
        net.until('"kind": "asked"', name="short")
        assert len(net.ours()) >= 6
        assert addresses(net) == {"127.0.0.1"}
    assert net.ours() == []
    with pytest.raises(ValueError, match="holds no finished run"):
        read_saved(net.result("short"))
