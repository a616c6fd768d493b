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
from cofed.losses.risk_sets import Logs, RiskSets, Sums, Values, risk_sets


class PartialTerms(NamedTuple):
    """What the partial likelihood of m models is made of, for n rows in the order of their risk sets."""

    value: Float[Array, " m"]  # the loss
    slope: Values  # its derivatives by the predictions
    logs: Values  # the predictions; -inf for rows that do not count
    events: Values  # 1 for an event
    thinned: Values | None  # the part of tied events that is no longer at risk; None is none
    log_size: Values  # the logarithm of the sum over those at risk, at events
    expected: Values  # the expected number of each row's events, by the hazards that it has passed


class AbstractPartialLikelihood(AbstractLoss):
    """Cox's partial likelihood: the loss of all rows of a stratum, and not of one.

    A label is (time, event) or (entry, time, event), with 1 for an event and 0 for a row that was followed up to its
    time without one.
    """

    attains_zero: ClassVar[bool] = True
    rowwise: ClassVar[bool] = False
    of_times: ClassVar[bool] = True

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
        there, one = counts > 0, jnp.ones_like(z)
        logs, events = jnp.where(there, z, -jnp.inf), jnp.where(there, event[:, None], 0)
        happens = events > 0
        thinned, tied = self.thinned(risk, events), risk.ranks(events)[1]
        size, top = risk.at_risk(one, logs)
        if thinned is not None:
            also, tied_top = risk.tied(events, logs)
            size = size - jnp.where(happens, thinned * also * jnp.exp(tied_top - top), 0)
            tied = tied * (1 - thinned)
        # A sum that is too small for float64 beside the others makes a model infinitely bad.
        log_size = jnp.where(happens, jnp.where(size > 0, top + jnp.log(jnp.where(size > 0, size, 1)), jnp.inf), 0)
        # The saturated model has the events of a time alone at risk, with one prediction.
        value = jnp.sum(jnp.where(happens, log_size - jnp.log(jnp.where(happens, tied, 1)) - z, 0), axis=0)
        rates = jnp.where(happens, -log_size, -jnp.inf)
        expected = times_risk(logs, risk.passed(one, rates))
        if thinned is not None:
            expected = expected - events * times_risk(logs, risk.tied(thinned, rates))
        return PartialTerms(value, expected - events, logs, events, thinned, log_size, expected)

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
    >>> import jax.numpy as jnp
    >>> from cofed.losses.cox import Breslow
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
    >>> import jax.numpy as jnp
    >>> from cofed.losses.cox import Efron
    >>> round(float(Efron()(jnp.zeros(3), jnp.array([[1.0, 1], [1.0, 1], [3.0, 0]]))), 4)  # log 3 + log 2 - log 2
    1.0986
    """

    def thinned(self, risk: RiskSets, events: Values) -> Values:
        """Of d tied events 0, 1/d, 2/d, ..."""
        before, tied = risk.ranks(events)
        return jnp.where(events > 0, before / jnp.where(events > 0, tied, 1), 0)


def times_risk(logs: Logs, sums: Sums) -> Values:
    """Sums times exp(log), 0 for rows that do not count."""
    total, top = sums
    there = ~jnp.isneginf(logs) & ~jnp.isneginf(top)
    return jnp.where(there, total * jnp.exp(jnp.where(there, logs + top, 0)), 0)


def follow_up(y: Float[Array, "n q"], stratum: Array) -> tuple[Array, RiskSets]:
    """The order of rows by stratum and time, and their risk sets, from labels (time, event) or (entry, time, event)."""
    return risk_sets(y[:, -2], stratum, y[:, 0] if y.shape[1] == 3 else None)
