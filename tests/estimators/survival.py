"""Cox's partial likelihood as its definition says, slowly, and small data of unequal sites with ties."""

import numpy as np
from tests.estimators import hospitals


def follow_up(seed=0, entries=False):
    """Features, and labels with tied times, of which about two thirds are events; hazards differ by site."""
    X = hospitals.features(seed)
    rng = np.random.default_rng(seed + 1)
    rate = np.exp(0.5 * X[:, 0] - 0.7 * X[:, 2]) * np.repeat([1.0, 3.0, 0.4], list(hospitals.SIZES.values()))
    death, end = rng.exponential(1 / rate), rng.exponential(3 / rate)
    time, event = np.ceil(8 * np.minimum(death, end)) / 8, death <= end
    if not entries:
        return X, np.column_stack([time, event])
    return X, np.column_stack([np.maximum(np.floor(8 * time * rng.uniform(-1, 0.9, len(time))) / 8, 0), time, event])


def half_deviance(eta, y, ties):
    """Minus the log partial likelihood of one stratum, less that of the saturated model."""
    return derivatives(eta, np.zeros((len(eta), 0)), y, ties)[0]


def derivatives(eta, X, y, ties, weight=None):
    """The same, its gradient and its Hessian by the coefficients, event time by event time; a weight is R's: of tied
    events it is their mean that counts for each."""
    weight = np.ones(len(y)) if weight is None else weight
    entry, time, event = (y[:, 0] if y.shape[1] == 3 else np.full(len(y), -np.inf)), y[:, -2], y[:, -1] == 1
    value, gradient, hessian = 0.0, np.zeros(X.shape[1]), np.zeros((X.shape[1],) * 2)
    for t in np.unique(time[event]):
        here, risk = event & (time == t), (entry < t) & (time >= t)
        d, each = here.sum(), weight[here].mean()
        for place in range(d):
            left = place / d if ties == "efron" else 0
            size = weight[risk] * (1 - left * here[risk]) * np.exp(eta[risk])
            share = size / size.sum()
            mean = share @ X[risk]
            value += each * (np.log(size.sum()) - np.log(weight[here].sum() * (1 - left)))
            gradient += each * mean
            hessian += each * ((X[risk] * share[:, None]).T @ X[risk] - np.outer(mean, mean))
        value -= weight[here] @ eta[here]
        gradient -= weight[here] @ X[here]
    return value, gradient, hessian


def pooled(coef, X, y, sites, ties, weight=None, offset=None):
    """The sums over sites, each a stratum, per row or by the sum of all weights."""
    weight, offset = np.ones(len(X)) if weight is None else weight, np.zeros(len(X)) if offset is None else offset
    parts = []
    for own in (sites == s for s in np.unique(sites)):
        parts.append(derivatives(X[own] @ coef + offset[own], X[own], y[own], ties, weight[own]))
    return [sum(part) / weight.sum() for part in zip(*parts, strict=True)]


def scores(coef, X, y, sites, ties, weight=None, offset=None):
    """What the gradient changes by, to first order, where a row of weight 1 more were left out: row by row, each at
    every event time of its site. Lin and Wei 1989; tied events share what they are compared with."""
    weight, offset = np.ones(len(X)) if weight is None else weight, np.zeros(len(X)) if offset is None else offset
    found, size = np.zeros(X.shape), weight * np.exp(X @ coef + offset)
    entry, time, event = (y[:, 0] if y.shape[1] == 3 else np.full(len(y), -np.inf)), y[:, -2], y[:, -1] == 1
    for s in np.unique(sites):
        for t in np.unique(time[event & (sites == s)]):
            here, risk = event & (time == t) & (sites == s), (entry < t) & (time >= t) & (sites == s)
            d, each = here.sum(), weight[here].mean()
            for place in range(d):
                part = risk * (1 - (place / d if ties == "efron" else 0) * here)
                total = part @ size
                away = X - (part * size) @ X / total
                found += (part * np.exp(X @ coef + offset) * each / total - here / d)[:, None] * away
    return found


def least(X, y, sites, ties, l1, ridge, steps=60, weight=None, offset=None):
    """The minimiser of the mean loss + sum l1 |w| + ridge w^2 / 2: proximal Newton steps, or parts of them."""
    w = np.zeros(X.shape[1])

    def objective(w):
        return pooled(w, X, y, sites, ties, weight, offset)[0] + l1 @ abs(w) + ridge @ w**2 / 2

    for _ in range(steps):
        _, g, H = pooled(w, X, y, sites, ties, weight, offset)
        v = w.copy()
        for _ in range(400):  # coordinate descent on the quadratic model
            for j in range(len(w)):
                pull = v[j] * H[j, j] - (g[j] + H[j] @ (v - w))
                v[j] = np.sign(pull) * max(abs(pull) - l1[j], 0) / (H[j, j] + ridge[j])
        t = 1.0
        while objective(w + t * (v - w)) > objective(w) and t > 1e-12:
            t /= 2
        if t <= 1e-12 or np.abs(v - w).max() <= 1e-15:
            break
        w = w + t * (v - w)
    return w, objective(w)
