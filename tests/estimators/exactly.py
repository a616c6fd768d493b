"""An independent solver of penalised generalised linear models, slow and in extended precision (64 bits of mantissa).

Proximal Newton steps down the path of strengths; the penalised quadratic models are solved by coordinate descent and,
on the signs that it finds, by elimination. Nothing of cofed is used.
"""

import numpy as np

LONG = np.longdouble


def objective(family, X, y, coef, intercept, penalty):
    """The documented objective of a user's coefficients (features, or features x classes)."""
    z, y = predictions(X, y, coef, intercept, centred=family == "squared")
    return losses(family, z, y).mean() + penalty(np.asarray(coef, LONG))


def predictions(X, y, coef, intercept, centred):
    """The predictions and y, both less the mean of y where they are `centred`.

    Rows are centred before they are multiplied: means of 1e6 standard deviations would cost six digits, and leave more
    rounding than a certificate allows for.
    """
    coef, mean = np.asarray(coef, LONG), LONG(X.mean(axis=0))
    level = LONG(y.mean()) if centred else LONG(0)
    z = (X.astype(LONG) - mean) @ coef + (np.asarray(intercept, LONG) + mean @ coef - level)
    return z, y.astype(LONG) - level if centred else y


def losses(family, z, y):
    """Of each row."""
    if family == "squared":
        return (z - y.astype(LONG)) ** 2 / 2
    if family == "poisson":
        return np.exp(np.minimum(z, 10000)) - y.astype(LONG) * z
    if family == "logistic":
        s = np.where(y > 0, -z, z)
        return np.maximum(s, 0) + np.log1p(np.exp(-np.abs(s)))
    top = z.max(axis=1)
    return top + np.log(np.exp(z - top[:, None]).sum(axis=1)) - z[np.arange(len(y)), y]


def derivatives(family, A, y, v, classes):
    """F, its gradient and its Hessian at v; A holds the columns, that of the intercept among them."""
    n, d = A.shape
    if family == "multinomial":
        z = A @ v.reshape(d, classes)
        share = np.exp(z - z.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        theta = share - np.eye(classes, dtype=LONG)[y]
        W = share[:, :, None] * np.eye(classes, dtype=LONG) - share[:, :, None] * share[:, None, :]
        H = np.stack([[A.T @ (A * W[:, k, m][:, None]) for m in range(classes)] for k in range(classes)])
        H = H.transpose(2, 0, 3, 1).reshape(d * classes, d * classes)
        return losses(family, z, y).mean(), (A.T @ theta).ravel() / n, H / n
    z = A @ v
    if family == "squared":
        mean, W = z, np.ones(n, LONG)
    elif family == "poisson":
        mean = W = np.exp(np.minimum(z, 10000))
    else:
        mean = 1 / (1 + np.exp(-z))
        W = mean * (1 / (1 + np.exp(z)))
    theta = np.where(y > 0, -1 / (1 + np.exp(z)), mean) if family == "logistic" else mean - y.astype(LONG)
    return losses(family, z, y).mean(), A.T @ theta / n, A.T @ (A * W[:, None]) / n


def minimum(family, X, y, l1, ridge, intercept, classes=1, given=None):
    """min mean loss + sum l1 |w| + ridge w^2 / 2, weights per feature. Also how well its conditions hold.

    The objective of a model that was found, and so never below the true minimum. It is sought down the path of
    strengths and, where that ends above it, from the `given` coefficients and intercept.
    """
    X = X.astype(LONG)
    y = y.astype(LONG) if family == "squared" else y
    mean = X.mean(axis=0) if intercept else np.zeros(X.shape[1], LONG)
    width = np.sqrt(((X - mean) ** 2).mean(axis=0))
    width = np.where(width > 1e-17 * np.abs(mean), width, 1)
    A = (X - mean) / width
    unit, shift = LONG(1), LONG(0)
    if family == "squared":
        shift = y.mean() if intercept else shift
        size = np.sqrt(((y - shift) ** 2).mean())
        y, unit = (y - shift) / size, size**2
        width = width / size
    l1, ridge = np.asarray(l1, LONG) / width / unit, np.asarray(ridge, LONG) / width**2 / unit
    if intercept:
        A = np.column_stack([A, np.ones(len(A), LONG)])
        l1, ridge = np.append(l1, LONG(0)), np.append(ridge, LONG(0))
    l1, ridge = np.repeat(l1, classes), np.repeat(ridge, classes)
    v = np.zeros(len(l1), LONG)
    g = derivatives(family, A, y, v, classes)[1]
    penalised = l1 > 0
    strong = (np.abs(g[penalised]) / l1[penalised]).max(initial=1)
    found = []
    while True:  # the path down to the strength asked for, so that the support stays small
        more = max(strong, LONG(1))
        v, total, worst = newton(family, A, y, v, l1 * more, ridge, classes)
        if more == 1:
            found.append((unit * total, float(worst)))
            break
        strong = strong / 4
    if given is not None:
        coef, b = (np.asarray(one, LONG) for one in given)
        flat = coef.reshape(X.shape[1], classes) * width[:, None]
        begin = np.vstack([flat, b + mean @ coef.reshape(X.shape[1], classes) - shift])
        if family == "squared":
            begin[-1] /= size
        _, total, worst = newton(family, A, y, begin[: A.shape[1]].ravel(), l1, ridge, classes)
        found.append((unit * total, float(worst)))
    return min(found)


def newton(family, A, y, v, l1, ridge, classes):
    """The minimiser of one strength from v, its objective and how well its conditions hold."""
    value, g, H = derivatives(family, A, y, v, classes)
    for _ in range(50):
        total = value + (l1 * np.abs(v) + ridge * v**2 / 2).sum()
        worst = violation(g, v, l1, ridge).max()
        if worst <= 1e-17 * min(LONG(1), max(l1.max(), LONG(1e-3))):
            break
        z = quadratic(H, g, v, l1, ridge)
        t, moved = LONG(1), False
        while t > 1e-9 and not moved:
            new = v + t * (z - v)
            found = derivatives(family, A, y, new, classes)
            after = found[0] + (l1 * np.abs(new) + ridge * new**2 / 2).sum()
            level = after <= total * (1 + LONG(1e-18)) and violation(found[1], new, l1, ridge).max() < worst
            moved = after < total or level
            t /= 2
        if not moved:
            break
        v, (value, g, H) = new, found
    return v, total, worst


def violation(g, v, l1, ridge):
    """How far every coordinate is from optimal."""
    slope = g + ridge * v
    return np.where(v != 0, np.abs(slope + l1 * np.sign(v)), np.maximum(np.abs(slope) - l1, 0))


def quadratic(H, g, x, l1, ridge):
    """argmin g'(z - x) + (z - x)' H (z - x)/2 + sum l1 |z| + ridge z^2/2."""
    z, r = x.copy(), g.copy()
    diagonal = np.diag(H) + ridge
    for _ in range(20):
        for _ in range(3):
            for j in np.flatnonzero(diagonal > 0):
                old = z[j]
                u = diagonal[j] * old - (r[j] + ridge[j] * old)
                z[j] = np.sign(u) * max(abs(u) - l1[j], LONG(0)) / diagonal[j]
                if z[j] != old:
                    r += H[:, j] * (z[j] - old)
        for _ in range(2 * len(z)):  # on the signs
            S = np.flatnonzero((z != 0) | ((l1 == 0) & (diagonal > 0)))
            if S.size == 0:
                break
            slope = r[S] + ridge[S] * z[S] + l1[S] * np.sign(z[S])
            step = -eliminate(H[np.ix_(S, S)] + np.diag(ridge[S]), slope)
            crossing = (z[S] != 0) & (l1[S] > 0) & (np.sign(z[S] + step) != np.sign(z[S]))
            t = min([LONG(1), *(-z[S] / np.where(step == 0, 1, step))[crossing]])
            z[S] += t * step
            if t < 1:
                first = S[crossing][np.argmin((-z[S] / np.where(step == 0, 1, step))[crossing])]
                z[first] = 0
            r = g + H @ (z - x)
            if t == 1:
                break
        if violation(r, z, l1, ridge).max() <= 1e-18:
            break
    return z


def eliminate(A, b):
    """A^{-1} b of a positive semi-definite A; directions without curvature are left out."""
    A, b = A.copy(), b.copy()
    n, order = len(b), []
    size = np.diag(A).max()
    left = list(range(n))
    for _ in range(n):
        k = max(left, key=lambda i: A[i, i])
        if A[k, k] <= 1e-17 * size:
            break
        left.remove(k)
        order.append(k)
        factor = A[left, k] / A[k, k]
        A[left] -= factor[:, None] * A[k]
        b[left] -= factor * b[k]
    x = np.zeros(n, LONG)
    for k in reversed(order):
        x[k] = (b[k] - A[k] @ x + A[k, k] * x[k]) / A[k, k]
    return x
