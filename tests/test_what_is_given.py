"""What a user gives is what is used, or it is refused: own models and methods, streams, graphs, arrays, files."""

import io
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import cofed
from cofed._util import trees
from tests import worlds

FEDERATION = worlds.logistic(sizes=(8, 7), d=2)


def run(problem: Any, federation: Any = FEDERATION, algorithm: Any = None, **settings: Any):
    return cofed.run(problem, federation, algorithm or cofed.FedAvg(0.1), rounds=2, progress=False, **settings)


class Clipped(eqx.Module):
    """Plain numbers in a module decide what it computes, by Python's own `if`."""

    linear: eqx.nn.Linear
    scale: float = 2.0
    clip: float | None = 0.1

    def __call__(self, x):
        h = self.linear(x)[0] * self.scale
        return h if self.clip is None else jnp.clip(h, -self.clip, self.clip)


def test_numbers_of_an_own_module_stay_as_they_are():
    model = run(cofed.Problem(Clipped(eqx.nn.Linear(2, 1, key=jax.random.key(0))), cofed.Logistic())).model
    assert (model.scale, model.clip) == (2.0, 0.1)
    far = jnp.full(2, 1e6)
    assert abs(float(model(far))) == pytest.approx(0.1)


class Labels(eqx.Module):
    linear: eqx.nn.Linear

    def __call__(self, x):
        return self.linear(x)


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (lambda: cofed.Problem(Labels(eqx.nn.Linear(2, 1, key=jax.random.key(0))), cofed.Softmax()), "needs 2 outputs"),
        (lambda: cofed.Problem(loss=lambda p, y: (p > 0) != (y > 0)), "floating number, got bool"),
        (lambda: cofed.Problem(loss=lambda p, y: jnp.sign(p)), "gradient of the loss is zero"),
    ],
)
def test_what_cannot_be_learned_is_refused(problem, words):
    with pytest.raises(ValueError, match=words):
        run(problem())


def test_a_module_without_parameters_is_refused():
    with pytest.raises(TypeError, match="nothing to train"):
        cofed.Problem(eqx.nn.Lambda(jnp.sum))


class Penalty(eqx.Module):
    """A regularizer of one's own, right but for what a test changes."""

    convex: ClassVar = True
    separable: ClassVar = True
    is_indicator: ClassVar = False
    weak_convexity: ClassVar = 0.0
    weighted_l1: ClassVar = False
    is_zero: ClassVar = False
    is_norm: ClassVar = False
    structure: ClassVar = None

    def value(self, w):
        return trees.dot(w, w)

    def prox(self, v, step):
        return trees.scale(1 / (1 + 2 * step), v)

    def subgradient(self, w):
        return trees.scale(2.0, w)


class Flat(Penalty):
    def prox(self, v, step):
        return jax.tree.map(jnp.sum, v)


class Many(Penalty):
    def value(self, w):
        return w.coef


def test_an_own_regularizer_must_give_models_and_have_all_members():
    for penalty, words in ((Flat(), r"Flat.prox\(v, step\) must give a model"), (Many(), "one floating number")):
        with pytest.raises(ValueError, match=words):
            run(cofed.Problem(loss=cofed.Logistic(), regularizer=penalty))

    class Lacking(eqx.Module):
        def value(self, w):
            return 0.0

    with pytest.raises(TypeError, match=r"must have value\(w\) and prox\(v, step\).* derives from"):
        cofed.Problem(regularizer=Lacking())
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (cofed.AbstractRegularizer,), {"value": Lacking.value})()


class Whole(eqx.Module):
    """Clients send their whole model; the server takes the mean."""

    needs: ClassVar = ()
    equal_steps: ClassVar = False
    paper: ClassVar = "none"

    def init(self, problem, w0):
        return w0

    def init_client(self, problem, w0):
        return ()

    def broadcast(self, server):
        return server

    def local(self, problem, down, client, steps):
        return steps.run(lambda k, w: trees.axpy(-0.1, steps.gradient(w, k), w), down), client

    def aggregate(self, problem, server, up, share):
        return up

    def model(self, problem, server):
        return server


class Unsteady(Whole):
    def aggregate(self, problem, server, up, share):
        return (up, up)


class Strange(Whole):
    needs: ClassVar = ("smooth",)


class Half(eqx.Module):
    needs: ClassVar = ()

    def local(self, problem, down, client, steps):
        return down, client


@pytest.mark.parametrize(
    ("algorithm", "error", "words"),
    [
        (Unsteady(), ValueError, "Unsteady.aggregate must give a state like"),
        (Strange(), ValueError, r"Strange needs \('smooth',\)"),
        (Half(), TypeError, "Half lacks aggregate, broadcast, init, init_client, model"),
        (cofed.Compressed(Whole(), cofed.TopK(0.5)), ValueError, "no origin"),
    ],
)
def test_an_own_method_that_does_not_keep_the_contract_is_refused(algorithm, error, words):
    with pytest.raises(error, match=words):
        run(cofed.Problem(loss=cofed.Logistic()), algorithm=algorithm)


def test_a_stream_must_follow_its_key():
    loose, fixed = np.random.default_rng(0), np.random.default_rng(0).normal(size=(256, 2))
    for draw, words in (
        (lambda key, client, size: ((X := loose.normal(size=(size, 2))), X[:, 0]), "other samples for the same key"),
        (lambda key, client, size: (fixed[:size], fixed[:size, 0]), "same samples for two different keys"),
    ):
        with pytest.raises(ValueError, match=words):
            cofed.Federation.from_stream(draw, 2)


def test_numbers_of_a_graph_are_names_where_they_name_the_clients():
    chain = cofed.topologies.from_graph(nx.Graph([(3, 1), (1, 2)]))
    assert chain.for_clients(("1", "2", "3")).degrees.tolist() == [2, 1, 1]
    assert chain.for_clients(("a", "b", "c")).degrees.tolist() == chain.degrees.tolist()
    with pytest.raises(ValueError, match="only one of the two has '0', '3'"):
        chain.for_clients(("0", "1", "2"))


def test_parameters_must_be_of_the_datas_dtype():
    class Mixed(cofed.AbstractModel):
        def init(self, key, x, outputs):
            return {"w": jnp.zeros(x.shape, jnp.float32)}

        def __call__(self, w, x):
            return x @ w["w"].astype(x.dtype)

    with pytest.raises(ValueError, match=r"Mixed.init must give parameters of the data's dtype, float64, but"):
        run(cofed.Problem(Mixed(), cofed.Logistic()))


def test_an_own_object_is_used_as_it_was_given():
    class Ridge:
        convex = True

        def __init__(self, strength):
            self.strength = strength

        def value(self, w):
            return self.strength * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(w)) / 2

        def prox(self, v, step):
            return jax.tree.map(lambda leaf: leaf / (1 + step * self.strength), v)

    changed = Ridge(0.1)
    first = run(cofed.Problem(loss=cofed.Logistic(), regularizer=changed), algorithm=cofed.FedDualAvg(0.1))
    changed.strength = 5.0
    second = run(cofed.Problem(loss=cofed.Logistic(), regularizer=changed), algorithm=cofed.FedDualAvg(0.1))
    assert np.abs(first.model.coef - second.model.coef).max() > 1e-3


def test_a_graph_with_names_is_matched_to_the_clients():
    star = cofed.topologies.from_graph(nx.Graph([("b", "a"), ("b", "c")]))
    assert star.for_clients(("a", "b", "c")).degrees.tolist() == [1, 2, 1]
    assert cofed.topologies.from_graph(nx.Graph([(2, 0), (0, 1)])).degrees.tolist() == [2, 1, 1]
    with pytest.raises(ValueError, match="only one of the two has 'c', 'd'"):
        star.for_clients(("a", "b", "d"))
    federation = worlds.linear(sizes=(3, 3, 3), names=["x", "y", "z"])
    with pytest.raises(ValueError, match="must be those of the clients"):
        run(worlds.problem(), federation, cofed.DFedDA(0.1), topology=star)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.ma.masked_array(np.ones((2, 2)), [[True, False]] * 2), "2 masked entries"),
        (scipy.sparse.csr_array(np.eye(2)), r"sparse matrix of SciPy.*X.toarray\(\) \(estimators take sparse rows"),
        ({"age": np.ones(2), "dose": np.ones((2, 3))}, r"mapping of 'age', 'dose', expected one array.*concatenate"),
        (np.array([[1, 2**60], [3, 4]]), r"beyond 2\*\*53"),
        (np.array([["2020-01-01"]] * 2, "datetime64[D]"), "expected numbers; convert them"),
    ],
)
def test_arrays_that_would_lose_something_are_refused(X, words):
    with pytest.raises((TypeError, ValueError), match=words):
        cofed.Federation.from_arrays({"A": (X, np.ones(2))})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"site,age,ill\na,1,2,3\nb,1,2,3\n", "more fields than its header"),
        (b"site,age,ill\na,1,2\nb,1,2,3,4\n", "could not be read as CSV"),
        ("site,age,ill\nÅ,1,2\n".encode("utf-16"), "not UTF-8 text"),
        ("site,age,ill\nÅ,1,2\n".encode("latin-1"), "not UTF-8 text"),
        (b"site,age\0,ill\na,1,2\n", "is not text"),
        (b"site,age,age,ill\na,1,2,3\n", "'age' is there twice"),
    ],
)
def test_files_that_are_no_table_are_refused(content, words, tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        cofed.Federation.from_csv(path, target="ill", client="site")
    with pytest.raises(ValueError, match=words):
        cofed.Federation.from_csv(io.BytesIO(content), target="ill", client="site")
    with pytest.raises(ValueError, match="is a folder"):
        cofed.Federation.from_csv(tmp_path, target="ill", client="site")


def test_parquet_files_must_have_the_same_columns_and_the_row_labels_are_none_of_them(tmp_path):
    df = pd.DataFrame({"site": ["a", "b", "a"], "age": [1.0, 2.0, 3.0], "cost": [1.0, 2.0, 3.0]})
    df[df["age"] > 1].to_parquet(tmp_path / "1.parquet")  # keeps pandas' row labels in a column of its own
    assert cofed.Federation.from_parquet(tmp_path, target="cost", client="site").feature_names == ("age",)
    df.assign(dose=1.0)[df["age"] > 1].to_parquet(tmp_path / "2.parquet")
    with pytest.raises(ValueError, match=r"2.parquet: its columns differ.*has besides 'dose'"):
        cofed.Federation.from_parquet(tmp_path, target="cost", client="site")


def test_names_that_only_look_different_are_the_same():
    for names in (["é", "e\u0301"], [1, "1"]):
        with pytest.raises(ValueError, match="client names must differ"):
            cofed.Federation.from_arrays([(np.ones((1, 1)), [1.0])] * 2, names=names)
    with pytest.raises(ValueError, match="feature_names must differ"):
        cofed.Federation.from_arrays([(np.ones((1, 2)), [1.0])], feature_names=["a", "a"])
    with pytest.raises(ValueError, match="select: names must differ"):
        FEDERATION.select(["0", "0"])


def test_a_metric_is_not_stretched_to_the_model():
    with pytest.raises(ValueError, match=r"truth has shape \(1,\)"):
        run(cofed.Problem(loss=cofed.Logistic()), metrics={"f1": cofed.metrics.f1(np.ones(1))})
