"""Alternative: the choice between one model for all and a model each, on held-out data."""

import numpy as np
import pytest
from tests import worlds

import cofed
from cofed.engine.history import Outcome
from cofed.statistics.paired_comparison import compare


def logistic(R, n=60, m=6, seed=0):
    return cofed.datasets.chen_logistic(clients=m, samples=n, d=3, heterogeneity=R, seed=seed).federation


PROBLEM = cofed.Problem(cofed.Linear(intercept=False), cofed.Logistic())
OPTIONS = {"rounds": 60, "weights": "samples", "evaluate_every": 60}


def test_deploys_what_does_better_on_the_held_out_part():
    for R, chosen in ((0.0, "shared"), (4.0, "local")):
        federation = logistic(R)
        result = cofed.run(PROBLEM, federation, cofed.Alternative(1.0), **OPTIONS)
        train, test = federation.split(0.25, 0)
        shared = cofed.run(PROBLEM, train, cofed.FedAvg(1.0), **OPTIONS)
        local = cofed.run(PROBLEM, train, cofed.PureLocal(1.0), **OPTIONS)
        assert result.choice.chosen == chosen
        deployed = np.broadcast_to(shared.model.coef, (6, 3)) if chosen == "shared" else local.personal_models.coef
        np.testing.assert_array_equal(result.personal_models.coef, deployed)
        # The held-out losses and their difference, by hand.
        gaps = []
        for m, name in enumerate(federation.names):
            X, y = test.client(name)
            s = np.where(y > 0, 1.0, -1.0)
            loss = lambda w, s=s, X=X: np.logaddexp(0, -s * (X @ w))  # noqa: E731
            gaps.append(loss(shared.model.coef) - loss(local.personal_models.coef[m]))
        np.testing.assert_allclose(result.choice.difference, np.mean([gap.mean() for gap in gaps]), rtol=1e-9)
        error = np.sqrt(sum(gap.var(ddof=1) / len(gap) for gap in gaps)) / 6
        np.testing.assert_allclose(result.choice.standard_error, error, rtol=1e-9)
        assert ("one model for all is better" in str(result.choice)) == (chosen == "shared")
        traffic = shared.communication.total + local.communication.total
        assert result.communication.total == traffic


def test_by_client_gives_each_what_is_better_for_it():
    result = cofed.run(PROBLEM, logistic(2.0), cofed.Alternative(1.0, by_client=True), **OPTIONS)
    table = result.choice.table
    assert result.choice.chosen == "by client"
    assert ((table["difference"] > 0) == (table["chosen"] == "local")).all()
    assert set(table["chosen"]) == {"local", "shared"}
    same = (result.personal_models.coef == result.model.coef).all(axis=1)
    np.testing.assert_array_equal(same, table["chosen"] == "shared")


def test_cross_validated_it_trains_the_winner_on_everything():
    federation = logistic(4.0, n=30)
    result = cofed.run(PROBLEM, federation, cofed.Alternative(1.0, folds=3), **OPTIONS)
    assert result.choice.chosen == "local"
    assert result.choice.table["samples"].tolist() == [30] * 6
    whole = cofed.run(PROBLEM, federation, cofed.PureLocal(1.0), **OPTIONS)
    np.testing.assert_array_equal(result.personal_models.coef, whole.personal_models.coef)


def test_a_tie_goes_to_the_model_for_all():
    federation = logistic(1.0)
    same = cofed.Alternative(shared=cofed.PureLocal(1.0), local=cofed.PureLocal(1.0))
    result = cofed.run(PROBLEM, federation, same, **OPTIONS)
    assert result.choice.difference == 0
    assert result.choice.chosen == "shared"


def test_other_methods_and_given_held_out_data():
    federation = logistic(0.5)
    train, test = federation.split(0.5, seed=3)
    methods = cofed.Alternative(shared=cofed.FedDecouple(1.0), local=cofed.FedProx(0.1, 0.5))
    problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Logistic(), cofed.L1(0.01))
    result = cofed.run(problem, train, methods, **OPTIONS, evaluation=test)
    assert result.choice.table["samples"].tolist() == [30] * 6
    assert result.personal_models.coef.shape == (6, 3)


def test_a_client_with_one_sample_is_not_compared():
    federation = logistic(0.0)
    pairs = {name: federation.client(name) for name in federation.names}
    pairs["tiny"] = (np.ones((1, 3)), np.array([1]))
    result = cofed.run(PROBLEM, cofed.Federation.from_arrays(pairs), cofed.Alternative(1.0, by_client=True), **OPTIONS)
    assert result.choice.table.loc["tiny", "samples"] == 0
    assert result.choice.table.loc["tiny", "chosen"] == "shared"
    assert np.isfinite(result.choice.difference)


def test_rates_of_the_candidates_may_be_auto():
    federation = logistic(1.0)
    found = cofed.run(PROBLEM, federation, cofed.Alternative("auto"), rounds=3)
    training, _ = federation.split(0.25, 0)
    both = [cofed.run(PROBLEM, training, one, rounds=3) for one in (cofed.FedAvg("auto"), cofed.PureLocal("auto"))]
    losses = [float(np.mean(found.choice.table[name])) for name in ("shared_loss", "local_loss")]
    assert found.communication.up == sum(one.communication.up for one in both)
    assert found.algorithm in [one.algorithm for one in both]
    assert np.isfinite(losses).all()


def test_stopping_returns_the_run_under_way(monkeypatch):
    from cofed.engine import model_selection
    from cofed.engine.spec import RunSpec

    federation = logistic(0.0)
    seen = []

    def go(spec, method):
        seen.append(type(method).__name__)
        result = cofed.run(PROBLEM, spec.federation, method, rounds=2)
        object.__setattr__(result, "outcome", Outcome.INTERRUPTED)
        return result

    method = cofed.Alternative(1.0)
    result = model_selection.choose(RunSpec(PROBLEM, federation, method, rounds=2), method.candidates(PROBLEM), go)
    assert seen == ["FedAvg"]
    assert result.outcome is Outcome.INTERRUPTED
    assert result.choice is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cofed.Alternative(), "give client_lr"),
        (lambda: cofed.Alternative(0.1, held_out=1.0), "held_out must be a share"),
        (lambda: cofed.Alternative(0.1, folds=1), "folds must be an integer >= 2"),
        (lambda: cofed.Alternative(0.1, local=cofed.FedAvg(0.1)), "a model for each client"),
        (lambda: cofed.Alternative(0.1, shared=cofed.FedAvg), "an algorithm with a server"),
        (lambda: cofed.Alternative(0.1, by_client="no"), "must be True or False"),
        (lambda: cofed.Alternative(0.1, shared=cofed.DFedMiD(0.1)), "an algorithm with a server"),
        (lambda: cofed.tune(PROBLEM, logistic(0.0), [cofed.Alternative(0.1)], rounds=2), "tune these one by one"),
        (lambda: cofed.run(PROBLEM, logistic(0.0), cofed.Alternative(0.1), rounds=2, checkpoint="x"), "no checkpoint"),
        (
            lambda: cofed.run(worlds.problem(cofed.L2Ball(1.0)), worlds.linear(), cofed.Alternative(0.1), rounds=2),
            "FedAvg does not fit the regularizer L2Ball",
        ),
    ],
)
def test_bad_input_gets_a_sentence(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


def test_held_out_data_of_strangers_are_refused():
    federation = logistic(0.0)
    stranger = cofed.Federation.from_arrays({"stranger": federation.client(0)})
    with pytest.raises(ValueError, match="has the client 'stranger'"):
        cofed.run(PROBLEM, federation, cofed.Alternative(1.0), rounds=2, evaluation=stranger)


def test_samples_of_one_group_count_as_one_draw():
    rng = np.random.default_rng(0)
    values = rng.normal(size=50)
    zero = np.zeros(200)
    repeated, groups = np.repeat(values, 4), np.repeat(np.arange(50), 4)
    once = compare(["a"], [values], [zero[:50]], [1.0])
    grouped = compare(["a"], [repeated], [zero], [1.0], [groups])
    np.testing.assert_allclose(grouped.standard_error, once.standard_error, rtol=1e-12)
    assert compare(["a"], [repeated], [zero], [1.0]).standard_error < 0.6 * once.standard_error
