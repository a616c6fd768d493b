"""The clients' data as the compiled program sees it. Where a client's samples lie is known here and nowhere else."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Num, PyTree

from cofed._util.scalars import constant
from cofed.engine import collectives
from cofed.federation import Federation
from cofed.federation.rows import Tiers, starts_of


class Data(eqx.Module):
    """The arrays of a federation, as the compiled program sees them: on a mesh, those of one device.

    They are a stack of clients or, with `tiers`, rows: the two layouts of `cofed.federation.rows.Rows`.
    """

    X: Float[Array, "..."]
    y: Num[Array, "..."]
    sizes: Int[Array, " clients"]
    ids: Int[Array, " clients"]
    weights: Float[Array, " clients"]  # pi_m
    draw: Callable | None = eqx.field(static=True, default=None)  # of a stream: (key, client, size) -> (X, y)
    owners: Int[Array, " clients"] | None = None  # of held-out data: the position of the client that each part is of
    places: Int[Array, " everybody"] | None = None  # the position of the client with each id, among all clients
    mesh: Mesh | None = eqx.field(static=True, default=None)  # the devices that the clients are spread over
    tiers: Tiers | None = eqx.field(static=True, default=None)  # of rows: (width, clients) over all devices
    starts: Int[Array, " clients"] | None = None  # of rows: where each client's begin
    steps: Int[Array, " clients"] | None = None  # each client's local steps, where these are not the plan's

    @property
    def clients(self) -> int:
        """The number of clients here."""
        return self.sizes.shape[0]

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the features, and so of the model."""
        return self.X.dtype

    @property
    def widest(self) -> int:
        """The most samples that a client can have."""
        return self.X.shape[1] if self.tiers is None else self.tiers[-1][0]

    def room(self, clients: int) -> int:
        """The rows that work on the whole data of so many clients, on all devices, takes."""
        if self.tiers is None:
            return clients * self.widest
        return sum(width * count for width, count in self.tiers)

    @property
    def n_features(self) -> int | None:
        """The number of entries of one x; None where that is no vector."""
        shape = self.X.shape[2:] if self.tiers is None else self.X.shape[1:]
        return shape[0] if len(shape) == 1 else None

    def flat(self) -> tuple[Array, Array]:
        """X and y of all samples, one after another; those of a stack with its padding."""
        if self.tiers is not None:
            return self.X, self.y
        X, y = (a.reshape((-1, *a.shape[2:])) for a in (self.X, self.y))
        return X, y

    def start(self, client: Int[Array, ""]) -> Int[Array, ""]:
        """Where a client's samples begin among all."""
        return client * self.widest if self.starts is None else self.starts[client]

    def whole(self, client: Int[Array, ""], width: int) -> tuple[Array, Array]:
        """X and y of a client that has at most `width` samples, padded with its first one to so many."""
        if self.starts is None:
            return self.X[client], self.y[client]
        place = jnp.arange(width, dtype=jnp.int32)
        rows = self.starts[client] + jnp.where(place < self.sizes[client], place, 0)
        X, y = (a.at[rows].get(mode="clip") for a in (self.X, self.y))
        return X, y

    def shares(self) -> Float[Array, " samples"]:
        """What each sample of `flat` counts in sum_m pi_m F_m."""
        if self.starts is None:
            return (shares(self) * self.weights[:, None]).reshape(-1)
        row = jnp.arange(self.X.shape[0], dtype=jnp.int32)
        owner = jnp.cumsum(jnp.zeros_like(row).at[self.starts].add(1, mode="drop")) - 1
        real = row < self.starts[owner] + self.sizes[owner]
        each = self.weights / jnp.maximum(self.sizes, 1).astype(self.dtype)
        return jnp.where(real, each[owner], 0)

    def tier(self, clients: Int[Array, "..."]) -> Int[Array, "..."]:
        """The tiers that these clients are in."""
        assert self.tiers is not None
        widths = jnp.asarray([width for width, _ in self.tiers], jnp.int32)
        return jnp.searchsorted(widths, self.sizes[clients]).astype(jnp.int32)

    def total(self, tree: PyTree) -> PyTree:
        """The sum over all devices."""
        return collectives.total(tree, self.mesh)

    def everybody(self, tree: PyTree) -> PyTree:
        """What all clients have, from what those on this device have."""
        return tree if self.places is None else collectives.everybody(tree, self.mesh, self.places.shape[0])

    def first(self) -> Int[Array, ""] | int:
        """The position of the first client here among all."""
        return collectives.first_here(self.mesh, self.clients)


def data_of(
    federation: Federation,
    weights: str | npt.ArrayLike = "uniform",
    *,
    owners: Int[Array, " clients"] | None = None,
    places: Int[Array, " everybody"] | None = None,
) -> Data:
    """A federation's arrays, as they lie: nothing is copied. See `Data` for the arguments."""
    rows, starts = federation.rows, None
    if rows.tiers is not None:
        starts = constant(starts_of(np.asarray(federation.sizes)), jnp.int32)
    arrays = (rows.X, rows.y, federation.sizes, federation.ids, federation.weights(weights))
    return Data(*arrays, federation.draw, owners, places, tiers=rows.tiers, starts=starts)


def shares(data: Data) -> Float[Array, "clients n_max"]:
    """What each sample of a stack counts in its client's F_m."""
    return means(jnp.arange(data.widest, dtype=jnp.int32)[None, :] < data.sizes[:, None], data.dtype)


def means(real: Bool[Array, "..."], dtype: np.dtype) -> Float[Array, "..."]:
    """What each sample counts in a mean over the real ones along the last axis."""
    counted = jnp.maximum(jnp.sum(real, axis=-1, keepdims=True), 1).astype(dtype)
    return real.astype(dtype) / counted
