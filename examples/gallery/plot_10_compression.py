"""
Compressed uploads with error feedback
======================================

With error feedback, a bit per number is enough to end where the plain method does.
"""

import matplotlib.pyplot as plt
import numpy as np

import cofed

data = cofed.datasets.yuan_lasso(clients=16, samples=64, d=128, nonzeros=16, scale=0.316)
problem = cofed.Problem(cofed.Linear(), cofed.Squared(half=False), cofed.On(cofed.L1(0.05), "coef"))
plain = cofed.FedDecouple(client_lr=0.02)
methods = {
    "plain": plain,
    "5 % of the entries": cofed.Compressed(plain, cofed.TopK(0.05)),
    "1 bit": cofed.Compressed(plain, cofed.Quantised(bits=1)),
}

# %%
# The objective by what all clients have sent so far.
figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for name, method in methods.items():
    result = cofed.run(problem, data.federation, method, rounds=150, local_steps=5, progress=False)
    table = result.history.to_pandas()
    sent = np.maximum(table["bytes_up"].to_numpy() / 1e6, 1e-4)
    axes.semilogx(sent, table["objective"], label=name)
axes.set(xlabel="megabytes sent by all clients", ylabel="objective")
axes.legend(frameon=False)

# %%
# Five per cent of the entries are a fifteenth of the plain method's megabytes, one bit for each entry a twentieth, and
# all end at the same objective.
