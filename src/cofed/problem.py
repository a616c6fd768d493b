"""The problem: minimise over w  sum_m pi_m F_m(w) + psi(w)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Num, PyTree, Scalar

from cofed._util import checks, trees
from cofed._util.checks import shown
from cofed._util.contracts import adopted, lacking
from cofed._util.scalars import as_array, is_numbers
from cofed._util.types import Given
from cofed.federation.base import AbstractFederation
from cofed.losses import AbstractLoss, FunctionLoss, Squared
from cofed.models import AbstractModel, EquinoxModel, Linear
from cofed.regularizers import AbstractRegularizer, Zero
from cofed.regularizers.own import as_regularizer


def as_loss(loss: object) -> AbstractLoss:
    """A loss as a module: a plain function of (prediction, y) is wrapped."""
    if isinstance(loss, AbstractLoss):
        return loss
    if callable(loss) and not isinstance(loss, type):
        return adopted(loss, AbstractLoss) if isinstance(loss, eqx.Module) else FunctionLoss(loss)
    raise TypeError(f"loss must be a cofed loss such as Squared() or a function of (prediction, y), got {shown(loss)}")


def as_model(model: object) -> AbstractModel:
    """A model as a description with `init`: an equinox module with its own parameters is wrapped."""
    if isinstance(model, AbstractModel):
        return model
    if isinstance(model, eqx.Module) and callable(model):
        return EquinoxModel(model) if lacking(model, AbstractModel) else adopted(model, AbstractModel)
    raise TypeError(f"model must be a cofed model such as Linear() or an equinox module, got {shown(model)}")


class Problem(eqx.Module):
    """A model, a loss of its predictions, and a regularizer of its parameters.

    Parameters
    ----------
    model : AbstractModel or equinox.Module
        Gives predictions from parameters; ``Linear()`` unless given.
    loss : AbstractLoss or callable
        Of one prediction and its label; ``Squared()`` unless given. A function of (prediction, y) will do.
    regularizer : AbstractRegularizer
        psi; ``Zero()`` unless given.

    Examples
    --------
    >>> import cofed
    >>> problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(0.1))
    >>> problem.regularizer.strength
    0.1
    """

    model: AbstractModel = eqx.field(converter=as_model, default_factory=Linear)
    loss: AbstractLoss = eqx.field(converter=as_loss, default_factory=Squared)
    regularizer: AbstractRegularizer = eqx.field(converter=as_regularizer, default_factory=Zero)

    @property
    def local_steps(self) -> int | None:
        """K, the local steps of every client in a round; None where they differ, or are not known yet."""
        return None

    @property
    def everyone(self) -> bool:
        """Whether all clients take part in every round."""
        return True

    @property
    def participation(self) -> float:
        """|S|/M, the part of the clients that is asked in a round."""
        return 1.0

    def predict(self, w: PyTree, X: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """Predict a batch of samples.

        Parameters
        ----------
        w : pytree
            The model's parameters.
        X : array of shape (n, ...)
            The samples.

        Returns
        -------
        array of shape (n, ...)
            The predictions.
        """
        if not is_numbers(X) or np.ndim(X) == 0:
            raise TypeError(f"predict: X must be an array of samples, got {shown(X)}")
        for leaf in jax.tree.leaves(w):
            if not is_numbers(leaf):
                raise TypeError(f"predict: w must be the model's parameters, got {shown(w)}")
        try:
            return jax.vmap(lambda x: self.model(w, x))(jnp.asarray(X))
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            what = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            raise ValueError(
                f"predict: the model {type(self.model).__name__} cannot predict from w for X of shape {np.shape(X)} "
                f"({what})"
            ) from error

    def losses(
        self, w: PyTree, X: Float[Array, "n ..."], y: Num[Array, "n ..."], keys: Key[Array, " n"] | None = None
    ) -> Float[Array, " n"]:
        """The loss of each sample.

        Parameters
        ----------
        w : pytree
            The model's parameters.
        X : array of shape (n, ...)
            The samples.
        y : array of shape (n, ...)
            Their labels.
        keys : array of n PRNG keys, optional
            For what the model draws in training; without them it does not draw.

        Returns
        -------
        array of shape (n,)
            The losses.
        """
        if keys is None:
            return jax.vmap(lambda x, label: self.loss(self.model(w, x), label))(X, y)
        return jax.vmap(lambda x, label, key: self.loss(self.model.train(w, x, key), label))(X, y, keys)

    def mean_loss(
        self,
        w: PyTree,
        X: Float[Array, "n ..."],
        y: Num[Array, "n ..."],
        share: Float[Array, " n"],
        keys: Key[Array, " n"] | None = None,
    ) -> Scalar:
        """The sum of the samples' losses, each counted by its share.

        Parameters
        ----------
        w : pytree
            The model's parameters.
        X : array of shape (n, ...)
            The samples.
        y : array of shape (n, ...)
            Their labels.
        share : array of shape (n,)
            Shares of 1/n give the mean; a share of 0 is padding.
        keys : array of n PRNG keys, optional
            For what the model draws in training; without them it does not draw.

        Returns
        -------
        scalar
            The weighted loss.
        """
        return self.losses(w, X, y, keys) @ share

    def start(self, federation: Given[AbstractFederation], w0: PyTree = None, seed: Given[int] = 0) -> PyTree:
        """The parameters to begin with.

        Parameters
        ----------
        federation : AbstractFederation
            The clients' data, from which the shapes of the parameters follow.
        w0 : pytree or dict, optional
            The parameters, or a mapping of their names to arrays; None is the model's own start.
        seed : int
            The seed of a random start.

        Returns
        -------
        pytree
            The parameters, in the dtype of the data.
        """
        if not isinstance(federation, AbstractFederation):
            raise TypeError(f"federation must be a cofed.Federation, got {shown(federation)}")
        seed = checks.seed("seed", seed)
        x, y = federation.example()
        several = y.shape[0] if y.ndim else None  # as many outputs as a label has entries
        outputs = self.loss.outputs(federation.labels())

        def fresh() -> PyTree:
            return self.model.init(jax.random.key(seed), as_array(x), several if outputs is None else outputs)

        # Of a given start only the shapes are compared: the draws of a network would take seconds to compile.
        return fresh() if w0 is None else like(jax.eval_shape(fresh), w0)

    def ready(self, w: PyTree) -> PyTree:
        """The model as it is handed to the user.

        Parameters
        ----------
        w : pytree
            The model's parameters.

        Returns
        -------
        pytree or equinox.Module
            The parameters, or a callable module where the user gave one.
        """
        return self.model.ready(w)

    def check(self, federation: Given[AbstractFederation]) -> None:
        """Refuse labels outside the loss's domain, naming the client.

        Parameters
        ----------
        federation : AbstractFederation
            The clients' data.

        Raises
        ------
        ValueError
            Where a client has such labels.
        """
        if not isinstance(federation, AbstractFederation):
            raise TypeError(f"federation must be a cofed.Federation, got {shown(federation)}")
        if self.loss.has_domain:  # it takes a pass over all labels
            federation.check_labels(self.loss.refuses)


class PosedProblem(Problem):
    """A problem, together with what server and clients agree on before round one.

    An engine makes one for the algorithm, which may look at these numbers; they are static.
    """

    local_steps: int | None = eqx.field(static=True, default=None)  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride, reportAssignmentType]
    everyone: bool = eqx.field(static=True, default=True)  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride, reportAssignmentType]
    participation: float = eqx.field(static=True, default=1.0)  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride, reportAssignmentType]


def like(template: PyTree, given: PyTree) -> PyTree:
    """The given parameters in the structure, shapes and dtype of the template, or a sentence that says what differs."""
    names = trees.names(template)
    leaves, structure = jax.tree.flatten(template)
    if isinstance(given, dict):
        if set(given) != set(names):
            raise ValueError(f"w0 has the entries {sorted(map(str, given))}, but the model's are {names}")
        values = [given[name] for name in names]
    else:
        values = jax.tree.leaves(given, is_leaf=lambda node: isinstance(node, list) and numeric(node) is not None)
        if len(values) != len(leaves):
            raise ValueError(
                f"w0 has {len(values)} arrays, but the model has {len(leaves)}: {names}; "
                'give the model\'s own pytree or a mapping such as {"coef": array}'
            )
    arrays = []
    for name, leaf, value in zip(names, leaves, values, strict=True):
        array = numeric(value)
        if array is None:
            raise TypeError(f"w0[{name!r}] must be numbers of shape {leaf.shape}, got {shown(value)}")
        if array.shape != leaf.shape:
            raise ValueError(f"w0[{name!r}] has shape {array.shape}, but the model's is {leaf.shape}")
        kept = np.asarray(array, leaf.dtype)
        if not np.all(np.isfinite(kept)):
            raise ValueError(f"w0[{name!r}] has NaN or infinite entries, or such as are too large for {leaf.dtype}")
        arrays.append(jnp.asarray(kept))
    return jax.tree.unflatten(structure, arrays)


def numeric(value: object) -> np.ndarray | None:
    """The value as an array of real numbers; None where it is none."""
    if np.ma.isMaskedArray(value):
        return None
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        return None
    return array if jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.kind in "iu" else None
