"""Survival curves and log-rank tests from counts are those of the pooled rows, as statsmodels has them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.duration.survfunc import SurvfuncRight, survdiff
from tests.sites.policy.worlds import Guarded, over
from tests.sites.secure import worlds

import cofed
from cofed.sites import QuestionRefused, SiteTable, TableMismatch, Target
from cofed.sites.policy import Policy, PolicyGuard
from cofed.statistics.survival import kaplan_meier, log_rank_test


def rows(seed=0, n=120, whole=True, entries=False):
    """One table of all sites: three groups at three unequal sites, with ties."""
    rng = np.random.default_rng(seed)
    site = rng.choice(["oslo", "rome", "bern"], n, p=[0.5, 0.3, 0.2])
    arm = np.concatenate([["x", "y", "z"], rng.choice(["x", "y", "z"], n - 3)])
    rate = np.where(arm == "x", 1.0, 2.0) * np.where(site == "rome", 3.0, 1.0) / 20
    death, end = rng.exponential(1 / rate), rng.uniform(0, 40, n)
    time = np.minimum(death, end)
    time = np.ceil(time) if whole else time
    frame = pd.DataFrame({"site": site, "arm": arm, "days": time, "dead": (death <= end) * 1})
    return frame.assign(since=np.floor(time * rng.uniform(0, 0.9, n))) if entries else frame


def as_statsmodels(found, frame, **columns):
    for name, curve in found.curves.items():
        own = frame[frame.arm == name] if name != "all" else frame
        entry = own["since"] if columns else None
        other = SurvfuncRight(own.days, own.dead, entry=entry)
        at = np.searchsorted(curve.time, other.surv_times)
        np.testing.assert_allclose(curve.survival[at], other.surv_prob, rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(curve.at_risk[at], other.n_risk)
        alive = other.surv_prob > 0
        np.testing.assert_allclose(curve.se[at][alive], other.surv_prob_se[alive], rtol=1e-10)


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_whole_times_give_the_curves_and_tests_of_the_pooled_rows(seed):
    frame = rows(seed)
    found = cofed.survival_curves(frame, "days", "dead", group="arm", client="site")
    assert found.resolution == 0
    as_statsmodels(found, frame)
    both = (found.log_rank, survdiff(frame.days, frame.dead, frame.arm))
    strata = (found.by_site, survdiff(frame.days, frame.dead, frame.arm, strata=frame.site))
    for test, (statistic, p_value) in (both, strata):
        assert test.freedom == 2
        assert test.statistic == pytest.approx(statistic, rel=1e-9)
        assert test.p_value == pytest.approx(p_value, rel=1e-8)
    assert found.medians.rows.sum() == len(frame)


def test_rows_that_enter_late():
    frame = rows(3, entries=True)
    found = cofed.survival_curves(frame, "days", "dead", group="arm", client="site", entry="since")
    as_statsmodels(found, frame, entry="since")


def test_a_grid_gives_the_curves_of_times_that_are_rounded_up():
    """And the test by site needs no grid: it is that of the times as they are."""
    frame, times = rows(1, whole=False), [2.0, 5.0, 6.5, 20.0, 40.0]
    found = cofed.survival_curves(frame, "days", "dead", group="arm", client="site", times=times)
    rounded = frame.assign(days=np.array(times)[np.searchsorted(times, frame.days)])
    as_statsmodels(found, rounded)
    assert found.log_rank.statistic == pytest.approx(survdiff(rounded.days, rounded.dead, rounded.arm)[0], rel=1e-9)
    exact = survdiff(frame.days, frame.dead, frame.arm, strata=frame.site)[0]
    assert found.by_site.statistic == pytest.approx(exact, rel=1e-9)
    assert found.resolution == 20
    fine = cofed.survival_curves(frame, "days", "dead", client="site")
    assert 0 < fine.resolution <= 64 / 2000
    assert (
        abs(fine.curves["all"].quantile()[0] - SurvfuncRight(frame.days, frame.dead).quantile(0.5)) <= fine.resolution
    )


def test_limits_are_between_0_and_1_and_hold_the_curve():
    found = cofed.survival_curves(rows(), "days", "dead", client="site").curves["all"]
    there = ~np.isnan(found.low)
    assert (found.low[there] >= 0).all()
    assert (found.low[there] <= found.survival[there]).all()
    assert (found.survival[there] <= found.high[there]).all()
    assert (found.high[there] <= 1).all()
    # R's survival 3.5-3 with conf.type="log-log", for 3 of 4 that survive: 0.1279469, 0.9605486.
    one = kaplan_meier(np.array([1.0]), np.array([1]), np.array([0]), np.array([4]))
    assert (one.low[0], one.high[0]) == pytest.approx((0.1279469, 0.9605486), abs=1e-7)


def test_masked_sites_tell_what_is_found_in_this_process():
    frame = rows(5, 240)
    tables = {name: own.drop(columns="site") for name, own in frame.groupby("site")}
    near = cofed.survival_curves(tables, "days", "dead", group="arm", times=np.arange(0, 41, 4.0))
    link = worlds.MaskedLink(tables)
    sites = worlds.over(link, target=Target(name="days", event="dead"))
    far = cofed.survival_curves(sites, "days", "dead", group="arm", times=np.arange(0, 41, 4.0))
    pd.testing.assert_frame_equal(far.table, near.table)
    assert far.by_site.statistic == pytest.approx(near.by_site.statistic, rel=1e-12)
    assert [one.what for one in far.exchanges][-2:] == ["life_table", "log_rank"]


def guarded(policy, alone=False, n=240):
    frame = rows(5, n)
    tables = {name: SiteTable(own.drop(columns="site"), name) for name, own in frame.groupby("site")}
    infos = {name: table.info() for name, table in tables.items()}
    design = cofed.sites.agree(infos, Target(name="days", event="dead"), ["arm"])
    sites = Guarded(tables, design, {name: PolicyGuard(policy, None, name) for name in tables})
    sites.over = None if alone else over(dict(zip(sites.names, sites.sizes, strict=True)))
    sites.is_masked = not alone  # as a network would say
    return sites


def test_a_policy_counts_times_as_columns_of_all_tables_together():
    looked_for = cofed.survival_curves(guarded(Policy(), n=600), "days", "dead", group="arm")
    assert len(looked_for.curves["x"].time) > 3  # as many times as are allowed by default
    other = guarded(Policy())
    sizes = sorted(other.sizes)
    most = int(0.33 * (sizes[0] + sizes[1]))  # the largest other site may work with the server
    with pytest.raises(QuestionRefused, match="parameters"):
        cofed.survival_curves(other, "days", "dead", group="arm", times=np.arange(most / 3 + 1.0))
    times = np.arange(most // 3 - 2.0)
    cofed.survival_curves(other, "days", "dead", group="arm", times=times)
    cofed.survival_curves(other, "days", "dead", group="arm", times=times)  # the same again is free
    with pytest.raises(QuestionRefused, match="parameters"):  # a day between the times would be told
        cofed.survival_curves(other, "days", "dead", group="arm", times=times + 0.5)


def test_few_rows_of_a_site_are_not_seen_alone():
    policy = Policy.model_validate({"sums": {"masked": "optional", "sites": 1, "colluding": 0}})
    with pytest.raises(QuestionRefused, match="cells"):
        cofed.survival_curves(guarded(policy, alone=True), "days", "dead", group="arm", times=[5.0, 10.0])
    enough = guarded(Policy.model_validate({**policy.model_dump(), "rows": {"cell": 1}}), alone=True)
    assert cofed.survival_curves(enough, "days", "dead", group="arm", times=[5.0, 10.0]).curves


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        ({"dead": 0}, {}, "there is no event: all rows are censored"),
        ({"days": -1.0}, {}, "times must be >= 0"),
        ({}, {"group": "ward"}, "no site has a column 'ward'"),
        ({}, {"group": "dead"}, "the columns of survival curves"),
        ({}, {"times": [3.0, 2.0]}, "times must be one or more finite numbers that ascend"),
        ({}, {"times": "soon"}, "times must be numbers"),
        ({}, {"level": 95}, "level must be a share between 0 and 1"),
        ({}, {"missing": "impute"}, "missing must be"),
        ({}, {"client": "days"}, "names a column that is asked about"),
        ({"arm": "x"}, {"group": "arm"}, "column 'arm' is 'x' in every row"),
        ({"days": 1e9}, {}, "times above 1.67772e\\+07 are not looked for"),
    ],
)
def test_bad_input_gets_a_sentence(change, options, sentence):
    frame = rows().assign(**change)
    with pytest.raises((ValueError, TypeError, TableMismatch), match=sentence):
        cofed.survival_curves(frame, "days", "dead", **{"client": "site"} | options)


def test_groups_that_are_never_at_risk_together_have_no_test():
    frame = pd.DataFrame({"site": list("aabb"), "arm": list("xyxy"), "days": [1, 5, 1, 5], "since": [0, 3, 0, 3]})
    found = cofed.survival_curves(frame.assign(dead=1), "days", "dead", group="arm", entry="since", client="site")
    assert np.isnan(found.log_rank.p_value)
    assert "no two groups are at risk together" in found.summary()
    assert np.isnan(log_rank_test(np.ones(1), np.ones(1), np.zeros((1, 1))).statistic)


def test_the_figure_and_the_files(tmp_path):
    found = cofed.survival_curves(rows(), "days", "dead", group="arm", client="site")
    figure = found.plot(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes()[1:4] == b"PNG"
    counts = [text.get_text() for text in figure.axes[1].texts]
    at_start = found.curves["x"].at_risk[0]
    assert f"{int(at_start)}" in counts
    found.to_csv(tmp_path / "curves.csv")
    assert len(pd.read_csv(tmp_path / "curves.csv")) == len(found.table)
    assert "log-rank, each site a stratum: chi2 =" in found.summary()
