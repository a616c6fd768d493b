"""
One model for all, or a model each?
===================================

It depends on how different the clients are (Chen et al. 2021): below a threshold one model is better, above it a model
each, and FedProx is between. For tables of several sites, ``cofed advise`` answers it.
"""

import matplotlib.pyplot as plt
import numpy as np

import cofed

levels = np.array([0.0, 0.5, 1.0, 2.0, 4.0])
problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Logistic())
found = []
for level in levels:
    data = cofed.datasets.chen_logistic(clients=12, samples=60, heterogeneity=float(level))
    estimate = cofed.heterogeneity(problem, data.federation)
    found.append((estimate.R_squared, estimate.threshold))
    print(f"heterogeneity {level}: {estimate}")

# %%
# The estimate of R² beside the threshold at which the advice changes.

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.plot(levels, np.array(found)[:, 0], "o-", color="#0072B2", label="estimated R²")
axes.plot(levels, np.array(found)[:, 1], "--", color="#999999", label="threshold")
axes.set(xlabel="heterogeneity of the generated clients", ylabel="R²")
axes.legend(frameon=False)
