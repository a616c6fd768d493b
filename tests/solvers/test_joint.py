"""FedProx's problem solved exactly, cross-validation inside clients, excess risks."""

import numpy as np
import pytest
from tests import worlds

import cofed
from cofed.solvers.joint import JointFolds, cross_validate, joint_path

PROBLEM = cofed.Problem(cofed.Linear(), cofed.Logistic())


def test_the_extremes_are_the_local_and_the_pooled_solutions():
    federation = worlds.logistic(sizes=(40, 60, 50), d=3)
    path = joint_path(PROBLEM, federation, [0.0, 1e4, 2e4, np.inf])
    pooled = cofed.solve_pooled(PROBLEM, federation, weights="samples").model
    for m in range(3):
        own = cofed.solve_local(PROBLEM, federation, m).model
        np.testing.assert_allclose(path.models(0).coef[m], own.coef, rtol=0, atol=1e-7)
        np.testing.assert_allclose(path.models(3).coef[m], pooled.coef, rtol=0, atol=1e-7)
        np.testing.assert_allclose(path.models(3).intercept[m], pooled.intercept, rtol=0, atol=1e-7)
    near, nearer = (np.abs(path.theta[i] - path.theta[3]).max() for i in (1, 2))
    np.testing.assert_allclose(near / nearer, 2, rtol=1e-2)


def test_multinomial_models_come_back_in_the_models_own_coordinates():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2, 80, 2))
    y = (X @ rng.normal(size=(2, 3)) + rng.gumbel(size=(2, 80, 3))).argmax(axis=2)
    federation = cofed.Federation.from_arrays(list(zip(X, y, strict=True)))
    problem = cofed.Problem(cofed.Linear(), cofed.Softmax())
    path = joint_path(problem, federation, [0.0, np.inf], ridge=0.1)
    models = path.models(1)
    assert models.coef.shape == (2, 2, 3)
    assert models.intercept.shape == (2, 3)
    # A ridge fit sums to zero over the classes, so it is what scikit-learn finds.
    from sklearn.linear_model import LogisticRegression

    reference = LogisticRegression(C=1 / (0.1 * 160), tol=1e-10, max_iter=1000).fit(X.reshape(-1, 2), y.ravel())
    np.testing.assert_allclose(models.coef[0].T, reference.coef_, atol=1e-5)
    losses = path.losses(federation)[0]
    predicted = np.log(reference.predict_proba(X[0]))[np.arange(80), y[0]]
    np.testing.assert_allclose(losses[1], -predicted, atol=1e-5)


def test_held_out_losses_are_those_of_models_that_have_not_seen_the_sample():
    federation = worlds.logistic(sizes=(30, 24, 1), d=2)
    groups = [np.arange(30) // 2, np.arange(24), np.zeros(1)]
    losses, seen = cross_validate(PROBLEM, federation, [0.0, np.inf], JointFolds(3, groups=groups), ridge=0.01)
    assert [own.shape for own in losses] == [(2, 30), (2, 24), (2, 0)]
    assert not seen[2].any()
    fold_of = federation.fold_of(3, 0, groups)
    for pair in fold_of[0].reshape(-1, 2):
        assert pair[0] == pair[1]
    X, y = federation.client(0)
    k = fold_of[0][5]
    train = cofed.Federation.from_arrays([(X[fold_of[0] != k], y[fold_of[0] != k])])
    alone = joint_path(PROBLEM, train, [0.0], ridge=0.01).models(0)
    z = X[5] @ alone.coef[0] + alone.intercept[0]
    np.testing.assert_allclose(losses[0][0, 5], np.logaddexp(0, -z if y[5] > 0 else z), rtol=1e-6)


def test_excess_risk_is_the_mean_gap_to_the_truth():
    data = cofed.datasets.chen_logistic(clients=3, samples=[5, 10, 15], d=2, heterogeneity=1.0, test_samples=400)
    problem = worlds.problem(loss=cofed.Logistic())
    models = {"coef": data.local["coef"] + np.array([[0.5, 0.0], [0.0, 0.0], [0.0, -0.5]])}
    risk = cofed.excess_risk(problem, data.test, models, data.local, weights=[5, 10, 15])
    X, y = data.test.client(0)
    loss = lambda w: np.logaddexp(0, -np.where(y > 0, 1.0, -1.0) * (X @ w))  # noqa: E731
    gap = loss(models["coef"][0]) - loss(data.local["coef"][0])
    np.testing.assert_allclose(risk.individual[0], gap.mean(), rtol=1e-10)
    assert risk.individual[1] == 0
    np.testing.assert_allclose(risk.average, risk.individual @ [1 / 6, 2 / 6, 3 / 6], rtol=1e-12)
    shared = cofed.excess_risk(problem, data.test, data.truth, data.local, weights="uniform")
    assert shared.average > 3 * shared.standard_error
    with pytest.raises(ValueError, match="has 'coef' of shape"):
        cofed.excess_risk(problem, data.test, {"coef": np.zeros((2, 2))}, data.local)
    with pytest.raises(ValueError, match="lacks"):
        cofed.excess_risk(problem, data.test, {"slope": np.zeros(2)}, data.local)


@pytest.mark.parametrize("strengths", [[-1.0], [float("nan")], [], 1.0, ["a"]])
def test_bad_strengths_get_a_sentence(strengths):
    with pytest.raises(ValueError, match="strengths must be"):
        joint_path(PROBLEM, worlds.logistic(), strengths)
