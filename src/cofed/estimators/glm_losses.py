"""Which losses a generalised linear model takes, and what a constant explains of one."""

import jax.numpy as jnp
import numpy as np
from scipy.optimize import OptimizeResult, minimize_scalar

from cofed.losses import AbstractLoss
from cofed.losses.site_intercepts import unfit_for_sites
from cofed.sites.queries.base import n_outputs


def check_site_effects(owner: str, loss: AbstractLoss | None) -> None:
    """Refuse a loss whose sites find no intercepts of their own."""
    reason = None if loss is None else unfit_for_sites(loss)
    if reason is not None:
        raise ValueError(f"{owner}: site_effects='fixed': {reason}")


def check_loss(owner: str, loss: object) -> None:
    """Refuse what is no loss of a number."""
    if loss is None:
        return
    if not isinstance(loss, AbstractLoss):
        raise TypeError(
            f"{owner}: loss must be a cofed.AbstractLoss, such as cofed.Gamma() or a subclass of your own, got {loss!r}"
        )
    if not loss.rowwise:
        raise ValueError(f"{owner}: the loss {type(loss).__name__} is of the time to an event: take FederatedCox")
    if loss.has_accuracy or n_outputs(loss) > 1:
        raise ValueError(f"{owner}: the loss {type(loss).__name__} is of classes: take FederatedLogisticRegression")


def explained_by_constant(loss: AbstractLoss, y: np.ndarray, weight: np.ndarray) -> float:
    """The least deviance that a constant prediction has, all rows together."""

    def deviance(constant: float) -> float:
        return float(weight @ loss.deviance(np.full((len(y), 1), constant), y)[:, 0])

    if loss.has_link:
        return deviance(float(loss.link(jnp.asarray(weight @ y / weight.sum()))))
    found = minimize_scalar(deviance, bracket=(float(y.min()), float(y.max()) + 1), tol=1e-12)
    assert isinstance(found, OptimizeResult)
    return float(found["fun"])
