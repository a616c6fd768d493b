"""Text in a frame: factors, on whose levels all clients agree, as in tables of sites."""

import numpy as np
import pandas as pd
import pytest
from tests.estimators import hospitals

from cofed.estimators import FederatedLassoCV, FederatedLogisticRegression, FederatedStandardScaler, load
from cofed.sites import TableMismatch, sites_of_frame

SITES = hospitals.SITES
WARDS = np.array(["heart", "lung", "skin"])


@pytest.fixture(scope="module")
def rows():
    """Numbers, text that one client has two levels of only, codes, and true or false; and a target of them."""
    X, y = hospitals.linear()
    rng = np.random.default_rng(3)
    ward = WARDS[np.where(SITES == "Rome", rng.integers(2, size=60), rng.integers(3, size=60))]
    dose = pd.Series(rng.integers(3, size=60)).astype("category")
    frame = pd.DataFrame(
        {"a": X[:, 0], "ward": ward, "b": X[:, 1], "dose": dose, "smokes": rng.integers(2, size=60) > 0}
    )
    return frame, y + 2 * (ward == "skin") - (dose.to_numpy() == 1)


@pytest.fixture(scope="module")
def model(rows):
    frame, y = rows
    return FederatedLassoCV(cv=3, n_alphas=10).fit(frame.assign(site=SITES), y, clients="site")


def test_text_in_a_frame_is_what_it_is_in_tables_of_sites(rows, model):
    frame, y = rows
    assert model.feature_names_in_.tolist() == ["a", "ward[lung]", "ward[skin]", "b", "dose[1]", "dose[2]", "smokes"]
    sites = sites_of_frame(frame.assign(y=y, site=SITES), "y", "site")
    tables = FederatedLassoCV(cv=3, n_alphas=10).fit(sites)
    np.testing.assert_array_equal(model.coef_, tables.coef_)
    np.testing.assert_allclose(model.score(sites), model.score(frame, y), rtol=1e-12)
    coded = pd.get_dummies(frame, columns=["ward", "dose"], drop_first=True)
    coded = coded[["a", "ward_lung", "ward_skin", "b", "dose_1", "dose_2", "smokes"]].to_numpy(float)
    plain = FederatedLassoCV(cv=3, n_alphas=10).fit(coded, y, clients=SITES)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    np.testing.assert_array_equal(model.predict(frame), plain.predict(coded))


def test_new_rows_become_numbers_by_the_levels_of_the_fit(rows, model, tmp_path):
    frame, y = rows
    few = frame.iloc[[0, 1]].assign(ward="skin")[frame.columns[::-1]]  # one level, and columns in another order
    np.testing.assert_allclose(model.predict(few), model.predict(frame.assign(ward="skin"))[:2], rtol=1e-14)
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "model.safetensors").predict(few), model.predict(few))
    with pytest.raises(ValueError, match="column 'ward' has 'eye', but the levels are 'heart', 'lung', 'skin'"):
        model.predict(few.assign(ward="eye"))
    with pytest.raises(ValueError, match="column 'ward' has no value in 2 of 2 rows"):
        model.predict(few.assign(ward=None))
    numbers = np.zeros((60, 7))
    model.fit(numbers + np.arange(60)[:, None] ** np.arange(7), y)  # a fit to numbers forgets the levels
    assert "design_" not in vars(model)


def test_intervals_and_classes_go_with_text(rows):
    frame, y = rows
    model = FederatedLogisticRegression(0.01).fit(frame, y > np.median(y), clients=SITES)
    table = model.infer(frame, y > np.median(y), clients=SITES)
    assert list(table.index) == model.feature_names_in_.tolist()
    assert np.isfinite(table["se"]).all()
    assert set(model.predict(frame).tolist()) == {False, True}


def test_what_cannot_be_a_factor_is_named(rows):
    frame, y = rows
    with pytest.raises(TableMismatch, match="FederatedLassoCV: site 'Bern', column 'ward' holds free text"):
        FederatedLassoCV().fit(frame.assign(ward=[f"note {i}" for i in range(60)]), y, clients=SITES)
    odd = frame.assign(ward=np.where(SITES == "Oslo", "3", frame["ward"]))
    with pytest.raises(TableMismatch, match="column 'ward' holds numbers at 'Oslo', but text at 'Bern', 'Rome'"):
        FederatedLassoCV().fit(odd, y, clients=SITES)
    with pytest.raises(ValueError, match=r"column 'ward' of X contains NaN: 60 of 60 .*sites_of_frame"):
        FederatedLassoCV().fit(frame.assign(ward=None), y, clients=SITES)
    with pytest.raises(ValueError, match="FederatedStandardScaler: column 'ward' of X must be numbers, got"):
        FederatedStandardScaler().fit(frame, clients=SITES)


def test_a_column_with_the_name_of_a_level_is_told(rows):
    frame, y = rows
    with pytest.raises(ValueError, match=r"FederatedLassoCV: the names of features must differ, but 'ward\[lung\]' is"):
        FederatedLassoCV().fit(frame.assign(**{"ward[lung]": frame["a"]}), y, clients=SITES)
