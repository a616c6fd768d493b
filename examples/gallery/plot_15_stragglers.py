"""
Stragglers
==========

Where some clients are much slower than others, a synchronous round takes as long as the slowest. On a clock
(``cofed.Clock``) every client works all the time, and a round ends when the first few have answered; late updates
count less.
"""

import matplotlib.pyplot as plt
import numpy as np

import cofed

data = cofed.datasets.yuan_lasso(clients=32, samples=64, d=64, nonzeros=8, scale=0.316)
problem = cofed.Problem(cofed.Linear(), cofed.Squared(half=False), cofed.On(cofed.L1(0.05), "coef"))
best = cofed.solve_pooled(problem, data.federation).objective
method = cofed.FedDualAvg(client_lr=0.01)
speeds = cofed.Clock(seconds=1.0, spread=1.0, jitter=0.2)  # log-normal: the slowest takes some ten times the median

# %%
# The same method, waiting for all 32 clients, for 16, or for 4 of them. With 32 it is the synchronous run, bit by bit.

figure, curves = plt.subplots(figsize=(7, 3.4), layout="constrained")
level, reached = 0.1, {}
for waits_for, rounds in ((32, 150), (16, 900), (4, 3600)):
    options = {"rounds": rounds, "local_steps": 5, "batch_size": 16, "progress": False}
    found = cofed.replicate(
        problem, data.federation, method, seeds=3, clients_per_round=waits_for, clock=speeds, **options
    )
    label = "all (synchronous)" if waits_for == 32 else f"the first {waits_for}"
    times, gaps = found.bands("simulated_seconds")["median"], found.bands("objective") - best
    [line] = curves.semilogy(times, gaps["median"], label=label)
    curves.fill_between(times, gaps["low"], gaps["high"], color=line.get_color(), alpha=0.18, linewidth=0)
    start = gaps["median"].iloc[0]
    below = np.flatnonzero(gaps["median"] <= level * start)
    reached[label] = times.iloc[below[0]] if below.size else np.nan
curves.set(xlabel="simulated seconds", ylabel="objective above the optimum", xlim=(0, 400))
curves.legend(frameon=False, title="a round waits for")

# %%
# Simulated seconds until a tenth of the first gap is left.

colours = [line.get_color() for line in curves.get_lines()]
figure, bars = plt.subplots(figsize=(7, 1.8), layout="constrained")
bars.barh(list(reached), list(reached.values()), color=colours)
bars.invert_yaxis()
bars.set(xlabel=f"simulated seconds to {level:.0%} of the first gap")
print({label: round(float(seconds), 1) for label, seconds in reached.items()})
