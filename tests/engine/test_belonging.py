"""A run knows what it belongs to: whatever contradicts its folder, or is missing or foreign in it, gets a sentence."""

import json
import shutil
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests import worlds
from tests.engine.test_checkpoint import go, half  # noqa: F401

import cofed
from cofed._util import files
from cofed.engine import definition, folders, recorded

FOREIGN = [None, True, -1, 0.5, "x", [], {"a": 1}]


class Mine(cofed.FedDualAvg):
    """An algorithm of a user's own."""


def refused(folder, **given):
    """The sentence with which a folder is refused; an error of any other kind fails the test."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the run in .* was begun with", category=RuntimeWarning)
        with pytest.raises((ValueError, TypeError)) as error:
            cofed.resume(folder, **given)
    said = str(error.value)
    assert len(said.split()) > 4
    assert "cofed" in str(error.traceback[-1].path), said  # it is raised by cofed, in its words
    return said


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"algorithm": cofed.FedDecouple(0.5, 1.3)}, r"algorithm.client_lr was 0.02 and is now 0.5"),
        ({"problem": worlds.problem(cofed.L1(0.5))}, r"problem.regularizer.strength was 0.05 and is now 0.5"),
        ({"problem": worlds.problem(cofed.L2Ball(0.5))}, r"problem.regularizer was L1 and is now L2Ball"),
        ({"problem": worlds.problem(cofed.L1(0.05), cofed.Huber(1.0))}, r"problem.loss was Squared and is now Huber"),
        ({"evaluation": worlds.linear(seed=3)}, "has no evaluation federation, and resume was given one"),
        ({"metrics": {"f1": cofed.metrics.f1(np.ones(6))}}, r"has the metrics \[\], and resume was given"),
        ({"federation": worlds.linear(seed=3)}, "their data differ"),
    ],
)
def test_what_contradicts_the_folder_is_refused_and_both_are_named(half, given, sentence):  # noqa: F811
    before = sorted(path.name for path in half.iterdir())
    with pytest.raises((ValueError, TypeError), match=sentence):
        cofed.resume(half, **given)
    assert sorted(path.name for path in half.iterdir()) == before
    same = {"algorithm": cofed.FedDecouple(0.02, 1.3), "problem": worlds.problem(cofed.L1(0.05))}
    np.testing.assert_array_equal(cofed.resume(half, **same).model.coef, go().model.coef)


def test_held_out_data_and_metrics_must_be_the_same(tmp_path):
    train, test = worlds.linear(sizes=(8, 9, 10)).split(test=0.3)
    folder, truth = tmp_path / "run", np.eye(6)[0]
    cofed.run(
        worlds.problem(), train, cofed.FedAvg(0.01), rounds=2, evaluation=test, checkpoint=folder,
        metrics={"f1": cofed.metrics.f1(truth)},
    )  # fmt: skip
    assert "evaluation federation is not the one" in refused(folder, evaluation=worlds.linear(seed=3))
    assert "metrics.f1.true was an array" in refused(folder, metrics={"f1": cofed.metrics.f1(1 - truth)})
    cofed.resume(folder, evaluation=test, metrics={"f1": cofed.metrics.f1(truth)})
    (folder / "evaluation.safetensors").unlink()
    assert "pass evaluation= to resume" in refused(folder)


def test_own_code_that_computes_something_else_is_refused(tmp_path):
    scale = jnp.arange(6.0)
    losses = [lambda p, y: jnp.abs(p - y), lambda p, y: (p - y) ** 2]
    metrics = [{"size": lambda w: (scale * w.coef).sum()}, {"size": lambda w: (2 * w.coef).sum()}]
    problems = [worlds.problem(cofed.L1(0.05), loss) for loss in losses]
    go(tmp_path / "run", problem=problems[0], metrics=metrics[0])
    assert "another problem than the run" in refused(tmp_path / "run", problem=problems[1], metrics=metrics[0])
    assert "metrics.size" in refused(tmp_path / "run", problem=problems[0], metrics=metrics[1])
    other = worlds.problem(cofed.L1(0.06), losses[0])
    assert "strength was 0.05 and is now 0.06" in refused(tmp_path / "run", problem=other, metrics=metrics[0])
    scale = scale + 1  # the array in the closure
    assert "metrics.size" in refused(tmp_path / "run", problem=problems[0], metrics=metrics[0])
    scale = scale - 1
    assert cofed.resume(tmp_path / "run", problem=problems[0], metrics=metrics[0]).outcome.name == "COMPLETED"


def test_the_numbers_of_an_own_algorithm_are_compared(tmp_path):
    cofed.run(worlds.problem(), worlds.linear(), Mine(0.01), rounds=2, checkpoint=tmp_path / "run")
    assert "client_lr was 0.01 and is now 0.02" in refused(tmp_path / "run", algorithm=Mine(0.02))
    cofed.resume(tmp_path / "run", algorithm=Mine(0.01))


def test_an_algorithm_that_computes_something_else_is_refused(tmp_path):
    def other(method, **members):
        return type("Mine", (type(method),), {"__module__": type(method).__module__, **members})(0.01)

    cofed.run(worlds.problem(), worlds.linear(), Mine(0.01), rounds=2, checkpoint=tmp_path / "run")
    changed = other(Mine(0.01), aggregate=lambda self, problem, server, up, share: jax.tree.map(jnp.negative, up))
    assert "its code computes something else than it did (algorithm)" in refused(tmp_path / "run", algorithm=changed)
    falling = [cofed.Scheduled(cofed.FedAvg(0.01), {"client_lr": f}) for f in (lambda r: 1 / (1 + r), lambda r: 0.5**r)]
    cofed.run(worlds.problem(), worlds.linear(), falling[0], rounds=2, checkpoint=tmp_path / "scheduled")
    assert "something else" in refused(tmp_path / "scheduled", algorithm=falling[1])
    again = cofed.Scheduled(cofed.FedAvg(0.01), {"client_lr": lambda r: 1 / (1 + r)})
    assert cofed.resume(tmp_path / "scheduled", algorithm=again, rounds=3).outcome is cofed.Outcome.COMPLETED


def keys_of(content, path=()):
    """The places of all values in a JSON object; of lists the first entry stands for all."""
    entries = content.items() if isinstance(content, dict) else list(enumerate(content))[:1]
    for key, value in entries:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from keys_of(value, (*path, key))


def changed(content, place, value):
    """A copy with another value at a place, or (value is ...) without it."""
    content = json.loads(json.dumps(content))
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return content


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of one round, with all that a folder can hold; its data are small, so that it is read at once."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train, test = worlds.linear(sizes=(4, 5), d=2).split(test=0.3)
    options = {"rounds": 1, "local_steps": 1, "per_client": True, "keep_models": True, "weights": [1.0, 2.0]}
    metrics = {"l2": cofed.metrics.distance(np.ones(2))}
    problem = worlds.problem(cofed.L1(0.05, weights=[1.0, 2.0]))
    cofed.run(problem, train, cofed.FedAvg(0.01), evaluation=test, metrics=metrics, checkpoint=folder, **options)
    cofed.resume(folder)
    return folder


@pytest.mark.parametrize("name", ["run.json", "round-000000001.json"])
def test_every_key_that_is_missing_or_foreign_gets_a_sentence(finished, tmp_path, name, monkeypatch):
    """Each key of each file removed, and replaced by values of every kind; none is resumed as if nothing had been."""
    tried, content = 0, json.loads((finished / name).read_text())
    monkeypatch.setattr(definition, "read_federation", kept(definition.read_federation))
    for place in keys_of(content):
        now = content
        for key in place:
            now = now[key]
        for value in (..., *FOREIGN):
            if value is not ... and json.dumps(value) == json.dumps(now):
                continue
            folder = shutil.copytree(finished, tmp_path / "copy", dirs_exist_ok=True)
            (folder / name).write_text(json.dumps(changed(content, place, value)))
            refused(folder)
            tried += 1
    assert tried > 100


def kept(read):
    """Reads each file's content once: the same data are asked for hundreds of times here."""
    found = {}

    def once(path, parameter):
        content = path.read_bytes()
        if content not in found:
            found[content] = read(path, parameter)
        return found[content]

    return once


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b'"text"', b"null", b"\xff\xfe", b"[" * 10**5, b"{}"])
def test_files_that_are_no_records_get_a_sentence(finished, tmp_path, content):
    for path in sorted(set(finished.iterdir()) - set(finished.glob("round-000000000.*"))):
        folder = shutil.copytree(finished, tmp_path / path.name)
        (folder / path.name).write_bytes(content)
        said = refused(folder)
        assert str(folder) in said


def test_missing_and_cut_files_get_a_sentence(finished, tmp_path):
    """Only whole checkpoints count: without a state's record the one before is the newest."""
    for path in sorted(finished.iterdir()):
        for cut in (None, 0.1, 0.5, 0.99):
            if (cut is None and path.name == "round-000000001.json") or path.stem == "round-000000000":
                continue
            folder = shutil.copytree(finished, tmp_path / f"{path.name}-{cut}")
            if cut is None:
                (folder / path.name).unlink()
            else:
                (folder / path.name).write_bytes(path.read_bytes()[: int(cut * path.stat().st_size)])
            assert str(folder) in refused(folder)


def test_a_changed_definition_and_another_runs_history_are_refused(half, tmp_path):  # noqa: F811
    written = json.loads((half / "run.json").read_text())
    (half / "run.json").write_text(json.dumps(changed(written, ("settings", "seed"), 5)))
    assert "it was changed after the run had begun" in refused(half)
    (half / "run.json").write_text(json.dumps(written, indent=1))
    path = half / "round-000000008.json"
    record = json.loads(path.read_text())
    record["rows"][1]["objective"] += 1
    path.write_text(json.dumps(record))
    assert "is damaged; delete round-000000008.*" in refused(half)


def test_a_checkpoint_beyond_the_last_round_is_not_of_this_run(half):  # noqa: F811
    for kind in ("json", "safetensors"):
        shutil.copy(half / f"round-000000008.{kind}", half / f"round-000000099.{kind}")
    assert "is not of this run, which has 12 rounds" in refused(half)


@pytest.mark.parametrize(("version", "sentence"), [(0, "format is 0"), (3, "reads formats 1 to 2"), ("1", "is '1'")])
def test_versions_that_are_not_known_are_refused(half, version, sentence):  # noqa: F811
    written = json.loads((half / "run.json").read_text())
    (half / "run.json").write_text(json.dumps(written | {"format": version, "cofed": "9.9"}))
    said = refused(half)
    assert "was not written by this version of cofed" in said
    assert sentence in said
    assert "(of cofed 9.9)" in said


def test_a_folder_of_the_first_format_goes_on(half):  # noqa: F811
    """The first format had no hashes of the held-out data, of own code and of the records."""
    written = json.loads((half / "run.json").read_text())
    for key in ("jax", "own", "evaluation_fingerprint"):
        del written[key]
    (half / "run.json").write_text(json.dumps(written | {"format": 1}))
    for path in half.glob("round-*.json"):
        record = json.loads(path.read_text())
        del record["run"], record["content"]
        path.write_text(json.dumps(record | {"format": 1}))
    np.testing.assert_array_equal(cofed.resume(half).model.coef, go().model.coef)


def test_another_version_of_the_same_format_is_told(half):  # noqa: F811
    written = json.loads((half / "run.json").read_text())
    text = json.dumps(written | {"cofed": "0.0.1"}, indent=1)
    (half / "run.json").write_text(text)
    for path in half.glob("round-*.json"):
        found = recorded.read_checkpoint(path, "").model_copy(update={"run": files.digest(half / "run.json")})
        recorded.write_record(path, found.model_copy(update={"content": recorded.content_of(found)}))
    with pytest.warns(RuntimeWarning, match=r"was begun with cofed 0.0.1 .* its last bits may be others"):
        cofed.resume(half)


def test_a_folder_is_one_runs_at_a_time(half, tmp_path):  # noqa: F811
    with folders.held(half):
        assert "another run writes into" in refused(half)
    (tmp_path / "free").mkdir()
    with folders.held(tmp_path / "free"), pytest.raises(ValueError, match="another run writes into"):
        go(tmp_path / "free")
    assert cofed.resume(half).outcome is cofed.Outcome.COMPLETED


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file, file / "below"):
        with pytest.raises(ValueError, match=r"checkpoint: .* is a file"):
            go(path)
    assert "is a file, not the folder of a run" in refused(file)
    assert file.read_text() == "mine"
    with pytest.raises(ValueError, match="holds no run"):
        cofed.resume(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 5000])
def test_what_is_no_name_of_a_folder_is_refused(name):
    assert "checkpoint" in refused(name)
    for act in (
        lambda: go(name),
        lambda: cofed.tune(worlds.problem(), worlds.linear(), [Mine(0.1)], rounds=1, checkpoint=name),
    ):
        with pytest.raises(ValueError, match="checkpoint"):
            act()


def test_a_state_without_its_record_is_cleared_away(half):  # noqa: F811
    (half / "round-000000010.safetensors").write_bytes(b"of a run that was killed before the record was written")
    cofed.resume(half)
    assert not (half / "round-000000010.safetensors").exists()


def test_precision_is_no_contradiction(tmp_path):
    """An array of a problem that was made before JAX was set to double precision is in single precision."""
    problem = worlds.problem(cofed.L1(0.05, weights=np.linspace(0.1, 1.0, 6)))
    short = eqx.tree_at(lambda p: p.regularizer.weights, problem, jnp.asarray(np.linspace(0.1, 1.0, 6), jnp.float32))
    go(tmp_path / "run", problem=problem)
    assert cofed.resume(tmp_path / "run", problem=short).outcome is cofed.Outcome.COMPLETED
