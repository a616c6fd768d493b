"""The contract of a loss."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, Scalar

from cofed._util.types import Given, Hyperparameter
from cofed.losses.dual_room import DualRoom
from cofed.losses.label_units import LabelMoments, LabelUnits

Prediction = Float[Array, "..."]
Label = Num[Array, "..."]


class AbstractLoss(eqx.Module):
    """The loss of ONE sample. A loss of one's own that says more than a function can derives from this class.

    Only `__call__` is needed. Everything else is optional, with a default that promises nothing.

    Attributes
    ----------
    elementwise : bool
        Whether the label has the prediction's shape.
    likelihood : bool
        Whether the loss is, with `Linear`, the negative log-likelihood of a generalised linear model.
    quadratic : bool
        Whether the loss is c (prediction - y)^2 / 2, so that its Hessian is the same everywhere.
    location : bool
        Whether the loss is of prediction - y alone, so that an offset may be taken off the label.
    absolute : bool
        Whether it grows as |prediction - y| does, and not as its square.
    rowwise : bool
        Whether the loss of many rows is the sum of theirs. One that is not is the loss of all rows of a site, and does
        not change where all predictions there change by a constant.
    of_times : bool
        Whether a label is of the time to an event.
    any_shift : bool
        Whether the same number, added to all of several predictions, changes nothing, as of classes.
    site_parameters : int
        How many numbers every site has for itself, which are none of the model's.
    range_factor : float
        Of a loss that is not `rowwise`: its third derivative along a direction is at most so many times the range of
        what the direction changes predictions by, among rows that belong together, times the second.
    attains_zero : bool
        Whether, for every label, some prediction has the loss 0 or comes as near as one likes, and none less.
    least_label : float or None
        The least label that the loss is for, where there is one.
    advice : str
        A sentence for users whose fit ends before it is as exact as they asked.
    curvature : float or None
        The largest second derivative by the prediction (where it has no bound, its mean over the rows of a fit).
    self_concordance : float or None
        The least M such that the third derivative is at most M times the second everywhere: 0 for a quadratic.

    Notes
    -----
    The estimators certify a fit by a duality gap. A convex loss of one prediction takes part if it gives `curvature`
    and either `conjugate` or `attains_zero`; `self_concordance` makes the certificate sharper. `link`, `cumulant` and
    `mean_margin` (and `natural`), of a loss A(prediction) - y B(prediction) + c(y), save the exchanges that find the
    best constant. `inverse_link` is what an estimator predicts, and `variance` and `dispersion` give it intervals. See
    `cofed.estimators.FederatedGLM`, which takes any such loss.

    Examples
    --------
    >>> import jax.numpy as jnp, cofed
    >>> class Absolute(cofed.AbstractLoss):
    ...     def __call__(self, prediction, y):
    ...         return jnp.abs(prediction - y)
    >>> float(Absolute()(jnp.array(3.0), jnp.array(1.0)))
    2.0
    """

    elementwise: ClassVar[bool] = False
    likelihood: ClassVar[bool] = False
    quadratic: ClassVar[bool] = False
    location: ClassVar[bool] = False
    absolute: ClassVar[bool] = False
    rowwise: ClassVar[bool] = True
    of_times: ClassVar[bool] = False
    any_shift: ClassVar[bool] = False
    site_parameters: ClassVar[int] = 0
    range_factor: ClassVar[float] = 1.0
    attains_zero: ClassVar[bool] = False
    least_label: ClassVar[float | None] = None
    advice: ClassVar[str] = "A larger tol may help."

    @abstractmethod
    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        """The loss of a prediction."""

    @property
    def of_rows(self) -> "AbstractLoss":
        """The loss of a row that it is made of: itself, unless it is one of all rows of a site."""
        return self

    def with_rows(self, loss: "AbstractLoss") -> "AbstractLoss":
        """The same made of another loss of a row: that loss, unless it is one of all rows of a site."""
        return loss

    @property
    def fitted_by(self) -> "AbstractLoss":
        """The loss whose minimum is the model: itself, unless it only judges models of another (`Reweighted`)."""
        return self

    # Labels.

    @property
    def has_domain(self) -> bool:
        """Whether there are labels that the loss refuses."""
        return type(self).refuses is not AbstractLoss.refuses

    def refuses(self, y: np.ndarray) -> str | None:
        """Why these labels are outside the loss's domain, in a sentence; None where they are not."""
        return None

    @property
    def excludes_least_label(self) -> bool:
        """Whether all labels must be above `least_label`."""
        return False

    def outputs(self, y: np.ndarray) -> int | None:
        """How many numbers the model must predict, given all labels; None is a single one."""
        return None

    @property
    def has_accuracy(self) -> bool:
        """Whether a prediction can be right or wrong."""
        return type(self).correct is not AbstractLoss.correct

    def correct(self, prediction: Prediction, y: Label) -> Scalar:
        """1 where the prediction is right, else 0, of a loss that knows right and wrong."""
        raise TypeError(f"{type(self).__name__} knows no right and wrong predictions")

    # Convexity: what bounds the distance to the minimum.

    @property
    def curvature(self) -> Hyperparameter | None:
        """The largest second derivative by the prediction, or None where it is not known."""
        return None

    @property
    def self_concordance(self) -> Hyperparameter | None:
        """The least M such that the third derivative is at most M times the second; None where it is not known."""
        return None

    def dual_room(self, farthest: Scalar) -> DualRoom | None:
        """What becomes of the conjugate where slopes f'(z) are moved by -f''(z) e with |e| <= farthest, all at once.

        Parameters
        ----------
        farthest : scalar
            The bound on the e of all rows.

        Returns
        -------
        DualRoom or None
            Known from `self_concordance`: the conjugate's second derivative is 1 / f'' at f'(z), and on the way to the
            moved slope at most 1 / (f'' (1 - 2 t)^2), t = self_concordance * farthest below 1/2. None without it.
        """
        if self.self_concordance is None:
            return None
        t = self.self_concordance * farthest
        return DualRoom(1 / jnp.where(t < 0.5, 1 - 2 * t, 1) ** 2, jnp.ones_like(farthest), t < 0.5)

    @property
    def has_conjugate(self) -> bool:
        """Whether `conjugate` is given."""
        return type(self).conjugate is not AbstractLoss.conjugate

    def conjugate(self, theta: Prediction, y: Label) -> Scalar:
        """The convex conjugate f*(theta) = sup_z <theta, z> - f(z, y) for one label.

        Parameters
        ----------
        theta : array of the prediction's shape
            A slope; derivatives of the loss by the prediction are such.
        y : array
            The label.

        Returns
        -------
        scalar
            The value, infinite outside the domain.

        Raises
        ------
        TypeError
            Where the loss does not give it.
        """
        raise TypeError(f"{type(self).__name__} gives no conjugate")

    def residual_scale(self, mean_loss: Scalar, mean: Float[Array, "..."]) -> Scalar:
        """A bound on the root mean square of the loss's derivatives by the predictions.

        A loss that is at least 0 and has a curvature of at most L satisfies |f'|^2 <= 2 L f.

        Parameters
        ----------
        mean_loss : scalar
            The mean loss of the predictions.
        mean : array
            The mean of the labels.

        Returns
        -------
        scalar
            The bound.
        """
        assert self.curvature is not None
        return jnp.sqrt(jnp.maximum(2 * self.curvature * mean_loss, 0))

    # The saturated model, whose predictions are the best possible for each label.

    def saturated(self, y: np.ndarray) -> np.ndarray:
        """The least loss that a prediction can have, for each label: minus the conjugate at 0.

        Parameters
        ----------
        y : array of shape (n,)
            Labels.

        Returns
        -------
        array of shape (n,)
            The losses of the saturated model.

        Raises
        ------
        TypeError
            Where the loss neither `attains_zero` nor gives its conjugate.
        """
        if self.attains_zero:
            return np.zeros(len(y))
        labels = jnp.asarray(y)
        return -np.asarray(jax.vmap(lambda label: self.conjugate(jnp.zeros((), float), label))(labels))

    def as_deviance(self) -> "AbstractLoss":
        """The loss less that of the saturated model, which is half the deviance: 0 at best, for every label."""
        from cofed.losses.deviance import Deviance

        return self if self.attains_zero else Deviance(self)

    def deviance(self, prediction: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Twice the loss above that of the saturated model, for each row and each of several models.

        Parameters
        ----------
        prediction : array of shape (n, models) or (n, models, outputs)
            The models' predictions.
        y : array of shape (n,)
            Labels.

        Returns
        -------
        array of shape (n, models)
            The deviances.
        """
        losses = jax.vmap(jax.vmap(self, in_axes=(0, None)))(jnp.asarray(prediction), jnp.asarray(y))
        return 2 * (np.asarray(losses) - self.saturated(y)[:, None])

    @property
    def has_dispersion(self) -> bool:
        """Whether `dispersion` is given, so that intervals can be computed."""
        return type(self).dispersion is not AbstractLoss.dispersion

    def dispersion(self, mean_loss: float, n: int, freedom: int) -> float:
        """The variance of the errors, as a multiple of what the loss takes it for.

        Parameters
        ----------
        mean_loss : float
            The mean loss of the fit; where the loss has a `variance`, of half of Pearson's squared residuals.
        n : int
            The number of rows.
        freedom : int
            The degrees of freedom that the fit leaves.

        Returns
        -------
        float
            The multiple; 1 where the likelihood fixes the variance.

        Raises
        ------
        TypeError
            Where the loss is no likelihood whose intervals are known.
        """
        raise TypeError(f"{type(self).__name__} gives no variance of the errors")

    @property
    def estimates_dispersion(self) -> bool:
        """Whether the dispersion is estimated, so that intervals are compared with Student's t."""
        return False

    def events(self, n: int, labels: np.ndarray) -> float:
        """How many events tell of the coefficients: a model without a penalty needs several for each.

        Parameters
        ----------
        n : int
            The number of rows.
        labels : array
            The sum of the labels over all rows, or the counts of the classes.

        Returns
        -------
        float
            The rows, unless the loss knows better: the rows of the rarest class, or what was counted.
        """
        return float(n)

    # The null model: the best constant prediction.

    def label_units(self, labels: LabelMoments, fit_intercept: bool) -> LabelUnits:
        """Units in which a problem with these labels is well scaled.

        Parameters
        ----------
        labels : LabelMoments
            What is known of the labels.
        fit_intercept : bool
            Whether the model has a free intercept.

        Returns
        -------
        LabelUnits
            The units; those of the labels as they are, unless the loss knows better.
        """
        return LabelUnits(least=0.0 if self.attains_zero else labels.saturated)

    def in_units(self, labels: LabelUnits) -> "AbstractLoss":
        """The loss of labels and predictions in other units, divided by `labels.objective`.

        Parameters
        ----------
        labels : LabelUnits
            The units.

        Returns
        -------
        AbstractLoss
            The loss itself, unless it has numbers of its own that are in the units of the labels.
        """
        return self

    @property
    def has_link(self) -> bool:
        """Whether the loss is A(prediction) - y B(prediction) + c(y), A and B being `cumulant` and `natural`, and
        `link` and `mean_margin` are given."""
        return type(self).link is not AbstractLoss.link

    @property
    def is_canonical(self) -> bool:
        """Whether B is the prediction itself, so that the second derivative does not depend on the label."""
        return self.has_link and type(self).natural is AbstractLoss.natural

    def link(self, mean: Array) -> Array:
        """The prediction at which the expected label is `mean`: the best constant for labels with that mean."""
        raise TypeError(f"{type(self).__name__} has no link function")

    def inverse_link(self, prediction: Array) -> Array:
        """What is predicted of the label: its mean, or where its quantile or its middle is."""
        return prediction

    def cumulant(self, prediction: Array) -> Array:
        """A(prediction), whose derivative is the expected label times B'(prediction)."""
        raise TypeError(f"{type(self).__name__} has no cumulant function")

    def natural(self, prediction: Array) -> Array:
        """B(prediction), the natural parameter of the labels' distribution."""
        return prediction

    @property
    def has_variance(self) -> bool:
        """Whether `variance` is given."""
        return type(self).variance is not AbstractLoss.variance

    def variance(self, mean: Array) -> Array:
        """The variance of a label with this mean, up to the dispersion."""
        raise TypeError(f"{type(self).__name__} gives no variance of a label")

    def mean_margin(self, mean: Array) -> Scalar:
        """How far the mean may be moved in any direction and be the mean of some prediction."""
        raise TypeError(f"{type(self).__name__} has no link function")


def preview(values: Given[Iterable[float]], most: int = 6) -> str:
    """A few values for a sentence."""
    listed = sorted(values)
    return ", ".join(f"{v:g}" for v in listed[:most]) + (", ..." if len(listed) > most else "")
