"""
A regularization path, the choice of its strength, and intervals
================================================================

One hundred strengths and five folds cost three exchanges with the sites, since a squared loss is known from sums that
serve every strength. Confidence intervals are made from sums, too.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from cofed.estimators import FederatedLassoCV

X, y = load_diabetes(return_X_y=True, as_frame=True)
ward = ["A", "B", "C"] * 147 + ["A"]
lasso = FederatedLassoCV(criterion="1se").fit(X, y, clients=ward)
certificate = lasso.certificate_
print(f"{lasso.n_rounds_} exchanges; at most {certificate.gap + certificate.rounding:.1e} above the pooled optimum")

# %%
# Coefficients by strength, and the held-out error with one standard error. The dotted line is the chosen strength.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
path = lasso.path_
left.semilogx(path.alphas, path.coefs)
left.axvline(lasso.alpha_, color="grey", linestyle=":")
left.set(xlabel="strength", ylabel="coefficient")
mean, se = lasso.cv_mean_, lasso.cv_se_
right.errorbar(lasso.alphas_, mean, se, color="#0072B2", ecolor="#BBBBBB")
right.axvline(lasso.alpha_, color="grey", linestyle=":")
right.set(xscale="log", xlabel="strength", ylabel="held-out squared error")

# %%
# 95 % intervals, of estimates without the penalty's bias.

table = lasso.infer(X, y, clients=ward).drop(index="(intercept)", errors="ignore")
figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
place = np.arange(len(table))
axes.hlines(place, table["low"], table["high"], color="#999999")
axes.plot(table["debiased"], place, "o", color="#0072B2", label="without the penalty's bias")
axes.plot(table["coef"], place, "x", color="#D55E00", label="sparse model")
axes.axvline(0, color="black", linewidth=0.8)
axes.set(xlabel="coefficient", yticks=place, yticklabels=table.index)
axes.legend(frameon=False)
