"""Every regularizer once, with its slow twin: to test a new one, add a row.

A twin is written in plain NumPy from the definition, without the algebra of the fast code: loops, bisection,
brute force.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import lsq_linear

from cofed import regularizers as R

GROUPS = (0, 1, 0, 2, 1, 0)
WEIGHTS = np.array([1.0, 0.0, 2.0, 0.5, 1.5, 1.0])


@dataclasses.dataclass(frozen=True)
class Row:
    """A regularizer, the shape it is tried on, its value and its prox in NumPy, and the traits it should have."""

    name: str
    make: Callable[[], Any]
    value: Callable[[np.ndarray], float]
    twin: Callable[[np.ndarray, float], np.ndarray]
    shape: tuple[int, ...] = (6,)
    traits: frozenset = frozenset()
    structure: str | None = None
    weak_convexity: float = 0.0
    joint: bool = False  # acts on all leaves together, rather than on each
    variant: bool = False  # the same code as another row: what costs compilation is tried on that one only

    @functools.cached_property
    def regularizer(self) -> Any:
        return self.make()

    @functools.cached_property
    def prox(self) -> Callable:
        """Compiled once, so that hundreds of examples are fast."""
        return jax.jit(lambda v, step: self.regularizer.prox(v, step))

    @functools.cached_property
    def psi(self) -> Callable:
        return jax.jit(lambda w: self.regularizer.value(w))

    @functools.cached_property
    def subgradient(self) -> Callable:
        return jax.jit(lambda w: self.regularizer.subgradient(w))

    @functools.cached_property
    def dual_norm(self) -> Callable:
        return jax.jit(lambda z: self.regularizer.dual_norm(z))

    def cost(self, w: np.ndarray, v: np.ndarray, step: float) -> float:
        psi = self.value(np.asarray(w, float))
        return float(np.sum((w - v) ** 2) / 2 + (step * psi if np.isfinite(psi) else psi))

    def arrays(self, dtype: Any = np.float64, shape: tuple | None = None) -> st.SearchStrategy:
        """Small and large entries, with many zeros and ties."""
        width = 32 if dtype == np.float32 else 64
        elements = st.one_of(
            st.floats(-10, 10, allow_subnormal=False, width=width), st.sampled_from([0.0, 1.0, -1.0, 2.5, -2.5])
        )
        return hnp.arrays(dtype, shape or self.shape, elements=elements)

    def draw(self, seed: int, dtype: Any = np.float64) -> np.ndarray:
        return (2 * np.random.default_rng(seed).normal(size=self.shape)).astype(dtype)


STEPS = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(1e-3, 6))


def coordinatewise(prox: Callable[[float, float, int], float]) -> Callable:
    return lambda v, t: np.array([prox(x, t, j) for j, x in enumerate(v.ravel())]).reshape(v.shape)


def bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """The point where a rising function passes 0."""
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def scalar_convex(slope: Callable[[float, int], float]) -> Callable:
    """The prox of a convex penalty per coordinate, from its one-sided slope for w > 0, by bisection."""

    def prox(x: float, t: float, j: int) -> float:
        if abs(x) <= t * slope(0.0, j):
            return 0.0
        return math.copysign(bisect(lambda u: u - abs(x) + t * slope(u, j), 0.0, abs(x)), x)

    return coordinatewise(prox)


def scalar_brute(penalty: Callable[[float], float], kinks: tuple[float, ...]) -> Callable:
    """The global minimiser of a penalty per coordinate, by trying everything."""

    def prox(x: float, t: float, j: int) -> float:
        def cost(u):
            return (u - abs(x)) ** 2 / 2 + t * np.vectorize(penalty)(u)

        grid = np.unique(np.concatenate([np.linspace(0, abs(x) + 1, 400), [abs(x), *kinks]]))
        for _ in range(6):
            best = int(np.argmin(cost(grid)))
            near = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
            grid = np.unique(np.concatenate([np.linspace(*near, 40), [grid[best]]]))
        return math.copysign(grid[np.argmin(cost(grid))], x)

    return coordinatewise(prox)


def simplex_twin(v: np.ndarray, radius: float) -> np.ndarray:
    level = bisect(lambda s: radius - np.maximum(v - s, 0).sum(), v.min() - radius - 1, v.max())
    return np.maximum(v - level, 0)


def l1_ball_twin(v: np.ndarray, radius: float) -> np.ndarray:
    return v if np.abs(v).sum() <= radius else np.sign(v) * simplex_twin(np.abs(v), radius)


def l0_twin(v: np.ndarray, k: int) -> np.ndarray:
    kept = sorted(range(v.size), key=lambda j: (-abs(v.ravel()[j]), j))[:k]
    return np.array([x if j in kept else 0.0 for j, x in enumerate(v.ravel())]).reshape(v.shape)


def groups_of(shape: tuple[int, ...], labels: Any) -> list[np.ndarray]:
    labels = np.arange(shape[0]) if labels is None else np.asarray(labels)
    return [labels == g for g in range(labels.max() + 1)]


def group_twin(v: np.ndarray, t: float, labels: Any, weights: Any = None) -> np.ndarray:
    out = np.zeros_like(v)
    for g, rows in enumerate(groups_of(v.shape, labels)):
        size = np.linalg.norm(v[rows])
        weight = math.sqrt(v[rows].size) if weights is None else weights[g]
        if size > t * weight:
            out[rows] = v[rows] * (bisect(lambda r, s=size, c=weight: r - s + t * c, 0.0, size) / size)
    return out


def group_value(w: np.ndarray, labels: Any, weights: Any = None) -> float:
    parts = [w[rows] for rows in groups_of(w.shape, labels)]
    return sum(np.linalg.norm(p) * (math.sqrt(p.size) if weights is None else weights[g]) for g, p in enumerate(parts))


def sparse_group_twin(v: np.ndarray, t: float, ratio: float, labels: Any) -> np.ndarray:
    """v minus its nearest point in (box + group balls), by alternating minimisation."""
    p = q = np.zeros_like(v)
    for _ in range(3000):
        p_new = np.clip(v - q, -t * ratio, t * ratio)
        q_new = (v - p_new) - group_twin(v - p_new, t * (1 - ratio), labels)
        done = np.abs(p_new - p).max() + np.abs(q_new - q).max() < 1e-14
        p, q = p_new, q_new
        if done:
            break
    return v - p - q


def nuclear_twin(v: np.ndarray, t: float) -> np.ndarray:
    """Through the eigenvectors of V^T V, one rank-one piece at a time."""
    out = np.zeros_like(v)
    for direction in np.linalg.eigh(v.T @ v)[1].T:
        image = v @ direction
        size = np.linalg.norm(image)
        if size > t and size > 0:
            out += np.outer(image / size * (size - t), direction)
    return out


def tv_twin(v: np.ndarray, t: float) -> np.ndarray:
    """From the dual: the nearest D^T u with |u| <= t, by active sets."""
    if v.ndim == 2:
        return np.stack([tv_twin(column, t) for column in v.T], axis=1)
    if t == 0 or v.size == 1:
        return v
    d = np.diff(np.eye(v.size), axis=0)
    return v - d.T @ lsq_linear(d.T, v, bounds=(-t, t), method="bvls", tol=1e-15).x


def mcp(u: float, strength: float, gamma: float) -> float:
    return strength * u - u**2 / (2 * gamma) if u <= gamma * strength else gamma * strength**2 / 2


def scad(u: float, strength: float, a: float) -> float:
    if u <= strength:
        return strength * u
    if u <= a * strength:
        return (2 * a * strength * u - u**2 - strength**2) / (2 * (a - 1))
    return strength**2 * (a + 1) / 2


def penalty_sum(penalty: Callable[[float], float]) -> Callable[[np.ndarray], float]:
    return lambda w: sum(penalty(abs(float(u))) for u in w.ravel())


def member(test: Callable[[np.ndarray], bool]) -> Callable[[np.ndarray], float]:
    return lambda w: 0.0 if test(w) else math.inf


def nuclear_norm(w: np.ndarray) -> float:
    return float(np.linalg.svd(w, compute_uv=False).sum())


CONVEX = frozenset({"convex"})
SET = CONVEX | {"is_indicator"}
LASSO = CONVEX | {"separable", "weighted_l1", "is_norm"}
LOW, HIGH = np.array([-1.0, -2.0, 0.0, -np.inf, 1.0, -3.0]), np.array([1.0, 0.5, 0.0, 2.0, np.inf, 3.0])

ROWS = [
    Row(
        "Zero", lambda: R.Zero(), lambda w: 0.0, lambda v, t: v, traits=CONVEX | {"separable", "weighted_l1", "is_zero"}
    ),
    Row(
        "L1",
        lambda: R.L1(0.7),
        lambda w: 0.7 * np.abs(w).sum(),
        scalar_convex(lambda u, j: 0.7),
        traits=LASSO,
        structure="density",
    ),
    Row(
        "L1 weighted",
        lambda: R.L1(0.7, WEIGHTS),
        lambda w: 0.7 * (WEIGHTS * np.abs(w)).sum(),
        scalar_convex(lambda u, j: 0.7 * WEIGHTS[j]),
        traits=LASSO,
        structure="density",
    ),
    Row(
        "ElasticNet",
        lambda: R.ElasticNet(0.8, 0.3),
        lambda w: 0.8 * (0.3 * np.abs(w).sum() + 0.35 * (w**2).sum()),
        scalar_convex(lambda u, j: 0.8 * (0.3 + 0.7 * u)),
        traits=CONVEX | {"separable"},
        structure="density",
    ),
    Row(
        "GroupL1 of a vector",
        lambda: R.GroupL1(0.6, GROUPS),
        lambda w: 0.6 * group_value(w, GROUPS),
        lambda v, t: group_twin(v, 0.6 * t, GROUPS),
        traits=CONVEX | {"is_norm"},
        structure="density",
    ),
    Row(
        "GroupL1 weighted",
        lambda: R.GroupL1(0.6, GROUPS, [2.0, 0.0, 0.5]),
        lambda w: 0.6 * group_value(w, GROUPS, [2.0, 0.0, 0.5]),
        lambda v, t: group_twin(v, 0.6 * t, GROUPS, [2.0, 0.0, 0.5]),
        traits=CONVEX | {"is_norm"},
        structure="density",
        variant=True,
    ),
    Row(
        "GroupL1 of rows",
        lambda: R.GroupL1(0.6),
        lambda w: 0.6 * group_value(w, None),
        lambda v, t: group_twin(v, 0.6 * t, None),
        shape=(4, 3),
        traits=CONVEX | {"is_norm"},
        structure="density",
    ),
    Row(
        "SparseGroupL1 of a vector",
        lambda: R.SparseGroupL1(0.9, 0.4, GROUPS),
        lambda w: 0.9 * (0.4 * np.abs(w).sum() + 0.6 * group_value(w, GROUPS)),
        lambda v, t: sparse_group_twin(v, 0.9 * t, 0.4, GROUPS),
        traits=CONVEX,
        structure="density",
    ),
    Row(
        "SparseGroupL1 of rows",
        lambda: R.SparseGroupL1(0.9, 0.4),
        lambda w: 0.9 * (0.4 * np.abs(w).sum() + 0.6 * group_value(w, None)),
        lambda v, t: sparse_group_twin(v, 0.9 * t, 0.4, None),
        shape=(3, 2),
        traits=CONVEX,
        structure="density",
        variant=True,
    ),
    *(
        Row(
            f"Nuclear {shape}",
            lambda: R.Nuclear(0.8),
            lambda w: 0.8 * nuclear_norm(w),
            lambda v, t: nuclear_twin(v, 0.8 * t),
            shape=shape,
            traits=CONVEX | {"is_norm"},
            structure="rank",
            variant=shape == (3, 3),
        )
        for shape in ((4, 3), (2, 4), (3, 3))
    ),
    *(
        Row(
            f"TotalVariation {shape}",
            lambda: R.TotalVariation(0.7),
            lambda w: 0.7 * np.abs(np.diff(w, axis=0)).sum(),
            lambda v, t: tv_twin(v, 0.7 * t),
            shape=shape,
            traits=CONVEX,
            variant=shape == (2,),
        )
        for shape in ((9,), (2,), (4, 3))
    ),
    Row(
        "L1Ball",
        lambda: R.L1Ball(3.0),
        member(lambda w: np.abs(w).sum() <= 3 + 1e-5),
        lambda v, t: l1_ball_twin(v, 3.0),
        traits=SET,
        structure="density",
        joint=True,
    ),
    Row(
        "L2Ball",
        lambda: R.L2Ball(3.0),
        member(lambda w: np.linalg.norm(w) <= 3 + 1e-5),
        lambda v, t: v * min(1.0, 3.0 / max(np.linalg.norm(v), 1e-300)),
        traits=SET,
        joint=True,
    ),
    Row(
        "Box",
        lambda: R.Box(-1.0, 2.0),
        member(lambda w: bool((w >= -1 - 1e-5).all() and (w <= 2 + 1e-5).all())),
        coordinatewise(lambda x, t, j: min(max(x, -1.0), 2.0)),
        traits=SET | {"separable"},
    ),
    Row(
        "Box per coordinate",
        lambda: R.Box(LOW, HIGH),
        member(lambda w: bool((w >= LOW - 1e-5).all() and (w <= HIGH + 1e-5).all())),
        coordinatewise(lambda x, t, j: min(max(x, LOW[j]), HIGH[j])),
        traits=SET | {"separable"},
        variant=True,
    ),
    Row(
        "NonNegative",
        lambda: R.NonNegative(),
        member(lambda w: bool((w >= -1e-5).all())),
        coordinatewise(lambda x, t, j: x if x > 0 else 0.0),
        traits=SET | {"separable"},
    ),
    *(
        Row(
            f"Simplex {radius}",
            lambda radius=radius: R.Simplex(radius),
            member(lambda w, radius=radius: bool((w >= -1e-5).all() and abs(w.sum() - radius) <= 1e-5)),
            lambda v, t, radius=radius: simplex_twin(v, radius),
            traits=SET,
            structure="density",
            joint=True,
            variant=radius == 4.0,
        )
        for radius in (1.0, 4.0)
    ),
    Row(
        "L0Ball",
        lambda: R.L0Ball(3),
        member(lambda w: bool(np.count_nonzero(w) <= 3)),
        lambda v, t: l0_twin(v, 3),
        traits=frozenset({"is_indicator"}),
        structure="density",
        weak_convexity=math.inf,
        joint=True,
    ),
    Row(
        "MCP",
        lambda: R.MCP(0.9, 2.0),
        penalty_sum(lambda u: mcp(u, 0.9, 2.0)),
        scalar_brute(lambda u: mcp(u, 0.9, 2.0), (1.8,)),
        shape=(3,),
        traits=frozenset({"separable"}),
        structure="density",
        weak_convexity=1 / 2,
    ),
    Row(
        "SCAD",
        lambda: R.SCAD(0.9, 3.0),
        penalty_sum(lambda u: scad(u, 0.9, 3.0)),
        scalar_brute(lambda u: scad(u, 0.9, 3.0), (0.9, 2.7)),
        shape=(3,),
        traits=frozenset({"separable"}),
        structure="density",
        weak_convexity=1 / 2,
    ),
]

CONVEX_ROWS = [row for row in ROWS if "convex" in row.traits]
SETS = [row for row in ROWS if "is_indicator" in row.traits]
FINITE = [row for row in ROWS if "is_indicator" not in row.traits]
MAIN = [row for row in ROWS if not row.variant]
DUAL = [row for row in ROWS if row.make().has_dual_norm]


def names(rows: list[Row]) -> list[str]:
    return [row.name for row in rows]


def close(x: Any, y: Any, tolerance: float) -> None:
    """Equal up to tolerance, relative to the size of the numbers (or 1)."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    scale = max(1.0, float(np.abs(y).max(initial=0.0)))
    np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * scale)


def array(x: np.ndarray) -> jax.Array:
    return jnp.asarray(x, x.dtype)
