"""The partial likelihood of Cox's model of proportional hazards, of the rows of one or several strata.

The loss of a stratum is the sum over its events i of

    u_i log(sum over the rows j that are at risk at i's time, of w_j exp(z_j)) - w_i z_i,

less what the saturated model has, with the rows' weights w (1 where they count alike), and u_i the mean weight of the
events with i's time. It is a convex function of all predictions z together, and no sum over rows: adding a constant to
all predictions of a stratum changes nothing, so that there is no intercept. Where several events have one time,
`Breslow` counts them all among those at risk for each of them; `Efron` counts the l-th of d events with the others'
share 1 - l/d, since l of them are no longer at risk in whatever order they really happened. A weight is R's `coxph`'s:
with Breslow's ties, a row of weight 2 is two rows; with Efron's it is not, as there d are rows and no weights.

A row's score (`PartialTerms.scores`) is what the gradient changes by where it is left out, to first order: its
features' distances to the means of those at risk, summed over what it has had of events less what it had to expect.
Lin and Wei 1989, Journal of the American Statistical Association.
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
    logs: Values  # the logarithms of weight times exp(prediction); -inf for rows that do not count
    events: Values  # 1 for an event
    counted: Values  # the mean weight of the events with an event's time
    observed: Values  # the weight of an event
    thinned: Values | None  # the part of tied events that is no longer at risk; None is none
    log_size: Values  # the logarithm of the sum over those at risk, at events
    expected: Values  # the expected number of each row's events, by the hazards that it has passed, times its weight

    def means(self, risk: RiskSets, A: Float[Array, "n s"]) -> Float[Array, "n s"]:
        """For each event of one model, the mean features of those at risk; 0 for other rows."""
        total, top = risk.at_risk(A, self.logs)
        mean = total * jnp.exp(top - self.log_size)
        if self.thinned is not None:
            total, top = risk.tied(A * self.events, self.logs)
            mean = mean - self.thinned * total * jnp.exp(top - self.log_size)
        return jnp.where(self.events > 0, mean, 0)

    def scores(self, risk: RiskSets, A: Float[Array, "n s"]) -> Float[Array, "n s"]:
        """The rows' parts of the gradient of one model, times their weights: they add up to it."""
        mean = self.means(risk, A)
        rates = jnp.where(self.events > 0, -self.log_size, -jnp.inf)
        # Tied events share what they are compared with.
        tied, many = risk.tied(mean, jnp.where(self.events > 0, 0.0, -jnp.inf))[0], risk.ranks(self.events)[1]
        own = self.observed * tied / jnp.where(many > 0, many, 1)
        passed = times_risk(self.logs, risk.passed(self.counted * mean, rates))
        if self.thinned is not None:
            passed = passed - self.events * times_risk(self.logs, risk.tied(self.thinned * self.counted * mean, rates))
        return A * self.slope + own - passed


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

        `counts` is the weight of a row where a model learns from it, else 0; `event` is 1 for an event.
        """
        there, one = counts > 0, jnp.ones_like(z)
        logs = jnp.where(there, z + jnp.log(jnp.where(there, counts, 1)), -jnp.inf)
        events = jnp.where(there, event[:, None], 0)
        happens, observed = events > 0, events * counts
        thinned, tied = self.thinned(risk, events), risk.ranks(observed)[1]
        counted = jnp.where(happens, tied / jnp.where(happens, risk.ranks(events)[1], 1), 0)
        size, top = risk.at_risk(one, logs)
        if thinned is not None:
            also, tied_top = risk.tied(events, logs)
            size = size - jnp.where(happens, thinned * also * jnp.exp(tied_top - top), 0)
            tied = tied * (1 - thinned)
        # A sum that is too small for float64 beside the others makes a model infinitely bad.
        log_size = jnp.where(happens, jnp.where(size > 0, top + jnp.log(jnp.where(size > 0, size, 1)), jnp.inf), 0)
        # The saturated model has the events of a time alone at risk, with one prediction.
        above = log_size - jnp.log(jnp.where(happens, tied, 1))
        value = jnp.sum(jnp.where(happens, counted * above - observed * z, 0), axis=0)
        rates = jnp.where(happens, -log_size, -jnp.inf)
        expected = times_risk(logs, risk.passed(counted, rates))
        if thinned is not None:
            expected = expected - events * times_risk(logs, risk.tied(thinned * counted, rates))
        slope = expected - observed
        return PartialTerms(value, slope, logs, events, counted, observed, thinned, log_size, expected)

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
