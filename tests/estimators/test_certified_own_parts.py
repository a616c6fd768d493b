"""A loss and a regularizer of one's own, fitted and certified by the estimators' solver."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from tests.estimators import hospitals

import cofed
from cofed.estimators import FederatedElasticNet
from cofed.regularizers import AbstractNorm

X, Y = hospitals.linear()


class PseudoHuber(cofed.AbstractLoss):
    """delta^2 (sqrt(1 + (r / delta)^2) - 1), with r = prediction - y, and a constant on top: its least value."""

    delta: float = 1.5
    above: float = 0.25

    def __call__(self, prediction, y):
        return self.delta**2 * (jnp.sqrt(1 + ((prediction - y) / self.delta) ** 2) - 1) + self.above

    def conjugate(self, theta, y):
        inside = jnp.abs(theta) < self.delta
        root = jnp.sqrt(1 - jnp.where(inside, theta / self.delta, 0) ** 2)
        return jnp.where(inside, self.delta**2 * (1 - root) + y * theta - self.above, jnp.inf)

    @property
    def curvature(self):
        return 1.0


class SharperPseudoHuber(PseudoHuber):
    """With a bound on its third derivative: |f'''| <= 3 / (2 delta) f''."""

    @property
    def self_concordance(self):
        return 1.5 / self.delta


class Largest(AbstractNorm):
    """strength * max_j |w_j|, whose prox is by Moreau what a projection onto an l1 ball leaves over."""

    strength: float

    def value(self, w):
        return self.strength * jnp.max(jnp.abs(w))

    def prox(self, v, step):
        return v - cofed.L1Ball(1.0 * step * self.strength).prox(v, 1.0)

    def dual_norm(self, z):
        return jnp.sum(jnp.abs(z))


class Ridge(cofed.AbstractRegularizer):
    """strength * ||w||^2 / 2, without a conjugate."""

    strength: float
    convex = True

    def value(self, w):
        return self.strength * jnp.sum(w**2) / 2

    def prox(self, v, step):
        return v / (1 + step * self.strength)


class CertifiedRidge(Ridge):
    def conjugate(self, u, slack=0.0):
        return jnp.sum(u**2) / (2 * self.strength)


def with_loss(loss, penalty=None):
    """An elastic net with another loss (and penalty, in the units of the solver)."""

    class Own(FederatedElasticNet):
        def _loss(self):
            return loss

        def _penalty(self, problem, alpha):
            return super()._penalty(problem, alpha) if penalty is None else penalty

    return Own


def smallest(value, p):
    """The minimum over p smooth variables, by SciPy from several starts."""
    starts = [np.zeros(p), np.linspace(-1, 1, p)]
    options = {"gtol": 1e-13, "maxiter": 10_000}
    return min(minimize(value, begin, method="BFGS", options=options).fun for begin in starts)


def pseudo_huber(r, delta=1.5, above=0.25):
    return (delta**2 * (np.sqrt(1 + (r / delta) ** 2) - 1) + above).mean()


@pytest.mark.parametrize("loss", [PseudoHuber(), SharperPseudoHuber()], ids=["plain", "sharper"])
@pytest.mark.parametrize("intercept", [True, False])
def test_an_own_loss_with_a_ridge_is_solved_and_certified(loss, intercept):
    model = with_loss(loss)(0.3, l1_ratio=0.0, fit_intercept=intercept, standardize=False)
    model.fit(X, Y, clients=hospitals.SITES)
    A = np.column_stack([X, np.ones(60) * intercept])
    least = smallest(lambda w: pseudo_huber(A @ w - Y) + 0.15 * w[:6] @ w[:6] + (not intercept) * w[6] ** 2, 7)
    found = pseudo_huber(X @ model.coef_ + model.intercept_ - Y) + 0.15 * model.coef_ @ model.coef_
    certificate = model.certificate_
    assert certificate.converged
    assert certificate.objective == pytest.approx(found, rel=1e-12)
    assert found - least <= certificate.gap + certificate.rounding + 1e-12
    assert abs(found - least) < 1e-9


def test_an_own_loss_with_a_lasso_is_sparse_and_certified():
    model = with_loss(SharperPseudoHuber())(0.4, l1_ratio=1.0).fit(X, Y, clients=hospitals.SITES)
    assert model.certificate_.converged
    assert 0 < model.support_.sum() < 6
    # Optimal in every coordinate of the standardised features.
    r = X @ model.coef_ + model.intercept_ - Y
    slope = r / np.sqrt(1 + (r / 1.5) ** 2)
    g = ((X - X.mean(axis=0)) / X.std(axis=0)).T @ slope / 60
    used = model.support_
    np.testing.assert_allclose(g[used], -0.4 * np.sign(model.coef_[used]), atol=1e-7)
    assert (np.abs(g[~used]) <= 0.4).all()
    assert abs(slope.mean()) < 1e-8
    # The best constant, without a link function.
    null = with_loss(SharperPseudoHuber())(1e3, l1_ratio=1.0).fit(X, Y, clients=hospitals.SITES)
    assert not null.support_.any()
    off = null.intercept_ - Y
    assert abs((off / np.sqrt(1 + (off / 1.5) ** 2)).mean()) < 1e-9


def test_a_path_and_cross_validated_deviance_of_an_own_loss():
    model = with_loss(SharperPseudoHuber())(l1_ratio=1.0)
    path = model.path(X, Y, hospitals.SITES, n_alphas=3, eps=0.1)
    assert path.converged.all()
    assert path.nonzero[0] == 0 < path.nonzero[-1]
    z = np.stack([Y + 1, Y + 2], axis=1)
    expected = [2 * (pseudo_huber(np.ones(60) * k) - 0.25) for k in (1, 2)]
    np.testing.assert_allclose(PseudoHuber().deviance(z, Y).mean(axis=0), expected)
    np.testing.assert_allclose(PseudoHuber().saturated(Y), 0.25)


@pytest.mark.parametrize("penalty", [Largest(0.1), CertifiedRidge(0.1)], ids=["norm", "ridge"])
@pytest.mark.parametrize("loss", [cofed.Squared(), cofed.Logistic()], ids=["squared", "logistic"])
def test_an_own_regularizer_is_certified(penalty, loss):
    labels = Y if loss.quadratic else (Y > 3).astype(int)
    model = with_loss(loss, penalty)(tol=1e-9).fit(X, labels, clients=hospitals.SITES)
    assert model.certificate_.converged
    assert 0 <= model.certificate_.gap < 1e-8


def test_without_a_conjugate_no_gap_is_known():
    with pytest.warns(ConvergenceWarning, match="Ridge gives no conjugate, so no duality gap can certify the fit"):
        model = with_loss(cofed.Logistic(), Ridge(0.1))().fit(X, (Y > 3).astype(int))
    assert model.certificate_.gap == np.inf
    assert model.certificate_.outcome == "not converged"
    assert model.certificate_.prox_gradient < 1e-12  # optimal, as far as the gradient tells


def test_a_loss_that_says_too_little_is_refused():
    class Silent(cofed.AbstractLoss):
        def __call__(self, prediction, y):
            return (prediction - y) ** 2

    with pytest.raises(TypeError, match="Silent gives no curvature and no conjugate, without which a fit cannot be"):
        with_loss(Silent())().fit(X, Y)


def test_an_algorithm_that_diverges_leaves_the_last_good_model():
    with pytest.warns(ConvergenceWarning, match="the rounds failed, as the model was no longer finite"):
        model = FederatedElasticNet(0.1, algorithm=cofed.FedAvg(1e9)).fit(X, Y, clients=hospitals.SITES)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.certificate_.objective)
    assert model.certificate_.objective <= model.certificate_.scale * (1 + 1e-12)
    assert model.certificate_.outcome == "not converged"
