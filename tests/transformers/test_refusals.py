"""Bad inputs to transformers: one sentence that names the transformer and what is wrong."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import cofed
from cofed import transformers
from cofed.sites import MemorySites, SiteRows
from cofed.transformers import FederatedOneHotEncoder, FederatedPCA, FederatedSimpleImputer

X = np.random.default_rng(0).normal(size=(12, 3))
WARDS = pd.DataFrame({"ward": ["A", "B", "C"] * 4, "grade": [1, 2] * 6})
CLIENTS = ["Oslo", "Rome"] * 6
NO_FLAG = [None, "yes", 2, 0.5, np.nan, [], [True]]
NO_WORD = ["best", "", 3, np.nan, [], ["mean"], b"mean", True]
NO_SIZE = ["a", "", [], [1.0, 2.0], {}, np.nan, np.inf, -1.0, -1, 0, 0.0, 1.5, True, 1j, np.zeros((2, 2)), object()]
NO_PRECISION = ["a", None, [], np.nan, np.inf, 0, -1e-6, 2.0, True]
NO_DEGREE = ["a", None, [], np.nan, -1, 1.5, True, {}]
# A formula is of tables alone, and has a file of its own.
OF_ARRAYS = [name for name in transformers.__all__ if name != "FederatedFormula"]
BAD = {
    ("FederatedSimpleImputer", "strategy"): [*NO_WORD, None, "mode"],
    ("FederatedSimpleImputer", "fill_value"): ["", " ", [], np.nan, np.inf, True, {}, 1j, object(), np.zeros(2)],
    ("FederatedOneHotEncoder", "drop"): NO_WORD,
    ("FederatedOneHotEncoder", "handle_unknown"): [*NO_WORD, None],
    ("FederatedOneHotEncoder", "min_frequency"): NO_SIZE,
    ("FederatedPCA", "n_components"): [*NO_SIZE, 4, 1.0],
    ("FederatedPCA", "whiten"): NO_FLAG,
    ("FederatedKBinsDiscretizer", "n_bins"): [*NO_SIZE, 1, None, [5, 5], [5, 5, 1]],
    ("FederatedKBinsDiscretizer", "encode"): [*NO_WORD, None],
    ("FederatedKBinsDiscretizer", "strategy"): [*NO_WORD, None, "kmeans"],
    ("FederatedKBinsDiscretizer", "tol"): NO_PRECISION,
    ("FederatedQuantileTransformer", "n_quantiles"): [*NO_SIZE, None],
    ("FederatedQuantileTransformer", "output_distribution"): [*NO_WORD, None],
    ("FederatedQuantileTransformer", "tol"): NO_PRECISION,
    ("FederatedSplineTransformer", "n_knots"): [*NO_SIZE, None, 1],
    ("FederatedSplineTransformer", "degree"): NO_DEGREE,
    ("FederatedSplineTransformer", "knots"): [*NO_WORD, None],
    ("FederatedSplineTransformer", "extrapolation"): [*NO_WORD, None, "periodic"],
    ("FederatedSplineTransformer", "include_bias"): NO_FLAG,
    ("FederatedSplineTransformer", "tol"): NO_PRECISION,
    ("FederatedPolynomialFeatures", "degree"): [*NO_DEGREE, 0, (2, 1), (1, 2, 3)],
    ("FederatedPolynomialFeatures", "interaction_only"): NO_FLAG,
    ("FederatedPolynomialFeatures", "include_bias"): NO_FLAG,
}


def test_every_parameter_is_in_the_table():
    every = {(name, field) for name in OF_ARRAYS for field in getattr(transformers, name)().get_params()}
    assert every == set(BAD)


@pytest.mark.parametrize(("name", "field"), BAD)
def test_a_bad_parameter_is_refused_by_its_name(name, field):
    for value in BAD[name, field]:
        made = getattr(transformers, name)(**{field: value})
        with pytest.raises(ValueError, match=rf"{name}: .*\b{field}\b"):
            made.fit(WARDS if "OneHot" in name else X, clients=CLIENTS)


BAD_X = {
    "nothing": (None, "X"),
    "a number": (3.0, "array"),
    "text": ("a", "X must be"),
    "a row": (X[0], "array"),
    "a cube": (X[:, :, None], "dim 3"),
    "no rows": (X[:0], "sample"),
    "no columns": (X[:, :0], "feature"),
    "infinite": (np.where(X > 0, np.inf, X), "infinite|contains inf"),
    "complex": (X + 1j, "Complex data"),
    "sparse": (scipy.sparse.csr_matrix(X), "Sparse data was passed for X.*toarray"),
    "masked": (np.ma.masked_greater(X, 0), "X must have no masked values"),
    "times": (X.astype("datetime64[s]"), "X must be numbers, got datetime"),
    "an empty frame": (WARDS.iloc[:0], "rows|sample|'ward'"),
    "dates": (WARDS.assign(ward=pd.Timestamp("2020-01-01")), "'ward'"),
    "this and that": (WARDS.assign(ward=["x", 1.0] * 6), "'ward'"),
    "names": (WARDS.assign(ward=[f"row {j}" for j in range(12)]), "'ward'"),
    "a name twice": (WARDS.set_axis(["a", "a"], axis=1), "different names|must differ"),
    "no value": (WARDS.assign(ward=None), "'ward'"),
}


@pytest.mark.parametrize("name", OF_ARRAYS)
@pytest.mark.parametrize("what", BAD_X)
def test_bad_rows_are_refused(name, what):
    given, said = BAD_X[what]
    with pytest.raises((ValueError, TypeError), match=said):
        getattr(transformers, name)().fit(given)


@pytest.mark.parametrize("name", OF_ARRAYS)
@pytest.mark.parametrize("clients", [3, ["a"], [None] * 12, "nowhere", [[1], [2, 3]], CLIENTS[:11]])
def test_bad_clients_are_refused(name, clients):
    with pytest.raises(ValueError, match=rf"{name}: .*clients"):
        getattr(transformers, name)().fit(WARDS if "OneHot" in name else X, clients=clients)


def refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_columns_that_cannot_be_filled_or_encoded():
    imputer, encoder = FederatedSimpleImputer, FederatedOneHotEncoder
    refused(lambda: imputer().fit(WARDS), "FederatedSimpleImputer: strategy='mean' takes numbers, but column 'ward'")
    constant = imputer(strategy="constant", fill_value=3)
    refused(lambda: constant.fit(WARDS), "fill_value=3 must be text, as column 'ward'")
    constant = imputer(strategy="constant", fill_value="x")
    refused(lambda: constant.fit(WARDS[["grade"]]), "fill_value='x' must be a number, as column 'grade'")
    refused(lambda: imputer(strategy="most_frequent").fit(X), "FederatedSimpleImputer: .*too many different numbers")
    refused(lambda: encoder().fit(X), "FederatedOneHotEncoder: column 'x0' has too many different numbers")
    holed = WARDS.assign(ward=[None, *WARDS["ward"][1:]])
    refused(lambda: encoder().fit(holed), "FederatedOneHotEncoder: column 'ward' of X has 1 missing values; fill them")
    mixed = WARDS.assign(grade=["x", 1] * 6)
    refused(lambda: encoder().fit(mixed, clients=CLIENTS), "'grade' holds numbers at 'Rome', but text at 'Oslo'")
    refused(lambda: encoder(drop="first", handle_unknown="ignore").fit(WARDS), "drop='first' needs handle_unknown")


def test_new_rows_that_do_not_fit():
    encoder = FederatedOneHotEncoder().fit(WARDS, clients=CLIENTS)
    refused(lambda: encoder.transform(WARDS.assign(ward="Z")), "column 'ward' of X has 'Z', but the levels of the fit")
    refused(lambda: encoder.transform(WARDS.assign(ward=None)), "column 'ward' of X has 12 missing values")
    refused(lambda: encoder.transform(WARDS[["ward"]]), "feature names")
    refused(lambda: encoder.get_feature_names_out(["a"]), "input_features must have 2 names, got 1")
    imputer = FederatedSimpleImputer().fit(X, clients=CLIENTS)
    refused(lambda: imputer.transform(np.where(X > 0, np.inf, X)), "X contains infinity")
    grades = FederatedSimpleImputer().fit(WARDS[["grade"]], clients=CLIENTS)
    refused(lambda: grades.transform(WARDS[["grade"]] * np.inf), "X contains infinity in column 'grade'")
    refused(lambda: imputer.transform(np.full((2, 3), "a", object)), "column 'x0' of X must be numbers, as in the fit")
    refused(lambda: imputer.transform(X[:, :2]), "2 features")
    pca = FederatedPCA(2).fit(X, clients=CLIENTS)
    refused(lambda: pca.transform(np.where(X > 0, np.nan, X)), "X contains NaN in column 0")
    refused(lambda: pca.inverse_transform(X), "FederatedPCA: X must have 2 columns, a component each, got 3")
    refused(lambda: FederatedPCA().fit(X[:1]), "2 rows, but all clients together have 1 sample")
    refused(lambda: FederatedPCA().fit(X * 1e200), "FederatedPCA: X must be of a size between")
    refused(lambda: FederatedPCA().fit(np.zeros((2, 4097))), "4097 features; the products of at most 4096")


def test_sites_that_do_not_fit():
    sites = MemorySites(SiteRows.of_sites(("a", "b"), [X[:5], X[5:]], [np.zeros(0)] * 2))
    refused(lambda: FederatedSimpleImputer().fit(sites), "FederatedSimpleImputer: these sites have no tables")
    refused(lambda: FederatedPCA().fit(sites, clients=CLIENTS), "leave y and clients out")
    federation = cofed.Federation.from_arrays([(X, np.zeros(12))])
    refused(lambda: FederatedOneHotEncoder().fit(federation), "got a Federation")
    tables = cofed.sites.sites_of_frame(WARDS.assign(site=CLIENTS), client="site")
    refused(lambda: FederatedOneHotEncoder().fit(tables, clients=CLIENTS), "sites carry their own rows")
