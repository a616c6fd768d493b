"""The budget of points: a study of many rows can be cross-validated, and few rows cannot be read out."""

import numpy as np
import pytest

from cofed import Logistic, Poisson, Softmax
from cofed.estimators import FederatedLogisticRegressionCV
from cofed.sites import Folds, SiteRows
from cofed.sites.policy import Policy, points
from cofed.sites.queries import LookMessage, ProductMessage, look, product
from cofed.solvers.curvature import unpack
from tests.sites.policy.worlds import design_of, federation, frame_of, logistic_rows, models


def cross_validated(n: int, p: int, sites: int, policy: Policy | None = None, strengths: int = 100):
    X, y = logistic_rows(n, p)
    made = federation(frame_of(X, y), design_of(p), sites, policy)
    return FederatedLogisticRegressionCV(cv=5, n_alphas=strengths), made


def test_a_study_of_600_rows_can_be_cross_validated():
    model, made = cross_validated(600, 4, 3, Policy(points={"grid_rows": 400}), strengths=15)
    model.fit(made)
    record = made.guards["s1"].ledger.analyses["y"]
    assert record.points > 0.33 * 400  # the others' rows count but for those of the largest site
    assert points.directions(record.public) <= 0.2 * 400
    assert record.columns == {"x0", "x1", "x2", "x3"}


@pytest.mark.slow
def test_a_study_of_1000_rows_and_50_features_can_be_cross_validated_under_the_default_policy():
    model, made = cross_validated(1000, 50, 5)
    model.fit(made)
    record = made.guards["s0"].ledger.analyses["y"]
    assert record.points > 2000
    assert points.directions(record.public) <= 0.25 * 800


@pytest.mark.parametrize("share", [0.33, 1.0])
def test_a_study_of_60_rows_cannot(share):
    model, made = cross_validated(60, 2, 3, Policy(parameters={"per_row": share}, points={"per_row": share}))
    with pytest.raises(ValueError, match="points"):
        model.fit(made)


def test_reference_rows_tell_the_directions_of_real_ones():
    """Nobody's rows are needed to know in how many directions points differ."""
    X, y = logistic_rows(400, 10, seed=4)
    rng = np.random.default_rng(0)
    path = np.linspace(0, 1, 60)[:, None] * rng.normal(size=10)  # on a line
    spread = rng.normal(size=(60, 10))
    found = {}
    for name, coef in (("line", path), ("spread", spread)):
        message = models(coef, np.zeros(60))
        real = points.joined(None, points.multipliers(message, X, y, np.zeros(400)))
        public = points.joined(None, points.reference_multipliers(message, tuple(f"x{j}" for j in range(10)), 400))
        found[name] = points.directions(real), points.directions(public)
    assert found["line"][0] <= 8
    assert abs(found["line"][0] - found["line"][1]) <= 1
    assert found["spread"][1] > 50
    assert abs(found["spread"][0] - found["spread"][1]) <= 3


def test_directions_never_become_fewer_and_do_not_depend_on_the_order():
    message = models(np.random.default_rng(1).normal(size=(40, 5)), np.zeros(40))
    columns = points.reference_multipliers(message, tuple("abcde"), 300)
    together = points.joined(None, columns)
    counts, factor = [], None
    for j in np.random.default_rng(2).permutation(40):
        factor = points.joined(factor, columns[:, [j]])
        counts.append(points.directions(factor))
    assert counts == sorted(counts)
    assert (
        counts[-1]
        == points.directions(together)
        == np.linalg.matrix_rank(columns / np.linalg.norm(columns, axis=0), points.LEAST_SIZE)
    )
    assert points.leverages(factor) == pytest.approx(points.leverages(together), abs=1e-6)


def test_leverage_tells_how_well_a_row_is_isolated():
    """By least squares: the part of a row that the best combination of points leaves, once others are cancelled."""
    X, y = logistic_rows(80, 3, seed=2)
    message = models(np.random.default_rng(3).normal(size=(20, 3)), np.zeros(20))
    multipliers = points.multipliers(message, X, y, np.zeros(80))
    factor = points.joined(None, multipliers)
    size = np.linalg.norm(factor, axis=0)
    span = factor[:, size > points.LEAST_SIZE]
    for row in range(0, 80, 9):
        alone = np.eye(80)[row]
        left = alone - span @ np.linalg.lstsq(span, alone)[0]
        assert points.leverages(factor)[row] == pytest.approx(1 - left @ left)


def test_folds_and_hessians_are_points():
    X, y = logistic_rows(50, 3)
    fold = np.arange(50) % 5
    message = LookMessage(
        np.zeros((3, 3, 1)), np.zeros((3, 1)), np.array([-1, 0, 4], np.int32), np.array([1], np.int32),
        np.arange(3, dtype=np.int32)[None], loss=models(np.zeros((1, 3)), np.zeros(1)).loss, folds=Folds(5),
    )  # fmt: skip
    found = points.multipliers(message, X, y, fold)
    assert found.shape == (50, points.count_points(message)) == (50, 4)
    assert found[:, 0] == pytest.approx(0.5 - y)
    assert found[:, 1] == pytest.approx(np.where(fold == 0, 0, 0.5 - y))
    assert found[:, 3] == pytest.approx(np.where(fold == 0, 0, 0.25))


@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Softmax(3)], ids=lambda loss: type(loss).__name__)
def test_multipliers_are_what_the_answers_weigh_the_rows_with(loss):
    rng = np.random.default_rng(5)
    k = 3 if isinstance(loss, Softmax) else 1
    X, y = rng.normal(size=(30, 4)), rng.integers(0, max(k, 2), 30)
    y = y.astype(np.int32) if k > 1 else y.astype(float)
    rows = SiteRows.of_sites(("oslo",), [X], [y])
    folds = Folds(3)
    coef, intercept = rng.normal(size=(5, 4, k)) * 0.5, rng.normal(size=(5, k))
    without = np.array([-1, 0, 1, 2, -1], np.int32)
    closer, where = np.array([4, 1], np.int32), np.tile(np.arange(4 * k, dtype=np.int32), (2, 1))
    message = LookMessage(coef, intercept, without, closer, where, loss=loss, folds=folds)
    found, answer = points.multipliers(message, X, y, rows.folds(folds)), rows.answer(look, message)
    assert found.shape == (30, points.count_points(message))
    slopes = found[:, : 5 * k].reshape(30, 5, k)
    assert np.einsum("nmk,np->mpk", slopes, X) == pytest.approx(answer.gradient)
    assert slopes.sum(axis=0) == pytest.approx(answer.slope)
    bends = found[:, 5 * k :].reshape(30, 2, -1)
    first = np.einsum("na,np,nq->apq", bends[:, :, 0], X, X)  # those of the first output
    hessians = np.stack([unpack(one, 4 * k) for one in answer.hessian])
    assert first == pytest.approx(hessians[:, ::k, ::k])

    direction = rng.normal(size=(2, 4, k))
    product_message = ProductMessage(coef[0], intercept[0], direction, np.zeros((2, k)), loss=loss)
    bent = points.multipliers(product_message, X, y, np.zeros(30)).reshape(30, 2, k)
    assert np.einsum("nvk,np->vpk", bent, X) == pytest.approx(rows.answer(product, product_message).coef)
