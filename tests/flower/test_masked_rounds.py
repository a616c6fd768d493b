"""Masked updates: the models of plain runs, sums over whole cohorts or none, and nothing of a site alone."""

import hashlib
import re

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from safetensors.numpy import load_file

import cofed
from cofed.flower import ClientPrivacy, client_app, read_saved, serve, wire
from cofed.sites.audit import verify
from cofed.sites.policy import TRIAL
from cofed.sites.secure.keys import SiteKeys
from cofed.sites.secure.wide import SCALED
from tests import worlds
from tests.flower.loopback import Loopback, network
from tests.flower.test_equality import NAMES, ROWS, SCHEDULE
from tests.flower.test_faults import Killed, is_round

# Patience is for hangs only; where a run is to end without an answer, it is short.
OPTIONS = {"rounds": 3, "clients": 3, "local_steps": 2, "deadline": 0.2, "patience": 60.0, "batch_size": 3}
STARVED = OPTIONS | {"patience": 0.5}
WORLD = worlds.linear(sizes=(4, 9, 6), names=NAMES)
SIX = worlds.linear(sizes=(4, 9, 6, 5, 3, 8), names=list("abcdef"))
COHORTS = [["a", "b", "c"], ["d", "e", "f"]]
PROBLEM, METHOD, KEEPS = worlds.problem(), cofed.FedDualAvg(0.02, 1.2), cofed.Scaffold(0.02, 1.2)
WHOLE = [row for row in ROWS if not row.values[0].is_compressed]


class Server(Loopback):
    """A grid whose server sends a site other messages than it seems: `twist(site, message)` changes them."""

    def __init__(self, grid, twist):
        super().__init__(grid.fault)
        self.nodes, self.twist = grid.nodes, twist

    def push_messages(self, messages):
        for message in messages:
            self.twist(str(self.nodes[message.metadata.dst_node_id][1].node_config["site"]), message)
        return super().push_messages(messages)


def undisturbed(algorithm=METHOD, world=WORLD, **options):
    grid, _ = network(PROBLEM, algorithm, world)
    return serve(grid, PROBLEM, algorithm, **OPTIONS | options)


def strict(grid, **options):
    """The same sites with an app that sends nothing but under masks."""
    app = client_app(PROBLEM, METHOD, lambda node: WORLD.client(node["site"]), policy=TRIAL, **options)
    grid.nodes = {number: (app, context) for number, (_, context) in grid.nodes.items()}
    return grid


# What a masked run gives


@pytest.mark.parametrize(("algorithm", "psi"), WHOLE)
def test_every_algorithm_has_the_trajectory_of_a_plain_run(algorithm, psi, tmp_path):
    problem = worlds.problem(psi)
    grid, _ = network(problem, algorithm, WORLD, tmp_path / "sites")
    options = SCHEDULE | {"w0": worlds.start(), "weights": "samples"}
    found = serve(
        grid, problem, algorithm, clients=3, deadline=5.0, patience=5.0, checkpoint=tmp_path / "run", **options
    )
    expected = cofed.run(problem, WORLD, algorithm, **options)
    np.testing.assert_allclose(found.model.coef, expected.model.coef, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.history["objective"], expected.history["objective"], rtol=1e-10)
    assert found.outcome is cofed.Outcome.COMPLETED
    assert read_saved(tmp_path / "run").is_masked
    # One message of a site's before round one, one in each round, one at the end.
    assert len(grid.seen) == 3 * (1 + options["rounds"] + 1)
    if expected.personal_models is not None:
        for name, w in zip(NAMES, expected.personal_models.coef, strict=True):
            mine = load_file(tmp_path / "sites" / name / "personal.safetensors")["coef"]
            np.testing.assert_allclose(mine, w, rtol=1e-10, atol=1e-12)


def test_a_classifier_in_float32_has_its_accuracy_from_masked_sums():
    rng = np.random.default_rng(0)
    clients = {name: (rng.normal(size=(n, 3)), rng.integers(0, 2, n)) for name, n in (("a", 8), ("b", 5), ("c", 9))}
    world = cofed.Federation.from_arrays(clients, dtype="float32")
    problem, method = cofed.Problem(cofed.Linear(), cofed.Logistic(), cofed.L1(0.01)), cofed.FedMiD(0.1, 0.8)
    grid, _ = network(problem, method, world)
    options = {"rounds": 3, "local_steps": 2, "weights": "samples"}
    found = serve(grid, problem, method, clients=3, deadline=5.0, patience=5.0, **options)
    expected = cofed.run(problem, world, method, **options)
    np.testing.assert_allclose(found.model.coef, expected.model.coef, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.history["accuracy"], expected.history["accuracy"], rtol=1e-6)


def test_the_server_sees_no_update_and_no_score_of_a_site_alone():
    grid, _ = network(PROBLEM, METHOD, WORLD)
    serve(grid, PROBLEM, METHOD, **OPTIONS)
    plain, _ = network(PROBLEM, METHOD, WORLD)
    serve(plain, PROBLEM, METHOD, **OPTIONS, plain=True)
    for (site, message, reply), (same, _, open_reply) in zip(grid.seen, plain.seen, strict=True):
        assert site == same
        assert not reply.content.metric_records
        assert set(reply.content.array_records) <= {"masked"}
        if message.metadata.message_type == "train" and "up" in open_reply.content:
            planes = next(iter(reply.content["masked"].values())).numpy().view(np.uint64)
            update = np.concatenate([array.numpy().ravel() for array in open_reply.content["up"].values()])
            # Of 192 random bits about a half are ones; and they decode to nothing like the update.
            assert 0.3 < np.mean(np.unpackbits(planes.view(np.uint8))) < 0.7
            assert (np.abs(SCALED.decode(planes)[: update.size]) > 1e6).all()


@pytest.mark.parametrize("algorithm", [KEEPS, cofed.FedDecouple(0.02, 1.2)], ids=lambda one: one.name)
@pytest.mark.parametrize("last", [False, True], ids=["mid-round", "at the end"])
def test_a_server_that_is_killed_ends_with_the_same_bits(algorithm, last, tmp_path):
    def kill(site, message, reply):
        if site == "b" and is_round(message, 3 if last else 1):
            raise Killed
        return reply

    grid, _ = network(PROBLEM, algorithm, WORLD, tmp_path / "sites", kill)
    with pytest.raises(Killed):
        serve(grid, PROBLEM, algorithm, checkpoint=tmp_path / "run", **OPTIONS)
    grid, _ = network(PROBLEM, algorithm, WORLD, tmp_path / "sites")
    resumed = serve(grid, PROBLEM, algorithm, checkpoint=tmp_path / "run", **OPTIONS)
    whole = undisturbed(algorithm)
    np.testing.assert_array_equal(resumed.model.coef, whole.model.coef)
    np.testing.assert_array_equal(resumed.history["objective"], whole.history["objective"])


# A site fails at each stage


def silent_once(grid, app, message, reply):
    grid.fault = lambda *one: one[-1]


def late(grid, app, message, reply):
    """Its reply comes after it has been asked again, and has answered again."""
    number = message.metadata.message_id

    def later(site, second, answer):
        if site == "c" and reply is not None:
            grid.replies[number] = reply
            grid.fault = lambda *one: one[-1]
        return answer

    grid.fault = later


def back(grid, app, message, reply):
    """It dies, and comes back as another node."""
    grid.fault = lambda *one: one[-1]
    grid.nodes.pop(message.metadata.dst_node_id)
    grid.add(app, site="c")


def back_without_keys(grid, app, message, reply):
    back(grid, client_app(PROBLEM, METHOD, lambda node: WORLD.client(node["site"]), policy=TRIAL), message, reply)


def gone(grid, app, message, reply):
    grid.nodes.pop(message.metadata.dst_node_id, None)


def is_stage(stage, message):
    if stage == "hello":
        return message.metadata.message_type == "query"
    return is_round(message, {"first": 0, "middle": 1, "end": OPTIONS["rounds"]}[stage])


@pytest.mark.parametrize("stage", ["hello", "first", "middle", "end"])
@pytest.mark.parametrize("fault", [silent_once, late, back, back_without_keys, gone], ids=lambda one: one.__name__)
def test_a_site_that_fails_at_any_stage_gives_the_right_sum_or_none(stage, fault):
    grid, app = network(PROBLEM, METHOD, WORLD)

    def failing(site, message, reply):
        if site != "c" or not is_stage(stage, message):
            return reply
        fault(grid, app, message, reply)
        return None

    grid.fault = failing
    whole = undisturbed()
    if stage == "hello" and fault in (silent_once, late, gone):  # a node is asked once who it is
        with pytest.raises(RuntimeError, match="only 2 of 3 sites"):
            serve(grid, PROBLEM, METHOD, **STARVED)
        return
    result = serve(grid, PROBLEM, METHOD, **STARVED if fault is gone else OPTIONS)
    done = int(result.history["round"][-1])
    if fault is gone and stage != "end":
        assert result.outcome is cofed.Outcome.STARVED
        assert done == {"first": 0, "middle": 1}[stage]
        assert {event.client for event in result.history.left_out} == {"c"}
    else:
        assert result.outcome is cofed.Outcome.COMPLETED
        np.testing.assert_array_equal(result.model.coef, whole.model.coef)
    if done:
        expected = cofed.run(PROBLEM, WORLD, METHOD, rounds=done, local_steps=2, batch_size=3)
        np.testing.assert_allclose(result.model.coef, expected.model.coef, rtol=1e-10)


def test_a_site_without_its_state_begins_anew_and_all_are_asked_anew():
    grid, app = network(PROBLEM, KEEPS, WORLD)

    def fault(site, message, reply):
        if site == "c" and is_round(message, 1):
            back(grid, app, message, reply)
            return None
        return reply

    grid.fault = fault
    result = serve(grid, PROBLEM, KEEPS, **OPTIONS)
    assert result.outcome is cofed.Outcome.COMPLETED
    [event] = result.history.left_out
    assert (event.client, event.why) == ("c", "it has lost what it kept between rounds, and begins anew")
    asked = [site for site, message, _ in grid.seen if is_round(message, 1)]
    assert sorted(asked) == ["a", "a", "b", "b", "c", "c"]  # c's first reply never came


def test_a_site_that_would_answer_with_other_numbers_is_asked_under_other_masks():
    """Its data load as others in the last bit at the second time, so that its keys are others, too."""
    grid, _ = network(PROBLEM, METHOD, WORLD)
    times = iter(range(1000))

    def load(node):
        X, y = WORLD.client(node["site"])
        return X, y + (1e-9 if node["site"] == "c" and next(times) == 1 else 0)

    app = client_app(PROBLEM, METHOD, load, policy=TRIAL)
    grid.nodes = {number: (app, context) for number, (_, context) in grid.nodes.items()}
    result = serve(grid, PROBLEM, METHOD, **OPTIONS)
    assert result.outcome is cofed.Outcome.COMPLETED
    np.testing.assert_array_equal(result.model.coef, undisturbed().model.coef)


def test_keys_that_change_all_the_time_end_with_a_sentence_that_says_what_to_do():
    grid, _ = network(PROBLEM, METHOD, WORLD)

    def forgetful(site, message, reply):
        if site == "c":
            number = message.metadata.dst_node_id
            app = client_app(PROBLEM, METHOD, lambda node: WORLD.client(node["site"]), policy=TRIAL)
            grid.nodes[number] = (app, grid.nodes[number][1])
        return reply

    grid.fault = forgetful
    result = serve(grid, PROBLEM, METHOD, **OPTIONS)
    assert result.outcome is cofed.Outcome.STARVED
    assert {event.client for event in result.history.left_out} == set(NAMES)
    assert "give each site a folder to keep its keys in (keep=)" in result.history.left_out[0].why


# Cohorts


def test_a_cohort_counts_whole_or_not_at_all():
    def lost(names):
        return lambda site, message, reply: None if site in names and is_round(message, 1) else reply

    options = OPTIONS | {"clients": 6, "quorum": 3, "weights": "samples"}
    grid, _ = network(PROBLEM, KEEPS, SIX, fault=lost("e"))
    masked = serve(grid, PROBLEM, KEEPS, cohorts=COHORTS, **options)
    grid, _ = network(PROBLEM, KEEPS, SIX, fault=lost("def"))
    plain = serve(grid, PROBLEM, KEEPS, plain=True, **options)
    np.testing.assert_allclose(masked.model.coef, plain.model.coef, rtol=1e-10)
    assert masked.history["participants"].tolist() == [0, 6, 3, 6]
    why = {event.client: event.why for event in masked.history.left_out}
    assert why["e"] == "it did not answer in time"
    assert why["d"] == why["f"] == "its cohort was not whole, and masked updates count together or not at all"


def test_whole_cohorts_are_drawn():
    grid, _ = network(PROBLEM, METHOD, SIX)
    options = OPTIONS | {"clients": "a b c d e f", "rounds": 8}
    result = serve(grid, PROBLEM, METHOD, cohorts="a b c; d e f", clients_per_round=3, **options)
    asked = [{site for site, message, _ in grid.seen if is_round(message, round)} for round in range(8)]
    assert {"".join(sorted(sites)) for sites in asked} == {"abc", "def"}
    assert result.history["participants"].tolist() == [0] + 8 * [3]


def test_a_cohort_that_never_comes_whole_does_not_hold_up_the_others():
    grid, _ = network(PROBLEM, METHOD, SIX)
    grid.nodes = {number: node for number, node in grid.nodes.items() if node[1].node_config["site"] != "f"}
    options = OPTIONS | {"clients": list("abcdef"), "quorum": 3}
    result = serve(grid, PROBLEM, METHOD, cohorts=COHORTS, **options)
    assert result.outcome is cofed.Outcome.COMPLETED
    expected = cofed.run(PROBLEM, SIX.select(list("abc")), METHOD, rounds=3, local_steps=2, batch_size=3)
    np.testing.assert_allclose(result.model.coef, expected.model.coef, rtol=1e-10)
    assert {event.client for event in result.history.left_out} == set("def")


# Updates that are not finite


def test_how_many_updates_are_not_finite_is_known_and_not_whose():
    X, y = WORLD.client("c")
    world = cofed.Federation.from_arrays({"a": WORLD.client("a"), "b": WORLD.client("b"), "c": (1e200 * X, y)})
    grid, _ = network(PROBLEM, METHOD, world)
    result = serve(grid, PROBLEM, METHOD, **OPTIONS)
    assert result.outcome is cofed.Outcome.DIVERGED
    np.testing.assert_array_equal(result.model.coef, np.zeros(6))
    assert {(event.client, event.why) for event in result.history.left_out} == {
        (name, "1 of the 3 updates of its cohort are not finite, or too large") for name in NAMES
    }
    replies = [reply.content for _, message, reply in grid.seen if is_round(message, 0)]
    assert len({tuple(sorted(content.config_records["cofed"])) for content in replies}) == 1
    assert [content.config_records["cofed"]["trouble"] for content in replies] == ["", "", ""]


def test_everybody_diverges_and_the_last_good_model_stays():
    result = undisturbed(cofed.FedAvg(1e200))
    assert result.outcome is cofed.Outcome.DIVERGED
    np.testing.assert_array_equal(result.model.coef, np.zeros(6))


# A server that does not do as it should


def other_model(message):
    content = message.content
    content["down"] = ArrayRecord(
        {name: Array(np.asarray(array.numpy() + 1)) for name, array in content["down"].items()}
    )


def other_entry(name, value):
    return lambda message: message.content.config_records["cofed"].update({name: value})


@pytest.mark.parametrize(
    "change",
    [other_model, other_entry("seed", 5), other_entry("ids", [0, 1, 0]), other_entry("weighting", "samples")],
    ids=["model", "seed", "ids", "weighting"],
)
def test_sites_that_were_told_different_things_give_no_sum(change):
    def twist(site, message):
        if site == "c" and is_round(message, 1):
            change(message)

    grid, _ = network(PROBLEM, METHOD, WORLD)
    result = serve(Server(grid, twist), PROBLEM, METHOD, **STARVED)
    assert result.outcome is cofed.Outcome.STARVED
    assert int(result.history["round"][-1]) == 1
    # The site signs the hash of what it was told, so that its reply is already known to answer something else.
    assert "the answer is not signed by c" in {event.why for event in result.history.left_out}


def test_a_site_does_not_send_its_own_update():
    grid, _ = network(PROBLEM, METHOD, WORLD)
    result = serve(strict(grid), PROBLEM, METHOD, plain=True, **STARVED)
    assert result.outcome is cofed.Outcome.STARVED
    assert all("this site sends them under masks only" in event.why for event in result.history.left_out)
    assert not any(reply.content.array_records or reply.content.metric_records for _, _, reply in grid.seen)


def test_a_site_stays_with_the_sites_that_the_run_began_with(tmp_path):
    """A server that leaves one out, to learn what that one adds, is refused also by a process that starts anew."""
    two = worlds.linear(sizes=(4, 9), names=["a", "b"])
    grid, _ = network(PROBLEM, METHOD, WORLD, tmp_path / "sites")
    messages = {}

    def stop(site, message, reply):
        messages[site] = message
        if is_round(message, 1):
            raise Killed
        return reply

    grid.fault = stop
    with pytest.raises(Killed):
        serve(grid, PROBLEM, METHOD, checkpoint=tmp_path / "run", **OPTIONS)
    run = messages["a"].content.config_records["cofed"]["run"]
    grid, _ = network(PROBLEM, METHOD, two, tmp_path / "sites")

    def same_run(site, message):
        head = message.content.config_records["cofed"]
        head["run"] = run

    smaller = Server(grid, same_run)
    real = cofed.flower.coordinator.uuid
    cofed.flower.coordinator.uuid = type("Fixed", (), {"uuid4": staticmethod(lambda: type("U", (), {"hex": run}))})
    try:
        result = serve(smaller, PROBLEM, METHOD, **STARVED | {"clients": 2})
    finally:
        cofed.flower.coordinator.uuid = real
    assert result.outcome is cofed.Outcome.STARVED
    assert all("two such sums would tell the difference" in event.why for event in result.history.left_out)


@pytest.mark.parametrize("change", ["right", "another key", "another site"])
def test_a_site_with_a_roster_answers_for_exactly_these_sites(change, tmp_path):
    roster = {name: SiteKeys.of_folder(tmp_path / name).public for name in NAMES}
    if change == "another key":
        roster["b"] = SiteKeys.new().public
    if change == "another site":
        roster["d"] = SiteKeys.new().public
    grid, _ = network(PROBLEM, METHOD, WORLD)
    options = OPTIONS if change == "right" else STARVED
    result = serve(strict(grid, keep=lambda node: tmp_path / node["site"], roster=roster), PROBLEM, METHOD, **options)
    right = cofed.Outcome.COMPLETED if change == "right" else cofed.Outcome.STARVED
    assert result.outcome is right
    words = {"another key": "is signed by another key", "another site": "not the sites of its roster"}
    assert all(words[change] in event.why for event in result.history.left_out)


def test_a_site_logs_what_left_before_it_leaves(tmp_path):
    grid, _ = network(PROBLEM, METHOD, WORLD, tmp_path)
    serve(grid, PROBLEM, METHOD, **OPTIONS)
    found = verify(tmp_path / "b" / "audit.jsonl", SiteKeys.of_folder(tmp_path / "b").public)
    assert found.holds, found.problems
    lines = [line for line in found.lines if line.event == "answer"]
    sent = [reply.content for site, message, reply in grid.seen if site == "b" and reply.content.array_records]
    for line, content in zip(lines, sent, strict=True):
        [array] = content["masked"].values()
        assert line.content == hashlib.sha256(array.numpy().tobytes()).hexdigest()
        assert (line.query, line.is_masked, line.sites) == ("update", True, tuple(NAMES))
        assert line.size == array.numpy().nbytes
    (tmp_path / "b" / "audit.jsonl").write_text("damaged\n")
    seen = len(grid.seen)
    with pytest.raises(RuntimeError, match="only 2 of 3 sites"):
        serve(grid, PROBLEM, METHOD, **STARVED)
    assert not any(reply.content.array_records for _, _, reply in grid.seen[seen:])


def test_the_keys_of_a_run_are_gone_when_it_is_over(tmp_path):
    grid, _ = network(PROBLEM, METHOD, WORLD, tmp_path)
    serve(grid, PROBLEM, METHOD, **OPTIONS)
    assert [list((tmp_path / name / "runs").iterdir()) for name in NAMES] == [[], [], []]


def test_every_entry_and_array_of_a_message_is_in_its_hash():
    grid, _ = network(PROBLEM, KEEPS, WORLD)
    serve(grid, PROBLEM, KEEPS, **OPTIONS)
    content = next(message.content for _, message, _ in grid.seen if is_round(message, 0))
    known, head = wire.digest(content), content.config_records["cofed"]
    assert set(content.array_records) == {"down", "start", "model"}
    for name, value in list(head.items()):
        other = not value if isinstance(value, bool) else value + value if value else "x" if value == "" else 1
        head[name] = other
        assert wire.digest(content) != known, name
        head[name] = value
    for part in list(content.array_records):
        before = content[part]
        changed = {name: Array(np.asarray(np.nextafter(array.numpy(), np.inf))) for name, array in before.items()}
        content[part] = ArrayRecord(changed)
        assert wire.digest(content) != known, part
        content[part] = before
    assert wire.digest(content) == known


# What does not go with masks


@pytest.mark.parametrize(
    ("algorithm", "change", "words"),
    [
        (cofed.Compressed(METHOD, cofed.TopK(0.5)), {}, "compressed updates cannot be masked"),
        (METHOD, {"weights": [1.0, 2.0, 3.0]}, "weights must be 'uniform' or 'samples' where updates are masked"),
        (METHOD, {"clients": 1}, "the updates of a single site cannot be masked"),
        (METHOD, {"quorum": 2}, "quorum is 2, but masked updates count in whole cohorts, so each round needs all 3"),
        (METHOD, {"clients": None, "quorum": 2}, "whose updates are masked together is known before the run"),
        (METHOD, {"clients_per_round": 2}, "clients_per_round is 2, but masked updates are drawn in whole cohorts"),
        (METHOD, {"clients": 6, "cohorts": COHORTS, "clients_per_round": 4}, "clients_per_round is 4, but masked"),
        (METHOD, {"clients": 6, "cohorts": COHORTS, "quorum": 4}, "quorum is 4, but masked updates count in whole"),
        (METHOD, {"clients": 5, "cohorts": COHORTS}, "cohorts must hold each of the clients once"),
        (METHOD, {"cohorts": [["a", "b"]]}, "cohorts must each have 3 to 256 sites, got ['a', 'b']"),
        (METHOD, {"cohorts": [["a", "b", "c"], ["c", "d", "e"]]}, "'c' is given twice"),
        (METHOD, {"cohorts": "a b c", "plain": True}, "with plain=True none are masked"),
        (METHOD, {"cohorts": 3}, "cohorts must be lists of sites' names"),
    ],
)
def test_what_cannot_be_masked_is_refused_with_what_to_give_instead(algorithm, change, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        serve(None, PROBLEM, algorithm, **OPTIONS | change)


def test_a_run_with_masks_does_not_go_on_without_them(tmp_path):
    grid, _ = network(PROBLEM, METHOD, WORLD)
    serve(grid, PROBLEM, METHOD, checkpoint=tmp_path, **OPTIONS)
    with pytest.raises(ValueError, match="has masked updates and this one is plain; give the same as before"):
        serve(grid, PROBLEM, METHOD, checkpoint=tmp_path, **OPTIONS, plain=True)


def test_noise_of_the_sites_own_goes_with_masks_and_is_the_same_when_a_message_is_repeated():
    lost = []

    def fault(site, message, reply):
        if site == "c" and is_round(message, 1) and not lost:
            lost.append(reply)
            return None
        return reply

    grid, _ = network(PROBLEM, METHOD, WORLD, fault=fault)
    result = serve(grid, PROBLEM, METHOD, privacy=ClientPrivacy(clip=0.1, noise=4.0), **OPTIONS)
    assert result.outcome is cofed.Outcome.COMPLETED
    again = next(reply for site, message, reply in grid.seen if site == "c" and is_round(message, 1))
    [first], [second] = (list(reply.content["masked"].values()) for reply in (lost[0], again))
    assert first.data == second.data
    assert not np.allclose(result.model.coef, undisturbed().model.coef)
