"""Models that draw in training, such as by dropout: what they draw, when, and when not; and models with a state."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from tests import worlds

import cofed
from cofed.engine import fingerprints, job, plan
from cofed.engine.plan import Plan
from cofed.engine.steps import Steps

FED = worlds.logistic(sizes=(8, 5, 7, 6), d=3)
BATCHES = {"local_steps": 3, "batch_size": 4}
KEY = jax.random.key(7)


class Net(eqx.Module):
    """Two layers with a dropout between them."""

    first: eqx.nn.Linear
    dropout: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self, p):
        self.first, self.last = eqx.nn.Linear(3, 6, key=KEY), eqx.nn.Linear(6, "scalar", key=KEY)
        self.dropout = eqx.nn.Dropout(p)

    def __call__(self, x, key=None):
        return self.last(self.dropout(jnp.tanh(self.first(x)), key=key))


class Plain(Net):
    """The same without the dropout, and without a key."""

    def __call__(self, x):
        return self.last(jnp.tanh(self.first(x)))


class Masked(cofed.AbstractModel):
    """A linear model of inputs that are left out with probability 1 - q in training."""

    q: float
    is_random = True

    def init(self, key, x, outputs):
        return {"coef": jnp.linspace(-1, 1, x.size, dtype=x.dtype)}

    def __call__(self, w, x):
        return w["coef"] @ x

    def train(self, w, x, key):
        return self(w, jnp.where(jax.random.bernoulli(key, self.q, x.shape), x / self.q, 0))


def go(model, algorithm=None, federation=FED, loss=None, **options):
    problem = cofed.Problem(model, loss or cofed.Logistic())
    return cofed.run(problem, federation, algorithm or cofed.FedAvg(0.3), **{"rounds": 4, "progress": False} | options)


def arrays(model):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_array))]


def same(one, other):
    return all(a.tobytes() == b.tobytes() for a, b in zip(arrays(one), arrays(other), strict=True))


@pytest.mark.parametrize("schedule", [BATCHES, {"local_steps": 2}, {"local_epochs": 1, "batch_size": 3}])
def test_a_dropout_of_nothing_is_none(schedule):
    assert same(go(Net(0.0), **schedule).model, go(Plain(0.0), **schedule).model)
    assert not same(go(Net(0.5), **schedule).model, go(Plain(0.0), **schedule).model)


X, Y, W = np.array([1.0, -2.0, 0.5]), 0.7, np.linspace(-1, 1, 3)


def mean_gradient(q):
    """E z (z'w - y) with z = m x/q is (x x' + diag(x^2) (1 - q)/q) w - x y; and the spread over all masks m."""
    masks = np.array(list(itertools.product([0, 1], repeat=3)))
    chance, z = np.prod(np.where(masks, q, 1 - q), axis=1), masks * X / q
    each = z * (z @ W - Y)[:, None]
    mean = (np.outer(X, X) + np.diag(X**2) * (1 - q) / q) @ W - X * Y
    return mean, np.sqrt(chance @ (each - mean) ** 2)


@pytest.mark.parametrize("q", [0.5, 0.8])
def test_the_mean_gradient_is_the_closed_form(q):
    """Over 40,000 copies of one sample, each with draws of its own."""
    n, lr = 40_000, 0.1
    copies = cofed.Federation.from_arrays([(np.tile(X, (n, 1)), np.full(n, Y))])
    found = (W - go(Masked(q), cofed.FedAvg(lr), copies, cofed.Squared(), rounds=1).model["coef"]) / lr
    mean, spread = mean_gradient(q)
    assert np.all(np.abs(found - mean) < 5 * spread / n**0.5)
    without_draws = np.outer(X, X) @ W - X * Y
    assert np.any(np.abs(found - without_draws) > 10 * spread / n**0.5)


@pytest.mark.parametrize(("rounds", "steps"), [(1, 4000), (4000, 1)])
def test_each_step_and_round_draws_anew(rounds, steps):
    """One sample, and steps so short that the model stays: the whole way is the mean of the gradients."""
    alone, lr = cofed.Federation.from_arrays([(X[None], [Y])]), 1e-9
    options = {"rounds": rounds, "local_steps": steps, "evaluate_every": rounds}
    end = go(Masked(0.5), cofed.FedAvg(lr), alone, cofed.Squared(), **options).model["coef"]
    mean, spread = mean_gradient(0.5)
    assert np.all(np.abs((W - end) / (lr * 4000) - mean) < 5 * spread / 4000**0.5)


def test_each_client_draws_its_own():
    alike = cofed.Federation.from_arrays([(X[None], [Y])] * 2)
    one = go(Masked(0.5), cofed.Scaffold(0.01), alike, cofed.Squared(), rounds=1, local_steps=10)
    kept = np.asarray(one.state.clients.c["coef"])
    assert not np.array_equal(kept[0], kept[1])


def test_the_same_seed_draws_the_same():
    first = go(Net(0.5), seed=1, **BATCHES)
    assert same(first.model, go(Net(0.5), seed=1, **BATCHES).model)
    # With full gradients of everybody nothing but the model draws.
    assert not same(go(Net(0.5), seed=1, local_steps=2).model, go(Net(0.5), seed=2, local_steps=2).model)


@pytest.mark.parametrize("schedule", [BATCHES | {"clients_per_round": 2}, {"local_steps": 2}])
def test_draws_do_not_depend_on_how_a_run_is_cut(schedule, tmp_path, monkeypatch):
    whole = go(Net(0.5), rounds=5, **schedule)
    assert same(whole.model, go(Net(0.5), rounds=5, evaluate_every=2, **schedule).model)
    go(Net(0.5), rounds=2, checkpoint=tmp_path, **schedule)
    problem = cofed.Problem(Net(0.5), cofed.Logistic())
    assert same(whole.model, cofed.resume(tmp_path, rounds=5, problem=problem, progress=False).model)
    monkeypatch.setattr(job, "CHUNK", 2)
    assert same(whole.model, go(Net(0.5), rounds=5, **schedule).model)
    monkeypatch.setattr(plan, "GATHERED", 0)
    assert same(whole.model, go(Net(0.5), rounds=5, **schedule).model)


@pytest.mark.parametrize(
    ("algorithm", "schedule"),
    [
        (cofed.FedDualAvg(0.3), {"local_steps": 2, "batch_size": 4}),
        (cofed.FedAvg(0.3), {"local_steps": 2}),
        (cofed.DFedDA(0.1), {"local_steps": 1, "topology": cofed.topologies.chain(2)}),
    ],
    ids=["dual averaging", "FedAvg", "gossip"],
)
def test_every_engine_draws_the_same(algorithm, schedule):
    pair = worlds.logistic(sizes=(5, 4), d=3)  # without compilation each client takes seconds
    compiled = go(Net(0.5), algorithm, pair, rounds=2, **schedule)
    for how in ({"debug": True}, {"mesh": cofed.mesh(1)}):
        other = go(Net(0.5), algorithm, pair, rounds=2, **how, **schedule)
        for a, b in zip(arrays(compiled.model), arrays(other.model), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_clients_on_disk_draw_the_same(tmp_path):
    own = [FED.client(m) for m in range(4)]
    tables = [pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y, site=m) for m, (X, y) in enumerate(own)]
    pd.concat(tables).to_parquet(tmp_path / "all.parquet", index=False)
    disk = cofed.Federation.from_parquet(tmp_path / "all.parquet", target="y", client="site", on_disk=True)
    schedule = BATCHES | {"clients_per_round": 2}
    found = [go(Net(0.5), federation=federation, **schedule).model for federation in (FED, disk)]
    for a, b in zip(*map(arrays, found), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_what_is_measured_does_not_draw():
    result = go(Net(0.5), metrics={"norm": lambda w: jnp.abs(w.first.weight).sum()}, **BATCHES)
    assert result.history["norm"][-1] == pytest.approx(np.abs(result.model.first.weight).sum())
    still, losses = eqx.nn.inference_mode(result.model), []
    for m in range(FED.n_clients):
        X, y = FED.client(m)
        margins = np.where(y > 0, 1, -1) * np.array([still(jnp.asarray(x)) for x in X])
        losses.append(np.logaddexp(0, -margins).mean())
    assert result.history["loss"][-1] == pytest.approx(np.mean(losses), rel=1e-12)
    assert result.model.dropout.inference is False, "users get the module with its flags as they were"


def steps_of(q, batch=None, n=5):
    rng = np.random.default_rng(0)
    X, y, share = jnp.asarray(rng.normal(size=(n, 3))), jnp.asarray(rng.normal(size=n)), jnp.full(n, 1 / n)
    problem = cofed.Problem(Masked(q), cofed.Squared())
    one = jnp.ones(())
    return Steps(problem, X, y, None, share, 0 * one, one, KEY, KEY, Plan(1, True, None, batch, 1, 1), draws=KEY)


def test_gradients_of_a_step_have_the_same_draws_and_whole_ones_none():
    steps, w, k = steps_of(0.5), {"coef": jnp.array([0.3, -1.0, 2.0])}, jnp.zeros(())
    gradient = steps.gradient(w, k)["coef"]
    total, many = steps.clipped_sum(w, k, jnp.asarray(1e9))
    np.testing.assert_allclose(total["coef"] / many, gradient, rtol=1e-12)
    np.testing.assert_array_equal(steps.loss_and_gradient(w, k)[1]["coef"], gradient)
    assert not np.allclose(steps.gradient(w, k + 1)["coef"], gradient)
    X, y = np.asarray(steps.X), np.asarray(steps.y)
    np.testing.assert_allclose(steps.full_gradient(w)["coef"], X.T @ (X @ w["coef"] - y) / len(y), rtol=1e-12)
    np.testing.assert_allclose(steps.hessian(w, k, jnp.arange(3, dtype=jnp.int32)), X.T @ X / len(y), rtol=1e-12)


def sequential(*layers):
    return eqx.nn.Sequential([eqx.nn.Linear(3, 6, key=KEY), *layers, eqx.nn.Linear(6, "scalar", key=KEY)])


def test_only_what_uses_a_key_draws():
    """Calls of all layers of equinox take a key; those without a Dropout are compiled and run as ever."""
    dropout = sequential(eqx.nn.Lambda(jnp.tanh), eqx.nn.Dropout(0.5))
    draws = {
        "network": (eqx.nn.MLP(3, "scalar", 4, 1, key=KEY), False),
        "sequence": (sequential(eqx.nn.Lambda(jnp.tanh)), False),
        "dropout in a sequence": (dropout, True),
        "dropout that is off": (eqx.nn.inference_mode(dropout), False),
        "own layer in a sequence": (sequential(Net(0.5)), True),
        "own": (Net(0.5), True),
        "own without a key": (Plain(0.5), False),
    }
    found = {name: cofed.Problem(module).model.is_random for name, (module, _) in draws.items()}
    assert found == {name: expected for name, (_, expected) in draws.items()}
    assert not same(go(dropout, local_steps=2).model, go(eqx.nn.inference_mode(dropout), local_steps=2).model)


@pytest.mark.parametrize(
    "algorithm",
    [
        cofed.FedNewton(),
        cofed.FedNL(cofed.TopK(0.5)),
        cofed.FedFISTA(1.0),
        cofed.SDANE(1.0),
        cofed.AccSDANE(1.0),
    ],
    ids=lambda algorithm: algorithm.name,
)
def test_methods_that_compare_losses_refuse_a_model_that_draws(algorithm):
    with pytest.raises(
        ValueError, match=r"counts on a loss that is the same in every step, but the model Masked draws"
    ):
        go(Masked(0.5), algorithm, loss=cofed.Logistic())


class NoKey(Net):
    def __call__(self, x):
        return self.last(self.dropout(self.first(x)))


class Split(Net):
    def __call__(self, x, key):
        return self.last(self.dropout(self.first(x), key=jax.random.split(key)[0]))


class Misfit(Net):
    def __call__(self, x, key=None):
        return self.last(self.first(x)) if key is None else self.first(x)


class Normed(eqx.Module):
    linear: eqx.nn.Linear
    norm: eqx.nn.BatchNorm

    def __init__(self):
        self.linear, self.norm = eqx.nn.Linear(3, 6, key=KEY), eqx.nn.BatchNorm(6, "batch", mode="batch")

    def __call__(self, x, state):
        h, state = self.norm(self.linear(x), state)
        return h.sum(), state


class Counting(Net):
    def __call__(self, x, state):
        return self.last(self.first(x)), state + 1


def without_state(make):
    return eqx.nn.make_with_state(make)()[0]


STATE = "changes in training beside the parameters, .* by eqx.nn.GroupNorm or eqx.nn.LayerNorm"


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (NoKey(0.5), r"NoKey has a Dropout, .* takes no key: write __call__\(self, x, key=None\)"),
        (Split(0.5), r"Split cannot predict from one sample of shape \(3,\) .* with key=None"),
        (Misfit(0.5), r"Misfit must predict in training like .*\[\], got .*\[6\]"),
        (Plain(0.5).first, "compares a prediction of shape"),
        (Normed(), rf"Normed has a state \(of its BatchNorm\), which {STATE}"),
        (without_state(Normed), rf"Normed has a state \(of its BatchNorm\), which {STATE}"),
        (
            without_state(lambda: sequential(eqx.nn.BatchNorm(6, "batch", mode="batch"))),
            f"Sequential has .*, which {STATE}",
        ),
        (Counting(0.5), f"Counting has a state, which {STATE}"),
    ],
)
def test_what_cannot_be_trained_here_is_refused(module, words):
    with pytest.raises(ValueError, match=words):
        go(module, loss=cofed.Squared())


def test_what_is_drawn_is_part_of_the_problems_code():
    class Noised(Masked):
        def train(self, w, x, key):
            return self(w, x) + self.q * jax.random.normal(key, (), x.dtype)

    start = {"coef": jnp.zeros(3)}
    codes = [fingerprints.code_of_problem(cofed.Problem(model(0.5)), FED, start) for model in (Masked, Masked, Noised)]
    assert codes[0] == codes[1] != codes[2]
