"""
Cox's model over sites
======================

Times to an event, with a baseline hazard of its own for every site: the sites' partial likelihoods add up, so the
fit is that of a stratified Cox model on pooled rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from cofed.estimators import FederatedCox

rng = np.random.default_rng(0)
site = np.repeat(["Oslo", "Rome", "Bonn"], [120, 200, 90])
X = rng.normal(size=(site.size, 8))
baseline = {"Oslo": 1.0, "Rome": 2.0, "Bonn": 0.5}
rate = np.exp(X[:, :3] @ [0.8, -0.6, 0.4]) * np.array([baseline[name] for name in site])
time, censored = rng.exponential(1 / rate), rng.exponential(1.0, size=site.size)
y = np.c_[np.minimum(time, censored), time <= censored]

strengths = [0.2, 0.1, 0.05, 0.02, 0.01]
coefs = np.array([FederatedCox(alpha=alpha).fit(X, y, clients=site).coef_ for alpha in strengths])

# %%
# Three of the eight features count, and these stay longest as the penalty grows.

figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for feature, truth in enumerate([0.8, -0.6, 0.4]):
    axes.semilogx(strengths, coefs[:, feature], marker="o", label=f"x{feature}, truly {truth}")
axes.semilogx(strengths, coefs[:, 3:], marker=".", color="#BBBBBB", label=["truly 0", *[None] * 4])
axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
axes.set(xlabel="strength", ylabel="log hazard ratio")
