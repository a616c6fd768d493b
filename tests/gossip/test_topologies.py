"""Topologies: weights, spectra, refusals, and mixing that costs what the edges cost."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import cofed
from cofed.gossip.topologies import links

t = cofed.topologies
GRAPHS = {
    "chain": t.chain(7),
    "ring": t.ring(6),
    "star": t.star(9),
    "big star": t.star(40),
    "grid": t.grid(3, 4),
    "torus": t.torus(3, 3),
    "complete": t.complete(6),
    "random": t.erdos_renyi(12, 0.3, seed=3),
    "dense random": t.erdos_renyi(30, 0.7, seed=3),
    "barbell": t.from_graph(nx.barbell_graph(12, 6)),
    "one": t.from_graph(nx.empty_graph(1)),
    "pair": t.ring(2),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_metropolis_matrices_are_symmetric_doubly_stochastic_and_mix(name):
    topology = GRAPHS[name]
    U = topology.matrix()
    np.testing.assert_array_equal(U, U.T)
    np.testing.assert_allclose(U.sum(axis=0), 1, atol=1e-15)
    assert U.min() >= 0
    values = np.sort(np.abs(np.linalg.eigvalsh(U)))
    np.testing.assert_allclose(topology.second_eigenvalue, values[-2] if len(values) > 1 else 0, atol=1e-10)
    np.testing.assert_allclose(topology.mixing_time, 1 / (1 - topology.second_eigenvalue))
    graph = topology.graph()
    assert {frozenset(e) for e in graph.edges} == {frozenset(e) for e in zip(*np.nonzero(np.triu(U, 1)), strict=True)}


def test_the_chain_of_the_paper():
    U = t.chain(16).matrix()
    assert U[0, 0] == pytest.approx(2 / 3)
    assert U[3, 3] == pytest.approx(1 / 3)
    assert U[3, 4] == pytest.approx(1 / 3)
    assert t.chain(16).second_eigenvalue == pytest.approx(0.987, abs=5e-4)


def test_large_graphs_have_their_known_eigenvalue():
    n = 2000
    assert t.ring(n).second_eigenvalue == pytest.approx(1 / 3 + 2 / 3 * np.cos(2 * np.pi / n), abs=1e-12)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("lossy", [False, True])
def test_mixing_is_the_product_with_the_matrix(name, lossy):
    topology = GRAPHS[name]
    rng = np.random.default_rng(0)
    on_device = links(topology, jnp.float64)
    alive = rng.random(len(topology.first)) > (0.4 if lossy else -1)
    U = np.zeros((topology.nodes, topology.nodes))
    for i, j, w, works in zip(topology.first, topology.second, topology.weight, alive, strict=True):
        U[i, j] = U[j, i] = w * works
    U += np.diag(1 - U.sum(axis=1))
    tree = {"a": rng.normal(size=(topology.nodes, 3, 2)), "b": rng.normal(size=topology.nodes)}
    mixed = on_device.mix(jax.tree.map(jnp.asarray, tree), jnp.asarray(alive))
    np.testing.assert_allclose(mixed["a"], np.einsum("ij,jkl->ikl", U, tree["a"]), atol=1e-14)
    np.testing.assert_allclose(mixed["b"], U @ tree["b"], atol=1e-14)


def test_each_kind_of_mixing_is_used_where_it_is_cheapest():
    kind = {name: links(topology, jnp.float64).kind for name, topology in GRAPHS.items()}
    assert kind["ring"] == kind["grid"] == kind["chain"] == "rows"
    assert kind["big star"] == "edges"
    assert kind["dense random"] == "matrix"


@given(st.integers(2, 15), st.floats(0.3, 1.0), st.integers(0, 100))
@settings(max_examples=15)
def test_a_given_matrix_is_what_it_says(n, p, seed):
    topology = t.erdos_renyi(n, p, seed, tries=1000)
    for form in (np.asarray, scipy.sparse.csr_array, np.ndarray.tolist):
        again = t.from_matrix(form(topology.matrix()))
        np.testing.assert_allclose(again.matrix(), topology.matrix(), atol=1e-15)


def bad(entries, n=3):
    U = t.complete(n).matrix()
    for (i, j), value in entries.items():
        U[i, j] = value
    return U


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (np.ones((2, 3)) / 3, r"must be square, got shape \(2, 3\)"),
        (bad({(0, 1): np.nan}), "not finite"),
        (bad({(0, 1): -0.1, (1, 0): -0.1}), "not non-negative: its least entry is -0.1"),
        (bad({(0, 1): 0.5}), r"not symmetric: u\[0,1\] = 0.5"),
        (bad({(0, 0): 0.5}), "not doubly stochastic: row 0 sums to 1.16"),
        (np.eye(3), "not connected: it has 3 parts"),
        ([[0, 1], [1, 0]], "never agrees"),
        (np.zeros((0, 0)), "must be square"),
        (np.ones((2, 2, 2)), "must be square"),
        (np.eye(2) * 1j, "real numbers"),
        (
            scipy.sparse.csr_array((np.array([1.0, 0, 0, 1]), (np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])))),
            "not connected: it has 2 parts",
        ),
    ],
)
def test_a_bad_matrix_is_refused_with_the_property_that_fails(matrix, sentence):
    with pytest.raises(ValueError, match=sentence):
        t.from_matrix(matrix)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: t.from_graph(nx.disjoint_union(nx.path_graph(2), nx.path_graph(2))), "not connected: it has 2 parts"),
        (lambda: t.from_graph(nx.Graph()), "at least one node"),
        (lambda: t.chain(0), "must be an integer >= 1"),
        (lambda: t.erdos_renyi(10, 0.0), r"in \(0, 1\]"),
        (lambda: t.erdos_renyi(50, 0.001), "no connected graph of 50 nodes in 100 draws"),
    ],
)
def test_bad_graphs_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_entries_that_are_given_in_parts_are_added():
    whole = scipy.sparse.csr_array(t.complete(18).matrix())
    data, rows, columns = np.tile(whole.data / 2, 2), np.tile(whole.tocoo().row, 2), np.tile(whole.tocoo().col, 2)
    order = np.argsort(rows, kind="stable")
    pointers = np.concatenate([[0], np.cumsum(np.bincount(rows))])
    halves = scipy.sparse.csr_array((data[order], columns[order], pointers), shape=whole.shape)
    topology = t.from_matrix(halves)
    assert len(topology.first) == 153
    x = jnp.asarray(np.random.default_rng(0).normal(size=18))
    mixed = links(topology, jnp.float64).mix(x, jnp.ones(153, bool))
    np.testing.assert_allclose(mixed, np.full(18, x.mean()), atol=1e-14)


def test_directed_graphs_are_refused():
    with pytest.raises(TypeError, match="undirected"):
        t.from_graph(nx.DiGraph([(0, 1)]))


def test_random_graphs_follow_their_seed():
    a, b, c = (t.erdos_renyi(20, 0.3, seed).matrix() for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_a_picture(tmp_path):
    t.grid(3, 3).draw(tmp_path / "grid.png")
    assert (tmp_path / "grid.png").read_bytes()[:4] == b"\x89PNG"
