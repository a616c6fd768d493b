"""
A low-rank matrix
=================

Sixteen clients see products of an unknown 16 x 16 matrix of rank 3. With the nuclear norm the model's rank falls to
that of the truth.
"""

import matplotlib.pyplot as plt
import numpy as np

import cofed

rng = np.random.default_rng(0)
truth = rng.normal(size=(16, 3)) @ rng.normal(size=(3, 16)) / 4
clients = []
for _ in range(16):
    X = rng.normal(size=(60, 16, 16))
    clients.append((X, np.einsum("nij,ij->n", X, truth) + 0.3 * rng.normal(size=60)))
federation = cofed.Federation.from_arrays(clients)
problem = cofed.Problem(cofed.Trace(16, 16, intercept=False), cofed.Squared(), cofed.Nuclear(0.1))
result = cofed.run(problem, federation, cofed.FedDualAvg(client_lr=0.02), rounds=80, local_steps=5, progress=False)

# %%
# The singular values, a little smaller than the truth's as the norm shrinks them, and the rank by round.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for matrix, label, mark in ((truth, "truth", "o"), (result.model.coef, "model", "x")):
    left.plot(range(1, 17), np.linalg.svd(np.asarray(matrix), compute_uv=False), mark, label=label)
left.set(xlabel="index", ylabel="singular value", xticks=range(1, 17, 3))
left.legend(frameon=False)
right.plot(result.history["round"], result.history["rank"], color="#0072B2")
right.set(xlabel="round", ylabel="rank")
