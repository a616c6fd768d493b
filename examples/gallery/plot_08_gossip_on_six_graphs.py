"""
Gossip on six graphs
====================

No server: nodes talk to their neighbours only. The better the graph mixes, the fewer rounds an exact method needs:
the second eigenvalue of its gossip matrix is near 0 on a good graph and near 1 on a bad one.
"""

import matplotlib.pyplot as plt
import numpy as np

import cofed

rng = np.random.default_rng(0)
truth = np.r_[np.ones(4), np.zeros(16)]
clients = []
for _ in range(16):
    X = rng.normal(size=(40, 20))
    clients.append((X, X @ (truth + 0.5 * rng.normal(size=20)) + 0.3 * rng.normal(size=40)))
federation = cofed.Federation.from_arrays(clients)
problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(0.1))
best = cofed.solve_pooled(problem, federation).objective

make = cofed.topologies
graphs = {
    "chain": make.chain(16),
    "ring": make.ring(16),
    "grid": make.grid(4, 4),
    "star": make.star(16),
    "random": make.erdos_renyi(16, 0.3, seed=0),
    "complete": make.complete(16),
}

# %%
# NIDS takes one step per round, of a size that no graph makes smaller, and every node ends
# with the pooled optimum.

figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
for name, graph in graphs.items():
    result = cofed.run(
        problem, federation, cofed.NIDS(client_lr=0.3), topology=graph, rounds=300, local_steps=1, progress=False
    )
    gap = np.maximum(result.history["objective"] - best, 1e-15)
    axes.semilogy(result.history["round"], gap, label=f"{name} ({graph.second_eigenvalue:.2f})")
axes.set(xlabel="round", ylabel="objective - optimum")
axes.legend(frameon=False, title="graph (second eigenvalue)", loc="center left", bbox_to_anchor=(1, 0.5))
