"""Cox's model over sites is the stratified model of the pooled rows: as its definition, as statsmodels, certified."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from statsmodels.duration.hazard_regression import PHReg
from tests.estimators import hospitals, survival

from cofed.estimators import FederatedCox, FederatedCoxCV, load
from cofed.estimators.certificate import factored
from cofed.estimators.standardized_problem import assess_known
from cofed.losses import Breslow, Efron
from cofed.models import Weights
from cofed.sites import Folds, MemorySites, SiteRows
from cofed.sites.queries import LookMessage, ProductMessage, look, product
from cofed.solvers.curvature import unpack

SITES = hospitals.SITES
LOSSES = {"breslow": Breslow(), "efron": Efron()}


def in_memory(X, y, sites=SITES):
    names = tuple(dict.fromkeys(sites.tolist()))
    return MemorySites(SiteRows.of_sites(names, [X[sites == s] for s in names], [y[sites == s] for s in names]))


def looked_at(sites, coef, without, ties):
    """What sites tell of models, with all Hessians."""
    models, p = coef.shape
    return sites.ask(
        look,
        LookMessage(
            coef=coef[..., None],
            intercept=np.zeros((models, 1)),
            without=np.asarray(without, np.int32),
            closer=np.arange(models, dtype=np.int32),
            where=np.tile(np.arange(p, dtype=np.int32), (models, 1)),
            folds=Folds(3, by_class=True),
            loss=LOSSES[ties],
        ),
    )


@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("ties", LOSSES)
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_a_look_is_the_definition(ties, entries, seed):
    """Loss, gradient and Hessian of strata with ties, without each fold; padding and order of rows change nothing."""
    X, y = survival.follow_up(seed, entries)
    sites = in_memory(X, y)
    fold, p = sites.rows.folds(Folds(3, by_class=True)), X.shape[1]
    coef = 0.5 * np.random.default_rng(seed).normal(size=(4, p))
    found = looked_at(sites, coef, [-1, 0, 1, 2], ties)
    for m, without in enumerate([-1, 0, 1, 2]):
        kept = fold != without
        rows = sites.rows
        own = survival.pooled(coef[m], rows.X[kept], rows.y[kept], rows.site[kept], ties)
        everyone = survival.pooled(coef[m], rows.X, rows.y, rows.site, ties)
        value, gradient, hessian = (kept.sum() * part for part in own)
        assert found.loss[m] == pytest.approx(value, rel=1e-11, abs=1e-11)
        np.testing.assert_allclose(found.gradient[m, :, 0], gradient, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(unpack(found.hessian[m], p), hessian, rtol=1e-9, atol=1e-9)
        assert found.held[m] == pytest.approx(len(X) * everyone[0] - value, rel=1e-9, abs=1e-9)
    assert not found.slope.any()


def test_a_product_is_that_of_the_hessian():
    X, y = survival.follow_up()
    rng = np.random.default_rng(0)
    coef, direction = 0.3 * rng.normal(size=6), rng.normal(size=(2, 6))
    message = ProductMessage(coef[:, None], np.zeros(1), direction[..., None], np.zeros((2, 1)), loss=Efron())
    hessian = len(X) * survival.pooled(coef, X, y, SITES, "efron")[2]
    found = in_memory(X, y).ask(product, message)
    np.testing.assert_allclose(found.coef[..., 0], direction @ hessian, rtol=1e-9)


@pytest.mark.parametrize("ties", LOSSES)
@pytest.mark.parametrize("entries", [False, True])
def test_without_a_penalty_it_is_statsmodels_with_strata(ties, entries):
    X, y = survival.follow_up(3, entries)
    X = X[:, :3]  # ten events for each
    model = FederatedCox(0.0, ties=ties).fit(X, y, clients=SITES)
    table = model.infer(X, y, clients=SITES)
    if not entries:
        theirs = PHReg(y[:, 0], X, status=y[:, 1], strata=SITES, ties=ties).fit()
        np.testing.assert_allclose(model.coef_, theirs.params, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(table["se"], theirs.bse, rtol=1e-6)
    gradient, hessian = survival.pooled(model.coef_, X, y, SITES, ties)[1:]
    np.testing.assert_allclose(gradient, 0, atol=1e-12)
    np.testing.assert_allclose(table["se"], np.sqrt(np.diag(np.linalg.inv(len(X) * hessian))), rtol=1e-6)
    assert model.certificate_.converged


def test_a_column_that_does_not_vary_within_sites_has_no_interval():
    X, y = survival.follow_up(3)
    more = np.column_stack([X[:, :2], SITES == "Rome"])
    model = FederatedCox(0.05).fit(more, y, clients=SITES)
    with pytest.warns(UserWarning, match="no interval of their own .*: 'x2' is constant within every site"):
        table = model.infer(more, y, clients=SITES)
    wanted = FederatedCox(0.05).fit(X[:, :2], y, clients=SITES).infer(X[:, :2], y, clients=SITES)
    np.testing.assert_allclose(table[["debiased", "se"]].iloc[:2], wanted[["debiased", "se"]], rtol=1e-8)
    assert table.loc["x2", ["debiased", "se", "p_value"]].isna().all()


@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
def test_a_penalised_fit_is_optimal(l1_ratio):
    X, y = survival.follow_up(1)
    alpha = 0.05
    model = FederatedCox(alpha, l1_ratio=l1_ratio).fit(X, y, clients=SITES)
    gradient = survival.pooled(model.coef_, X, y, SITES, "efron")[1] / X.std(axis=0)
    own = model.coef_ * X.std(axis=0)
    slope = gradient + alpha * (1 - l1_ratio) * own
    used = own != 0
    assert used.any()
    assert not used.all()
    np.testing.assert_allclose(slope[used], -alpha * l1_ratio * np.sign(own[used]), atol=1e-10)
    assert (abs(slope[~used]) <= alpha * l1_ratio + 1e-10).all()
    assert model.certificate_.converged
    value = survival.pooled(model.coef_, X, y, SITES, "efron")[0]
    penalty = alpha * (l1_ratio * abs(own).sum() + (1 - l1_ratio) * own @ own / 2)
    assert model.certificate_.objective == pytest.approx(value + penalty, rel=1e-12)


def test_factors_of_the_penalty_limits_and_features_left_out():
    """The conditions of optimality of each feature: one without a penalty, one left out, one at its limit."""
    X, y = survival.follow_up(1)
    alpha, factor = 0.05, np.ones(X.shape[1])
    factor[1] = 0
    free = FederatedCox(alpha, penalty_factor=factor, exclude=[3]).fit(X, y, clients=SITES)
    most = abs(free.coef_[2]) / 2
    model = FederatedCox(alpha, penalty_factor=factor, exclude=[3], low=-most, high=most).fit(X, y, clients=SITES)
    for one in (free, model):
        slope = survival.pooled(one.coef_, X, y, SITES, "efron")[1] / X.std(axis=0)
        own = one.coef_ * X.std(axis=0)
        assert one.certificate_.converged
        assert own[3] == 0
        assert own[1] != 0
        inside = np.flatnonzero((own != 0) & (abs(one.coef_) < most)) if one is model else np.flatnonzero(own)
        np.testing.assert_allclose(slope[inside], -alpha * (factor * np.sign(own))[inside], atol=1e-9)
        rest = [j for j in np.flatnonzero(own == 0) if j != 3]
        assert (abs(slope[rest]) <= alpha * factor[rest] + 1e-9).all()
    assert abs(model.coef_[2]) == pytest.approx(most, rel=1e-12)
    assert abs(slope[2]) > alpha
    chosen = FederatedCoxCV(penalty_factor=factor, exclude=[3], cv=3, n_alphas=4).fit(X, y, clients=SITES)
    assert (chosen.path_.coefs[:, 1] != 0).all()
    assert (chosen.path_.coefs[:, 3] == 0).all()


@pytest.mark.slow
@settings(max_examples=8)
@example(seed=0, alpha=0.0, ratio=1.0)
@example(seed=0, alpha=0.03, ratio=1.0)
@given(seed=st.integers(1, 10_000), alpha=st.sampled_from([0.0, 0.03, 0.1]), ratio=st.sampled_from([1.0, 0.3]))
def test_certificates_are_never_below_the_truth(seed, alpha, ratio):
    """At any distance from the minimum, with the Hessian and without; near it, with the Hessian, hardly above."""
    X, y = survival.follow_up(seed)
    model = FederatedCox(alpha, l1_ratio=ratio, standardize=False)
    problem = model._standardized(in_memory(X, y))
    psi, unit = problem.problem(model._penalty(problem, alpha)), problem.units.coef
    w, least = survival.least(X, y, SITES, "efron", np.full(6, alpha * ratio), np.full(6, alpha * (1 - ratio)))
    off = np.random.default_rng(seed).normal(size=6)
    sizes = (10.0, 1.0, 0.1, 1e-3, 1e-6, 1e-9)
    points = [Weights(jnp.asarray((w + size * off * (w != 0)) / unit), None) for size in sizes]
    seen = problem.look(points, range(len(points)))
    for m, (size, point) in enumerate(zip(sizes, points, strict=True)):
        at = problem.seen(point, seen, m)
        curved = factored(jnp.asarray(unpack(np.asarray(seen.hessian[m]), 6) / len(X)))
        coef = np.asarray(point.coef) * unit
        value = survival.pooled(coef, X, y, SITES, "efron")[0]
        true = value + alpha * (ratio * abs(coef).sum() + (1 - ratio) * coef @ coef / 2) - least
        for known in (None, curved):
            found = assess_known(psi, problem.null, at, known)
            assert true <= float(found.gap) + float(found.rounding) + 1e-15 * value
        if seed == 0 and size <= 1e-6:
            assert float(found.gap) <= 3 * true + 1e-12


def test_sites_without_events_and_other_baselines_change_nothing():
    X, y = survival.follow_up(2)
    model = FederatedCox(0.02).fit(X, y, clients=SITES)
    late = y * np.where(SITES == "Rome", 100.0, 1.0)[:, None] ** [1, 0]
    np.testing.assert_allclose(FederatedCox(0.02).fit(X, late, clients=SITES).coef_, model.coef_, atol=1e-10)
    more = np.column_stack([y[:20, 0], np.zeros(20)])
    both = FederatedCox(0.02 * 60 / 80, standardize=False).fit(
        np.vstack([X, X[:20]]), np.vstack([y, more]), clients=np.append(SITES, ["Nuuk"] * 20)
    )
    plain = FederatedCox(0.02, standardize=False).fit(X, y, clients=SITES)
    np.testing.assert_allclose(both.coef_, plain.coef_, atol=1e-10)


def test_a_path_is_that_of_single_fits_and_is_certified():
    X, y = survival.follow_up()
    path = FederatedCox().path(X, y, clients=SITES, n_alphas=8, eps=0.02)
    assert path.converged.all()
    assert path.nonzero[0] == 0
    one = FederatedCox(path.alphas[5]).fit(X, y, clients=SITES)
    np.testing.assert_allclose(path.coefs[5], one.coef_, atol=1e-9)
    assert path.n_rounds < 20


@pytest.fixture(scope="module")
def chosen():
    X, y = survival.follow_up(5)
    return X, y, FederatedCoxCV(n_alphas=8, cv=3, eps=0.02, standardize=False, tol=1e-10).fit(X, y, clients=SITES)


def test_cross_validation_is_the_difference_of_likelihoods(chosen):
    """As in glmnet: what all rows' likelihood has beside that of the rows learnt from, at the fold's model."""
    X, y, model = chosen
    sites = in_memory(X, y)
    fold, rows = sites.rows.folds(Folds(3, 0, True)), sites.rows
    place = 4
    held = 0.0
    for k in range(3):
        kept = fold != k
        own = FederatedCox(model.alphas_[place], standardize=False)
        names = np.array(sites.names)[rows.site]
        w = own.fit(rows.X[kept], rows.y[kept], clients=names[kept]).coef_
        everyone = len(X) * survival.pooled(w, rows.X, rows.y, names, "efron")[0]
        held += everyone - kept.sum() * survival.pooled(w, rows.X[kept], rows.y[kept], names[kept], "efron")[0]
    assert model.cv_mean_[place] == pytest.approx(2 * held / len(X), rel=1e-4)
    assert model.alpha_ in model.alphas_
    assert model.certificate_.converged


def test_it_is_saved_whole(chosen, tmp_path):
    X, _, model = chosen
    model.save(tmp_path / "cox.safetensors")
    again = load(tmp_path / "cox.safetensors")
    np.testing.assert_array_equal(again.predict(X), X @ model.coef_)
    assert again.n_events_ == model.n_events_
    assert "(intercept)" not in again.summary()


def test_events_that_a_feature_foretells_have_no_best_model():
    X, y = survival.follow_up()
    X = X.copy()
    X[:, 0] = -y[:, 0] + 1e-3 * X[:, 1]
    with pytest.warns(ConvergenceWarning, match=r"who has the next event.*alpha > 0 helps"):
        model = FederatedCox(0.0).fit(X, y, clients=SITES)
    assert model.certificate_.outcome == "not converged"


def test_many_rows_of_few_features_by_accelerated_gradients():
    X, y = survival.follow_up(4)
    newton = FederatedCox(0.05, l1_ratio=0.2).fit(X, y, clients=SITES)
    fista = FederatedCox(0.05, l1_ratio=0.2, algorithm="fista", tol=1e-9).fit(X, y, clients=SITES)
    assert fista.certificate_.converged
    np.testing.assert_allclose(fista.coef_, newton.coef_, atol=3e-4)


WRONG = {
    "all rows are censored": lambda y: y * [1, 0],
    "times must be >= 0, but 60 of 60": lambda y: y * [-1, 1] - [1, 0],
    "events must be 1, or 0": lambda y: np.add(y, [0, 1]),
    "finite numbers": lambda y: np.where(y == y[3], np.nan, y),
    r"two columns.*got the shape \(60, 4\)": lambda y: np.hstack([y, y]),
    "entries must be before times, but 60 of 60": lambda y: y[:, [0, 0, 1]],
}


@pytest.mark.parametrize("words", WRONG)
def test_labels_that_mean_nothing_get_a_sentence(words):
    X, y = survival.follow_up()
    with pytest.raises(ValueError, match=f"FederatedCox: .*{words}"):
        FederatedCox().fit(X, WRONG[words](y), clients=SITES)


def test_labels_in_another_order_masked_ones_and_durations_are_refused():
    X, y = survival.follow_up()
    frame, labels = pd.DataFrame(X), pd.DataFrame(y, columns=["days", "dead"])
    turned = labels.iloc[::-1]
    model = FederatedCox(0.05).fit(frame, labels, clients=SITES)
    for call in (FederatedCox().fit, FederatedCoxCV().fit, model.infer, model.score, model.keep_baselines):
        with pytest.raises(ValueError, match="X and y have the same row labels in a different order"):
            call(frame, turned, SITES)
    with pytest.raises(ValueError, match="FederatedCox: y must have no masked values, but 2 are masked"):
        FederatedCox().fit(X, np.ma.masked_array(y, np.arange(120).reshape(y.shape) < 2), clients=SITES)
    with pytest.raises(ValueError, match="FederatedCox: y must be numbers, got timedelta64"):
        FederatedCox().fit(X, np.arange(60).astype("m8[D]"), clients=SITES)


def test_labels_are_needed():
    with pytest.raises(ValueError, match=r"FederatedCox requires y to be passed, .* two columns"):
        FederatedCox().fit(survival.follow_up()[0], clients=SITES)


def test_structured_labels_are_those_of_scikit_survival():
    X, y = survival.follow_up()
    both = np.array([(bool(e), t) for t, e in y], dtype=[("dead", bool), ("days", float)])
    model = FederatedCox(0.05).fit(X, both, clients=SITES)
    np.testing.assert_array_equal(model.coef_, FederatedCox(0.05).fit(X, y, clients=SITES).coef_)
