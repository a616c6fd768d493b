"""Rows of Cox's model that count by weights, and have offsets: as the definition, as repeated rows, as statsmodels."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from statsmodels.duration.hazard_regression import PHReg
from tests.estimators import hospitals, survival
from tests.sites.secure import worlds

from cofed import survival_curves
from cofed.estimators import FederatedCox, FederatedCoxCV, load, permutation_importance
from cofed.estimators.certificate import factored
from cofed.estimators.standardized_problem import assess_known
from cofed.losses import Breslow, Efron
from cofed.models import Weights
from cofed.sites import Folds, MemorySites, SiteRows, Target, table_sites
from cofed.sites.queries import LookMessage, ProductMessage, look, product
from cofed.solvers.curvature import unpack

SITES = hospitals.SITES
NAMES = tuple(hospitals.SIZES)
LOSSES = {"breslow": Breslow(), "efron": Efron()}


def uneven(seed=0):
    """Weights and offsets of the rows."""
    rng = np.random.default_rng(seed + 100)
    return rng.uniform(0.2, 3, len(SITES)), 0.5 * rng.normal(size=len(SITES))


def in_memory(X, y, weight, offset):
    rows = SiteRows.of_sites(NAMES, [X[s == SITES] for s in NAMES], [y[s == SITES] for s in NAMES])
    order = np.concatenate([np.flatnonzero(s == SITES) for s in NAMES])
    return MemorySites(rows).with_row_numbers(weight[order], offset[order]), order


@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("ties", LOSSES)
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_a_look_is_the_definition(ties, entries, seed):
    X, y = survival.follow_up(seed, entries)
    sites, order = in_memory(X, y, *uneven(seed))
    weight, offset = (one[order] for one in uneven(seed))
    rows, folds, p = sites.rows, Folds(3, by_class=True), X.shape[1]
    fold, coef = rows.folds(folds), 0.5 * np.random.default_rng(seed).normal(size=(4, X.shape[1]))
    message = LookMessage(
        coef=coef[..., None],
        intercept=np.zeros((4, 1)),
        without=np.array([-1, 0, 1, 2], np.int32),
        closer=np.arange(4, dtype=np.int32),
        where=np.tile(np.arange(p, dtype=np.int32), (4, 1)),
        folds=folds,
        loss=LOSSES[ties],
    )
    found = sites.ask(look, message)
    for m, without in enumerate([-1, 0, 1, 2]):
        kept, total = fold != without, weight[fold != without].sum()
        own = survival.pooled(
            coef[m], *(one[kept] for one in (rows.X, rows.y, rows.site)), ties, weight[kept], offset[kept]
        )
        everyone = survival.pooled(coef[m], rows.X, rows.y, rows.site, ties, weight, offset)
        value, gradient, hessian = (total * part for part in own)
        assert found.loss[m] == pytest.approx(value, rel=1e-10, abs=1e-10)
        np.testing.assert_allclose(found.gradient[m, :, 0], gradient, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(unpack(found.hessian[m], p), hessian, rtol=1e-9, atol=1e-9)
        assert found.held[m] == pytest.approx(weight.sum() * everyone[0] - value, rel=1e-9, abs=1e-9)
    direction = np.random.default_rng(seed + 1).normal(size=(2, p))
    asked = ProductMessage(coef[0][:, None], np.zeros(1), direction[..., None], np.zeros((2, 1)), loss=LOSSES[ties])
    hessian = weight.sum() * survival.pooled(coef[0], rows.X, rows.y, rows.site, ties, weight, offset)[2]
    np.testing.assert_allclose(sites.ask(product, asked).coef[..., 0], direction @ hessian, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("entries", [False, True])
@settings(max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_with_breslows_ties_a_whole_weight_is_as_many_rows(entries, seed):
    X, y = survival.follow_up(seed, entries)
    count = np.random.default_rng(seed).integers(0, 4, len(X))
    count[:3] = 1
    again = np.repeat(np.arange(len(X)), count)
    given = {"alpha": 0.05, "ties": "breslow"}
    weighted = FederatedCox(**given).fit(X, y, clients=SITES, sample_weight=count)
    repeated = FederatedCox(**given).fit(X[again], y[again], clients=SITES[again])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-9)
    assert weighted.certificate_.objective == pytest.approx(repeated.certificate_.objective, rel=1e-11)
    assert weighted.n_events_ == repeated.n_events_
    for site, times in zip(NAMES, ([0.1, 1.0], [0.1, 0.2], [0.3, 1.0]), strict=True):
        both = [one.predict_survival(X[:4], site, times) for one in (weighted, repeated)]
        np.testing.assert_allclose(*both, atol=1e-8)
    scores = weighted.score(X, y, SITES, sample_weight=count), weighted.score(X[again], y[again], SITES[again])
    assert scores[0] == pytest.approx(scores[1], rel=1e-12)


@pytest.mark.parametrize("ties", LOSSES)
def test_a_constant_offset_changes_nothing(ties):
    X, y = survival.follow_up(1)
    plain = FederatedCox(0.03, ties=ties).fit(X, y, clients=SITES)
    by_site = np.where(SITES == "Rome", 3.0, -2.0)
    moved = FederatedCox(0.03, ties=ties).fit(X, y, clients=SITES, offset=by_site)
    np.testing.assert_allclose(moved.coef_, plain.coef_, atol=1e-9)
    np.testing.assert_allclose(
        moved.predict_survival(X[:3], "Rome", [0.1], offset=np.full(3, 3.0)),
        plain.predict_survival(X[:3], "Rome", [0.1]),
    )
    np.testing.assert_allclose(moved.predict(X, offset=by_site), X @ moved.coef_ + by_site)
    assert moved.score(X, y, SITES, offset=by_site) == pytest.approx(plain.score(X, y, SITES), abs=1e-12)


@pytest.mark.parametrize("ties", LOSSES)
def test_without_a_penalty_it_is_statsmodels_with_an_offset(ties):
    X, y = survival.follow_up(3)
    X, offset = X[:, :3], uneven()[1]
    model = FederatedCox(0.0, ties=ties).fit(X, y, clients=SITES, offset=offset)
    table = model.infer(X, y, clients=SITES, offset=offset)
    theirs = PHReg(y[:, 0], X, status=y[:, 1], strata=SITES, offset=offset, ties=ties).fit()
    np.testing.assert_allclose(model.coef_, theirs.params, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(table["se"], theirs.bse, rtol=1e-6)


def test_a_penalised_fit_is_optimal_and_paths_are_those_of_single_fits():
    X, y = survival.follow_up(1)
    weight, offset = uneven()
    alpha, given = 0.05, {"clients": SITES, "sample_weight": weight, "offset": offset}
    model = FederatedCox(alpha).fit(X, y, **given)
    sd = np.sqrt(np.average((X - np.average(X, axis=0, weights=weight)) ** 2, axis=0, weights=weight))
    slope, own = survival.pooled(model.coef_, X, y, SITES, "efron", weight, offset)[1] / sd, model.coef_ * sd
    used = own != 0
    assert 0 < used.sum() < len(used)
    np.testing.assert_allclose(slope[used], -alpha * np.sign(own[used]), atol=1e-10)
    assert (abs(slope[~used]) <= alpha + 1e-10).all()
    assert model.certificate_.converged
    value = survival.pooled(model.coef_, X, y, SITES, "efron", weight, offset)[0]
    assert model.certificate_.objective == pytest.approx(value + alpha * abs(own).sum(), rel=1e-12)
    path = FederatedCox().path(X, y, **given, n_alphas=6, eps=0.05)
    assert path.converged.all()
    one = FederatedCox(path.alphas[3]).fit(X, y, **given)
    np.testing.assert_allclose(path.coefs[3], one.coef_, atol=1e-9)
    # Weights say how much rows count beside each other.
    more = FederatedCox(alpha).fit(X, y, **given | {"sample_weight": 7 * weight})
    np.testing.assert_allclose(more.coef_, model.coef_, atol=1e-9)


@pytest.mark.slow
@settings(max_examples=8)
@example(seed=0, alpha=0.0, ties="efron")
@example(seed=0, alpha=0.03, ties="breslow")
@given(seed=st.integers(1, 10_000), alpha=st.sampled_from([0.0, 0.03, 0.1]), ties=st.sampled_from(["efron", "breslow"]))
def test_certificates_are_never_below_the_truth(seed, alpha, ties):
    """At any distance from the minimum, with the Hessian and without; weights differ by a factor of thousands."""
    X, y = survival.follow_up(seed)
    weight, offset = uneven(seed)
    weight = weight ** (4 if seed % 2 else 1)
    model = FederatedCox(alpha, standardize=False, ties=ties)
    problem = model._standardized(in_memory(X, y, weight, offset)[0])
    psi, unit = problem.problem(model._penalty(problem, alpha)), problem.units.coef
    w, least = survival.least(X, y, SITES, ties, np.full(6, alpha), np.zeros(6), weight=weight, offset=offset)
    off = np.random.default_rng(seed).normal(size=6)
    sizes = (10.0, 1.0, 0.1, 1e-3, 1e-6, 1e-9)
    points = [Weights(jnp.asarray((w + size * off * (w != 0)) / unit), None) for size in sizes]
    seen = problem.look(points, range(len(points)))
    for m, (size, point) in enumerate(zip(sizes, points, strict=True)):
        at = problem.seen(point, seen, m)
        curved = factored(jnp.asarray(unpack(np.asarray(seen.hessian[m]), 6) / weight.sum()))
        coef = np.asarray(point.coef) * unit
        value = survival.pooled(coef, X, y, SITES, ties, weight, offset)[0]
        true = value + alpha * abs(coef).sum() - least
        for known in (None, curved):
            found = assess_known(psi, problem.null, at, known)
            assert true <= float(found.gap) + float(found.rounding) + 1e-15 * value
        if seed == 0 and size <= 1e-6:
            assert float(found.gap) <= 3 * true + 1e-12


def test_cross_validation_is_the_difference_of_likelihoods(tmp_path):
    X, y = survival.follow_up(5)
    weight, offset = uneven()
    given = {"clients": SITES, "sample_weight": weight, "offset": offset}
    model = FederatedCoxCV(n_alphas=6, cv=3, eps=0.05, standardize=False, tol=1e-10).fit(X, y, **given)
    sites, order = in_memory(X, y, weight, offset)
    fold, place, held = np.empty(len(X), int), 3, 0.0
    fold[order] = sites.rows.folds(Folds(3, 0, True))
    for k in range(3):
        own, kept = FederatedCox(model.alphas_[place], standardize=False), fold != k
        parts = (X[kept], y[kept], SITES[kept])
        w = own.fit(*parts, sample_weight=weight[kept], offset=offset[kept]).coef_
        everyone = weight.sum() * survival.pooled(w, X, y, SITES, "efron", weight, offset)[0]
        held += everyone - weight[kept].sum() * survival.pooled(w, *parts, "efron", weight[kept], offset[kept])[0]
    assert model.cv_mean_[place] == pytest.approx(2 * held / weight.sum(), rel=1e-4)
    model.save(tmp_path / "cox.safetensors")
    again = load(tmp_path / "cox.safetensors")
    np.testing.assert_array_equal(again.predict(X, offset=offset), X @ model.coef_ + offset)
    with pytest.raises(ValueError, match="was fitted with an offset, and predicts with one"):
        again.predict(X)


def index_by_definition(y, risk, sites, weight):
    """Harrell's C, pair by pair, each counting as the product of two weights."""
    good = pairs = 0.0
    for i in np.flatnonzero(y[:, 1] == 1):
        for j in np.flatnonzero(sites == sites[i]):
            if j != i and (y[j, 0] > y[i, 0] or (y[j, 0] == y[i, 0] and y[j, 1] == 0)):
                pairs += weight[i] * weight[j]
                good += weight[i] * weight[j] * (1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0)
    return good / pairs


@pytest.mark.parametrize("ties", LOSSES)
def test_baselines_and_the_c_index_take_weights_and_offsets(ties):
    X, y = survival.follow_up(2)
    weight, offset = uneven()
    given = {"sample_weight": weight, "offset": offset}
    model = FederatedCox(0.05, ties=ties).fit(X, y, clients=SITES, **given)
    risk = X @ model.coef_ + offset
    index = index_by_definition(y, risk, SITES, weight)
    assert model.score(X, y, SITES, **given) == pytest.approx(index, abs=1e-13)
    own = SITES == "Bern"
    size, time, total = weight[own] * np.exp(risk[own]), y[own, 0], 0.0
    for t in np.unique(time[(y[own, 1] == 1) & (time <= 0.5)]):
        here = (time == t) & (y[own, 1] == 1)
        d, tied = here.sum(), size[here].sum() if ties == "efron" else 0.0
        total += sum(weight[own][here].mean() / (size[time >= t].sum() - k / d * tied) for k in range(d))
    found = model.predict_survival(X[:3], "Bern", [0.5], offset=offset[:3])[:, 0]
    np.testing.assert_allclose(found, np.exp(-np.exp(risk[:3]) * total), rtol=1e-10)
    alone = {name: values[own] for name, values in given.items()}
    model.keep_baselines(X[own], y[own], clients=SITES[own], **alone)
    np.testing.assert_allclose(model.predict_survival(X[:3], "Bern", [0.5], offset=offset[:3])[:, 0], found, rtol=1e-13)
    importance = permutation_importance(model, X, y, SITES, **given, n_repeats=1)
    assert importance.baseline == pytest.approx(index, abs=1e-13)


def test_masked_sites_find_what_is_found_in_this_process():
    X, y = survival.follow_up(4)
    weight, offset = uneven()
    weight[:4] = 0
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(days=y[:, 0], dead=y[:, 1], w=weight, o=offset)
    tables = {name: frame[name == SITES].reset_index(drop=True) for name in NAMES}
    target, columns = Target(name="days", event="dead"), {"sample_weight": "w", "offset": "o"}
    rows = FederatedCox(0.03).fit(X, y, clients=SITES, sample_weight=weight, offset=offset)
    index = rows.score(X, y, SITES, sample_weight=weight, offset=offset)
    for sites in (table_sites(tables, target), worlds.over(worlds.MaskedLink(tables), target=target)):
        model = FederatedCox(0.03).fit(sites, **columns)
        np.testing.assert_allclose(model.coef_, rows.coef_, rtol=1e-8, atol=1e-11)
        assert model.certificate_.converged
        assert model.score(sites) == pytest.approx(index, abs=1e-9)
        assert model.n_events_ == pytest.approx(rows.n_events_, rel=1e-9)
        with pytest.raises(ValueError, match="sites have the weights and offsets of the fit; leave both out"):
            model.score(sites, sample_weight="w")
        with pytest.raises(ValueError, match="survival_curves: rows count alike, but these sites have weights"):
            survival_curves(sites.with_columns(weight="w"), "days", "dead")
    named = FederatedCox(0.03).fit(frame.drop(columns=["days", "dead"]), y, clients=SITES, **columns)
    np.testing.assert_allclose(named.coef_, rows.coef_, rtol=1e-10)


def test_what_is_no_weight_or_offset_gets_a_sentence():
    X, y = survival.follow_up()
    weight, offset = uneven()
    for words, wrong in {
        "sample_weight must be >= 0, but 1 of 60 are below": {"sample_weight": np.where(np.arange(60) == 3, -1, 1.0)},
        "y has no event: all rows are censored": {"sample_weight": 1 - y[:, 1]},
        "offset must be finite numbers, but 60 of 60 are not": {"offset": np.full(60, np.nan)},
        "one number per row: 60 rows, 3 numbers": {"offset": np.zeros(3)},
    }.items():
        for estimator in (FederatedCox(), FederatedCoxCV(cv=2, n_alphas=2)):
            with pytest.raises(ValueError, match=words):
                estimator.fit(X, y, clients=SITES, **wrong)
    model = FederatedCox(0.1).fit(X, y, clients=SITES, sample_weight=weight)
    for call in (model.score, model.keep_baselines):
        with pytest.raises(ValueError, match=r"give offset= where the fit was given one, and only there"):
            call(X, y, SITES, offset=offset)
    with pytest.raises(ValueError, match="was fitted without an offset, and predicts without one"):
        model.predict_survival(X, "Rome", [0.1], offset=offset)
