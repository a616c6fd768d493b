"""
Your own algorithm in one class
===============================

An algorithm is a frozen object of numbers with pure methods. This one is federated averaging whose server has
momentum: it moves along a running sum of the clients' mean changes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
from jaxtyping import PyTree

import cofed

# %%
# What the server knows between rounds is a tuple of models. A model is a pytree, such as coefficients and an intercept,
# so arithmetic on it goes leaf by leaf.


class Server(NamedTuple):
    w: PyTree  # the model
    velocity: PyTree  # the running sum of changes


def add(x, y, factor=1.0):
    """x + factor y, leaf by leaf."""
    return jax.tree.map(lambda a, b: a + factor * b, x, y)


# %%
# The algorithm has six methods. ``needs`` says which regularizers it can do with: ``"zero"`` is none at all, since its
# steps use gradients only, and a problem with a lasso is refused.


class Momentum(cofed.AbstractServerAlgorithm):
    """FedAvg whose server has momentum."""

    client_lr: float
    momentum: float = 0.9

    needs = ("zero",)

    def init(self, problem, w0):
        """The server's state before the first round."""
        return Server(w0, jax.tree.map(jnp.zeros_like, w0))

    def init_client(self, problem, w0):
        """What a client keeps from round to round: nothing."""
        return ()

    def broadcast(self, server):
        """What goes to the clients of a round."""
        return server.w

    def local(self, problem, down, client, steps):
        """One client's round: what it sends, and what it keeps."""

        def step(k, w):  # the gradient is that of the k-th batch
            return add(w, steps.gradient(w, k), -self.client_lr)

        return add(steps.run(step, down), down, -1.0), client

    def aggregate(self, problem, server, up, share):
        """The server's step: ``up`` is the weighted mean of what was sent, ``share`` the part of clients that sent."""
        velocity = add(up, server.velocity, self.momentum)
        return Server(add(server.w, velocity), velocity)

    def model(self, problem, server):
        """The model, ready to use."""
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

# %%
# With momentum 0.9 the steps add up to ten times their size: the objective falls much faster at first.
