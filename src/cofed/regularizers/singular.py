"""Singular-value thresholding with a derivative that is finite at repeated and zero singular values."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_jvp
def threshold_singular_values(a: Float[Array, "m n"], t: Float[Array, ""]) -> Float[Array, "m n"]:
    """U max(S - t, 0) V^T for a = U S V^T."""
    # LAPACK complains on standard error about numbers that are not finite, so it never sees them.
    finite = jnp.all(jnp.isfinite(a))
    u, s, vt = jnp.linalg.svd(jnp.where(finite, a, 0.0), full_matrices=False)
    return jnp.where(finite, _compose(u, jnp.maximum(s - t, 0.0), vt), jnp.nan)


@threshold_singular_values.defjvp
def _jvp(primals: tuple, tangents: tuple) -> tuple:
    """The divided differences of f(s) = max(s - t, 0) (Daleckii and Krein), written so that nothing is 0/0.

    The derivative of `svd` itself divides by differences of singular values; those of f have limits, taken
    here.
    """
    (a, t), (da, dt) = primals, tangents
    u, s, vt = jnp.linalg.svd(a, full_matrices=False)
    f = jnp.maximum(s - t, 0.0)
    alive = (s > t) | (t <= 0)  # At t = 0 the map is the identity, also for a singular value of 0.
    both, one = _outer(jnp.logical_and, alive), _outer(jnp.logical_xor, alive)
    high, low = _outer(jnp.maximum, s), _outer(jnp.minimum, s)
    differences = jnp.where(both, 1.0, jnp.where(one, (high - t) / jnp.where(one, high - low, 1.0), 0.0))
    total = _outer(jnp.add, s)
    sums = jnp.where(t <= 0, 1.0, _outer(jnp.add, f) / jnp.where(total > 0, total, 1.0))
    ratio = jnp.where(t <= 0, 1.0, f / jnp.where(s > 0, s, 1.0))

    core = u.T @ da @ vt.T
    symmetric, skew = (core + core.T) / 2, (core - core.T) / 2
    tangent = u @ (differences * symmetric + sums * skew) @ vt
    # Outside the square core only one side is left over: the one that the matrix is longer in.
    if a.shape[0] > a.shape[1]:
        right = da @ vt.T
        tangent = tangent + _compose(right - u @ (u.T @ right), ratio, vt)
    elif a.shape[0] < a.shape[1]:
        left = u.T @ da
        tangent = tangent + _compose(u, ratio, left - (left @ vt.T) @ vt)
    tangent = tangent - dt * _compose(u, (s > t).astype(s.dtype), vt)
    return _compose(u, f, vt), tangent


def _compose(u: Array, s: Array, vt: Array) -> Array:
    return (u * jnp.broadcast_to(s, u.shape)) @ vt


def _outer(f, s: Array) -> Array:
    shape = (s.size, s.size)
    return f(jnp.broadcast_to(s[:, None], shape), jnp.broadcast_to(s[None, :], shape))
