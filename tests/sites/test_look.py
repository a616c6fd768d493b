"""Looks at many models: answered in parts, as each of them alone."""

import jax
import numpy as np
import pytest

from cofed import Logistic, Softmax
from cofed.sites import Folds, MemorySites, SiteRows
from cofed.sites.queries import LookMessage, look


def sites(classes):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 4)), rng.integers(classes, size=50)
    y = y.astype(float) if classes == 2 else y.astype(np.int32)
    return MemorySites(SiteRows.of_sites(("a", "b"), [X[:20], X[20:]], [y[:20], y[20:]]))


def message(models, closer, classes):
    rng = np.random.default_rng(1)
    k = 1 if classes == 2 else classes
    return LookMessage(
        coef=rng.normal(size=(models, 4, k)),
        intercept=rng.normal(size=(models, k)),
        without=rng.integers(-1, 3, size=models).astype(np.int32),
        closer=rng.permutation(models)[:closer].astype(np.int32),
        where=rng.permuted(np.tile(np.arange(5 * k, dtype=np.int32), (closer, 1)), axis=1)[:, :3],
        folds=Folds(3),
        loss=Logistic() if classes == 2 else Softmax(classes),
    )


def alone(whole, m, closer, where):
    """The question about one of the models."""
    parts = (whole.coef, whole.intercept, whole.without)
    return LookMessage(*(part[[m]] for part in parts), closer, where, folds=whole.folds, loss=whole.loss)


@pytest.mark.parametrize(
    ("models", "closer", "classes"), [(150, 0, 2), (150, 20, 2), (20, 17, 2), (129, 16, 3), (64, 16, 2)]
)
def test_many_models_are_answered_as_each_alone(models, closer, classes):
    asked, whole = sites(classes), message(models, closer, classes)
    found = asked.ask(look, whole)
    assert jax.tree.map(np.shape, found) == jax.tree.map(np.shape, look.shape(whole, 4))
    nobody, nothing = np.zeros(0, np.int32), np.zeros((0, 0), np.int32)
    for m in range(0, models, 13):
        one = asked.ask(look, alone(whole, m, nobody, nothing))
        for several, single in zip(found[:4], one[:4], strict=True):
            np.testing.assert_allclose(several[m], single[0], rtol=1e-12, atol=1e-12)
    for a, m in enumerate(whole.closer.tolist()):
        one = asked.ask(look, alone(whole, m, np.zeros(1, np.int32), whole.where[[a]]))
        np.testing.assert_allclose(found.hessian[a], one.hessian[0], rtol=1e-12, atol=1e-12)
