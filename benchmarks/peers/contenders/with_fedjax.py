"""FedJAX: its own `federated_averaging`, with proximal SGD as the clients' and as the server's optimizer."""

import time

import fedjax
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.jobs import Job
from benchmarks.peers.measure import Ran, main
from benchmarks.peers.models import L1, Leaves, Multinomial, Network, Nuclear, Squares


def squares(w, batch):
    """Linear regression."""
    X = batch["x"]
    return jnp.mean((X.reshape(X.shape[0], -1) @ w["coef"].ravel() - batch["y"]) ** 2) / 2


def cross_entropy(scores, y):
    """The mean over a batch."""
    return jnp.mean(jax.nn.logsumexp(scores, axis=1) - jnp.take_along_axis(scores, y[:, None], axis=1)[:, 0])


def multinomial(w, batch):
    """Multinomial logistic regression."""
    return cross_entropy(batch["x"] @ w["coef"] + w["intercept"], batch["y"])


def network(w, batch):
    """The convolutional network."""
    h, last = batch["x"][..., None], len(w) // 2 - 1
    for i in range(last + 1):
        kernel, bias = w[f"layers.{i}.kernel"], w[f"layers.{i}.bias"]
        if kernel.ndim == 4:
            h = jax.lax.conv_general_dilated(h, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            h = jax.nn.relu(h + bias)
            h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        else:
            h = h.reshape(h.shape[0], -1) @ kernel + bias
            h = jax.nn.relu(h) if i < last else h
    return cross_entropy(h, batch["y"])


def soft(v, t):
    """Towards 0 by t."""
    return jnp.sign(v) * jnp.maximum(jnp.abs(v) - t, 0)


def low_rank(v, t):
    """The singular values towards 0 by t."""
    u, s, vt = jnp.linalg.svd(v, full_matrices=False)
    return (u * soft(s, t)) @ vt


LOSSES = {Squares: squares, Multinomial: multinomial, Network: network}
SHRINK = {L1: soft, Nuclear: low_rank}


def proximal_sgd(job: Job, lr: float, span: float):
    """An optimizer of FedJAX: a step of length lr, then the prox of length span."""
    shrink, t = SHRINK[type(job.regularizer)], span * job.regularizer.strength

    def apply(grads, state, w):
        return state, jax.tree_util.tree_map(lambda leaf, g: shrink(leaf - lr * g, t), w, grads)

    return fedjax.optimizers.Optimizer(init=lambda w: (), apply=apply)


def prepare(job: Job, X: np.ndarray, y: np.ndarray, w0: Leaves):
    """A function that runs so many rounds from the start."""
    loss = LOSSES[type(job.model)]
    gradient = jax.grad(loss)
    server = proximal_sgd(job, 1.0, job.lr * job.steps)
    server = fedjax.optimizers.Optimizer(server.init, jax.jit(server.apply))
    work = {"num_epochs": 1} if job.local_steps is None else {"num_epochs": None, "num_steps": job.local_steps}
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        lambda w, batch, rng: gradient(w, batch),
        proximal_sgd(job, job.lr, job.lr),
        server,
        fedjax.ShuffleRepeatBatchHParams(batch_size=job.batch, drop_remainder=False, **work),
    )
    federation = fedjax.InMemoryFederatedData({str(m): {"x": X[m], "y": y[m]} for m in range(job.clients)})
    start = {name: jnp.asarray(leaf) for name, leaf in w0.items()}

    def run(rounds: int) -> Ran:
        sampler = fedjax.client_samplers.UniformGetClientSampler(federation, job.per_round, seed=0)
        began = time.perf_counter()
        state = algorithm.init(start)
        for _ in range(rounds):
            state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
        seconds = time.perf_counter() - began
        return Ran({name: np.asarray(leaf) for name, leaf in state.params.items()}, seconds)

    return run


if __name__ == "__main__":
    main(prepare, packages=("fedjax", "jax", "jaxlib", "numpy"))
