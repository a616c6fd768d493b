"""
The curse of primal averaging
=============================

Averaging sparse models gives a dense one. FedDualAvg averages in the dual, where thresholding comes after the mean,
and comes near the truth's density while FedMiD stays dense (Yuan, Zaheer and Reddi 2021).
"""

import matplotlib.pyplot as plt

import cofed

data = cofed.datasets.yuan_lasso(clients=32, samples=64, d=256, nonzeros=64, scale=0.316)
problem = cofed.Problem(cofed.Linear(), cofed.Squared(half=False), cofed.On(cofed.L1(0.05), "coef"))

# %%
# Ten clients take part in a round, each with one pass over its data in batches of ten.

methods = [cofed.FedMiD(client_lr=0.01), cofed.FedDualAvg(client_lr=0.01)]
results = {
    method.name: cofed.run(
        problem,
        data.federation,
        method,
        rounds=300,
        local_epochs=1,
        batch_size=10,
        clients_per_round=10,
        progress=False,
    )
    for method in methods
}

# %%
# The density is the share of coefficients that are not exactly zero; the truth has a quarter.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for name, result in results.items():
    history, colour = result.history, cofed.plotting.colour(name)
    left.plot(history["round"], history["density"], color=colour)
    right.plot(history["round"], history["loss"], label=name, color=colour)
left.axhline(0.25, color="grey", linestyle=":")
left.text(300, 0.22, "truth", ha="right", va="top", color="grey")
left.set(xlabel="round", ylabel="density", ylim=(0, 1.05))
right.set(xlabel="round", ylabel="loss", ylim=(0, None))
right.legend(frameon=False)

# %%
# FedDualAvg ends with 29 % of the coefficients; FedMiD, whose mean has a coefficient wherever any client has one, with
# more than half of them and a larger loss.
