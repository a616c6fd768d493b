"""
A network with sparse layers
============================

A regularizer acts on the leaves of a model that one names: here the kernels of a network are sparse, its biases are
free. The loss is not convex; FedDecouple (zhang2025) is made for that.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import cofed

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
groups = np.array_split(np.argsort(y, kind="stable"), 10)  # by label: clients differ as much as can be
mixed = [np.r_[groups[m][::2], groups[(m + 1) % 10][1::2]] for m in range(10)]
federation = cofed.Federation.from_arrays([(X[rows], y[rows]) for rows in mixed])
model = cofed.MLP((64, 32, 10))
print(model)

# %%
# The larger the strength, the fewer weights remain.

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for strength in (0.0, 1e-4, 1e-3):
    problem = cofed.Problem(model, cofed.Softmax(), cofed.L1(strength))
    result = cofed.run(
        problem, federation, cofed.FedDecouple(client_lr=0.05), rounds=60, local_steps=10, batch_size=20, progress=False
    )
    density = result.history["density"][-1]
    axes.plot(result.history["round"], result.history["loss"], label=f"strength {strength:g}: density {density:.0%}")
axes.set(xlabel="round", ylabel="loss")
axes.legend(frameon=False)
