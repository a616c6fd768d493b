"""Study files: what they say, what is wrong with them, what they draft, check and approve."""

import os
import stat

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cofed.sites import SiteTable, TableMismatch, agree
from cofed.studies import (
    Analysis,
    Study,
    StudyError,
    Variable,
    approve,
    approved,
    check,
    draft,
    load,
    outside_approved,
    to_toml,
    withdraw,
    write,
)
from cofed.studies.schema import parse
from tests.sites import worlds

TEXT = """
[study]
name = "stroke"

[variables.age]
kind = "number"
unit = "years"
range = [18, 110]
missing = [-99, "unknown"]

[variables."blood pressure"]
kind = "number"

[variables.sex]
kind = "factor"
levels = ["male", "female"]

[variables.falls]
kind = "count"

[variables.ill]
kind = "binary"

[[sites]]
name = "oslo"

[[sites]]
name = "rome"

[[analyses]]
name = "main"
family = "binomial"
target = "ill"
features = ["age", "sex"]
cv = 5
select = "1se"
missing = "drop"

[[analyses]]
name = "falls"
family = "poisson"
target = "falls"
features = ["blood pressure"]
"""


def table(**changed: object) -> SiteTable:
    """A table that fits."""
    columns = {
        "ill": [0, 1, True],
        "sex": ["male", "female", "male"],
        "age": [50, -99, 61.5],
        "falls": [0, 2, 3],
        "blood pressure": [120.5, 130, 90],
    }
    return SiteTable(pd.DataFrame(columns | changed), "oslo")


def test_a_study_gives_the_design_of_each_analysis():
    study = parse(TEXT)
    design = study.design("main")
    assert design.feature_names == ("age", "sex[female]")  # the first level of the file is the reference
    assert (design.classes.tolist(), design.missing, design.groups) == ([0, 1], "drop", ("age", "sex"))
    rows = table(sex=["female", "male", "female"]).rows(design)
    assert (rows.X.tolist(), rows.y.tolist()) == ([[50, 1], [61.5, 1]], [0, 1])
    other = study.design(study.analysis("falls").model_copy(update={"features": None}))
    assert other.feature_names == ("age", "blood pressure", "sex[female]", "ill")
    assert other.classes is None
    with pytest.raises(ValueError, match="there is no analysis 'mian'; there are 'main', 'falls'"):
        study.design("mian")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('kind = "count"', 'kind = "cuont"', "line 19: variables.falls.kind is 'cuont'; allowed are 'number', 'count'"),
        ('unit = "years"', 'units = "years"', "line 7: variables.age.units is not a key here (did you mean 'unit'?)"),
        ("range = [18, 110]", "range = [110, 18]", "line 8: variables.age.range is [110, 18]; it should"),
        ('levels = ["male", "female"]', "", "line 14: a factor needs its levels"),
        ('["male", "female"]', '["male", "male"]', "line 16: variables.sex.levels is ['male', 'male']"),
        ('target = "ill"', 'target = "il"', "line 33: 'il' is no variable (did you mean 'ill'?)"),
        ('target = "ill"', 'target = "age"', "line 32: binomial predicts a binary or factor, but 'age' is a number"),
        ('features = ["age", "sex"]', 'features = ["age", "ill"]', "line 34: the features should differ"),
        ("cv = 5", "cv = 1", "cv is 1; it should be greater than or equal to 2; or allowed are 'leave-one-"),
        ("cv = 5", 'cv = "five"', "line 35: analyses[1].cv is 'five'; it should be a whole number"),
        ("cv = 5", "cv = 5\nalpha = 0.1", "line 36: it sets the strength, cv and select choose it"),
        ("cv = 5", "cv = 5\nl1_ratio = 0.1", "line 36: it is for the penalty elasticnet, which is l1 here"),
        ("cv = 5", 'cv = 5\nweight = "ago"', "line 36: 'ago' is no variable (did you mean 'age'?)"),
        ("cv = 5", 'cv = 5\nweight = "age"', "line 36: 'age' cannot be a feature, the target or another role, too"),
        ("cv = 5", 'cv = 5\noffset = "ill"', "line 36: it should be a number or a count, but 'ill' is a binary"),
        ("cv = 5", "cv = 5\npenalty_factor = { sx = 0 }", "line 36: 'sx' is no feature (did you mean 'sex'?)"),
        ("cv = 5", "cv = 5\nlow = { age = 1 }", "low.age is 1; it should be less than or equal to 0"),
        ("cv = 5", 'cv = 5\npenalty = "group"\nhigh = { age = 1 }', "line 37: it is not for the penalty group: coef"),
        ("cv = 5", 'site_effects = "fixed"\ncv = "leave-one-site-out"', "a site that is left out has no intercept"),
        ("cv = 5", 'site_effects = "fixed"\nmeasure = "auc"', "with site_effects = 'fixed' it is the deviance"),
        ('name = "rome"', 'name = "oslo"', "line 28: 'oslo' is there twice"),
        ('name = "rome"', 'name = "rome"\nkey = "5F"', "sites[2].key is '5F'; it should be 64 hexadecimal digits"),
        ('name = "stroke"', "", "study.name is missing"),
        (
            '[variables."blood pressure"]\nkind = "number"',
            '[variables."blood pressure"]\nkind = 3',
            "line 12: variables",
        ),
        ("[study]", "[study", "line 2"),
        ("[[analyses]]", "[analysis]", "analysis is not a key here"),
    ],
)
def test_a_mistake_is_said_with_its_line(old, new, said, tmp_path):
    assert old in TEXT
    path = tmp_path / "study.toml"
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(StudyError) as caught:
        load(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{path}, ")


def test_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    for name, said in (("none.toml", "there is no file"), ("binary.toml", "cannot be read"), (".", "cannot be read")):
        with pytest.raises(StudyError, match=said):
            load(tmp_path / name)


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)
levels = st.lists(texts.filter(lambda one: one == one.strip() != ""), min_size=2, max_size=4, unique=True)


@given(st.dictionaries(texts, st.one_of(st.none(), levels), min_size=2, max_size=5), texts, texts)
def test_a_written_study_reads_as_it_was(variables, name, note):
    made = {
        column: Variable(kind="number", unit=note) if found is None else Variable(kind="factor", levels=found)
        for column, found in variables.items()
    }
    target = next(iter(made))
    family = "gaussian" if variables[target] is None else "multinomial"
    one = Analysis(name=name, family=family, target=target, alpha=0.5)
    study = Study(study={"name": name}, variables=made, sites=[{"name": name}], analyses=[one])
    assert parse(to_toml(study, {name: note})) == study


def test_the_hash_is_of_what_a_study_says():
    study = parse(TEXT)
    reordered = TEXT.replace('kind = "number"\nunit = "years"', 'unit = "years" # of life\nkind = "number"')
    assert parse(reordered).digest == study.digest
    assert parse(TEXT.replace("18, 110", "18, 111")).digest != study.digest
    assert study.digest == Study.model_validate_json(study.model_dump_json()).digest


def test_a_draft_fits_the_tables_that_it_was_drafted_from(tmp_path):
    tables = {f"site {m}": SiteTable(worlds.hospital(40, m, 0.1), f"site {m}") for m in range(3)}
    infos = {site: one.info() for site, one in tables.items()}
    drafted = draft(infos, "ill")
    write(tmp_path / "study.toml", drafted.study, drafted.left_out)
    study = load(tmp_path / "study.toml")
    assert study == drafted.study
    assert [site.name for site in study.sites] == list(tables)
    one = study.analysis("main").model_copy(update={"missing": "drop"})
    assert study.design(one) == agree(infos, "ill", missing="drop")
    for found in tables.values():
        assert check(study.model_copy(update={"analyses": (one,)}), found).findings == ()


def test_a_draft_leaves_out_what_cannot_be_a_variable():
    frame = worlds.hospital(30, 0)
    frame = frame.assign(born="2001-12-31", note=[f"note {i}" for i in range(30)], country="NO", empty=None)
    tables = {"a": frame.assign(only=frame["age"] + 0.5), "b": frame}
    found = draft({site: SiteTable(one, site).info() for site, one in tables.items()}, "age", "poisson")
    assert list(found.left_out) == ["born", "note", "country", "empty", "only"]
    assert found.left_out["only"] == "it is not there at 'b'"
    assert found.study.variables["age"].kind == "count"
    assert found.study.analysis("main").family == "poisson"
    assert found.study.analysis("main").features == ("pressure", "sex", "ward", "smoker", "ill")


@pytest.mark.parametrize(
    ("target", "family", "expected"),
    [
        ("age", None, ("number", "gaussian")),
        ("ill", None, ("factor", "binomial")),
        ("ward", None, ("factor", "multinomial")),
        ("smoker", None, ("binary", "binomial")),
        ("code", "multinomial", ("factor", "multinomial")),
        ("code", None, ("number", "gaussian")),
    ],
)
def test_the_family_is_what_the_target_suggests(target, family, expected):
    frame = worlds.hospital(60, 5).assign(code=np.arange(60) % 3 + 1)
    study = draft({"a": SiteTable(frame, "a").info()}, target, family).study
    assert (study.variables[target].kind, study.analysis("main").family) == expected


@pytest.mark.parametrize(
    ("target", "family", "said"),
    [
        ("il", None, "no site has a column 'il'"),
        ("ward", "gaussian", "gaussian predicts a number or count, but column 'ward' is a factor"),
        ("born", None, "column 'born' holds dates or times"),
    ],
)
def test_a_target_that_cannot_be_predicted_is_refused(target, family, said):
    frame = worlds.hospital(60, 5).assign(born="2001-12-31")
    with pytest.raises(TableMismatch, match=said):
        draft({"a": SiteTable(frame, "a").info()}, target, family)


def test_a_check_says_all_that_does_not_fit():
    study = parse(TEXT)
    assert check(study, table()).fits
    assert check(study, table()).notes == ("column 'age': 1 of 3 values are missing",)
    odd = table(age=[17, "unknown", 300], sex=["male", "Male", "x"], falls=[-1, 0.5, 2], ill=[0, 1, 2], extra=1)
    found = check(study, odd)
    assert found.findings == (
        "site 'oslo', column 'age' has 2 of 2 values outside 18 to 110 (from 17 to 300)",
        "site 'oslo', column 'sex' has 'Male', 'x', but the levels are 'male', 'female'",
        "site 'oslo', column 'falls' has 2 of 3 values that are no counts (from -1 to 2)",
        "site 'oslo', column 'ill' has 1 of 3 values that are not 0 or 1 (from 0 to 2)",
    )
    assert "not in the study, and not used: 'extra'" in found.notes
    lacking = SiteTable(table().frame.drop(columns="age"), "oslo")
    assert check(study, lacking).findings[0].startswith("site 'oslo' has no column 'age'")
    gap = check(study, table(falls=[None, 1, 2]))
    assert gap.findings == (
        "site 'oslo', column 'falls' has no value in 1 of 3 rows; leave such rows out (missing='drop', or "
        "--missing-values drop) (analysis 'falls')",
    )


def test_a_site_answers_what_it_approved_and_nothing_else(tmp_path):
    study, keep = parse(TEXT), tmp_path / "keep"
    design = study.design("main")
    assert "has approved no study" in (outside_approved(keep, design) or "")
    path = approve(keep, study)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert approved(keep, study)
    for inside in (design, design.keeping_missing(), study.design("falls"), study.description_design):
        assert outside_approved(keep, inside) is None
    imputing = parse(TEXT.replace('"drop"', '"impute"'))
    assert not approved(keep, imputing)
    approve(keep, imputing)
    filled = imputing.design("main").filled(np.array([2.0, 3.0]), np.array([100.0, 1.0]))
    assert outside_approved(keep, filled) is None
    assert outside_approved(keep, design.model_copy(update={"features": design.features[:1]})) == (
        "the question is not part of a study that this site has approved ('stroke', 'stroke')"
    )
    assert (withdraw(keep, study), withdraw(keep, study)) == (True, False)
    assert not approved(keep, study)


def test_an_approval_that_was_changed_does_not_count(tmp_path):
    study = parse(TEXT)
    path = approve(tmp_path, study)
    path.write_text(path.read_text().replace("110", "120"))
    assert not approved(tmp_path, study)
    assert outside_approved(tmp_path, study.design("main")) is not None
    path.write_text("{")
    assert not approved(tmp_path, study)
