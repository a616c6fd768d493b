"""A site whose own rules forbid it to answer, over processes: a fit goes on without it, or ends with a sentence."""

import numpy as np
import pandas as pd
import pytest

from cofed import estimators
from cofed.sites import table_sites
from tests.flower.served import drafted, served_sites
from tests.flower.test_site_processes import MANY, tables

pytestmark = [pytest.mark.network, pytest.mark.timeout(1800, method="signal")]
TOO_MANY = "[rows]\nsite = 5000\n"  # no site has so many


def test_a_fit_goes_on_without_a_site_whose_rule_forbids_an_answer_where_it_has_agreed(tmp_path):
    """At a question of the fit, and at the first one of all, about what stands for missing values."""
    frames = tables(MANY)
    frames["dover"] = frames["basel"].sample(frac=1, random_state=1).assign(dose=lambda one: one["dose"] + 1)
    gappy = {site: frame.assign(age=frame["age"].where(frame.index % 10 > 0)) for site, frame in frames.items()}
    study = drafted(gappy, "dose")
    main = study.analyses[0].model_copy(update={"alpha": 0.01, "cv": None, "select": None, "features": ("sex", "ill")})
    imputed = main.model_copy(update={"name": "imputed", "features": ("age", "sex"), "missing": "impute"})
    study = study.model_copy(update={"analyses": (main, imputed)})
    with served_sites(tmp_path, gappy, {"dover": TOO_MANY}) as world:
        released = world.agreed("released.toml", study, ["dover"])
        others = {site: frame for site, frame in gappy.items() if site != "dover"}
        for one in (main, imputed):
            done = world.serve(released, one.name, "--analysis", one.name, "--missing", "drop")
            assert done.returncode == 0, done.stderr[-3000:]
            out, near = tmp_path / one.name, table_sites(others, "dose", list(one.features), missing=one.missing)
            assert (out / "summary.txt").read_text().startswith("WITHOUT dover: ")
            reason = "Without dover: the site dover does not answer: its rule 'rows' forbids it."
            assert reason in " ".join(done.stderr.split())
            assert "its rule 'rows' forbids it" in (out / "report.html").read_text()
            found = pd.read_csv(out / "coefficients.csv").set_index("feature")["coef"]
            expected = estimators.FederatedLasso(alpha=0.01).fit(near)
            np.testing.assert_allclose(found[list(near.feature_names)], np.ravel(expected.coef_), rtol=1e-10)
        ended = world.serve(world.agreed("bound.toml", study), "ended", "--analysis", "main", "--missing", "drop")
        assert ended.returncode == 1, ended.stderr[-3000:]
        assert "It cannot go on without dover: dover must agree to that first" in " ".join(ended.stderr.split())
        assert "Traceback" not in ended.stderr
        assert "rows.site" in world.said("dover")  # the whole sentence, in the site's own log alone
        assert "rows.site" not in done.stderr + ended.stderr
