"""The experiments of bao2022: the authors' variants against formulas, and the judges on made-up curves."""

import numpy as np
import pandas as pd
import pytest
from tests import worlds

import cofed
from cofed.experiments import everything
from cofed.experiments.bao2022 import released, stages, synthetic
from cofed.experiments.measurements import Measurements

FIVE = ("FastFedDA", "CFedDA", "MCFedDA", "FedDualAvg", "FedMiD")


def seen(column, curves, references, **beside):
    """Measurements of one column of each method, every ten rounds; MC-FedDA's first stage ends in round 20."""
    rows = [
        {"panel": "", "algorithm": label, "seed": 0, "round": 10 * r, "stage": int(r > 2), column: value}
        for label, values in curves.items()
        for r, value in enumerate(values)
    ]
    given = {"": {label: {column: value} for label, value in references.items()}}
    return Measurements(pd.DataFrame(rows), given, **beside)


def test_the_released_form_of_mirror_descent_thresholds_once_on_the_server():
    """Two rounds of two steps in NumPy, with full gradients."""
    federation, lr, lam = worlds.linear(), 0.05, 0.1
    shares = np.asarray(federation.weights("samples"))
    w = worlds.start()["coef"]
    for _ in range(2):
        ends = []
        for m in range(federation.n_clients):
            x = w
            for _ in range(2):
                x = worlds.soft(x - lr * worlds.gradient(federation, m, x), lr * lam)
            ends.append(x)
        w = worlds.soft(shares @ np.stack(ends), lr * lam)
    result = cofed.run(
        worlds.problem(cofed.L1(lam)),
        federation,
        released.ReleasedFedMiD(lr),
        rounds=2,
        local_steps=2,
        weights="samples",
        w0=worlds.start(),
    )
    np.testing.assert_allclose(result.model.coef, w, atol=1e-12)


def test_the_released_methods_have_the_numbers_of_the_authors_code():
    numbers = released.FIG1.numbers("full")
    made = {method.label: method.algorithms()[0] for method in released.methods(numbers)}
    assert all(made[label].growth == 0 for label in ("FastFedDA", "CFedDA", "MCFedDA"))
    assert made["FastFedDA"].L == 550
    # Their prox is centred with gamma = 600, ours with (L + mu) K.
    assert (made["CFedDA"].L + made["CFedDA"].mu) * synthetic.LOCAL_STEPS == pytest.approx(600)
    assert made["MCFedDA"].last_share == 1
    assert made["MCFedDA"].stage_rounds == (250, 250, 1500)
    assert {made[label].client_lr for label in ("FedDualAvg", "FedMiD")} == {0.001}
    numbers = released.RELEASED[-1].numbers("full")
    made = {method.label: method.algorithms()[0] for method in released.digit_methods(numbers)}
    assert all(made[label].growth == 0 for label in ("FastFedDA", "CFedDA", "MCFedDA"))
    assert (made["CFedDA"].L + made["CFedDA"].mu) * numbers.local_steps == pytest.approx(made["FastFedDA"].L)


@pytest.mark.parametrize("form", released.RELEASED, ids=lambda form: form.id)
def test_both_forms_have_the_same_claims(form):
    printed = everything()[form.released_form_of]
    assert [claim.text for claim in form.claims] == [claim.text for claim in printed.claims]


def test_the_start_of_the_released_form_is_normal_and_the_means_are_one_for_all():
    numbers = released.FIG2.numbers("quick")
    setup = released.released_low_rank(numbers, seed=3)
    start = setup.run["w0"]["coef"]
    assert start.shape == (32, 32)
    assert abs(start.mean()) < 0.1
    assert start.std() == pytest.approx(1, abs=0.1)
    means = np.stack([np.asarray(setup.federation.client(m)[0]).mean(0) for m in range(4)])
    assert np.abs(means - means[0]).max() < 0.8  # 128 samples of N(0, 1) about one mean; of two means the largest is 5
    assert np.abs(means).max() > 2


def test_the_support_claim_needs_less_of_mirror_descent():
    references = {"pooled": 1.0, synthetic.TWICE: 1.0}
    good = {key: [0.5, 0.9, 1.0] for key in FIVE}
    assert not synthetic.near_perfect_support(seen("f1", good, references)).holds
    assert synthetic.near_perfect_support(seen("f1", good | {"FedMiD": [0.5, 0.8, 0.9]}, references)).holds
    assert not synthetic.near_perfect_support(
        seen("f1", good | {"FedMiD": [0.5, 0.8, 0.9], "CFedDA": [0.5, 0.8, 0.9]}, references)
    ).holds


def test_the_speed_claim_leaves_out_what_is_beside():
    ours = {key: [9.0, 2.0, 1.0, 1.0] for key in FIVE[:3]}
    theirs = {key: [9.0, 3.0, 2.0, 1.0] for key in FIVE[3:]}
    faster = {"FedDualAvg, step 1/550": [9.0, 1.0, 1.0, 1.0]}
    references = {"pooled": 1.0}
    verdict = synthetic.fewer_rounds(
        "l2_error", seen("l2_error", ours | theirs | faster, references, beside=dict.fromkeys(faster, "FedDualAvg"))
    )
    assert verdict.holds
    assert verdict.figures["round FedDualAvg, step 1/550"] == 10
    late = ours | theirs | {"CFedDA": [9.0, 3.0, 2.0, 1.0]}
    assert not synthetic.fewer_rounds("l2_error", seen("l2_error", late, references)).holds


def test_the_rank_claim_asks_for_the_exact_rank():
    exact = {key: [32, 20, 16] for key in FIVE}
    assert not synthetic.true_rank(16, seen("recovered_rank", exact, {"pooled": 16.0})).holds
    assert synthetic.true_rank(16, seen("recovered_rank", exact | {"FedMiD": [32, 20, 17]}, {"pooled": 16.0})).holds


def test_the_stage_claim_looks_at_the_end_of_the_first_stage():
    curves = {"MCFedDA": [0.5, 0.9, 1.0, 0.9], "MCFedDA, from 0": [0.5, 0.9, 0.99, 1.0]}
    verdict = synthetic.one_after_first_stage(seen("f1", curves, {}))
    assert verdict.holds
    assert verdict.figures == {"f1 MCFedDA": 1.0, "f1 MCFedDA, from 0": 0.99}


def by_stage(error):
    """Measurements in which MC-FedDA's error in stage m with p features is this."""
    rows = [
        {"panel": f"p = {p}", "algorithm": label, "seed": 0, "x": m, "error": error(p, m), "relative": 1.0}
        for p in (64, 256, 1024)
        for label in (stages.STAGED, stages.SINGLE, stages.UNPENALISED)
        for m in (1, 2, 3)
    ]
    return Measurements(pd.DataFrame(rows), {})


def test_the_claims_of_the_stages_fail_without_halving_and_with_a_power_of_p():
    good = by_stage(lambda p, m: np.sqrt(np.log(p)) * 2.0**-m)
    assert stages.halves(good).holds
    assert stages.grows_like_log(good).holds
    assert not stages.halves(by_stage(lambda p, m: 0.7**m)).holds
    assert not stages.grows_like_log(by_stage(lambda p, m: np.sqrt(p) * 2.0**-m)).holds
