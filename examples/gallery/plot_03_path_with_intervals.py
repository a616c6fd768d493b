"""
A regularization path, and how its strength is chosen
=====================================================

One hundred strengths and five folds cost three exchanges with the sites: every point that was looked at serves
every strength.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

from cofed.estimators import FederatedLassoCV

X, y = load_diabetes(return_X_y=True, as_frame=True)
ward = ["A", "B", "C"] * 147 + ["A"]
lasso = FederatedLassoCV(criterion="1se").fit(X, y, clients=ward)
print(f"{lasso.n_rounds_} exchanges; {lasso.certificate_}")

# %%
# Coefficients by strength, and the held-out error with one standard error.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
path = lasso.path_
left.semilogx(path.alphas, path.coefs)
left.axvline(lasso.alpha_, color="grey", linestyle=":")
left.set(xlabel="strength", ylabel="coefficient")
mean, se = lasso.cv_mean_, lasso.cv_se_
right.errorbar(lasso.alphas_, mean, se, color="#0072B2", ecolor="#BBBBBB")
right.axvline(lasso.alpha_, color="grey", linestyle=":")
right.set(xscale="log", xlabel="strength", ylabel="held-out squared error")
