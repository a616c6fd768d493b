"""Robust standard errors of Cox's model: as their definition, as leaving rows out, as R's coxph."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimators import hospitals, survival
from tests.sites.secure import worlds

from cofed.estimators import FederatedCox
from cofed.losses import Breslow, Efron
from cofed.sites import MemorySites, QuestionRefused, SiteRows, Target
from cofed.sites.queries import MeatMessage, meat
from cofed.solvers.curvature import unpack

SITES = hospitals.SITES
NAMES = tuple(hospitals.SIZES)
LOSSES = {"breslow": Breslow(), "efron": Efron()}
PAIRS = np.arange(len(SITES)) // 2  # all within a site


def uneven(seed=0):
    rng = np.random.default_rng(seed + 100)
    return rng.uniform(0.2, 3, len(SITES)), 0.5 * rng.normal(size=len(SITES))


def asked(coef, ties, clustered=False):
    p = len(coef)
    return MeatMessage(
        coef[:, None], np.zeros(1), np.arange(p, dtype=np.int32), np.zeros((0, 0)), clustered, loss=LOSSES[ties]
    )


@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("ties", LOSSES)
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_products_are_those_of_scores_that_add_up_to_the_gradient(ties, entries, seed):
    X, y = survival.follow_up(seed, entries)
    weight, offset = uneven(seed)
    coef = 0.5 * np.random.default_rng(seed).normal(size=X.shape[1])
    given = (ties, weight, offset)
    scores = weight[:, None] * survival.scores(coef, X, y, SITES, *given)
    gradient = weight.sum() * survival.pooled(coef, X, y, SITES, *given)[1]
    np.testing.assert_allclose(scores.sum(axis=0), gradient, rtol=1e-9, atol=1e-9)
    order = np.concatenate([np.flatnonzero(s == SITES) for s in NAMES])
    rows = SiteRows.of_sites(NAMES, [X[s == SITES] for s in NAMES], [y[s == SITES] for s in NAMES])
    sites = MemorySites(rows).with_row_numbers(weight[order], offset[order])
    found = sites.ask(meat, asked(coef, ties))
    scale = np.abs(scores.T @ scores).max()
    np.testing.assert_allclose(unpack(found.products, len(coef)), scores.T @ scores, rtol=1e-9, atol=1e-12 * scale)
    assert found.terms == len(X)
    totals = np.array([scores[pair == PAIRS].sum(axis=0) for pair in range(PAIRS.max() + 1)])
    clustered = sites.with_clusters(PAIRS[order].astype(np.int32)).ask(meat, asked(coef, ties, clustered=True))
    np.testing.assert_allclose(unpack(clustered.products, len(coef)), totals.T @ totals, rtol=1e-9, atol=1e-12 * scale)


@pytest.mark.parametrize("ties", LOSSES)
def test_scores_are_what_leaving_a_row_out_changes(ties):
    """To first order in its weight: the coefficients move by the inverse of the information times the row's score."""
    X, y = survival.follow_up(3)
    X, (weight, offset) = X[:, :3], uneven()
    given, small = {"clients": SITES, "offset": offset}, 1e-4
    coef = FederatedCox(0.0, ties=ties).fit(X, y, sample_weight=weight, **given).coef_
    hessian = weight.sum() * survival.pooled(coef, X, y, SITES, ties, weight, offset)[2]
    scores = survival.scores(coef, X, y, SITES, ties, weight, offset)
    for row in (0, 20, 40):
        if ties == "efron" and y[row, 1] == 1 and np.sum((y == y[row]).all(axis=1) & (SITES[row] == SITES)) > 1:
            continue  # of tied events R's scores share what they are compared with: beside a weight it is their mean
        moved = []
        for sign in (1, -1):
            other = weight + sign * small * (np.arange(len(X)) == row)
            moved.append(FederatedCox(0.0, ties=ties).fit(X, y, sample_weight=other, **given).coef_)
        change = (moved[0] - moved[1]) / (2 * small)
        np.testing.assert_allclose(change, -np.linalg.solve(hessian, scores[row]), rtol=1e-4, atol=1e-7)


# Of the rows below, by R's survival 3.5-3, coxph(..., strata(site), offset(o), weights = w, eps = 1e-14): coef and, of
# cluster = row, pair and site, the robust standard errors.
R = {
    ("efron", False): [
        0.93615021719908,
        -0.63023576380254,
        0.24294343243405,
        0.24789067480444,
        0.25062598830403,
        0.24080593325347,
        0.053429153213618,
        0.097879975222601,
    ],
    ("efron", True): [
        0.89955643209973,
        -0.60199107501956,
        0.2348681329767,
        0.24213360484108,
        0.24016079571957,
        0.23798199389,
        0.035724720547366,
        0.1088344995708,
    ],
    ("breslow", False): [
        0.85809369059025,
        -0.57744796303637,
        0.22688238901946,
        0.23291254959237,
        0.23859296080821,
        0.22394199206984,
        0.048493139955252,
        0.075701751539051,
    ],
    ("breslow", True): [
        0.82204062076835,
        -0.55101323608523,
        0.21866120276178,
        0.2271620443776,
        0.22769830643832,
        0.22123803549241,
        0.031469326262804,
        0.085245256539394,
    ],
}


@pytest.mark.parametrize("errors", ["hc1", "pairs", "site"])
@pytest.mark.parametrize("ties", LOSSES)
@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.filterwarnings("ignore:.*standard errors by")
def test_they_are_those_of_r(ties, entries, errors):
    table = rows_for_r()
    X, y = table[["a", "b"]].to_numpy(), table[["entry", "time", "event"] if entries else ["time", "event"]].to_numpy()
    given = {
        "clients": table["site"].to_numpy(),
        "sample_weight": table["w"].to_numpy(),
        "offset": table["o"].to_numpy(),
    }
    model = FederatedCox(0.0, ties=ties).fit(X, y, **given)
    coef, *robust = np.reshape(R[ties, entries], (4, 2))
    asked = table["pair"].to_numpy() if errors == "pairs" else errors
    found = model.infer(X, y, **given, errors=asked)
    np.testing.assert_allclose(found["debiased"], coef, rtol=1e-9)
    np.testing.assert_allclose(found["se"], robust[["hc1", "pairs", "site"].index(errors)], rtol=1e-8)
    np.testing.assert_allclose(found["z"], found["debiased"] / found["se"], rtol=1e-12)
    assert found["high"]["x0"] == pytest.approx(found["debiased"]["x0"] + 1.959963984540054 * found["se"]["x0"])
    assert "Lin and Wei's" in model.inference_note_


def rows_for_r():
    """Rows of a formula, which R has too: two sites with tied times, weights, offsets, entries and pairs of rows."""
    i = np.arange(80.0)
    a, b = np.sin(1.7 * i), np.cos(2.3 * i**1.1)
    time = np.ceil(4 * (1.5 + np.sin(5.1 * i) - 0.6 * a + 0.3 * b)) / 4 + 1
    event = (np.sin(3.3 * i + 1) > -0.5) * 1.0
    entry = np.where(i % 3 == 0, np.floor(2 * time) / 4, 0.0)
    columns = {"a": a, "b": b, "time": time, "event": event, "entry": entry, "site": i % 2}
    beside = {"w": 1 + 0.5 * np.sin(i), "o": 0.3 * np.cos(i), "pair": np.floor(i / 4) * 2 + i % 2}
    return pd.DataFrame(columns | beside)


@pytest.mark.filterwarnings("ignore:.*standard errors by")
def test_masked_sites_send_products_of_scores():
    X, y = survival.follow_up(3)
    X, (weight, offset) = X[:, :3], uneven()
    frame = pd.DataFrame(X, columns=list("abc")).assign(days=y[:, 0], dead=y[:, 1], w=weight, o=offset, pair=PAIRS)
    tables = {name: frame[name == SITES].reset_index(drop=True) for name in NAMES}
    columns = {"sample_weight": "w", "offset": "o"}
    given = {"clients": SITES, "sample_weight": weight, "offset": offset}
    near = FederatedCox(0.02).fit(X, y, **given)
    far_sites = worlds.over(worlds.MaskedLink(tables), target=Target(name="days", event="dead"), features=tuple("abc"))
    far = FederatedCox(0.02).fit(far_sites, **columns)
    for errors, own in (("hc1", "hc1"), ("pair", PAIRS), ("site", "site")):
        found = far.infer(far_sites, **columns, errors=errors)
        np.testing.assert_allclose(found["se"], near.infer(X, y, **given, errors=own)["se"], rtol=1e-7)
    assert [one.what for one in far_sites.exchanges].count("meat") == 3
    inverse = MeatMessage(np.zeros((3, 1)), np.zeros(1), np.arange(3, dtype=np.int32), np.eye(3), loss=Efron())
    with pytest.raises(QuestionRefused, match="times to an event have no leverages"):
        MemorySites(SiteRows.of_sites(("a",), [X], [y])).ask(meat, inverse)


def test_leverages_are_not_for_times():
    X, y = survival.follow_up()
    model = FederatedCox(0.1).fit(X, y, clients=SITES)
    with pytest.raises(ValueError, match="FederatedCox: errors='hc3' is not for times to an event"):
        model.infer(X, y, clients=SITES, errors="hc3")
