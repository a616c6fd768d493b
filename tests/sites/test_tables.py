"""Tables of several sites become the numbers that the pooled table becomes, or all that does not fit is said."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cofed.sites import Design, SiteTable, TableInfo, TableMismatch, agree, missing_values, sites_of_frame, table_sites
from cofed.sites.columns import read_column
from cofed.sites.queries import MomentsMessage, observed
from tests.sites import worlds


def pooled_by_pandas(table: pd.DataFrame) -> pd.DataFrame:
    """The features as pandas' own dummies, in cofed's order."""
    numbers = table[["age", "pressure"]].astype(float)
    dummies = [
        (table[[column]] == level).astype(float).set_axis([f"{column}[{level}]"], axis=1)
        for column, levels in (("sex", ["male"]), ("ward", ["ward 2", "ward 10", "Å"]))
        for level in levels
        if (table[column] == level).any()
    ]
    return pd.concat([numbers, *dummies, table[["smoker"]].astype(float)], axis=1)


@given(worlds.frames(), st.randoms())
def test_sites_with_columns_in_any_order_give_the_pooled_numbers(world, random):
    table, own = world
    tables = {}
    for m in np.unique(own):
        columns = list(table.columns)
        random.shuffle(columns)
        tables[f"site {m}"] = table.loc[own == m, columns]
    sites = table_sites(tables, "ill", ["age", "pressure", "sex", "ward", "smoker"])
    rows = np.concatenate([np.flatnonzero(own == m) for m in np.unique(own)])
    expected = pooled_by_pandas(table).iloc[rows]
    assert sites.feature_names == tuple(expected.columns)
    np.testing.assert_array_equal(sites.rows.X, expected.to_numpy())
    labelled, classes = sites.of_classes()
    assert classes.tolist() == ["no", "yes"]
    assert classes[labelled.rows.y].tolist() == table["ill"].iloc[rows].tolist()


@given(worlds.frames(gaps=True))
def test_imputed_values_are_the_federation_s_means_and_modes(world):
    table, own = world
    sites = sites_of_frame(table.assign(site=own), "ill", "site", missing="impute")
    by_name = {feature.name: feature.fill for feature in sites.design.features}
    assert by_name["age"] == pytest.approx(table["age"].mean(), rel=1e-14)
    counts = table["ward"].value_counts()
    assert counts[by_name["ward"]] == counts.max()
    whole = table.assign(**{name: table[name].fillna(fill) for name, fill in by_name.items() if name != "smoker"})
    again = sites_of_frame(whole.assign(site=own), "ill", "site")
    assert again.feature_names == sites.feature_names
    np.testing.assert_array_equal(again.rows.X, sites.rows.X)
    assert [one.what for one in sites.exchanges] == ["columns", "observed"]


@given(worlds.frames(gaps=True))
def test_dropped_rows_are_those_with_a_gap_and_gaps_are_counted(world):
    table, own = world
    kept = ~table.isna().any(axis=1).to_numpy()
    for m in range(own.max() + 1):
        kept[np.flatnonzero(own == m)[0]] = True  # so that every site keeps a row
        table.loc[np.flatnonzero(own == m)[0]] = [50.0, 100.5, "male", "ICU", True, "no"]
    table.loc[len(table) - 1] = [60.0, 110.0, "female", "Å", False, "yes"]
    kept[-1] = True
    sites = sites_of_frame(table.assign(site=own), "ill", "site", missing="drop")
    assert sum(sites.sizes) == kept.sum()
    np.testing.assert_array_equal(np.sort(sites.rows.X[:, 0]), np.sort(table["age"].to_numpy(float)[kept]))
    counted = missing_values(sites.infos)
    for m in range(own.max() + 1):
        assert counted[str(m)].to_dict() == table[own == m].isna().sum().to_dict()


def infos(**tables: pd.DataFrame) -> dict[str, TableInfo]:
    return {site: SiteTable(table, site).info() for site, table in tables.items()}


def test_a_site_that_lacks_a_level_a_class_or_all_values_is_fine():
    oslo = pd.DataFrame({"sex": ["male"] * 3, "age": [None] * 3, "ill": [1, 1, 1]})
    rome = pd.DataFrame({"sex": ["female", "male"], "age": [3.5, 4], "ill": [0, 1]})
    sites = table_sites({"oslo": oslo, "rome": rome}, "ill", classify=True, missing="impute")
    assert sites.design.classes.tolist() == [0, 1]
    np.testing.assert_array_equal(sites.rows.X, [[1, 3.75], [1, 3.75], [1, 3.75], [0, 3.5], [1, 4]])
    assert sites.of_numbers().rows.y.tolist() == [1.0, 1.0, 1.0, 0.0, 1.0]
    assert sites.ask(observed, MomentsMessage(np.zeros(2))).n.tolist() == [5.0, 5.0]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pd.to_datetime(["2024-01-01"] * 12), "site 'rome', column 'x' holds dates or times"),
        (["2024-01-01"] * 12, "site 'rome', column 'x' holds dates or times"),
        ([f"patient {i}" for i in range(12)], "site 'rome', column 'x' holds free text"),
        (["12,5", "7"] * 6, "site 'rome', column 'x' holds text that looks like numbers with decimal commas; write"),
        ([1, "a"] * 6, "site 'rome', column 'x' holds values of several types"),
        (["high", "low"] * 6, r"column 'x' holds numbers at 'oslo', but text at 'rome' \('high', 'low'\)"),
        ([1.0, np.inf] * 6, "site 'rome', column 'x' is infinite in 6 rows"),
        ([1.0, None] * 6, "column 'x' has missing values: 6 of 12 rows at 'rome'; drop"),
    ],
)
def test_a_column_that_does_not_fit_is_named_with_its_site(column, said):
    oslo, rome = ({"x": values, "y": np.arange(12.0)} for values in (np.arange(12.0) / 7, column))
    with pytest.raises(TableMismatch, match=said):
        table_sites({"oslo": pd.DataFrame(oslo), "rome": pd.DataFrame(rome)}, "y")


@pytest.mark.parametrize("column", [["2024-01-01"] * 12, [f"patient {i}" for i in range(12)], [None] * 12])
def test_a_target_that_cannot_be_one_is_not_to_be_left_out_of_the_features(column):
    told = infos(oslo=pd.DataFrame({"x": np.arange(12.0), "y": column}))
    with pytest.raises(TableMismatch, match=r"'y'.*choose another column to predict$"):
        agree(told, "y", missing="drop")


def test_all_findings_come_at_once():
    oslo = pd.DataFrame({"a": [1, 1], "b": ["u", "u"], "c": [1, 2], "y": [0.5, 1.5]})
    rome = pd.DataFrame({"y": [1.0, None], "c": ["x", "y"], "b": ["u", "u"], "a": [1.0, 1.0]})
    with pytest.raises(TableMismatch) as caught:
        agree(infos(oslo=oslo, rome=rome), "y")
    assert caught.value.findings == (
        "column 'a' is 1 in every row of every site ('oslo', 'rome'); leave it out of the features "
        "(--features on the command line)",
        "column 'b' is 'u' in every row of every site; leave it out of the features (--features on the command line)",
        "column 'c' holds numbers at 'oslo', but text at 'rome' ('x', 'y')",
        "column 'y' has missing values: 1 of 2 rows at 'rome'; leave such rows out (missing='drop', or "
        "--missing-values drop)",
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"target": "z"}, "no site has a column 'z'"),
        ({"target": "y", "features": ["a", "only"]}, "site 'rome' has no column 'only'"),
        ({"target": "y"}, "site 'rome' has no column 'only'"),
        ({"target": "y", "features": ["a", "y"]}, "the target 'y' is among the features"),
        ({"target": "y", "features": ["a"], "factors": ["b"]}, "factors: there is no feature 'b'"),
        (
            {"target": "y", "features": ["a"], "missing": "guess"},
            "missing must be 'refuse', 'drop', 'impute' or 'keep'",
        ),
        ({"target": "y", "features": ["a", "a"]}, "features must differ, but 'a' is given twice"),
        ({"target": "y", "features": ["a"], "classify": True}, "too many different numbers for levels or classes"),
        ({"target": "b", "features": ["a"], "classify": False}, "must hold numbers to be predicted, but is text"),
    ],
)
def test_what_cannot_be_agreed_on_is_refused(asked, said):
    oslo = pd.DataFrame({"a": range(30), "b": ["u", "v"] * 15, "only": 1, "y": np.arange(30) / 7})
    with pytest.raises(ValueError, match=said):
        agree(infos(oslo=oslo, rome=oslo.drop(columns="only")), **asked)


def test_a_table_that_changed_after_the_agreement_is_refused_at_the_site():
    before = pd.DataFrame({"sex": ["f", "m"], "age": [50, 60], "ill": ["no", "yes"]})
    design = agree(infos(oslo=before), "ill")
    after = pd.DataFrame({"sex": ["f", "x", "z"], "age": ["50", "sixty", "70"], "ill": ["no", "yes", None]})
    with pytest.raises(TableMismatch) as caught:
        SiteTable(after, "oslo").rows(design)
    assert caught.value.findings == (
        "site 'oslo', column 'sex' has 'x', 'z', but the levels are 'f', 'm'",
        "site 'oslo', column 'age' must hold numbers, but has 'sixty'; correct it, or say that it marks a missing "
        "value",
    )
    lacking = SiteTable(after.drop(columns="age"), "oslo")
    assert lacking.findings(design)[1].startswith("site 'oslo' has no column 'age'; its columns are 'sex', 'ill'")


def test_a_site_without_a_whole_row_is_named():
    table = pd.DataFrame({"a": [None, 1.0], "b": [2.0, None], "y": [0.0, 1.0]})
    other = pd.DataFrame({"a": [3.0, 1.0], "b": [2.0, 4.0], "y": [0.0, 1.0]})
    with pytest.raises(TableMismatch, match="site 'oslo': no row is left of 2"):
        table_sites({"oslo": table, "rome": other}, "y", missing="drop")


def test_numbers_that_are_codes_become_a_factor_however_they_are_stored():
    oslo = pd.DataFrame({"ward": [1, 10], "y": [0.5, 1.0]})
    rome = pd.DataFrame({"ward": [2.0, None], "y": [0.5, 1.0]})
    bern = pd.DataFrame({"ward": ["10", "2"], "y": [0.5, 1.0]})
    sites = table_sites({"oslo": oslo, "rome": rome, "bern": bern}, "y", factors=["ward"], missing="drop")
    assert sites.feature_names == ("ward[2]", "ward[10]")
    assert sites.rows.X.tolist() == [[0, 1], [1, 0], [0, 0], [0, 1], [1, 0]]  # bern, oslo, rome


@pytest.mark.parametrize(
    ("values", "markers", "kind", "missing"),
    [
        (pd.Series([True, False]), (), "binary", 0),
        (pd.Series([True, None], dtype=object), (), "binary", 1),
        (pd.Series(["true", "False", ""]), (), "binary", 1),
        (pd.Series([True, None], dtype="boolean"), (), "binary", 1),
        (pd.Series([1, None], dtype="Int64"), (), "whole", 1),
        (pd.Series([1, -99, 2]), (-99,), "whole", 1),
        (pd.Series(["1", "-99", "x"]), ("-99", "x"), "whole", 2),
        (pd.Series([Decimal("1.5"), None]), (), "number", 1),
        (pd.Series([" a", "a ", "  "]), (), "text", 1),
        (pd.Series([1, 2], dtype="category"), (), "text", 0),
        (pd.Series(["u", None, "1"], dtype="category"), ("u",), "text", 2),
        (pd.Series(pd.to_datetime(["2024-01-01"])).astype("category"), (), "date", 0),
        (pd.Series([[1], [2], None]), (), "mixed", 1),
        (pd.Series([datetime.date(2024, 1, 1)]), (), "date", 0),
        (pd.Series([pd.Timedelta(1, "D")]), (), "date", 0),
        (pd.Series(["31.12.2024", "1.1.2025"]), (), "date", 0),
        (pd.Series([1 + 2j]), (), "mixed", 0),
        (pd.Series([None, None]), (), "empty", 2),
        (pd.Series(["?", "?"]), ("?",), "empty", 2),
    ],
)
def test_columns_are_read_by_what_they_hold(values, markers, kind, missing):
    column = read_column(values, markers)
    assert (column.kind, int(column.missing.sum())) == (kind, missing)
    info = column.info("x")
    assert TableInfo.model_validate_json(TableInfo(rows=3, columns=(info,)).model_dump_json()).columns == (info,)


def test_names_of_people_never_leave_the_site():
    table = SiteTable(pd.DataFrame({"name": [f"Person {i}" for i in range(11)], "age": range(11)}), "oslo")
    assert "Person" not in table.info().model_dump_json()


def test_a_design_travels_as_json():
    sites = sites_of_frame(worlds.hospital(40, 0, 0.2), "ill", missing="impute")
    design = Design.model_validate_json(sites.design.model_dump_json())
    assert design == sites.design
    np.testing.assert_array_equal(SiteTable(worlds.hospital(40, 0, 0.2), "all").rows(design).X, sites.rows.X)


def test_rows_are_made_once_for_a_design():
    table = SiteTable(worlds.hospital(30, 1), "oslo")
    design = agree({"oslo": table.info()}, "ill")
    assert table.rows(design) is table.rows(Design.model_validate_json(design.model_dump_json()))
    assert table.rows(design.model_copy(update={"missing": "drop"})) is not table.rows(design)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda t: sites_of_frame(t, "ill", "hospital"), "there is no client column 'hospital'"),
        (lambda t: sites_of_frame(t, "ill", np.zeros(3)), "one site per row: 20 rows, 3 names"),
        (lambda t: sites_of_frame(t, "ill", [None, *"a" * 19]), "1 of 20 are missing"),
        (lambda t: sites_of_frame(t, "ill", np.array([1, *["1"] * 19], object)), "'1' is given twice"),
        (lambda t: table_sites({"a": t.to_numpy()}, "ill"), "must be a pandas DataFrame"),
        (lambda t: table_sites({"a": t.iloc[:0]}, "ill"), "the table has 0 rows"),
        (lambda t: table_sites({"a": pd.concat([t, t], axis=1)}, "ill"), "must differ"),
        (lambda t: table_sites([t], "ill"), "tables must be a mapping"),
        (lambda t: table_sites({"a": t}, "ill").of_numbers(), "its classes are text"),
    ],
)
def test_what_is_no_table_is_refused(call, said):
    with pytest.raises((TypeError, ValueError), match=said):
        call(worlds.hospital(20, 0))
