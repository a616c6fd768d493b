"""Sites that fail, on a Grid in this process: the round goes on with the quorum, and the history names them."""

import hashlib
import json
import re

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict
from safetensors.numpy import load_file, save_file

import cofed
from cofed.flower import Privacy, client_app, membership, read_saved, serve
from cofed.sites.policy import TRIAL
from tests import worlds
from tests.flower.loopback import network

NAMES = ["a", "b", "c"]
OPTIONS = {"rounds": 4, "clients": 3, "local_steps": 2, "deadline": 0.2, "patience": 1.0, "plain": True}
WORLD = worlds.linear(sizes=(4, 9, 6), names=NAMES)


def is_round(message, round):
    return message.metadata.message_type == "train" and message.content.config_records["cofed"]["round"] == round


def replaced(change):
    """A fault of site c in round 1."""

    def fault(site, message, reply):
        return change(reply) if site == "c" and is_round(message, 1) else reply

    return fault


def with_arrays(make):
    def change(reply):
        reply.content["up"] = ArrayRecord({name: Array(make(a.numpy())) for name, a in reply.content["up"].items()})
        return reply

    return change


def with_head(**entries):
    def change(reply):
        reply.content.config_records["cofed"].update(entries)
        return reply

    return change


def emptied(reply):
    reply.content = RecordDict({})
    return reply


FAULTS = {
    "silent": (lambda reply: None, "did not answer in time"),
    "nan": (with_arrays(lambda a: a * np.nan), "not finite"),
    "shape": (with_arrays(lambda a: np.zeros(3)), "expected float64"),
    "float32": (with_arrays(lambda a: a.astype(np.float32)), "expected float64"),
    "round": (with_head(round=0), "of round 0, expected 1"),
    "algorithm": (with_head(algorithm="Other"), "of algorithm 'Other'"),
    "definition": (with_head(definition="0"), "of definition '0'"),
    "format": (with_head(format=2), "format 2"),
    "name": (with_head(site="b"), "of site 'b', expected 'c'"),
    "garbage": (emptied, "no head"),
}
ALGORITHM, PROBLEM = cofed.Scaffold(0.02, 1.2), worlds.problem()


@pytest.mark.parametrize("name", FAULTS)
def test_the_round_goes_on_and_the_history_says_why(name):
    change, words = FAULTS[name]
    grid, _ = network(PROBLEM, ALGORITHM, WORLD, fault=replaced(change))
    result = serve(grid, PROBLEM, ALGORITHM, quorum=2, **OPTIONS)
    [event] = result.history.left_out
    assert (event.round, event.client) == (1, "c")
    assert words in event.why
    assert result.outcome is cofed.Outcome.COMPLETED
    assert result.history["participants"].tolist() == [0, 3, 2, 3, 3]
    grid, _ = network(PROBLEM, ALGORITHM, WORLD, fault=replaced(lambda reply: None))
    same = serve(grid, PROBLEM, ALGORITHM, quorum=2, **OPTIONS)
    np.testing.assert_array_equal(result.model.coef, same.model.coef)


def test_without_a_site_the_model_is_that_of_the_others():
    algorithm = cofed.FedDualAvg(0.02, 1.2)
    grid, _ = network(
        PROBLEM, algorithm, WORLD, fault=lambda site, _, reply: None if site == "c" and "up" in reply.content else reply
    )
    result = serve(grid, PROBLEM, algorithm, quorum=2, **OPTIONS)
    others = cofed.run(PROBLEM, WORLD.select(["a", "b"]), algorithm, rounds=4, local_steps=2)
    np.testing.assert_allclose(result.model.coef, others.model.coef, rtol=1e-12)


def test_below_the_quorum_it_stops_with_all_it_has(tmp_path):
    grid, _ = network(
        PROBLEM, ALGORITHM, WORLD, fault=lambda site, message, reply: None if is_round(message, 2) else reply
    )
    result = serve(grid, PROBLEM, ALGORITHM, checkpoint=tmp_path, **OPTIONS)
    assert result.outcome is cofed.Outcome.STARVED
    expected = cofed.run(PROBLEM, WORLD, ALGORITHM, rounds=2, local_steps=2)
    np.testing.assert_allclose(result.model.coef, expected.model.coef, rtol=1e-12)
    assert {event.client for event in result.history.left_out} == set(NAMES)
    assert "0 of 3 sites that it needs have answered" in (tmp_path / "progress.jsonl").read_text()
    assert read_saved(tmp_path).outcome == "STARVED"


class Killed(BaseException):
    pass


@pytest.mark.parametrize("algorithm", [ALGORITHM, cofed.FedDecouple(0.02, 1.2)], ids=lambda a: type(a).__name__)
def test_a_server_that_is_killed_in_mid_round_ends_with_the_same_bits(tmp_path, algorithm):
    def kill(site, message, reply):
        if site == "b" and is_round(message, 2):
            raise Killed
        return reply

    options = OPTIONS | {"batch_size": 3}
    grid, _ = network(PROBLEM, algorithm, WORLD, tmp_path / "sites", kill)
    with pytest.raises(Killed):
        serve(grid, PROBLEM, algorithm, checkpoint=tmp_path / "run", **options)
    # A new run of Flower: new nodes, empty contexts; the sites have their folders.
    grid, _ = network(PROBLEM, algorithm, WORLD, tmp_path / "sites")
    resumed = serve(grid, PROBLEM, algorithm, checkpoint=tmp_path / "run", **options)
    grid, _ = network(PROBLEM, algorithm, WORLD)
    whole = serve(grid, PROBLEM, algorithm, **options)
    np.testing.assert_array_equal(resumed.model.coef, whole.model.coef)
    np.testing.assert_array_equal(resumed.history["objective"], whole.history["objective"])


def as_format_1(folder):
    """Rewrite the newest checkpoint as versions before this one wrote it."""
    path = max(folder.glob("round-*.json"))
    record, tensors = json.loads(path.read_text()), load_file(path.with_suffix(".safetensors"))
    state = {name.removeprefix("state."): array for name, array in tensors.items()}
    sites = {name: dict(zip(NAMES, state.pop(name).tolist(), strict=True)) for name in ("counted", "spent")}
    numbers = {name: int(state.pop(name)) for name in ("round", "begun", "stage")}
    save_file(state, path.with_suffix(".safetensors"))
    digest = hashlib.sha256(path.with_suffix(".safetensors").read_bytes()).hexdigest()
    down, up = record["bytes"]
    meta = numbers | sites | {"rows": record["rows"], "left_out": [[0, "a", "it is absent"]], "down": down, "up": up}
    path.write_text(json.dumps(meta | {"seconds": record["seconds"], "sha256": digest}))
    definition = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(definition | {"format": 1}))


def test_a_run_of_an_earlier_version_goes_on_with_the_same_bits(tmp_path):
    def kill(site, message, reply):
        if is_round(message, 2):
            raise Killed
        return reply

    grid, _ = network(PROBLEM, ALGORITHM, WORLD, tmp_path / "sites", kill)
    with pytest.raises(Killed):
        serve(grid, PROBLEM, ALGORITHM, checkpoint=tmp_path / "run", **OPTIONS)
    as_format_1(tmp_path / "run")
    grid, _ = network(PROBLEM, ALGORITHM, WORLD, tmp_path / "sites")
    resumed = serve(grid, PROBLEM, ALGORITHM, checkpoint=tmp_path / "run", **OPTIONS)
    grid, _ = network(PROBLEM, ALGORITHM, WORLD)
    whole = serve(grid, PROBLEM, ALGORITHM, **OPTIONS)
    np.testing.assert_array_equal(resumed.model.coef, whole.model.coef)
    np.testing.assert_array_equal(resumed.history["bytes_up"], whole.history["bytes_up"])
    assert [(one.client, one.why) for one in resumed.history.left_out] == [("a", "it is absent")]


def test_a_site_without_its_state_begins_anew_and_is_named(tmp_path):
    grid, app = network(PROBLEM, ALGORITHM, WORLD)
    nodes = list(grid.nodes)

    def fault(site, message, reply):
        if site == "c" and is_round(message, 1):  # it answers, dies, and comes back as another node with nothing
            grid.nodes.pop(nodes[2], None)
            grid.add(app, site="c")
            nodes[2] = max(grid.nodes)
            grid.fault = lambda site, message, reply: reply
        return reply

    grid.fault = fault
    result = serve(grid, PROBLEM, ALGORITHM, quorum=2, **OPTIONS)
    assert {event.client for event in result.history.left_out} == {"c"}
    assert result.history.left_out[-1].why == "it has lost what it kept between rounds, and begins anew"
    assert result.history["participants"].tolist()[-1] == 3


def test_everybody_diverges_and_the_last_good_model_stays():
    algorithm = cofed.FedAvg(1e200)
    grid, _ = network(PROBLEM, algorithm, WORLD)
    result = serve(grid, PROBLEM, algorithm, **OPTIONS)
    assert result.outcome is cofed.Outcome.DIVERGED
    np.testing.assert_array_equal(result.model.coef, np.zeros(6))
    assert {event.why for event in result.history.left_out} == {"its update is not finite"}


@pytest.mark.parametrize("w0", [None, {"coef": np.full(6, 0.1)}], ids=["own start", "a start of the user's"])
def test_a_run_that_ends_far_above_its_start_has_diverged_as_in_process(w0, tmp_path):
    algorithm, options = cofed.FedAvg(3.0), OPTIONS | {"w0": w0}
    grid, _ = network(PROBLEM, algorithm, WORLD)
    result = serve(grid, PROBLEM, algorithm, checkpoint=tmp_path, **options)
    with pytest.warns(RuntimeWarning, match="FedAvg diverged: its objective rose from .* in 4 rounds"):
        expected = cofed.run(PROBLEM, WORLD, algorithm, rounds=4, local_steps=2, w0=w0)
    assert result.outcome is expected.outcome is cofed.Outcome.DIVERGED
    assert np.isfinite(result.model.coef).all()
    assert "FedAvg diverged: its objective rose from" in (tmp_path / "progress.jsonl").read_text()


def test_a_run_that_begins_almost_at_the_optimum_is_judged_by_the_problems_own_start():
    X = {site: WORLD.client(site)[0] for site in NAMES}
    exact = cofed.Federation.from_arrays({site: (x, x @ np.ones(6)) for site, x in X.items()})
    algorithm, w0 = cofed.FedAvg(1.0), {"coef": np.ones(6) + 1e-9}
    grid, _ = network(PROBLEM, algorithm, exact)
    result = serve(grid, PROBLEM, algorithm, w0=w0, **OPTIONS)
    objective = result.history["objective"]
    assert objective[0] * 1000 < objective[-1] < 1  # far above its start, and far below the problem's own
    assert result.outcome is cofed.Outcome.COMPLETED
    assert cofed.run(PROBLEM, exact, algorithm, rounds=4, local_steps=2, w0=w0).outcome is cofed.Outcome.COMPLETED
    kinds = [message.metadata.message_type for _, message, _ in grid.seen]
    assert kinds.count("evaluate") == 3


def test_sites_that_do_not_fit_together_are_refused():
    federation = worlds.linear(sizes=(4, 5), names=["a", "b"])

    def load(node):
        X, y = federation.client(node["site"])
        return (X, y) if node["site"] == "a" else (X[:, :5], y)

    grid, _ = network(PROBLEM, ALGORITHM, federation)
    app = client_app(PROBLEM, ALGORITHM, load, policy=TRIAL)
    grid.nodes = {number: (app, context) for number, (_, context) in grid.nodes.items()}
    with pytest.raises(ValueError, match=r"'a' and 'b' have different features: \[6\] and \[5\]"):
        serve(grid, PROBLEM, ALGORITHM, **OPTIONS | {"clients": 2})


def test_an_error_at_a_site_does_not_quote_its_data(tmp_path):
    def load(node):
        raise RuntimeError("the patient 4711 has no cost")

    grid, _ = network(PROBLEM, ALGORITHM, WORLD)
    app = client_app(PROBLEM, ALGORITHM, load, policy=TRIAL)
    grid.nodes = {number: (app, context) for number, (_, context) in grid.nodes.items()}
    with pytest.raises(RuntimeError, match="only 0 of 3 sites"):
        serve(grid, PROBLEM, ALGORITHM, checkpoint=tmp_path, **OPTIONS)
    assert all("4711" not in str(reply.content) for _, _, reply in grid.seen)
    assert "failed with a RuntimeError" in (tmp_path / "progress.jsonl").read_text()


def sent_numbers(content):
    """Every number in a message."""
    found = []
    for record in content.array_records.values():
        found += [array.numpy().ravel() for array in record.values()]
    for records in (content.config_records, content.metric_records):
        for record in records.values():
            found += [np.ravel(v) for v in record.values() if isinstance(v, (int, float, list)) and np.size(v)]
    return np.concatenate([np.asarray(part, float) for part in found])


@pytest.mark.parametrize("algorithm", [ALGORITHM, cofed.FedProx(0.5, client_lr=0.02)], ids=lambda a: type(a).__name__)
def test_no_sample_leaves_a_site(algorithm):
    grid, _ = network(PROBLEM, algorithm, WORLD)
    serve(grid, PROBLEM, algorithm, **OPTIONS)
    assert len(grid.seen) == 3 * (1 + 4 + 1)
    for site, _, reply in grid.seen:
        X, y = WORLD.client(site)
        raw = np.concatenate([X.ravel(), y.ravel()])
        assert not np.isin(sent_numbers(reply.content), raw).any()
        # No more numbers than the update and the scalars of head and scores.
        assert sent_numbers(reply.content).size < 2 * 6 + 20
        texts = [v for r in reply.content.config_records.values() for v in r.values() if isinstance(v, (str, bytes))]
        assert sum(len(text) for text in texts) < 300


def test_private_updates_are_clipped_noised_and_counted(tmp_path):
    privacy, algorithm = Privacy(clip=0.1, noise=4.0), cofed.FedDualAvg(0.02)
    grid, _ = network(PROBLEM, algorithm, WORLD)
    result = serve(grid, PROBLEM, algorithm, privacy=privacy, checkpoint=tmp_path, **OPTIONS)
    assert np.isnan(result.history["loss"]).all()  # losses would tell of the data
    assert all(not reply.content.metric_records for _, _, reply in grid.seen)
    assert read_saved(tmp_path).epsilon == privacy.epsilon(4)
    grid, _ = network(PROBLEM, algorithm, WORLD)
    again = serve(grid, PROBLEM, algorithm, privacy=privacy, **OPTIONS)
    assert not np.array_equal(again.model.coef, result.model.coef)  # the noise is not the seed's


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clients": 0}, "clients must be an integer >= 1"),
        ({"quorum": 4}, "quorum is 4, but only 3 clients are asked"),
        ({"clients_per_round": 4}, "clients_per_round is 4"),
        ({"deadline": 0.0}, "deadline must be a number of seconds above 0"),
        ({"weights": "size"}, "weights must be 'uniform', 'samples'"),
        ({"deadline": -3.0}, "deadline must be a number of seconds above 0, got -3.0"),
        ({"patience": float("nan")}, "patience must be a number of seconds above 0"),
        ({"rounds": 0}, "rounds must be an integer >= 1"),
        ({"clients": None}, "give clients= (how many sites there are, or their names), or quorum="),
        ({"clients": ["a", "a"]}, "'a' is given twice"),
        ({"clients": ["a", "b"], "quorum": 3}, "quorum is 3, but only 2 clients are asked"),
        ({"clients": "a b", "weights": {"a": 1.0}}, "weights lacks the sites ['b']"),
        ({"clients": None, "quorum": 3, "clients_per_round": 2}, "quorum is 3, but only 2 clients are asked"),
        ({"local_epochs": 1}, "give local_steps or local_epochs, not both"),
    ],
)
def test_bad_settings_get_a_sentence(change, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        serve(None, PROBLEM, ALGORITHM, **OPTIONS | change)


def test_another_run_in_the_folder_is_refused(tmp_path):
    grid, _ = network(PROBLEM, ALGORITHM, WORLD)
    serve(grid, PROBLEM, ALGORITHM, checkpoint=tmp_path, **OPTIONS)
    with pytest.raises(ValueError, match=r"has rounds 4 \(and not 9\); give the same as before, or another folder"):
        serve(grid, PROBLEM, ALGORITHM, checkpoint=tmp_path, **OPTIONS | {"rounds": 9})
    with pytest.raises(ValueError, match="is of Scaffold, and this one is of FedAvg"):
        serve(grid, PROBLEM, cofed.FedAvg(0.02), checkpoint=tmp_path, **OPTIONS)
    with pytest.raises(ValueError, match="of an algorithm with other numbers"):
        serve(grid, PROBLEM, cofed.Scaffold(0.03), checkpoint=tmp_path, **OPTIONS)


def late(grid, site, round):
    """Let a site come in this round for the first time."""
    number = next(number for number, (_, context) in grid.nodes.items() if context.node_config["site"] == site)
    node = grid.nodes.pop(number)

    def fault(_, message, reply):
        if is_round(message, round):
            grid.nodes[number] = node
        return reply

    grid.fault = fault


def test_a_site_that_is_absent_from_the_start_is_named_and_the_others_go_on():
    algorithm = cofed.FedDualAvg(0.02, 1.2)
    grid, _ = network(PROBLEM, algorithm, WORLD)
    late(grid, "c", 99)
    options = OPTIONS | {"clients": NAMES, "batch_size": 3, "weights": "samples"}
    result = serve(grid, PROBLEM, algorithm, quorum=2, **options)
    assert {(event.round, event.client, event.why) for event in result.history.left_out} == {
        (round, "c", "it is absent") for round in range(5)
    }
    options = {"rounds": 4, "local_steps": 2, "batch_size": 3, "weights": "samples"}
    others = cofed.run(PROBLEM, WORLD.select(["a", "b"]), algorithm, **options)
    np.testing.assert_allclose(result.model.coef, others.model.coef, rtol=1e-12)


def test_a_named_site_that_comes_late_takes_part_from_then_on(tmp_path):
    grid, _ = network(PROBLEM, ALGORITHM, WORLD, tmp_path / "sites")
    late(grid, "b", 1)  # b is the largest: what the others shuffle with changes too
    options = OPTIONS | {"clients": "a b c", "local_steps": None, "local_epochs": 1, "weights": "samples"}
    result = serve(grid, PROBLEM, ALGORITHM, quorum=2, checkpoint=tmp_path / "run", **options)
    assert result.outcome is cofed.Outcome.COMPLETED
    assert result.history["participants"].tolist() == [0, 2, 2, 2, 3]  # heard of in round 2, asked from round 3 on
    # A server that is started again knows all three by now.
    grid, _ = network(PROBLEM, ALGORITHM, WORLD, tmp_path / "sites")
    again = serve(grid, PROBLEM, ALGORITHM, quorum=2, checkpoint=tmp_path / "run", **options)
    np.testing.assert_array_equal(again.model.coef, result.model.coef)


@pytest.mark.parametrize(
    ("clients", "site", "words"),
    [
        (NAMES, "stranger", "stranger was refused: it is not one of the run's sites"),
        (["a", "b", "narrow"], "narrow", "have different features: [6] and [5]"),
    ],
)
def test_a_node_that_does_not_belong_is_refused_in_mid_run(tmp_path, clients, site, words):
    grid, _ = network(PROBLEM, ALGORITHM, WORLD)
    narrow = client_app(PROBLEM, ALGORITHM, lambda node: (np.ones((3, 5)), np.ones(3)), policy=TRIAL)

    def fault(_, message, reply):
        if is_round(message, 1) and len(grid.nodes) < 4:
            grid.add(narrow, site=site)
        return reply

    grid.fault = fault
    serve(grid, PROBLEM, ALGORITHM, quorum=2, checkpoint=tmp_path, **OPTIONS | {"clients": clients})
    assert words in (tmp_path / "progress.jsonl").read_text()


def test_without_a_number_of_clients_a_run_begins_with_those_that_are_there(monkeypatch):
    monkeypatch.setattr(membership, "SETTLE", 0.1)
    grid, _ = network(PROBLEM, ALGORITHM, WORLD)
    options = {name: value for name, value in OPTIONS.items() if name != "clients"}
    result = serve(grid, PROBLEM, ALGORITHM, quorum=2, **options)
    assert result.history["participants"].tolist() == [0, 3, 3, 3, 3]


def test_a_killed_server_does_not_forget_what_was_spent(tmp_path):
    privacy, algorithm = Privacy(clip=0.1, noise=4.0), cofed.FedDualAvg(0.02)

    def kill(site, message, reply):
        if site == "b" and is_round(message, 2):
            raise Killed
        return reply

    grid, _ = network(PROBLEM, algorithm, WORLD, fault=kill)
    with pytest.raises(Killed):
        serve(grid, PROBLEM, algorithm, privacy=privacy, checkpoint=tmp_path, **OPTIONS)
    grid, _ = network(PROBLEM, algorithm, WORLD)
    serve(grid, PROBLEM, algorithm, privacy=privacy, checkpoint=tmp_path, **OPTIONS)
    assert read_saved(tmp_path).epsilon == privacy.epsilon(5)  # site a gave round 2 twice


@pytest.mark.parametrize("offered", [None, Privacy(clip=0.1, noise=1.0), Privacy(clip=9.0, noise=4.0)])
def test_a_site_that_insists_on_privacy_answers_nobody_who_offers_less(offered):
    algorithm, wanted = cofed.FedDualAvg(0.02), Privacy(clip=0.1, noise=4.0)
    grid, _ = network(PROBLEM, algorithm, WORLD)
    options = {"privacy": wanted, "plain": True, "policy": TRIAL}
    app = client_app(PROBLEM, algorithm, lambda node: WORLD.client(node["site"]), **options)
    grid.nodes = {number: (app, context) for number, (_, context) in grid.nodes.items()}
    result = serve(grid, PROBLEM, algorithm, privacy=offered, **OPTIONS)
    assert result.outcome is cofed.Outcome.STARVED
    assert all("this site insists on clip 0.1, noise 4" in event.why for event in result.history.left_out)
    assert all("up" not in reply.content and not reply.content.metric_records for _, _, reply in grid.seen)
