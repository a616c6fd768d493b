"""Private rows: gradients clipped one by one, noise for running sums, and what it costs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import toeplitz
from tests import worlds

import cofed
from cofed.algorithms.private_rows import column_norm, correlated
from cofed.engine.data import means
from cofed.engine.plan import Plan
from cofed.engine.serialization import decode, encode
from cofed.engine.steps import Steps

STEPS = 16
WORLD = worlds.linear(sizes=(12, 15, 11))
PROBLEM, METHOD = worlds.problem(), cofed.FedDualAvg(0.02, 1.2)
OPTIONS = {"rounds": 2, "local_epochs": 1, "batch_size": 4}


def roots(count):
    """S, the lower triangle of the coefficients of (1 - t)^(-1/2), by their binomials."""
    first = [float(np.prod([(2 * i - 1) / (2 * i) for i in range(1, j + 1)])) for j in range(count)]
    return toeplitz(first, np.zeros(count))


def test_the_noise_is_that_of_the_root_of_running_sums():
    """S S = L to round-off, n = S^-1 z for the very z, and s is the norm of the longest column of S."""
    S, key = roots(STEPS), jax.random.key(3)
    np.testing.assert_allclose(S @ S, np.tri(STEPS), atol=1e-14)
    like = {"a": jnp.zeros(3), "b": jnp.zeros(())}
    noise = jax.vmap(lambda k: correlated(key, k, like))(jnp.arange(STEPS, dtype=float))
    keys = [jax.random.split(jax.random.fold_in(key, j), 2) for j in range(STEPS)]
    z = np.stack([np.append(jax.random.normal(one[0], (3,)), jax.random.normal(one[1], ())) for one in keys])
    found = np.column_stack([noise["a"], noise["b"]])
    np.testing.assert_allclose(S @ found, z, atol=1e-12)
    norms = [float(column_norm(jnp.asarray(float(count)))) for count in (1, 5, STEPS)]
    np.testing.assert_allclose(norms, [np.linalg.norm(roots(count), axis=0).max() for count in (1, 5, STEPS)])


def test_the_noise_of_a_sum_is_smaller_than_that_of_independent_noise_for_the_same_privacy():
    """For one release of a multiplier of 1: s^2 in the last sum, where independent noise has the root of K."""
    for count, bound in ((16, 1.95), (64, 2.4)):
        S = roots(count)
        spread = np.linalg.norm(S[-1]) * np.linalg.norm(S[:, 0])
        assert spread == pytest.approx(float(column_norm(jnp.asarray(float(count)))) ** 2)
        assert spread < bound < np.sqrt(count)


def test_without_noise_and_with_a_wide_clip_it_is_feddualavg_and_with_a_narrow_one_its_slow_twin():
    """Sizes are multiples of the batch, so that the mean of a batch is the sum by its size."""
    even = worlds.linear(sizes=(12, 16, 8))
    plain = cofed.run(PROBLEM, even, METHOD, **OPTIONS)
    wide = cofed.run(PROBLEM, even, cofed.PrivateRows(METHOD, clip=1e9, noise=1e-25), **OPTIONS)
    np.testing.assert_allclose(wide.model.coef, plain.model.coef, rtol=1e-12)
    narrow = cofed.run(PROBLEM, even, cofed.PrivateRows(METHOD, clip=1e-3, noise=1e-12), **OPTIONS)
    # K steps of clipped means move z by 1e-3 each at most, and thresholds do not enlarge.
    assert np.linalg.norm(narrow.model.coef) <= 2 * 1.2 * 0.02 * 4 * 1e-3 * (1 + 1e-9)


def test_a_clipped_sum_is_that_of_a_loop_over_the_rows():
    X, y = (jnp.asarray(part) for part in WORLD.client(WORLD.names[0]))
    share = means(jnp.arange(len(X)) < 7, X.dtype)  # the others are padding
    plan, number = Plan(1, True, None, None, 1, 1), jnp.zeros((), X.dtype)
    steps = Steps(PROBLEM, X, y, None, share, number, number + 1, jax.random.key(0), jax.random.key(1), plan)
    w = PROBLEM.start(WORLD, None, 0)
    w = jax.tree.map(lambda leaf: leaf + 0.3, w)
    gradients = [jax.grad(PROBLEM.mean_loss)(w, X[i : i + 1], y[i : i + 1], jnp.ones(1)) for i in range(7)]
    lengths = [np.sqrt(sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(one))) for one in gradients]
    clip = float(np.median(lengths))  # it cuts three of them
    total, many = steps.clipped_sum(w, number, jnp.asarray(clip))
    wanted = jax.tree.map(jnp.zeros_like, w)
    for one, length in zip(gradients, lengths, strict=True):
        wanted = jax.tree.map(lambda a, b, c=min(1.0, clip / length): a + c * b, wanted, one)  # noqa: B008
    assert float(many) == 7
    for a, b in zip(jax.tree.leaves(total), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_spread_of_a_round_s_sum_is_what_the_head_says():
    """Of features that are nearly 0 the model is the noise of the sum of 8 gradients, over batches of two rows."""
    clip, noise, d = 0.5, 3.0, 4000
    X, y = 1e-9 * np.random.default_rng(0).normal(size=(16, d)), np.ones(16)
    method = cofed.PrivateRows(cofed.FedDualAvg(1.0), clip, noise)
    problem, federation = cofed.Problem(cofed.Linear(intercept=False)), cofed.Federation.from_arrays([(X, y)])
    found = cofed.run(problem, federation, method, rounds=1, local_epochs=1, batch_size=2).model.coef
    wanted = noise * clip * np.linalg.norm(roots(8)[:, 0]) ** 2 / 2
    assert np.std(found) == pytest.approx(wanted, rel=0.06)  # five standard errors of 4,000 numbers


def test_epsilon_is_that_of_one_gaussian_release_in_a_round():
    from dp_accounting import dp_event, pld, privacy_accountant

    method = cofed.PrivateRows(METHOD, clip=3.0, noise=8.0)
    exact = pld.PLDAccountant(privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE)
    exact.compose(dp_event.GaussianDpEvent(4.0), 5)
    assert 1 <= method.epsilon(5, 1e-5) / exact.get_epsilon(1e-5) < 1.15
    assert method.epsilon(0, 1e-5) == 0


def test_what_would_break_the_count_is_refused():
    method = cofed.PrivateRows(METHOD, clip=1.0, noise=1.0)
    for options in ({"local_steps": 2, "batch_size": 4}, {"local_epochs": 2, "batch_size": 4}, {"local_steps": 2}):
        with pytest.raises(ValueError, match="PrivateRows counts on each row being in one local step of a round; give"):
            cofed.run(PROBLEM, WORLD, method, rounds=1, **options)
    for wrong in (cofed.FedAvg(0.1), method, None):
        with pytest.raises(TypeError, match=r"PrivateRows: algorithm must be a cofed\.FedDualAvg, got"):
            cofed.PrivateRows(wrong, clip=1.0, noise=1.0)
    with pytest.raises(ValueError, match="must be numbers, as 'auto' looks at rows without noise"):
        cofed.PrivateRows(cofed.FedDualAvg("auto"), clip=1.0, noise=1.0)
    with pytest.raises(ValueError, match="noise must be one number, got an array of shape"):
        cofed.PrivateRows(METHOD, clip=1.0, noise=np.array([1.0, 2.0])).epsilon(1, 1e-5)
    for clip, noise in ((0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (np.nan, 1.0)):
        with pytest.raises(ValueError, match="PrivateRows"):
            cofed.PrivateRows(METHOD, clip=clip, noise=noise)
    for rounds, delta in ((-1, 1e-5), (1.5, 1e-5), (1, 0.0), (1, 1.0), (True, 1e-5)):
        with pytest.raises(ValueError, match=r"PrivateRows: (rounds|delta) must be"):
            method.epsilon(rounds, delta)


def test_it_is_written_and_read():
    method = cofed.PrivateRows(METHOD, clip=1.0, noise=1.0)
    assert encode(decode(encode(method))) == encode(method)
