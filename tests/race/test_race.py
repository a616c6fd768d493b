"""The race: who takes part with what, what is counted, and what is concluded from it."""

import dataclasses
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cofed
from cofed.cli import app
from cofed.engine.spec import RunSpec
from cofed.race import costs, field, knowledge, page, profiles, table, work
from cofed.race.entrants import FACTORS, RULES, Entrant, entrants, why_not
from cofed.race.knowledge import GAPS
from cofed.race.problems import FAMILIES, battery, small_battery

DOCS = Path(__file__).parents[2] / "docs" / "race"
TINY = dataclasses.replace(
    small_battery()["lasso-different"], rounds=60, local_steps=(2,), features=4, heterogeneity=0.0
)


@pytest.fixture(scope="module")
def raced(tmp_path_factory):
    """A race of two methods on one small problem, in this process."""
    folder = tmp_path_factory.mktemp("race")
    methods = [Entrant(cofed.FedDecouple), Entrant(cofed.FedFISTA)]
    chosen = field.pairings([TINY], methods)
    assert field.race(chosen, folder, progress=False) == 2
    return folder, chosen


def test_the_battery_turns_every_dial():
    problems = battery().values()
    for dial in ("heterogeneity", "conditioning", "batch_size", "graph"):
        assert len({getattr(problem, dial) for problem in problems}) > 1, dial
    assert {problem.family for problem in problems} == set(FAMILIES)
    assert {problem.name for problem in problems} == set(battery())


def test_every_method_of_the_public_list_takes_part_or_says_why():
    names = {entrant.method.__name__ for entrant in entrants()}
    assert names == {*cofed.algorithms.__all__, *cofed.gossip.__all__} - {"topologies"}
    racing = set()
    kinds = {(problem.family, problem.graph is None): problem for problem in battery().values()}
    for problem in kinds.values():
        for _, entrant, reason in field.matches([problem]):
            assert reason is None or len(reason) > 10
            if reason is None:
                racing.add(entrant.method.__name__)
    unknown = {e.method.__name__ for e in entrants() if set(e.tried) - set(RULES)}
    assert names - racing - unknown == {"Alternative", "FedProx", "PureLocal"}, "these fit no problem of the battery"


def test_a_method_with_an_unknown_hyperparameter_stays_out():
    class Novel(cofed.AbstractServerAlgorithm):
        chi: float

    reason = why_not(Entrant(Novel), cofed.Problem(), gossips=False)
    assert reason == "the race has no rule for its hyperparameter chi"


def test_grids_are_around_the_curvature():
    known = knowledge.Knowledge(L=4.0, mu=0.5, start=1.0, optimum=0.0, support=3, distance=2.0)
    rates = [one.client_lr for one in Entrant(cofed.FedDecouple).grid(known, 10)]
    np.testing.assert_allclose(rates, np.array(FACTORS) / 4.0)
    assert len(Entrant(cofed.FedDR).grid(known, 10)) == 16
    [skip] = {one.probability for one in Entrant(cofed.ProxSkip).grid(known, 10)}
    assert skip == 0.1
    assert Entrant(cofed.ProxSkip).most_steps(10) == 50
    assert Entrant(cofed.NIDS).local_steps((1, 10)) == (1,) == Entrant(cofed.FedFISTA).local_steps((1, 10))


def test_what_is_known_of_a_problem_is_so(raced):
    folder, _ = raced
    known = knowledge.known(TINY, folder)
    made = TINY.make()
    X = [np.asarray(made.federation.client(m)[0]) for m in range(made.federation.n_clients)]
    assert pytest.approx(max(np.linalg.eigvalsh(A.T @ A / len(A))[-1] for A in X)) == known.L
    assert known.mu == pytest.approx(np.linalg.eigvalsh(np.mean([A.T @ A / len(A) for A in X], axis=0))[0])
    run = cofed.run(made.problem, made.federation, cofed.FedFISTA(L=known.L), rounds=60, local_steps=1, progress=False)
    assert run.history["objective"][0] == pytest.approx(known.start)
    assert run.history["objective"][-1] == pytest.approx(known.optimum, abs=1e-10)


def test_bytes_and_gradients_are_those_of_a_run():
    made = TINY.make()
    spec = RunSpec(made.problem, made.federation, cofed.FedDecouple(0.01), rounds=3, local_steps=2)
    cost = work.round_cost(spec)
    result = cofed.run(made.problem, made.federation, cofed.FedDecouple(0.01), rounds=3, local_steps=2, progress=False)
    assert 3 * cost.bytes + cost.first_bytes == result.communication.total
    assert cost.gradients == 2
    half = dataclasses.replace(spec, batch_size=10)
    assert work.round_cost(half).gradients == pytest.approx(2 * 10 * 8 / made.federation.n_samples)


def test_messages_along_a_graph_are_counted():
    ring = dataclasses.replace(TINY, graph="ring")
    made = ring.make()
    settings = {"rounds": 3, "local_steps": 1, "topology": made.topology}
    for method in (cofed.NIDS(0.1), cofed.PGExtra(0.1)):
        cost = work.round_cost(RunSpec(made.problem, made.federation, method, **settings))
        result = cofed.run(made.problem, made.federation, method, **settings, progress=False)
        assert 3 * cost.bytes + cost.first_bytes == result.communication.total


def test_a_hessian_counts_as_its_columns():
    problem = cofed.Problem(cofed.Linear(intercept=False))
    assert work.gradients_of(cofed.FedNewton(), problem, jnp.zeros(7), 1) == 8


def test_rounds_that_take_turns_count_on_average():
    """SDANE looks, with two gradients, and then works, with one and K more; both branches are in its program."""
    made, options = TINY.make(), {"local_steps": 5, "progress": False}
    for method in (cofed.SDANE(), cofed.AccSDANE()):
        after = [cofed.run(made.problem, made.federation, method, rounds=r, **options) for r in (1, 2, 3, 4)]
        assert [float(result.state.server.works) for result in after] == [1, 0, 1, 0]
        start = made.problem.start(made.federation)
        assert work.gradients_of(method, made.problem, start, 5) == (2 + 1 + 5) / 2


def test_what_is_finished_is_kept_and_a_damaged_file_is_named(raced):
    folder, chosen = raced
    times = [pairing.path(folder).stat().st_mtime_ns for pairing in chosen]
    assert field.race(chosen, folder, progress=False) == 0
    assert [pairing.path(folder).stat().st_mtime_ns for pairing in chosen] == times
    other = dataclasses.replace(chosen[0], problem=dataclasses.replace(TINY, seed=2))
    assert other.read(folder) is None  # another definition
    damaged = chosen[1].path(folder)
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:100])
    with pytest.raises(ValueError, match="is damaged; delete it"):
        chosen[1].read(folder)
    damaged.write_bytes(whole)


def test_an_interrupted_race_keeps_what_was_done(raced, tmp_path, monkeypatch):
    folder, chosen = raced
    first = chosen[0]

    def stop_at_the_second(pairing, where):
        if pairing != first:
            raise KeyboardInterrupt
        target = pairing.path(where)
        target.parent.mkdir(parents=True)
        target.write_bytes(pairing.path(folder).read_bytes())

    monkeypatch.setattr(field, "measure", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        field.race(chosen, tmp_path, progress=False)
    assert first.read(tmp_path) is not None
    assert chosen[1].read(tmp_path) is None


def test_costs_are_those_of_the_best_configuration(raced):
    folder, chosen = raced
    model = costs.CostModel(latency=1.0, bandwidth=100.0, gradient_seconds=0.5)
    found = costs.gather(chosen, folder, model)
    known = knowledge.known(TINY, folder)
    for pairing in chosen:
        rows = pairing.read(folder)
        for gap in knowledge.GAPS:
            [row] = found[(found["algorithm"] == pairing.entrant.name) & (found["gap"] == gap)].to_dict("records")
            seconds = {}
            for one in rows.to_dict("records"):
                there = [r + 1 for r, value in enumerate(one["objective"]) if value <= known.within(gap)]
                if there:
                    r = there[0]
                    price = r + r * one["bytes_per_round"] / 100 + r * one["gradients_per_round"] / 2
                    seconds[one["configuration"]] = (price, r)
            if not seconds:
                assert np.isnan(row["rounds"])
                continue
            best = min(seconds, key=lambda name: seconds[name])
            assert row["setting"] == best
            assert row["seconds"] == pytest.approx(seconds[best][0], rel=1e-4)
            assert row["rounds"] == min(r for _, r in seconds.values())


def test_ratios_without_an_arrival_are_infinite_and_problems_that_nobody_solved_are_left_out():
    found = pd.DataFrame(
        {
            "problem": ["a", "a", "b", "b", "c", "c"],
            "algorithm": ["X", "Y"] * 3,
            "rounds": [10.0, 20.0, np.nan, 5.0, np.nan, np.nan],
        }
    )
    table_of = profiles.ratios(found, "rounds")
    assert table_of.index.tolist() == ["a", "b"]
    assert table_of.loc["b", "X"] == np.inf
    np.testing.assert_allclose(profiles.profile(table_of["Y"].to_numpy(), np.array([1.0, 2.0])), [0.5, 1.0])


def test_the_page_of_a_race(raced, tmp_path):
    folder, chosen = raced
    found = costs.gather(chosen, folder, costs.CostModel())
    written = page.write(found, {TINY.name: TINY}, costs.CostModel(), "cofed race", tmp_path)
    assert "## Which algorithm when" in written.read_text()
    assert (tmp_path / "profiles-server.png").stat().st_size > 10_000
    assert not (tmp_path / "profiles-graph.png").exists()  # no problem was without a server
    pd.testing.assert_frame_equal(page.read(tmp_path), found, check_dtype=False, check_exact=False)


def test_the_readme_says_what_the_race_found():
    readme = (DOCS.parents[1] / "README.md").read_text()
    section = table.section(page.read(DOCS), battery())
    assert table.replaced(readme, section) == readme, "write it again: cofed race --page docs/race --readme README.md"
    assert table.brief(page.read(DOCS), battery()) in section
    for gap in (None, *GAPS):
        assert table.which(page.read(DOCS), battery(), gap) in (DOCS / "README.md").read_text()


@pytest.mark.slow
def test_processes_find_what_one_process_finds(raced, tmp_path):
    folder, chosen = raced
    assert field.race(chosen, tmp_path, jobs=2, progress=False) == 2
    for pairing in chosen:
        one, two = pairing.read(folder), pairing.read(tmp_path)
        assert one["configuration"].tolist() == two["configuration"].tolist()
        for a, b in zip(one["objective"], two["objective"], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)


@pytest.mark.parametrize("option", ["--problems", "--algorithms"])
def test_an_empty_list_of_names_is_refused(option):
    result = CliRunner().invoke(app, ["race", option, ""], env={"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"})
    assert result.exit_code == 2
    assert "is named: leave the option out" in " ".join(result.output.split())


def test_a_page_that_cannot_be_written_into_is_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(field, "race", lambda *given: pytest.fail("it runs"))
    plain = tmp_path / "plain.md"
    plain.write_text("nothing of the race")
    for target, words in ((tmp_path / "none.md", "cannot be read"), (plain, "has no section from the race")):
        result = CliRunner().invoke(app, ["race", "--quick", "--out", str(tmp_path / "out"), "--readme", str(target)])
        assert result.exit_code == 2
        assert words in " ".join(result.output.split())
