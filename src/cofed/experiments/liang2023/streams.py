"""The data of figures 1 and 2: streams whose clients have dense, distinct optima, and a sparse common one.

The paper says neither how large the clients' own effects are nor which node has which; the authors' public code does.
"""

import numpy as np

import cofed
from cofed.datasets import liang
from cofed.datasets.synthetic import Synthetic

NODES, SPARSITY = 16, 16
SAMPLES = 256  # of each client, on which losses are measured
FAR_APART = np.r_[0:NODES:2, 1:NODES:2]  # the two of a pair half a chain away from each other


def printed_linear(d: int, seed: int) -> Synthetic:
    """Own effects N(0, 1) in every entry, less their mean over the clients; w* is 1 in 16 entries."""
    return cofed.datasets.liang_linear_stream(NODES, d=d, s=SPARSITY, samples=SAMPLES, seed=seed)


def printed_logistic(d: int, seed: int) -> Synthetic:
    """Pairs (alpha, beta), (alpha, -beta), alpha near 1, beta ~ N(0, 0.5^2); a pair is half a chain apart.

    The paper wants the heterogeneity "as large as possible": in neighbours it would cancel in one exchange.
    """
    drawn = cofed.datasets.liang_logistic_stream(NODES, d=d, s=SPARSITY, heterogeneity=0.5, samples=SAMPLES, seed=seed)
    assert drawn.local is not None
    return liang.logistic_stream(drawn.truth["coef"], drawn.local["coef"][FAR_APART], SAMPLES, seed)


def released_linear(d: int, seed: int) -> Synthetic:
    """In 16 entries 5 sign (|N| + 1) for all and 5 N for each client; in the others 5 (Dirichlet(1, ..., 1) - 1/16)."""
    rng = np.random.default_rng(seed)
    large = common(rng) + 5 * rng.standard_normal((NODES, SPARSITY))
    small = 5 * (rng.dirichlet(np.ones(NODES), d - SPARSITY).T - 1 / NODES)
    coef = np.zeros(d)
    coef[:SPARSITY] = large.mean(axis=0)
    return liang.linear_stream(coef, np.hstack([large, small]), 1.0, SAMPLES, seed)


def released_logistic(d: int, seed: int) -> Synthetic:
    """Pairs (alpha, beta), (alpha, -beta) at nodes i and i + 8: alpha as in `released_linear`, beta 5 N."""
    rng = np.random.default_rng(seed)
    alpha = common(rng) + 5 * rng.standard_normal((NODES // 2, SPARSITY))
    beta = 5 * rng.standard_normal((NODES // 2, d - SPARSITY))
    local = np.vstack([np.hstack([alpha, beta]), np.hstack([alpha, -beta])])
    return liang.logistic_stream(liang.logistic_optimum(local, SPARSITY), local, SAMPLES, seed)


def common(rng: np.random.Generator) -> np.ndarray:
    """The part of the 16 entries that all clients share in the authors' code: at least 5 in size."""
    normal = rng.standard_normal(SPARSITY)
    return 5 * np.sign(normal) * (np.abs(normal) + 1)
