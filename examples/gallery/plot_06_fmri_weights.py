"""
A classifier of brain scans, its weights drawn
==============================================

Sparse logistic regression on scans whose runs are the clients, as in Figure 1 of Yuan, Zaheer and Reddi (2021), on
generated scans with two regions that count. The same on real ones: ``cofed reproduce yuan2021-fig5 --data DIR``.
"""

import matplotlib.pyplot as plt
import numpy as np

import cofed

side = 16
rng = np.random.default_rng(0)
truth = np.zeros((side, side))
truth[4:7, 3:6], truth[9:12, 10:13] = 1.0, -1.0
clients = []
for _ in range(11):
    smooth = rng.normal(size=(36, side, side))
    X = (smooth + np.roll(smooth, 1, 1) + np.roll(smooth, 1, 2)).reshape(36, -1) / np.sqrt(3)
    clients.append((X, (X @ truth.ravel() + rng.normal(size=36) > 0).astype(float)))
federation = cofed.Federation.from_arrays(clients)
problem = cofed.Problem(cofed.Linear(), cofed.Logistic(), cofed.On(cofed.L1(0.03), "coef"))

# %%
# The weights after the same number of rounds, beside the truth; in per cent how many are not zero.

figure, axes = plt.subplots(1, 4, figsize=(9, 2.6), layout="constrained")
axes[0].imshow(truth, cmap="RdBu_r", vmin=-1, vmax=1)
axes[0].set_title("truth")
for panel, method in zip(axes[1:], (cofed.FedAvg(0.03), cofed.FedMiD(0.03), cofed.FedDualAvg(0.03)), strict=True):
    result = cofed.run(
        problem, federation, method, rounds=60, local_epochs=1, batch_size=4, clients_per_round=5, progress=False
    )
    weights = np.asarray(result.model.coef).reshape(side, side)
    panel.imshow(weights, cmap="RdBu_r", vmin=-1, vmax=1)
    panel.set_title(f"{method.name}: {np.mean(weights != 0):.0%}")
for panel in axes:
    panel.axis("off")

# %%
# All three find the two regions. FedAvg leaves no weight at exactly zero; FedDualAvg's weights are the fewest, nearly
# all in the regions, and stronger there than FedMiD's, which shrinks them twice.
