"""Cox's model with a strength that the federation chooses."""

from collections.abc import Sequence

import numpy.typing as npt

from cofed._util.types import Given
from cofed.estimators.cox import FederatedCox
from cofed.estimators.cross_validation import CrossValidated
from cofed.estimators.feature_options import Chosen, PerFeature
from cofed.estimators.fold_choice import CV


class FederatedCoxCV(CrossValidated, FederatedCox):
    """FederatedCox with a strength chosen by the federation.

    What a fold held out adds to the log partial likelihood of all rows is how well a model does on it: a few rows alone
    would hardly have anybody to compare an event with. glmnet's cross-validation does the same.

    Parameters
    ----------
    l1_ratio : float or list of float, default=1.0
        The part of the penalty that is the l1 norm. Of several, each with strengths of its own, the best is taken.
    ties : {"efron", "breslow"}, default="efron"
        What is assumed where several events of a client have one time: "efron" as R's coxph, "breslow" as glmnet.
    alphas : array-like, optional
        The strengths; None takes `n_alphas` from the federation's own alpha_max down to eps times it.
    n_alphas : int, default=100
        How many strengths.
    eps : float, default=1e-3
        The last strength as a part of the first.
    cv : int, str, (str, int), splitter or splits, default=5
        The number of folds; every client splits its own rows, those with and without an event evenly. Or
        "leave-one-site-out"; the name of a column, alone or with a number of folds, whose groups are each in one fold;
        or, of rows that are given, a splitter of scikit-learn or its splits.
    criterion : {"min", "1se", "aic", "bic"}, default="min"
        "min" takes the best cross-validated measure; "1se" the strongest penalty within one standard error of it;
        "aic" and "bic" that criterion of the path, without folds.
    measure : {"deviance", "c_index"}, default="deviance"
        What is cross-validated.
    random_state : int, default=0
        The seed of the folds.
    standardize : bool, default=True
        Let the penalty act on the coefficients of features divided by their standard deviations, as glmnet does;
        `coef_` is for the features as given.
    algorithm : {"auto", "newton", "fista"}, default="auto"
        How to solve: "auto" chooses (see the page "estimators").
    tol : float, default=1e-12
        The fit stops where the duality gap is at most tol times the loss of the model without features.
    max_rounds : int, default=20_000
        The most rounds of the algorithm; where they do not suffice, a warning says how far it came.
    penalty_factor : float, array-like of shape (p,) or dict, optional
        What the penalty of each feature is multiplied with, by position or name (1 for those that are left out): 0 is
        not penalised.
    exclude : list of str or int, optional
        Features that are left out.
    low, high : float, array-like of shape (p,) or dict, optional
        Limits of the coefficients of features as given, low <= 0 <= high, by position or name.

    Attributes
    ----------
    alpha_ : float
        The chosen strength.
    alphas_ : ndarray
        The strengths.
    path_ : RegularizationPath
        The models of all of them.
    cv_mean_, cv_se_ : ndarray
        The cross-validated deviances per row with their standard errors; with folds only.
    alpha_min_, alpha_1se_ : float
        The strengths of "min" and of "1se"; with folds only.
    l1_ratio_, l1_ratios_, ratio_scores_
        Of several l1_ratio: the chosen one, all of them, and the best measure (or information criterion) of each.
    coef_ : ndarray of shape (p,)
        Log hazard ratios for the features as they were given.
    intercept_ : float
        0: the baseline hazards have it.
    support_ : ndarray of bool
        True where a feature is used.
    certificate_ : Certificate
        How far from optimal the fit can be.
    n_events_ : int or float
        The events of all clients; of rows with weights, the sum of theirs.
    n_rounds_, bytes_ : int
        The exchanges between the server and its clients, and their size (both ways, all clients).
    exchanges_ : tuple of ExchangeTotal
        What they were.
    clients_, client_sizes_ : tuple
        The clients' names, and how many rows each has.
    algorithm_ : str
        The algorithm that was used.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedCoxCV
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(200, 4)), np.arange(200) % 4
    >>> y = np.column_stack([rng.exponential(np.exp(-X[:, 0])), np.ones(200)])
    >>> model = FederatedCoxCV(criterion="1se", cv=3, n_alphas=10).fit(X, y, clients=site)
    >>> model.support_.tolist()
    [True, False, False, False]
    """

    _classifies = True  # folds have the same part of events

    def __init__(
        self,
        *,
        l1_ratio: Given[float | Sequence[float]] = 1.0,
        ties: Given[str] = "efron",
        alphas: Given[npt.ArrayLike | None] = None,
        n_alphas: Given[int] = 100,
        eps: Given[float] = 1e-3,
        cv: CV = 5,
        criterion: Given[str] = "min",
        measure: Given[str] = "deviance",
        random_state: Given[int] = 0,
        standardize: Given[bool] = True,
        algorithm: Given[str] = "auto",
        tol: Given[float] = 1e-12,
        max_rounds: Given[int] = 20_000,
        penalty_factor: PerFeature = None,
        exclude: Chosen = None,
        low: PerFeature = None,
        high: PerFeature = None,
    ):
        self.l1_ratio = l1_ratio
        self.ties = ties
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv
        self.criterion = criterion
        self.measure = measure
        self.random_state = random_state
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds
        self.penalty_factor = penalty_factor
        self.exclude = exclude
        self.low = low
        self.high = high
