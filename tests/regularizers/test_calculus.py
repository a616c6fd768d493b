"""On, Scaled, Translated, Sum: what they mean, what they pass on, what they refuse."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from regularizer_table import FINITE, MAIN, array, close, names

import cofed.regularizers as R

# The combinators do not look inside: one row of each kind is enough.
KINDS = {"Zero", "L1", "GroupL1 of a vector", "Nuclear (4, 3)", "TotalVariation (9,)", "L2Ball", "L0Ball", "MCP"}
PARTS = [row for row in MAIN if row.name in KINDS]
rows = pytest.mark.parametrize("row", PARTS, ids=names(PARTS))
TRAITS = ("convex", "separable", "is_indicator", "weak_convexity", "weighted_l1", "is_zero", "is_norm", "structure")


def network():
    rng = np.random.default_rng(0)
    layers = [{"weight": array(rng.normal(size=(3, 2))), "bias": array(rng.normal(size=3))} for _ in range(2)]
    return {"layers": layers, "head": {"weight": array(rng.normal(size=(2, 3)))}}


def test_on_leaves_the_others_alone():
    model = {"coef": jnp.array([3.0, -0.5]), "intercept": jnp.array(0.4)}
    lasso = R.On(R.L1(1.0), "coef")
    assert float(lasso.value(model)) == 3.5
    w = lasso.prox(model, 1.0)
    assert w["coef"].tolist() == [2.0, 0.0]
    assert float(w["intercept"]) == 0.4
    g = lasso.subgradient(model)
    assert g["coef"].tolist() == [1.0, -1.0]
    assert float(g["intercept"]) == 0.0


@pytest.mark.parametrize(
    ("chosen", "touched"),
    [
        (["weight"], {"layers.0.weight", "layers.1.weight", "head.weight"}),
        (["layers"], {"layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"}),
        (["0.weight"], {"layers.0.weight"}),
        (["layers.1.bias", "head"], {"layers.1.bias", "head.weight"}),
        (["layers.1"], {"layers.1.weight", "layers.1.bias"}),
    ],
)
def test_on_finds_leaves_by_any_part_of_their_path(chosen, touched):
    model = network()
    w = R.On(R.L1(1e6), *chosen).prox(model, 1.0)
    paths = [
        ".".join(str(getattr(k, "key", getattr(k, "idx", ""))) for k in p) for p, _ in jax.tree.leaves_with_path(w)
    ]
    zeroed = {path for path, leaf in zip(paths, jax.tree.leaves(w), strict=True) if not np.asarray(leaf).any()}
    assert zeroed == touched


@pytest.mark.parametrize("name", ["eight", "weigh", "layers.weight", "coef"])
def test_on_does_not_match_half_a_word(name):
    sentence = "no leaf of the model is named '" + name + "'; its leaves are: head.weight, layers.0.bias"
    for method in ("value", "subgradient"):
        with pytest.raises(ValueError, match=sentence):
            getattr(R.On(R.L1(1.0), name), method)(network())
    with pytest.raises(ValueError, match=sentence):
        R.On(R.L1(1.0), name).prox(network(), 1.0)
    with pytest.raises(ValueError, match="one array without a name"):
        R.On(R.L1(1.0), name).prox(jnp.ones(3), 1.0)


@rows
def test_on_treats_each_leaf_alone(row):
    v, u = array(row.draw(0)), array(row.draw(1))
    model = {"a": {"x": v}, "b": {"x": u}, "c": 5 * v}
    on = R.On(row.regularizer, "x")
    w = on.prox(model, 0.8)
    close(w["a"]["x"], row.prox(v, 0.8), 1e-14)
    close(w["b"]["x"], row.prox(u, 0.8), 1e-14)
    assert np.array_equal(w["c"], 5 * v)
    expected = float(row.psi(w["a"]["x"])) + float(row.psi(w["b"]["x"]))
    assert float(on.value(w)) == pytest.approx(expected, rel=1e-13)
    assert [getattr(on, trait) for trait in TRAITS] == [getattr(row.regularizer, trait) for trait in TRAITS]
    assert isinstance(on, R.AbstractRegularizer)


@rows
def test_scaled_and_translated(row):
    v, center = array(row.draw(0)), array(row.draw(1))
    scaled, moved = R.Scaled(row.regularizer, 3.0), R.Translated(row.regularizer, center)
    close(jax.jit(lambda v: scaled.prox(v, 0.2))(v), row.prox(v, jnp.asarray(0.2) * 3.0), 1e-13)
    close(jax.jit(lambda v: moved.prox(v, 0.6))(v), center + row.prox(v - center, 0.6), 1e-13)
    w = row.prox(v, 0.1)
    assert float(scaled.value(w)) == pytest.approx(3 * row.value(np.asarray(w)), rel=1e-12)
    assert float(moved.value(w + center)) == pytest.approx(row.value(np.asarray(w)), rel=1e-12)
    for trait in ("convex", "separable", "is_indicator", "is_zero"):
        assert getattr(scaled, trait) == getattr(moved, trait) == getattr(row.regularizer, trait)
    for trait in ("weighted_l1", "is_norm", "structure"):
        assert getattr(scaled, trait) == getattr(row.regularizer, trait)
    assert scaled.weak_convexity == pytest.approx(3 * row.weak_convexity)
    assert moved.weak_convexity == pytest.approx(row.weak_convexity)
    assert (moved.weighted_l1, moved.is_norm, moved.structure) == (False, False, None)


@pytest.mark.parametrize("row", [row for row in PARTS if row in FINITE], ids=lambda row: row.name)
def test_scaled_and_translated_subgradients(row):
    w, center = array(row.draw(0)), array(row.draw(1))
    close(R.Scaled(row.regularizer, 3.0).subgradient(w), 3 * row.subgradient(w), 1e-14)
    close(R.Translated(row.regularizer, center).subgradient(w), row.subgradient(w - center), 1e-14)


def test_scaled_and_translated_keep_float32():
    v = jnp.array([3.0, -2.0], jnp.float32)
    for regularizer in (R.Scaled(R.L1(1.0), 2.0), R.Translated(R.L1(1.0), jnp.ones(2)), R.On(R.L1(1.0), "x")):
        w = regularizer.prox({"x": v}, 0.5)["x"]
        assert w.dtype == jnp.float32
        assert regularizer.value({"x": v}).dtype == jnp.float32


def test_sum_of_disjoint_parts():
    model = network()
    parts = (R.On(R.Nuclear(0.5), "layers.0.weight"), R.On(R.L1(0.3), "head"), R.On(R.L1(0.7), "bias"))
    total = R.Sum(*parts)
    w = total.prox(model, 1.0)
    for part in parts:
        alone = part.prox(model, 1.0)
        for leaf, single, named in zip(jax.tree.leaves(w), jax.tree.leaves(alone), part.covers(model), strict=True):
            if named:
                close(leaf, single, 1e-14)
    assert np.array_equal(w["layers"][1]["weight"], model["layers"][1]["weight"])
    assert float(total.value(model)) == pytest.approx(sum(float(part.value(model)) for part in parts))
    g = total.subgradient(model)
    close(g["head"]["weight"], 0.3 * jnp.sign(model["head"]["weight"]), 1e-14)
    assert not np.asarray(g["layers"][1]["weight"]).any()
    assert (total.convex, total.separable, total.weighted_l1, total.is_norm) == (True, False, False, False)
    assert total.structure is None
    assert R.Sum(*parts[1:]).weighted_l1
    assert R.Sum(*parts[1:]).structure == "density"


def test_sum_traits_of_mixed_parts():
    mixed = R.Sum(R.On(R.L1Ball(1.0), "head"), R.On(R.MCP(1.0, 4.0), "bias"))
    assert (mixed.convex, mixed.is_indicator, mixed.weak_convexity) == (False, False, 0.25)
    with pytest.raises(TypeError, match="L1Ball is the indicator"):
        mixed.subgradient(network())
    assert R.Sum(R.On(R.L1Ball(1.0), "head"), R.On(R.NonNegative(), "bias")).is_indicator
    traced = jax.jit(lambda gamma: R.Sum(R.On(R.MCP(1.0, gamma), "head"), R.Zero()).weak_convexity)
    assert float(traced(4.0)) == 0.25


@pytest.mark.parametrize(
    "second",
    [R.L1(1.0), R.On(R.Zero(), "layers"), R.Scaled(R.On(R.L1(1.0), "weight"), 2.0), R.Sum(R.On(R.L1(1.0), "0"))],
)
def test_sum_refuses_overlap(second):
    both = R.Sum(R.On(R.L1Ball(1.0), "layers.0.weight"), second)
    with pytest.raises(ValueError, match=r"disjoint leaves, but 'layers.0.weight' is in 2: On"):
        both.prox(network(), 1.0)
    with pytest.raises(ValueError, match="disjoint leaves"):
        both.value(network())


class Model(eqx.Module):
    weight: jax.Array  # before `bias`, against the alphabet: a mapping has the other order
    bias: jax.Array


def test_weights_follow_the_model():
    """By structure, by the names of leaves, or one array for every leaf."""
    model = Model(jnp.array([3.0, -4.0]), jnp.array(5.0))
    for weights in (Model(jnp.array([1.0, 0.5]), jnp.array(0.0)), {"bias": 0.0, "weight": np.array([1.0, 0.5])}):
        w = R.L1(2.0, weights).prox(model, 1.0)
        assert w.weight.tolist() == [1.0, -3.0]
        assert float(w.bias) == 5.0
        assert float(R.L1(2.0, weights).value(model)) == 10.0
    pair = {"a": jnp.array([3.0, -4.0]), "b": jnp.array([5.0, 6.0])}
    assert R.L1(1.0, [1.0, 2.0]).prox(pair, 1.0)["b"].tolist() == [4.0, 4.0]
    assert R.Box(0, [2, 10]).prox(pair, 1.0)["b"].tolist() == [2.0, 6.0]


BAD = [
    (lambda: R.L1(-1.0), "L1: strength must be a finite number >= 0, got -1.0"),
    (lambda: R.L1(float("nan")), "L1: strength"),
    (lambda: R.L1(1.0, [1.0, -2.0]), "L1: weights must be finite and >= 0"),
    (lambda: R.L1(1.0, [1.0, 2.0]).prox(jnp.ones(3), 1.0), r"weights has shape \(2,\), the model has shape \(3,\)"),
    (
        lambda: R.L1(1.0, {"a": 1.0}).prox({"b": jnp.ones(3)}, 1.0),
        r"weights has the leaves \['a'\], the model has \['b'\]",
    ),
    (lambda: R.L1(1.0, [1.0]).value({"a": jnp.ones(3)}), "the leaf 'a' has shape"),
    (lambda: R.ElasticNet(1.0, 1.5), r"ElasticNet: l1_ratio must be in \[0, 1\], got 1.5"),
    (lambda: R.ElasticNet(-1.0, 0.5), "ElasticNet: strength"),
    (lambda: R.GroupL1(-1.0), "GroupL1: strength"),
    (lambda: R.GroupL1(1.0).prox(jnp.ones(3), 1.0), r"GroupL1 without groups .* shape \(3,\), so give groups"),
    (lambda: R.GroupL1(1.0, [0, 2]), r"groups: the labels must be 0, 1, ..., G-1 without gaps, got \[0, 2\]"),
    (lambda: R.GroupL1(1.0, [0.5, 1.0]), "groups: expected one integer label per coordinate"),
    (lambda: R.GroupL1(1.0, [0, 1]).value(jnp.ones(3)), r"GroupL1: groups has 2 labels, the leaf has shape \(3,\)"),
    (lambda: R.GroupL1(1.0, [0, 1], [1.0]).value(jnp.ones(2)), r"weights has shape \(1,\), there are 2 groups"),
    (lambda: R.SparseGroupL1(1.0, -0.1), "SparseGroupL1: l1_ratio"),
    (lambda: R.SparseGroupL1(1.0, 0.5).prox(jnp.ones(3), 1.0), "SparseGroupL1 without groups"),
    (lambda: R.Nuclear(-1.0), "Nuclear: strength"),
    (lambda: R.Nuclear(1.0).prox(jnp.ones(3), 1.0), r"Nuclear is for matrices, the leaf has shape \(3,\)"),
    (lambda: R.TotalVariation(-1.0), "TotalVariation: strength"),
    (lambda: R.TotalVariation(1.0).prox(jnp.ones((2, 2, 2)), 1.0), r"TotalVariation is for vectors .* \(2, 2, 2\)"),
    (lambda: R.L1Ball(-1.0), "L1Ball: radius must be a finite number >= 0"),
    (lambda: R.L2Ball(float("inf")), "L2Ball: radius must be a finite number >= 0"),
    (lambda: R.Simplex(0.0), "Simplex: radius must be a finite number > 0"),
    (lambda: R.Box(1.0, 0.0), "Box: low must not exceed high, got low=1.0 and high=0.0"),
    (lambda: R.Box({"a": 0.0, "b": 2.0}, 1.0), "Box: low must not exceed high"),
    (lambda: R.Box(0.0, float("nan")), "Box: high must be a number"),
    (lambda: R.L0Ball(-1), "L0Ball: k must be an integer >= 0, got -1"),
    (lambda: R.L0Ball(True), "L0Ball: k must be an integer"),
    (lambda: R.MCP(1.0, 0.0), "MCP: gamma must be a finite number > 0"),
    (lambda: R.SCAD(1.0, 2.0), "SCAD: a must be > 2, got 2.0"),
    (lambda: R.Scaled(R.L1(1.0), 0.0), "Scaled: factor must be a finite number > 0"),
    (lambda: R.On(R.L1(1.0)), "On: give the names of leaves"),
    (lambda: R.Sum(), "Sum: give at least one regularizer"),
]


@pytest.mark.parametrize(("bad", "sentence"), BAD, ids=[sentence[:40] for _, sentence in BAD])
def test_bad_input_gets_a_sentence(bad, sentence):
    with pytest.raises(ValueError, match=sentence):
        bad()


@pytest.mark.parametrize("part", [0.1, R.L1, "L1", None], ids=["number", "class", "text", "none"])
def test_only_regularizers_combine(part):
    for make in (lambda: R.On(part, "coef"), lambda: R.Sum(part)):
        with pytest.raises(TypeError, match="combines regularizers such as"):
            make()
