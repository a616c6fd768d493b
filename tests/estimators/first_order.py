"""Other penalties and constraints: accelerated projected gradients in extended precision.

Nothing of cofed is used. What is found is the objective of some model, and so never below the true minimum.
"""

import numpy as np
from tests.estimators import exactly

LONG = np.longdouble
GROUPS = {6: [0, 0, 1, 1, 2, 2], 20: [j // 4 for j in range(20)]}
MATRIX = {6: (2, 3), 20: (4, 5)}


def compare(family, X, y, coef, intercept, wide, alpha, radius, fit_intercept, steps=4000):
    """The objective of the given coefficients, and the least that is found from there and from zero."""
    given = exactly.objective("squared", X, y, coef, intercept, lambda w: value(family, w * wide, alpha))
    X, y, coef = X.astype(LONG), y.astype(LONG), np.asarray(coef, LONG)
    A, b = (X - X.mean(axis=0), y - y.mean()) if fit_intercept else (X, y)
    A = A / wide
    size, tall = np.sqrt((A**2).mean()), np.sqrt((b**2).mean())
    A, b = A / size, b / tall
    strength, r = alpha / size / tall, radius * size / tall
    G, c = A.T @ A / len(b), A.T @ b / len(b)
    L = LONG(np.linalg.eigvalsh(G.astype(float)).max()) * LONG(1.0001)
    best = given
    for w in (coef * wide * size / tall, np.zeros_like(coef)):
        w = v = prox(family, w, strength, r, LONG(0))
        t = LONG(1)
        for _ in range(steps):
            new = prox(family, v - (G @ v - c) / L, strength, r, 1 / L)
            if ((v - new) * (new - w)).sum() > 0:
                t = LONG(1)
            after = (1 + np.sqrt(1 + 4 * t**2)) / 2
            moved = new - w
            w, v, t = new, new + (t - 1) / after * moved, after
            if np.abs(moved).max() <= 1e-19 * np.abs(w).max():
                break
        found = tall**2 * (((b - A @ w) ** 2).mean() / 2 + value(family, w, strength))
        best = min(best, found)
    return given, best


def compare_logistic_groups(X, y, coef, intercept, wide, alpha, fit_intercept, steps=2000):
    """The same for classes under a group penalty; Newton steps on the groups in use come after the gradients'."""
    given = exactly.objective("logistic", X, y, coef, intercept, lambda w: value("group", w * wide, alpha))
    X, coef, n = X.astype(LONG), np.asarray(coef, LONG), len(y)
    mean = X.mean(axis=0) if fit_intercept else np.zeros(len(coef), LONG)
    A = (X - mean) / wide
    size = np.sqrt((A**2).mean())
    A, strength = np.column_stack([A / size, np.full(n, LONG(fit_intercept))]), alpha / size
    L = LONG(np.linalg.eigvalsh((A.T @ A / n).astype(float)).max()) / 4 * LONG(1.0001)
    near = lambda v, step: np.append(prox("group", v[:-1], strength, 0, step), v[-1])  # noqa: E731
    whole = lambda v: exactly.losses("logistic", A @ v, y).mean() + value("group", v[:-1], strength)  # noqa: E731
    best = given
    for w in (np.append(coef * wide * size, LONG(intercept) + mean @ coef), np.zeros(len(coef) + 1, LONG)):
        w = v = w * np.append(np.ones(len(coef), LONG), LONG(fit_intercept))
        t = LONG(1)
        for _ in range(steps):
            new = near(v - exactly.derivatives("logistic", A, y, v, 1)[1] / L, 1 / L)
            t = LONG(1) if ((v - new) * (new - w)).sum() > 0 else t
            after = (1 + np.sqrt(1 + 4 * t**2)) / 2
            w, v, t = new, new + (t - 1) / after * (new - w), after
        best = min(best, whole(w), whole(on_groups(A, y, w, strength, whole)))
    return given, best


def on_groups(A, y, w, strength, whole):
    """Newton steps over the groups that are not zero, as long as the objective falls."""
    labels = np.array(GROUPS[len(w) - 1])
    for _ in range(30):
        _, g, H = exactly.derivatives("logistic", A, y, w, 1)
        for k in set(labels):
            members = np.flatnonzero(labels == k)
            norm, limit = np.sqrt((w[members] ** 2).sum()), strength * np.sqrt(LONG(len(members)))
            if norm > 0:
                u = w[members] / norm
                g[members] += limit * u
                H[np.ix_(members, members)] += limit / norm * (np.eye(len(members)) - np.outer(u, u))
        used = np.flatnonzero((w != 0) & (np.diag(H) > 0))
        step = np.zeros_like(w)
        step[used] = -exactly.eliminate(H[np.ix_(used, used)], g[used]) if used.size else 0
        lower = [v for v in (w + step, w + step / 8) if whole(v) < whole(w)]
        if not lower:
            break
        w = lower[0]
    return w


def value(family, w, strength):
    """The penalty; constraints are taken to hold."""
    if family == "group":
        labels = np.array(GROUPS[len(w)])
        return strength * sum(np.sqrt(LONG((labels == k).sum()) * (w[labels == k] ** 2).sum()) for k in set(labels))
    if family == "trace":
        return strength * LONG(np.linalg.svd(w.reshape(MATRIX[len(w)]).astype(float), compute_uv=False).sum())
    return LONG(0)


def prox(family, v, strength, r, step):
    """Of the penalty or onto the set."""
    if family == "group":
        out, labels = v.copy(), np.array(GROUPS[len(v)])
        for k in set(labels):
            members = labels == k
            norm, limit = np.sqrt((v[members] ** 2).sum()), step * strength * np.sqrt(LONG(members.sum()))
            out[members] *= max(1 - limit / norm, LONG(0)) if norm > 0 else 0
        return out
    if family == "trace":
        u, s, vt = np.linalg.svd(v.reshape(MATRIX[len(v)]).astype(float), full_matrices=False)
        return LONG((u * np.maximum(s - float(step * strength), 0)) @ vt).ravel()
    if family == "nonnegative":
        return np.maximum(v, 0)
    if family == "box":
        return np.clip(v, -r, r)
    if family == "l2_ball":
        return v * min(LONG(1), r / max(np.sqrt((v**2).sum()), LONG(1e-300)))
    if family == "simplex":
        return on_simplex(v, r)
    return v if np.abs(v).sum() <= r else np.sign(v) * on_simplex(np.abs(v), r)


def on_simplex(v, r):
    """The nearest point with entries >= 0 and this sum."""
    down = np.sort(v)[::-1]
    level = (np.cumsum(down) - r) / np.arange(1, len(v) + 1)
    return np.maximum(v - level[np.flatnonzero(down > level)[-1]], 0)
