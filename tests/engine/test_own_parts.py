"""Methods and models of a user's own, in the forms that the library's own parts do not have."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests import worlds

import cofed


class Plain(cofed.AbstractServerAlgorithm):
    """Averaging, with clients that keep nothing."""

    lr: float

    def init(self, problem, w0):
        return w0

    def init_client(self, problem, w0):
        return ()

    def broadcast(self, server):
        return server

    def local(self, problem, down, client, steps):
        def step(k, w):
            return jax.tree.map(lambda a, g: a - self.lr * g, w, steps.gradient(w, k))

        return jax.tree.map(lambda a, b: a - b, steps.run(step, down), down), client

    def aggregate(self, problem, server, up, share):
        return jax.tree.map(lambda a, b: a + b, server, up)

    def model(self, problem, server):
        return server


class Halved(Plain):
    """Every client uses half of the server's model."""

    def personal_model(self, server, client):
        return jax.tree.map(lambda leaf: leaf / 2, server)


class Fixed(Plain):
    """A rate that is compiled in."""

    lr: float = eqx.field(static=True)


def test_a_personal_method_may_keep_nothing_at_its_clients():
    federation = worlds.linear()
    result = cofed.run(worlds.problem(), federation, Halved(0.01), rounds=3, local_steps=2, evaluate_every=3)
    expected = np.tile(result.model.coef / 2, (federation.n_clients, 1))
    np.testing.assert_array_equal(result.personal_models.coef, expected)
    assert np.isfinite(result.history["personal_loss"]).all()
    assert len(result.clients) == federation.n_clients


def test_a_static_rate_of_numpy_in_another_dtype_is_named():
    federation = worlds.linear(dtype=np.float32)
    with jax.numpy_dtype_promotion("standard"), pytest.warns(UserWarning, match="static"):
        method = Fixed(np.float64(0.01))
    with (
        jax.numpy_dtype_promotion("standard"),
        pytest.raises(
            ValueError, match=r"has type float32\[6\].*float64\[6\].*but lr is float64 of NumPy's and static"
        ),
    ):
        cofed.run(worlds.problem(), federation, method, rounds=1, local_steps=2)


class Scaled(eqx.Module):
    """A linear model with a constant of NumPy's, which is not trained."""

    coef: jax.Array
    scale: np.ndarray

    def __call__(self, x):
        return self.coef @ x * self.scale.astype(x.dtype)[0]


def test_a_choice_leaves_the_constants_of_a_users_module_alone():
    problem = cofed.Problem(Scaled(jnp.zeros(worlds.D), np.full(2, 0.5)), cofed.Squared())
    result = cofed.run(problem, worlds.linear(), cofed.Alternative(0.01), rounds=2, local_steps=2)
    models = result.personal_models
    assert models.coef.shape == (len(worlds.SIZES), worlds.D)
    assert models.scale is None
    assert np.isfinite(result.choice.difference)


def test_a_warning_points_at_the_users_line():
    with pytest.warns(RuntimeWarning, match="not finite|blown up|diverged") as seen:
        cofed.run(worlds.problem(), worlds.linear(), cofed.FedAvg(1e6), rounds=60, local_steps=2)
    assert {one.filename for one in seen} == {__file__}


class Raises(Plain):
    """A method with a mistake in it."""

    def local(self, problem, down, client, steps):
        raise RuntimeError("a mistake")


class Named(Plain):
    """A text that is not declared static."""

    kind: str = "a"


class Declared(Plain):
    """A text that is."""

    kind: str = eqx.field(static=True, default="a")


@pytest.mark.parametrize("debug", [False, True])
def test_the_line_of_an_own_method_that_raises_is_named(debug):
    with pytest.raises(ValueError, match=r"^a round of Raises .*RuntimeError: a mistake at test_own_parts.py:\d+\)"):
        cofed.run(worlds.problem(), worlds.linear(), Raises(0.1), rounds=1, local_steps=2, debug=debug)


def test_a_field_of_an_own_method_that_is_no_number_is_named():
    federation, settings = worlds.linear(), {"rounds": 1, "local_steps": 2}
    with pytest.raises(TypeError, match=r"Plain: lr is 'a', which is no number"):
        cofed.run(worlds.problem(), federation, Plain("a"), **settings)
    with pytest.raises(ValueError, match=r"a round of Plain cannot be computed .*None was given for lr"):
        cofed.run(worlds.problem(), federation, Plain(None), **settings)
    with pytest.raises(TypeError, match=r"Named: kind is 'a'.*equinox.field\(static=True\)"):
        cofed.tune(worlds.problem(), federation, [Named(0.1), Named(0.2)], **settings)
    assert len(cofed.tune(worlds.problem(), federation, [Declared(0.1), Declared(0.2)], **settings).table) == 2


def test_resume_says_what_to_give_of_an_own_method(tmp_path):
    cofed.run(worlds.problem(), worlds.linear(), Plain(0.1), rounds=2, local_steps=2, checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match=r"has an algorithm with code of its own.*pass algorithm= to resume"):
        cofed.resume(tmp_path / "run")
    with pytest.raises(ValueError, match="Give algorithm= as it was to go on"):
        cofed.resume(tmp_path / "run", algorithm=Plain(0.2))
