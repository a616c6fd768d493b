"""
Sparse logistic regression over four hospitals
==============================================

Which of twenty measurements go with an illness, from rows that stay where they are? The fit gives the answer of the
pooled rows and proves how exact it is.
"""

import matplotlib.pyplot as plt
import numpy as np

from cofed.estimators import FederatedLogisticRegressionCV

rng = np.random.default_rng(1)
rows = {"Bergen": 220, "Leiden": 400, "Padua": 150, "Turku": 300}
hospital = np.repeat(list(rows), list(rows.values()))
X = rng.normal(size=(hospital.size, 20)) + 0.4 * (hospital == "Padua")[:, None]
ill = rng.random(hospital.size) < 1 / (1 + np.exp(-X[:, :4] @ [1.0, -0.8, 0.6, 0.5] + 0.5))

model = FederatedLogisticRegressionCV(criterion="1se").fit(X, ill, clients=hospital)
print(model.summary())

# %%
# Intervals without the penalty's bias, from two more exchanges of sums.

table = model.infer(X, ill, clients=hospital)
figure, axes = plt.subplots(figsize=(6, 4.5), layout="constrained")
place = np.arange(len(table))
axes.hlines(place, table["low"], table["high"], color="#999999")
axes.plot(table["debiased"], place, "o", color="#0072B2", label="without the penalty's bias")
axes.plot(table["coef"], place, "x", color="#D55E00", label="sparse model")
axes.axvline(0, color="black", linewidth=0.8)
axes.set(xlabel="log odds ratio", yticks=place, yticklabels=table.index)
axes.legend(frameon=False)
