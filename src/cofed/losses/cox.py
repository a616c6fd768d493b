"""The partial likelihood of Cox's model of proportional hazards, of the rows of one or several strata.

The loss of a stratum is the sum over its events i of

    log(sum over the rows j that are at risk at i's time, of exp(z_j)) - z_i,

less what the saturated model has. It is a convex function of all predictions z together, and no sum over rows: adding
a constant to all predictions of a stratum changes nothing, so that there is no intercept. Where several events have one
time, `Breslow` counts them all among those at risk for each of them; `Efron` counts the l-th of d events with the
others' share 1 - l/d, since l of them are no longer at risk in whatever order they really happened.
"""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from cofed.losses.base import AbstractLoss, Label, Prediction
from cofed.losses.risk_sets import RiskSets, Values, risk_sets


class PartialTerms(NamedTuple):
    """What the partial likelihood of m models is made of, for n rows in the order of their risk sets."""

    value: Float[Array, " m"]  # the loss
    slope: Values  # its derivatives by the predictions
    risk: Values  # exp(z), but for a factor that is the same for a stratum; 0 for rows that do not count
    events: Values  # 1 for an event
    thinned: Values | None  # the part of tied events that is no longer at risk; None is none
    size: Values  # the sum over those at risk, at events
    hazard: Values  # what each row has passed, times its risk: the expected number of its events


class AbstractPartialLikelihood(AbstractLoss):
    """Cox's partial likelihood: the loss of all rows of a stratum, and not of one.

    A label is (time, event) or (entry, time, event), with 1 for an event and 0 for a row that was followed up to its
    time without one.
    """

    attains_zero: ClassVar[bool] = True
    rowwise: ClassVar[bool] = False

    @abstractmethod
    def thinned(self, risk: RiskSets, events: Values) -> Values | None:
        """The part of the events with an event's time that no longer counts as at risk; None where all count."""

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        """The loss of the rows of one stratum."""
        z, labels = jnp.ravel(prediction), jnp.asarray(y)
        order, risk = follow_up(labels, jnp.zeros(len(z), int))
        return self.terms(risk, z[order, None], jnp.ones((len(z), 1)), labels[order, -1]).value[0]

    def terms(self, risk: RiskSets, z: Values, counts: Values, event: Float[Array, " n"]) -> PartialTerms:
        """The loss of m models and its parts, of rows in the order of their risk sets.

        `counts` is 1 where a model learns from a row, else 0; `event` is 1 for an event.
        """
        there = counts > 0
        top = risk.largest(jnp.where(there, z, -jnp.inf))
        z = jnp.where(there, z - jnp.where(jnp.isfinite(top), top, 0), 0)
        e = jnp.where(there, jnp.exp(z), 0)
        events = jnp.where(there, event[:, None], 0)
        happens = events > 0
        size, tied, thinned = risk.at_risk(e), risk.tied(events), self.thinned(risk, events)
        if thinned is not None:
            size, tied = size - thinned * risk.tied(e * events), tied * (1 - thinned)
        # The saturated model has the events of a time alone at risk, with one prediction.
        safe, least = jnp.where(happens, size, 1), jnp.where(happens, tied, 1)
        value = jnp.sum(jnp.where(happens, jnp.log(safe / least) - z, 0), axis=0)
        rate = jnp.where(happens, 1 / safe, 0)
        passed = risk.passed(rate)
        if thinned is not None:
            passed = passed - events * risk.tied(thinned * rate)
        return PartialTerms(value, e * passed - events, e, events, thinned, safe, e * passed)

    @property
    def curvature(self) -> float:
        """1: it has no bound, but rows have about one event each at most."""
        return 1.0

    def residual_scale(self, mean_loss: Scalar, mean: Array) -> Scalar:
        """1 + mean: derivatives have no bound, but are of this size in the mean."""
        return 1.0 + mean

    def dispersion(self, mean_loss: float, n: int, freedom: int) -> float:
        """1: the likelihood fixes the variance."""
        return 1.0

    def events(self, n: int, labels: np.ndarray) -> float:
        """The events."""
        return float(labels[0])


class Breslow(AbstractPartialLikelihood):
    """The partial likelihood with Breslow's treatment of ties.

    Examples
    --------
    >>> round(float(Breslow()(jnp.zeros(3), jnp.array([[1.0, 1], [2.0, 1], [3.0, 0]]))), 4)  # log 3 + log 2
    1.7918
    """

    def thinned(self, risk: RiskSets, events: Values) -> None:
        """All count."""
        return None


class Efron(AbstractPartialLikelihood):
    """The partial likelihood with Efron's treatment of ties.

    Examples
    --------
    >>> round(float(Efron()(jnp.zeros(3), jnp.array([[1.0, 1], [1.0, 1], [3.0, 0]]))), 4)  # log 3 + log 2 - log 2
    1.0986
    """

    def thinned(self, risk: RiskSets, events: Values) -> Values:
        """Of d tied events 0, 1/d, 2/d, ..."""
        before = risk.within_ties(events) - events
        return jnp.where(events > 0, before / jnp.where(events > 0, risk.tied(events), 1), 0)


def follow_up(y: Float[Array, "n q"], stratum: Array) -> tuple[Array, RiskSets]:
    """The order of rows by stratum and time, and their risk sets, from labels (time, event) or (entry, time, event)."""
    return risk_sets(y[:, -2], stratum, y[:, 0] if y.shape[1] == 3 else None)
