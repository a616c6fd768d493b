"""A table of bad inputs: for every parameter of every estimator and for every argument, values that mean nothing.

What comes back is one sentence of ours (or scikit-learn's, for X and y) that names the parameter; never an error from
deep inside, never a fit.
"""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import BaseEstimator
from tests.estimators import hospitals, survival

import cofed
from cofed import estimators
from cofed.estimators import (
    FederatedLasso,
    FederatedLassoCV,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
)

PUBLIC = {name: getattr(estimators, name) for name in estimators.__all__}
NAMES = sorted(name for name, one in PUBLIC.items() if isinstance(one, type) and issubclass(one, BaseEstimator))
NO_NUMBER = [None, "a", "", [], [1.0, 2.0], {}, np.nan, np.inf, -np.inf, -1.0, True, 1j, np.zeros((2, 2)), object()]
NO_COUNT = [*NO_NUMBER, 0, 2.5, 10**12]
NO_FLAG = [None, "yes", 2, -1, 0.5, np.nan, [], [True]]
NO_WORD = [None, "best", "", 3, np.nan, [], ["min"], b"min"]
NO_LABELS = [3, "a", [], [1, 2], [[1], [2, 3]], np.zeros((6, 2)), [None] * 6, [1, 2, np.nan, 1, 1, 1], 2.5]
BAD = {
    "alpha": NO_NUMBER,
    "l1_ratio": [*NO_NUMBER, 1.5],
    "tol": [*NO_NUMBER, 0.0, 5.0],
    "max_rounds": NO_COUNT,
    "fit_intercept": NO_FLAG,
    "standardize": NO_FLAG,
    "with_mean": NO_FLAG,
    "with_std": NO_FLAG,
    "algorithm": [None, "sgd", "", 3, np.nan, [], ["newton"], object(), FederatedLasso],
    "loss": ["gamma", 3, np.nan, [], cofed.Gamma, cofed.Softmax(), cofed.Logistic(), object()],
    "penalty": NO_WORD,
    "ties": NO_WORD,
    "groups": NO_LABELS,
    "class_weight": [3, "even", "", [], [1.0, 2.0], np.nan, {"a": 0.0}, {"a": -1.0}, {"a": "b"}, {"z": 1.0}, True],
    "constraint": NO_WORD,
    "shape": [3, "ab", [], (2,), (2, 4), (-2, -3), (2.0, 3.0), (1, 2, 3), [[2], [3, 4]], (True, 6), "23"],
    "radius": [*NO_NUMBER, 0.0],
    "penalty_factor": ["a", [], [1.0, 2.0], np.nan, -1.0, np.inf, True, {"z": 1.0}, {"x0": "a"}, np.zeros((2, 6))],
    "exclude": [3, "x0", ["z"], [9], [-1], [True], [0.5], [[1], [2, 3]], {}, True],
    "low": ["a", [], [1.0, 2.0], np.nan, np.inf, 7.0, True, np.zeros((2, 6)), [[1], [2, 3]]],
    "high": ["a", [], [1.0, 2.0], np.nan, -np.inf, -7.0, True, np.zeros((2, 6)), [[1], [2, 3]]],
    "alphas": [3, "a", [], [-1.0], [np.nan], [np.inf], ["a"], [[1.0]], [[1.0], [1.0, 2.0]], {}, np.zeros(20_000)],
    "n_alphas": NO_COUNT,
    "eps": [*NO_NUMBER, 0.0, 2.0],
    "cv": [*NO_COUNT, 1, 61],
    "criterion": NO_WORD,
    "measure": NO_WORD,
    "site_effects": NO_WORD,
    "slopes": ["z", ["z"], 9, [9], -1, [-1], 0.5, [0.5], True, [True], ["x0", 0], np.nan, {}],
    "method": NO_WORD,
    "family": NO_WORD,
    "level": [*NO_NUMBER, 0.0, 1.0],
    "privacy": ["a", "", 1.0, True, [], {}, (1.0, 1e-6), np.nan, object()],
    "random_state": [None, "a", -1, 2.5, np.nan, [], True, 10**30],
}
SETTING = {  # what makes a parameter matter
    ("FederatedConstrained", "radius"): {"constraint": "simplex"},
    ("FederatedConstrained", "low"): {"constraint": "box"},
    ("FederatedConstrained", "high"): {"constraint": "box"},
    ("FederatedLogisticRegression", "groups"): {"penalty": "group"},
    ("FederatedLogisticRegressionCV", "groups"): {"penalty": "group"},
}
FINE = {("alphas", "None"), ("groups", "None"), ("shape", "None")}


def data(name):
    if "Logistic" in name or "MixedGLM" in name:
        return hospitals.classes()
    if "Cox" in name:
        return survival.follow_up()
    if "MultiTask" in name:
        X, y = hospitals.linear()
        return X, np.column_stack([y, -y])
    return hospitals.counts() if "Poisson" in name else hospitals.linear()


CASES = [
    (name, field, value)
    for name in NAMES
    for field in getattr(estimators, name)().get_params()
    for value in BAD[field]
    if (field, repr(value)) not in FINE
]


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_parameter_is_refused_by_its_name(name):
    X, y = data(name)
    tried = 0
    for owner, field, value in CASES:
        if owner != name:
            continue
        model = getattr(estimators, name)(**{**SETTING.get((name, field), {}), field: value})
        with pytest.raises((ValueError, TypeError), match=rf"{name}: .*\b{field}\b"):
            model.fit(X, y)
        tried += 1
    assert tried >= 9 * len(getattr(estimators, name)().get_params()) / 2


def frame():
    return pd.DataFrame(hospitals.linear()[0], columns=list("abcdef"))


X, Y = hospitals.linear()
HOLED, TEXT, TWICE = frame(), frame().assign(c="x"), frame().set_axis(list("abcdea"), axis=1)
HOLED.iloc[3, 2] = np.nan
BAD_X = {
    "nothing": (None, "X"),
    "a number": (3.0, "array"),
    "text": ("a", "X must be an array of numbers"),
    "words": (X.astype(str).astype(object) + "a", "FederatedLasso: X must be numbers"),
    "a row": (X[0], "array"),
    "a cube": (X[:, :, None], "dim 3"),
    "no rows": (X[:0], "sample"),
    "no columns": (X[:, :0], "feature"),
    "one row": (X[:1], "sample"),
    "too few rows": (X[:30], "inconsistent"),
    "missing": (np.where(X > 2, np.nan, X), "X contains NaN"),
    "infinite": (np.where(X > 2, np.inf, X), "X contains inf"),
    "complex": (X + 1j, "Complex data"),
    "sparse": (scipy.sparse.csr_matrix(np.where(X > 2, np.nan, X)), "FederatedLasso: X contains NaN in column"),
    "masked": (np.ma.masked_greater(X, 2), "X must have no masked values"),
    "huge": (X * 1e200, "X must be of a size between"),
    "tiny": (X * 1e-200, "X must be of a size between"),
    "a frame with a hole": (HOLED, "column 'c' of X contains NaN"),
    "a frame with one word": (TEXT, "FederatedLasso: column 'c' is 'x' in every row"),
    "a frame with dates": (frame().assign(c=pd.Timestamp("2020-01-01")), "FederatedLasso: .*'c' holds dates or times"),
    "a frame with names": (frame().assign(c=[f"row {i}" for i in range(60)]), "FederatedLasso: .*'c' holds free text"),
    "a frame with this and that": (frame().assign(c=["x", 1.0] * 30), "FederatedLasso: .*'c' holds values of several"),
    "a frame with a name twice": (TWICE, "columns of X must have different names, but 'a'"),
}
BAD_Y = {
    "nothing": (None, "y"),
    "text": (["a"] * 60, "FederatedLasso: y must be numbers"),
    "too short": (Y[:30], "inconsistent"),
    "two columns": (np.stack([Y, Y], axis=1), "y"),
    "missing": (np.where(Y > 3, np.nan, Y), "y contains NaN"),
    "infinite": (np.where(Y > 3, np.inf, Y), "y contains inf"),
    "masked": (np.ma.masked_greater(Y, 3), "y must have no masked values"),
    "huge": (Y * 1e200, "y must be of a size between"),
    "tiny": (Y * 1e-200, "y must be of a size between"),
    "sparse": (scipy.sparse.csr_matrix(Y[:, None]), "y|[Ss]parse"),
}
BAD_CLIENTS = {
    "a number": 3,
    "a name": "site",
    "too few": ["a", "b"],
    "missing": [None] * 60,
    "a table": [["a"]] * 60,
    "ragged": [["a"], ["b", "c"]] * 30,
    "masked": np.ma.masked_equal(np.arange(60) % 3, 2),
    "1 and '1'": [1, "1"] * 30,
    "a mapping": {"a": 1},
}


@pytest.mark.parametrize("what", BAD_X)
def test_bad_rows_are_refused(what):
    given, sentence = BAD_X[what]
    with pytest.raises((ValueError, TypeError), match=sentence):
        FederatedLasso().fit(given, Y)


@pytest.mark.parametrize("what", BAD_Y)
def test_bad_targets_are_refused(what):
    given, sentence = BAD_Y[what]
    with pytest.raises((ValueError, TypeError), match=sentence):
        FederatedLasso().fit(X, given)


@pytest.mark.parametrize("what", BAD_CLIENTS)
def test_bad_clients_are_refused(what):
    with pytest.raises(ValueError, match=r"FederatedLasso: clients"):
        FederatedLasso().fit(X, Y, clients=BAD_CLIENTS[what])


def test_bad_rows_of_a_prediction_are_refused():
    model = FederatedLasso(0.1).fit(X, Y)
    for what in (
        "nothing",
        "a number",
        "text",
        "a row",
        "no rows",
        "missing",
        "infinite",
        "complex",
        "sparse",
        "masked",
    ):
        with pytest.raises((ValueError, TypeError), match=r"X|array|sample|Complex|Sparse"):
            model.predict(BAD_X[what][0])
    with pytest.raises(ValueError, match="X has 3 features, but FederatedLasso is expecting 6"):
        model.predict(X[:, :3])


@pytest.mark.parametrize(
    "other", [(X + 1e-3, Y), (X, Y + 1e-3), (X, -Y), (X[:50], Y[:50]), (X[:, :3], Y), (np.vstack([X[1:], X[:1]]), Y)]
)
def test_intervals_are_refused_for_other_rows_than_the_fits(other):
    model = FederatedLasso(0.1).fit(X, Y)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="FederatedLasso: infer needs the rows of the fit"):
        model.infer(*other)
    assert vars(model).keys() == before.keys()
    assert model.n_features_in_ == 6


def test_intervals_take_the_fits_rows_in_any_order():
    model = FederatedLasso(0.1).fit(X, Y, clients=hospitals.SITES)
    order = np.random.default_rng(0).permutation(len(Y))
    table = model.infer(X[order], Y[order], hospitals.SITES[order])
    np.testing.assert_allclose(table.debiased, model.infer(X, Y, hospitals.SITES).debiased, rtol=1e-9)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.nan, "FederatedLasso: X contains NaN in column 2; fill such values or drop the rows$"),
        (np.inf, "FederatedLasso: X contains infinity in column 2; fill such values or drop the rows$"),
        ("abc", "FederatedLasso: X must be numbers, but column 2: could not convert string to float: 'abc'; encode"),
    ],
)
def test_the_column_of_a_bad_value_is_named(value, words):
    bad = X.astype(object)
    bad[7, 2] = value
    with pytest.raises(ValueError, match=words):
        FederatedLasso(0.1).fit(bad, Y)
    with pytest.raises(ValueError, match=words):
        FederatedLasso(0.1).fit(X, Y).predict(bad)


@pytest.mark.parametrize("level", [*NO_NUMBER, 0, 1, 95])
def test_bad_levels_are_refused(level):
    with pytest.raises(ValueError, match="FederatedLasso: level must be a number between 0 and 1"):
        FederatedLasso(0.1).fit(X, Y).infer(X, Y, level=level)


@pytest.mark.parametrize("one", ["z", 6, -1, 2.5, True, [None], [["a"]], {}, [[1], [2, 3]]])
def test_bad_coefficients_are_refused(one):
    with pytest.raises(ValueError, match="there is no feature"):
        FederatedLasso(0.1).fit(X, Y).infer(X, Y, coefficients=one)


@pytest.mark.parametrize("field", ["n_alphas", "eps", "alphas"])
def test_bad_arguments_of_a_path_are_refused(field):
    for value in BAD[field]:
        if value is None and field == "alphas":
            continue
        with pytest.raises(ValueError, match=rf"FederatedLasso: {re.escape(field)} must be"):
            FederatedLasso().path(X, Y, **{field: value})


def test_sites_smaller_than_the_number_of_folds_share_them():
    model = FederatedLassoCV(n_alphas=3).fit(X, Y, clients=np.arange(60) // 3)
    assert np.isfinite(model.cv_mean_).all()
    with pytest.raises(ValueError, match="cv must be at most the number of rows, 4, got 5"):
        FederatedLassoCV(n_alphas=3).fit(X[:4], Y[:4])


def test_a_class_of_one_row_is_named_before_cross_validation():
    labels = np.where(np.arange(60) == 7, "ill", "well")
    with pytest.raises(ValueError, match="at least 2 rows of every class, but there is only 1 of class 'ill'"):
        FederatedLogisticRegressionCV().fit(X, labels, clients=hospitals.SITES)
    assert FederatedLogisticRegression(0.05).fit(X, labels).certificate_.converged


def test_folds_hold_their_share_of_every_class():
    from cofed.sites import Folds

    y = {"a": np.array([0] * 7 + [1] * 2), "b": np.array([0] * 3), "c": np.array([0] * 9 + [1] * 3)}
    for site, labels in y.items():
        folds = Folds(5, 0, True).of_rows(site, labels, None)
        for label in (0, 1):
            counts = np.bincount(folds[labels == label], minlength=5)
            assert counts.max() - counts.min() <= 1
