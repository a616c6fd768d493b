"""Singular-value thresholding: fast where that is exact to round-off, and with a derivative that is finite everywhere.

The singular vectors of a follow from the eigenvectors V of its Gram matrix a'a at less than half of the price of an
SVD. But squaring loses half of the digits, so V is only nearly right. How nearly is seen in C = (aV)'(aV), which is
computed to round-off relative to the columns of aV and would be diagonal for an exact V. The answer is aV f(C) V' with
f(C) = max(1 - t C^(-1/2), 0), to first order in the off-diagonal part of C (Daleckii and Krein). What the second order
would add is bounded from C itself; where it is above round-off, another way is taken.

Small matrices in float32 have another one, for small thresholds among large singular values: their Gram matrix in
float64, from eigenvalues l of which the answer is a V max(1 - t l^(-1/2), 0) V'. Say that what was decomposed is
P~^2 = P^2 + E, P^2 = a'a. The error is at most |max(P~ - t, 0) - max(P - t, 0)| + |(P - P~) f(P~^2)|. The first is at
most |E|/(2t), as max(l^(1/2) - t, 0) grows no faster than l/(2t). For the second, P (P - P~) + (P - P~) P~ = -E: with
P >= 0, and P~ >= t where f is not 0, it is at most |E|/t. So 1.5 |E|/t is below the round-off of float32 for all t but
tiny ones, for which the SVD is left.
"""

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float

SMALL = 64  # rows or columns
FINE, COARSE = (float(jnp.finfo(kind).eps) for kind in ("float64", "float32"))


@jax.custom_jvp
def threshold_singular_values(a: Float[Array, "m n"], t: Float[Array, ""]) -> Float[Array, "m n"]:
    """U max(S - t, 0) V^T for a = U S V^T."""
    # LAPACK complains on standard error about numbers that are not finite, so it never sees them.
    finite = jnp.all(jnp.isfinite(a))
    # Entries of at most 1: their squares neither overflow nor vanish together.
    largest = jnp.max(jnp.abs(a), initial=0.0)
    scale = jnp.where(finite & (largest > 0), largest, 1.0)
    a, t = jnp.where(finite, a, 0.0) / scale, t / scale
    found = _thresholded(a, t) if a.shape[0] >= a.shape[1] else _thresholded(a.T, t).T
    return jnp.where(finite, scale * found, jnp.nan)


@custom_vmap
def _thresholded(a: Array, t: Array) -> Array:
    def gram() -> Array:
        near, exact = by_gram(a, t)
        return jax.lax.cond(exact, lambda: near, lambda: by_svd(a, t))

    # A small threshold among singular values of all sizes needs more digits, so this is not tried in vain.
    size = jnp.sqrt(jnp.sum(a * a))
    promising = t >= float(jnp.finfo(a.dtype).eps) ** (1 / 3) * size
    return jax.lax.cond(promising, gram, lambda: with_all_digits(a, t, size))


@_thresholded.def_vmap
def _one_by_one(size: int, batched: list, a: Array, t: Array) -> tuple[Array, bool]:
    """LAPACK takes matrices one by one anyway; so only those that need the SVD pay for it."""
    rows = [x if has else jnp.broadcast_to(x, (size, *x.shape)) for x, has in zip((a, t), batched, strict=True)]
    return jax.lax.map(lambda one: _thresholded(*one), tuple(rows)), True


def with_all_digits(a: Float[Array, "m n"], t: Float[Array, ""], size: Float[Array, ""]) -> Float[Array, "m n"]:
    """For small thresholds: in float64 where that is faster and exact to the round-off of float32, else by the SVD."""
    n = a.shape[1]
    if n > SMALL or a.dtype != jnp.float32:
        return by_svd(a, t)
    # |E| is at most 2 n float64's round-off times size^2, the round-off of the answer that of its largest entry.
    tiny = 3 * n**1.5 * FINE / COARSE
    return jax.lax.cond(t >= tiny * size, lambda: by_fine_gram(a, t), lambda: by_svd(a, t))


def by_fine_gram(a: Float[Array, "m n"], t: Float[Array, ""]) -> Float[Array, "m n"]:
    """The same by way of the Gram matrix in float64, which is there for this alone where JAX is in 32 bits."""
    with jax.enable_x64(True):
        fine, least = (jax.lax.convert_element_type(x, jnp.float64) for x in (a, t))
        v, squares = jax.lax.linalg.eigh(fine.T @ fine, symmetrize_input=False)
        s = jnp.sqrt(jnp.maximum(squares, jnp.float64(0)))
        kept = jnp.where(s > least, 1 - least / jnp.where(s > least, s, jnp.float64(1)), jnp.float64(0))
        return jax.lax.convert_element_type(fine @ _compose(v, kept, v.T), jnp.float32)


def by_svd(a: Float[Array, "m n"], t: Float[Array, ""]) -> Float[Array, "m n"]:
    """The definition. For small matrices LAPACK's QR iteration is faster than its divide and conquer."""
    way = jax.lax.linalg.SvdAlgorithm.QR if min(a.shape) <= SMALL else jax.lax.linalg.SvdAlgorithm.DEFAULT
    u, s, vt = jax.lax.linalg.svd(a, full_matrices=False, algorithm=way)
    return _compose(u, jnp.maximum(s - t, 0.0), vt)


def by_gram(a: Float[Array, "m n"], t: Float[Array, ""]) -> tuple[Float[Array, "m n"], Bool[Array, ""]]:
    """The same by way of the Gram matrix, m >= n, and whether it is exact to round-off."""
    v, _ = jax.lax.linalg.eigh(a.T @ a, symmetrize_input=False)
    b = a @ v
    c = b.T @ b
    s = jnp.sqrt(jnp.diag(c))
    alive = s > t
    inverse = jnp.where(alive, 1.0 / jnp.where(alive, s, 1.0), 0.0)
    # Divided differences of f at pairs of squared singular values, written so that nothing cancels.
    both, one = _outer(jnp.logical_and, alive), _outer(jnp.logical_xor, alive)
    high, low = _outer(jnp.maximum, s), _outer(jnp.minimum, s)
    sums = high + low
    slope = jnp.where(
        both,
        t * _outer(jnp.multiply, inverse) / jnp.where(both, sums, 1.0),
        jnp.where(one, (high - t) / jnp.where(one, high * (high - low) * sums, 1.0), 0.0),
    )
    off = c - jnp.diag(jnp.diag(c))
    core = jnp.diag(jnp.where(alive, 1.0 - t * inverse, 0.0)) + slope * off
    # The second order is at most t |E_alive| |E|, E the off-diagonal part relative to the singular values (at least t).
    size = jnp.maximum(s, t)
    relative = off / jnp.where(size > 0, size, 1.0)[:, None] / jnp.where(size > 0, size, 1.0)[None, :]
    by_row = jnp.sum(relative**2, axis=1)
    rest = t * jnp.sqrt(jnp.sum(jnp.where(alive, by_row, 0.0)) * jnp.sum(by_row))
    return b @ core @ v.T, rest <= jnp.finfo(a.dtype).eps * jnp.max(s, initial=0.0)


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
