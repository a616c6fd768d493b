"""Losses and models: values and gradients against NumPy and scikit-learn, and what they refuse."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import ElasticNet, LogisticRegression, PoissonRegressor

import cofed
from tests import worlds

numbers = st.floats(-20, 20)


@given(numbers, numbers)
def test_losses_are_their_formulas(p, y):
    value = lambda loss, label: float(loss(jnp.asarray(p), jnp.asarray(label)))  # noqa: E731
    np.testing.assert_allclose(value(cofed.Squared(), y), (p - y) ** 2 / 2)
    np.testing.assert_allclose(value(cofed.Squared(half=False), y), (p - y) ** 2)
    r = abs(p - y)
    np.testing.assert_allclose(value(cofed.Huber(0.7), y), r**2 / 2 if r <= 0.7 else 0.7 * (r - 0.35), atol=1e-14)
    for label, sign in ((1, 1), (0, -1), (-1, -1), (1.0, 1)):
        np.testing.assert_allclose(value(cofed.Logistic(), label), np.logaddexp(0, -sign * p), atol=1e-14)
    np.testing.assert_allclose(value(cofed.Poisson(), 3), np.exp(p) - 3 * p)


@given(st.lists(numbers, min_size=2, max_size=5), st.integers(0, 1))
def test_softmax_is_the_cross_entropy(scores, label):
    z = np.array(scores)
    expected = -np.log(np.exp(z - z.max()) / np.exp(z - z.max()).sum())[label]
    for kind in (int, float):
        got = cofed.Softmax()(jnp.asarray(z), jnp.asarray(kind(label)))
        np.testing.assert_allclose(got, expected, atol=1e-12)


def test_losses_are_finite_and_flat_far_out():
    for loss in (cofed.Logistic(), cofed.Huber()):
        gradient = jax.grad(lambda p, loss=loss: loss(p, jnp.asarray(1)))(jnp.asarray(-1e5))
        assert np.isfinite(gradient)


@pytest.mark.parametrize(
    ("loss", "y", "sentence"),
    [
        (cofed.Logistic(), [0, 1, 2], "Logistic expects labels 0/1 or -1/\\+1, got 0, 1, 2"),
        (cofed.Logistic(), [0.5], "got 0.5"),
        (cofed.Logistic(), [-1, 0, 1], "got -1, 0, 1"),
        (cofed.Softmax(), [0.5, 1], "Softmax expects class labels 0, 1, 2, ..., got 0.5, 1"),
        (cofed.Softmax(3), [0, 3], "class labels 0..2, got 0, 3"),
        (cofed.Softmax(), [-1, 0], "got -1, 0"),
        (cofed.Poisson(), [-2.0, 1], "counts >= 0, got -2"),
    ],
)
def test_labels_outside_the_domain_are_refused(loss, y, sentence):
    federation = (
        cofed.Federation.from_arrays({"A": (np.ones((1, 2)), np.array([1])), "B": (np.ones((len(y), 2)), y)})
        if np.asarray(y).dtype.kind == "i"
        else cofed.Federation.from_arrays(
            {"A": (np.ones((1, 2)), np.array([1.0])), "B": (np.ones((len(y), 2)), np.array(y, float))}
        )
    )
    with pytest.raises(ValueError, match=f"client 'B': .*{sentence}"):
        cofed.run(cofed.Problem(loss=loss), federation, cofed.FedAvg(0.1), rounds=1)


def test_clients_that_disagree_on_the_labels_are_refused():
    clients = [(np.ones((2, 2)), np.array([0, 1])), (np.ones((2, 2)), np.array([-1, 1]))]
    federation = cofed.Federation.from_arrays(clients)
    with pytest.raises(ValueError, match="labels together"):
        cofed.run(cofed.Problem(loss=cofed.Logistic()), federation, cofed.FedAvg(0.1), rounds=1)


def test_shapes_of_the_parameters():
    federation = worlds.logistic()
    assert cofed.Problem(cofed.Linear(intercept=False)).start(federation).coef.shape == (6,)
    binary = cofed.Problem(cofed.Linear(), cofed.Logistic()).start(federation)
    assert (binary.coef.shape, binary.intercept.shape) == ((6,), ())
    many = cofed.Problem(cofed.Linear(), cofed.Softmax(4)).start(federation)
    assert (many.coef.shape, many.intercept.shape) == ((6, 4), (4,))
    counted = cofed.Problem(cofed.Linear(intercept=False), cofed.Softmax()).start(federation)
    assert counted.coef.shape == (6, 2)
    assert len(jax.tree.leaves(counted)) == 1


def test_a_matrix_model_takes_matrices_and_their_flat_form():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(10, 2, 3)), rng.normal(size=10)
    problem = cofed.Problem(cofed.Trace(2, 3), cofed.Squared(), cofed.Nuclear(0.1))
    runs = [
        cofed.run(problem, cofed.Federation.from_arrays([(Z, y)]), cofed.FedDualAvg(0.1), rounds=20, local_steps=1)
        for Z in (X, X.reshape(10, 6))
    ]
    np.testing.assert_allclose(runs[0].model.coef, runs[1].model.coef)
    assert runs[0].model.coef.shape == (2, 3)


@pytest.mark.parametrize(
    ("model", "shape", "sentence"),
    [
        (cofed.Linear(), (2, 3), "Linear expects each sample to be a vector"),
        (cofed.Trace(2, 2), (2, 3), r"Trace\(2, 2\) expects samples of shape"),
        (cofed.CNN(), (28, 27), "expects images of that size"),
    ],
)
def test_samples_of_the_wrong_shape_are_refused(model, shape, sentence):
    federation = cofed.Federation.from_arrays([(np.ones((4, *shape)), np.ones(4))])
    with pytest.raises(ValueError, match=sentence):
        cofed.run(cofed.Problem(model), federation, cofed.FedAvg(0.1), rounds=1)


@pytest.mark.slow
def test_the_network_of_zhang2025_has_its_number_of_parameters_and_learns():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 10
    X = rng.normal(size=(40, 28, 28)).astype(np.float32) * 0.1
    X[np.arange(40), y * 2, :] += 2
    problem = cofed.Problem(cofed.CNN(), cofed.Softmax(10), cofed.On(cofed.L1(1e-4), "kernel"))
    federation = cofed.partition.iid(X, y, 2)
    result = cofed.run(problem, federation, cofed.FedDecouple(0.01), rounds=30, local_steps=2, evaluate_every=30)
    assert sum(leaf.size for leaf in jax.tree.leaves(result.model)) == 112_394
    assert result.history["accuracy"][-1] > 0.9


REFERENCES = {
    "elastic net": (
        worlds.linear(sizes=(20, 30, 25)),
        cofed.Problem(cofed.Linear(), cofed.Squared(), cofed.On(cofed.ElasticNet(0.1, 0.3), "coef")),
        lambda X, y: ElasticNet(alpha=0.1, l1_ratio=0.3, tol=1e-13, max_iter=10**6).fit(X, y),
    ),
    "logistic": (
        worlds.logistic(sizes=(40, 30, 50)),
        cofed.Problem(cofed.Linear(), cofed.Logistic(), cofed.On(cofed.L1(0.02), "coef")),
        lambda X, y: LogisticRegression(
            l1_ratio=1.0, C=1 / (0.02 * len(y)), solver="saga", tol=1e-12, max_iter=10**6
        ).fit(X, y),
    ),
    "poisson": (
        cofed.Federation.from_arrays(
            [
                (X := np.random.default_rng(s).normal(size=(30, 4)) * 0.5,
                 np.random.default_rng(s).poisson(np.exp(X @ np.array([0.5, 0, -0.5, 1]))))
                for s in range(3)
            ]
        ),
        cofed.Problem(cofed.Linear(), cofed.Poisson(), cofed.On(cofed.ElasticNet(0.1, 0.0), "coef")),
        lambda X, y: PoissonRegressor(alpha=0.1, tol=1e-12, max_iter=10**5).fit(X, y),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFERENCES)
def test_the_pooled_baseline_agrees_with_scikit_learn(name):
    federation, problem, fit = REFERENCES[name]
    solution = cofed.solve_pooled(problem, federation, weights="samples", tol=1e-11)
    assert solution.converged
    reference = fit(*federation.pooled())
    np.testing.assert_allclose(solution.model.coef, reference.coef_.ravel(), atol=2e-6)
    np.testing.assert_allclose(solution.model.intercept, np.ravel(reference.intercept_)[0], atol=2e-6)


def test_the_pooled_baseline_says_where_it_did_not_get_there():
    problem = cofed.Problem(cofed.Linear(), cofed.Squared())
    with pytest.warns(RuntimeWarning, match="stopped after 3 iterations at a residual of"):
        assert not cofed.solve_pooled(problem, worlds.linear(), max_iterations=3).converged


def test_the_pooled_baseline_ends_where_the_loss_does():
    federation = cofed.Federation.from_arrays([(np.ones((3, 2)), np.zeros(3))])
    problem = worlds.problem(cofed.L1(100.0), lambda p, y: jnp.sqrt((p - y) ** 2))
    with pytest.warns(RuntimeWarning, match="pooled solver stopped"):
        assert not cofed.solve_pooled(problem, federation, w0={"coef": np.ones(2)}).converged


def test_several_targets_have_a_coefficient_each_and_shapes_must_agree():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    B = np.array([[1.0, -1.0], [2.0, 3.0]])
    federation = cofed.Federation.from_arrays([(X[:15], X[:15] @ B), (X[15:], X[15:] @ B)])
    result = cofed.run(cofed.Problem(cofed.Linear()), federation, cofed.FedDecouple(0.2), rounds=200, local_steps=2)
    np.testing.assert_allclose(result.model.coef, B, atol=1e-6)
    module = eqx.nn.Linear(2, 5, key=jax.random.key(0))
    single = cofed.Federation.from_arrays([(X, X[:, 0])])
    with pytest.raises(ValueError, match=r"Squared compares a prediction of shape \(5,\) with a label of shape \(\)"):
        cofed.run(cofed.Problem(module), single, cofed.FedAvg(0.1), rounds=1)


def test_one_client_alone_is_the_pooled_problem_of_its_data():
    federation = worlds.linear(names=["a", "b", "c", "d", "e"])
    problem = worlds.problem(cofed.L1(0.1))
    X, y = federation.client("c")
    own = cofed.Federation.from_arrays([(X, y)])
    for which in ("c", 2):
        alone = cofed.solve_local(problem, federation, which)
        np.testing.assert_allclose(alone.model.coef, cofed.solve_pooled(problem, own).model.coef)


@pytest.mark.parametrize("image", [(8, 8, 1), (7, 9, 2)])
def test_the_cnn_is_made_of_convolutions_and_poolings(image):
    """The products of patches against XLA's own convolution and pooling: values and gradients."""
    model = cofed.CNN(image=image, maps=(3, 4), hidden=(5,))
    w = model.init(jax.random.key(1), jnp.ones(image), 3)
    x = jax.random.normal(jax.random.key(2), image)

    def twin(w, x):
        h = x[None]
        for conv in w.layers[:2]:
            h = jax.lax.conv_general_dilated(h, conv.kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            h = jax.nn.relu(h + conv.bias.reshape(1, 1, 1, -1))
            h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        h = jnp.ravel(h)
        for i, one in enumerate(w.layers[2:]):
            h = h @ one.kernel + one.bias
            h = jax.nn.relu(h) if i == 0 else h
        return h

    for f in (lambda m: jax.jit(m), lambda m: jax.jit(jax.jacrev(m))):
        pairs = zip(jax.tree.leaves(f(model.__call__)(w, x)), jax.tree.leaves(f(twin)(w, x)), strict=True)
        assert all(np.allclose(a, b, rtol=0, atol=1e-12) for a, b in pairs)


def test_several_outputs_are_those_of_plain_products():
    """The layout that `Linear` computes in is its own affair: prediction, gradient and second derivative are exact."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(7, 5)), rng.integers(0, 3, size=7)
    rows = jnp.asarray(X), jnp.asarray(y), jnp.full(7, 1 / 7)
    coef, intercept, way = rng.normal(size=(5, 3)), rng.normal(size=3), rng.normal(size=(5, 3))
    problem, w = cofed.Problem(cofed.Linear(), cofed.Softmax(3)), cofed.models.Weights(coef, intercept)
    np.testing.assert_allclose(problem.predict(w, rows[0]), X @ coef + intercept, rtol=1e-12)

    def gradient(coef):
        z = np.exp(X @ coef + intercept)
        return X.T @ ((z / z.sum(1, keepdims=True) - np.eye(3)[y]) / 7)

    found = lambda coef: jax.grad(problem.mean_loss)(cofed.models.Weights(coef, w.intercept), *rows).coef  # noqa: E731
    value, slope = jax.jvp(found, (coef,), (way,))
    np.testing.assert_allclose(value, gradient(coef), rtol=1e-12, atol=1e-14)
    differences = (gradient(coef + 1e-6 * way) - gradient(coef - 1e-6 * way)) / 2e-6
    np.testing.assert_allclose(slope, differences, atol=1e-8)
