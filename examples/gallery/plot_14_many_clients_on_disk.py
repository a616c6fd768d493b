"""
A million clients on disk
=========================

The rows of a Parquet file stay on disk; a round reads those of the clients that take part. Here are a million clients
of five samples each, of which a round draws 200.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import cofed

rng = np.random.default_rng(0)
rows = 1_000_000 * 5
X = rng.normal(size=(rows, 8)).astype(np.float32)
frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(8)])
frame["y"] = X @ np.r_[1, -1, 0.5, np.zeros(5)].astype(np.float32) + rng.normal(size=rows).astype(np.float32)
frame["phone"] = np.repeat(np.arange(1_000_000), 5)
folder = tempfile.TemporaryDirectory()
file = Path(folder.name) / "phones.parquet"
frame.to_parquet(file)

# %%
# The first call builds an index beside the file. The history is measured on 1,000 clients that stay in memory, since a
# pass over all of them takes longer than a round.

federation = cofed.Federation.from_parquet(file, target="y", client="phone", on_disk=True).measured_on(1000)
print(f"{federation.n_clients:,} clients")
problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(0.05))
result = cofed.run(
    problem,
    federation,
    cofed.FedDualAvg(0.05),
    rounds=60,
    local_steps=2,
    clients_per_round=200,
    evaluate_every=10,
    progress=False,
)
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.plot(result.history["round"], result.history["objective"], "o-", color="#0072B2")
axes.set(xlabel="round", ylabel="objective")

# %%
# After thirty rounds the objective hardly falls any more: 6,000 of the million clients are enough for eight
# coefficients.
