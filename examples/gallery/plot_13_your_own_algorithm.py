"""
Your own algorithm in thirty lines
==================================

An algorithm is a frozen object of numbers with pure methods. This one is gradient descent with momentum on the
server.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
from jaxtyping import PyTree

import cofed


class Server(NamedTuple):
    w: PyTree  # the model
    velocity: PyTree  # of the server's steps


class Momentum(cofed.AbstractServerAlgorithm):
    """FedAvg whose server has momentum."""

    client_lr: float
    momentum: float = 0.9

    needs = ("zero",)

    def init(self, problem, w0):
        return Server(w0, jax.tree.map(jnp.zeros_like, w0))

    def init_client(self, problem, w0):
        return ()

    def broadcast(self, server):
        return server.w

    def local(self, problem, down, client, steps):
        move = lambda k, w: jax.tree.map(lambda a, g: a - self.client_lr * g, w, steps.gradient(w, k))  # noqa: E731
        return jax.tree.map(jnp.subtract, steps.run(move, down), down), client

    def aggregate(self, problem, server, up, share):
        velocity = jax.tree.map(lambda v, u: self.momentum * v + u, server.velocity, up)
        return Server(jax.tree.map(jnp.add, server.w, velocity), velocity)

    def model(self, problem, server):
        return server.w


# %%
# It runs like every other: in process, on several devices, over a network.

data = cofed.datasets.yuan_lasso(clients=16, samples=64, d=64, nonzeros=8, scale=0.316)
problem = cofed.Problem(cofed.Linear(), cofed.Squared(half=False))
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for method in (cofed.FedAvg(client_lr=0.005), Momentum(client_lr=0.005)):
    result = cofed.run(problem, data.federation, method, rounds=60, local_steps=5, progress=False)
    axes.plot(result.history["round"], result.history["objective"], label=method.name)
axes.set(xlabel="round", ylabel="objective")
axes.legend(frameon=False)
