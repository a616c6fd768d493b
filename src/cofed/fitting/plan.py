"""What to fit, checked before anything is read or computed."""

import dataclasses
import math
from collections.abc import Collection, Mapping

from cofed._util import naming
from cofed.estimators import (
    FederatedCox,
    FederatedCoxCV,
    FederatedElasticNet,
    FederatedElasticNetCV,
    FederatedGLM,
    FederatedGLMCV,
    FederatedGroupLasso,
    FederatedGroupLassoCV,
    FederatedLasso,
    FederatedLassoCV,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
    FederatedMultiTaskLasso,
    FederatedMultiTaskLassoCV,
    FederatedPoisson,
    FederatedPoissonCV,
)
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.fold_choice import BY_SITE
from cofed.estimators.measures import MEASURES
from cofed.estimators.site_effects import SITE_EFFECTS
from cofed.fitting.privacy_plan import PrivacyPlan
from cofed.losses.families import FAMILIES as LOSSES
from cofed.losses.families import Family
from cofed.losses.site_intercepts import unfit_for_sites
from cofed.privacy import Privacy
from cofed.studies import PlannedStep

FAMILIES = ("gaussian", "mgaussian", "binomial", "multinomial", "poisson", *LOSSES, "cox")
PENALTIES = ("l1", "elasticnet", "group")
CHOICES = ("min", "1se", "aic", "bic")
ERRORS = ("model", "hc1", "hc3", "site")
FOLDS = 5
# Families that have an l1_ratio, and their estimators: of a strength, and choosing one.
PAIRS: dict[str, tuple[type[FederatedLinearModel], type[FederatedLinearModel]]] = {
    "mgaussian": (FederatedMultiTaskLasso, FederatedMultiTaskLassoCV),
    "poisson": (FederatedPoisson, FederatedPoissonCV),
    "cox": (FederatedCox, FederatedCoxCV),
}
# The families that have a measure; others are of all but times to an event.
MEASURED = {"misclassification": ("binomial", "multinomial"), "auc": ("binomial",), "c_index": ("cox",)}


@dataclasses.dataclass(frozen=True)
class FitPlan:
    """A family, a penalty, how its strength is chosen, and whether intervals are wanted.

    Attributes
    ----------
    family : str
        What the target is: "gaussian", a number; "mgaussian", several numbers; "binomial", one of two classes;
        "multinomial", one of several; "poisson", a count; "negbin", a count that varies more; "gamma", a positive
        amount; "tweedie(power)", an amount that may be 0; "huber(delta)" and "quantile(level, width)", a number with
        outliers, and a quantile of one; "cox", the time to an event.
    penalty : {"l1", "elasticnet", "group"}
        "group" takes the columns of one variable (the levels of a factor) together.
    l1_ratio : float or None
        The part of "elasticnet" that is the l1 norm; None is a half.
    alpha : float or None
        The strength; None lets the federation choose it.
    folds : int, "leave-one-site-out" or None
        Of the cross-validation; None is 5, where folds are needed.
    select : str or None
        By what the strength is chosen: "min", "1se", "aic" or "bic"; None is "min".
    level : float or None
        The coverage of the intervals; None asks for none.
    seed : int
        Of the folds.
    errors : {"model", "hc1", "hc3", "site"} or str
        The intervals' standard errors: the model's own, robust to unequal variance, or to related rows within a site,
        or within the clusters that a column names.
    class_weight : {"balanced"} or None
        Let all classes count the same, all together.
    site_effects : {"none", "fixed"}
        "fixed" gives every site an intercept of its own.
    privacy : PrivacyPlan or None
        Differential privacy of the rows; None is none.
    group : str or None
        A column whose groups of rows are each in one fold.
    measure : {"deviance", "mse", "mae", "misclassification", "auc", "c_index"}
        What is cross-validated.
    penalty_factor, low, high : mapping of str to float
        By column: what the strength is multiplied by (0 is not penalised), and the limits of the coefficient.
    steps : tuple of PlannedStep
        What the sites do to the numbers of the features before, as a study says.

    Examples
    --------
    >>> from cofed.fitting.plan import FitPlan
    >>> FitPlan("gaussian", select="1se").estimator()
    FederatedLassoCV(criterion='1se')
    >>> FitPlan("tweedie(1.2)", alpha=0.1).estimator()
    FederatedGLM(loss=Tweedie(power=1.2))
    >>> FitPlan("gamma", penalty="group")
    Traceback (most recent call last):
    ValueError: --penalty group is for gaussian, binomial and multinomial, not for gamma
    """

    family: str
    penalty: str = "l1"
    l1_ratio: float | None = None
    alpha: float | None = None
    folds: int | str | None = None
    select: str | None = None
    level: float | None = None
    seed: int = 0
    errors: str = "model"
    class_weight: str | None = None
    site_effects: str = "none"
    privacy: PrivacyPlan | None = None
    group: str | None = None
    measure: str = "deviance"
    penalty_factor: Mapping[str, float] = dataclasses.field(default_factory=dict)
    low: Mapping[str, float] = dataclasses.field(default_factory=dict)
    high: Mapping[str, float] = dataclasses.field(default_factory=dict)
    steps: tuple[PlannedStep, ...] = ()

    def __post_init__(self):
        self.check_family()
        one_of("--penalty", self.penalty, PENALTIES)
        if self.select is not None:
            one_of("--select", self.select, CHOICES)
        if self.class_weight not in (None, "balanced"):
            raise ValueError(f"--class-weight must be balanced, got {self.class_weight!r}")
        one_of("--site-effects", self.site_effects, SITE_EFFECTS)
        one_of("--measure", self.measure, tuple(MEASURES))
        self.check_numbers()
        self.check_together()
        self.check_folds()
        self.check_site_effects()
        self.check_per_feature()
        if self.privacy is not None:
            self.check_private()

    @property
    def kind(self) -> str:
        """The family's name, without its numbers."""
        return Family.of(self.family).name

    def check_family(self) -> None:
        """Refuse a family that is not known, or numbers that are none of its."""
        try:
            family = Family.of(self.family)
        except ValueError as error:
            raise ValueError(f"--family: {error}") from None
        one_of("--family", family.name, FAMILIES)
        if family.name not in LOSSES:
            if family.numbers:
                raise ValueError(f"--family: {family.name} takes no numbers, got {self.family!r}")
            return
        try:
            loss = family.loss()
        except ValueError as error:
            raise ValueError(f"--family: {error}") from None
        if self.level is not None and self.errors == "model" and not loss.has_dispersion:
            raise ValueError(f"--family {family.name} has no intervals by the model: give --errors hc1, hc3 or site")

    def check_numbers(self) -> None:
        """Refuse numbers out of their range."""
        if self.l1_ratio is not None and not 0 <= self.l1_ratio <= 1:
            raise ValueError(f"--l1-ratio must be from 0 to 1, got {self.l1_ratio:g}")
        if self.alpha is not None and not 0 <= self.alpha < float("inf"):
            raise ValueError(f"--alpha must be a finite number, at least 0, got {self.alpha:g}")
        if self.level is not None and not 0 < self.level < 1:
            raise ValueError(f"--level must be between 0 and 1, got {self.level:g}")

    def check_together(self) -> None:
        """Refuse what does not go together."""
        if self.l1_ratio is not None and self.penalty != "elasticnet":
            raise ValueError(f"--l1-ratio is for --penalty elasticnet, which is {self.penalty} here")
        if self.errors != "model" and self.level is None:
            raise ValueError(f"--errors {self.errors} is for intervals: give --infer too")
        if self.class_weight is not None and not self.classifies:
            raise ValueError(f"--class-weight is for classes, and the family is {self.family}")
        if self.class_weight is not None and self.level is not None and self.errors == "model":
            raise ValueError("--class-weight has no intervals by the model: give --errors hc1, hc3 or site")
        if self.penalty == "group" and self.kind in ("mgaussian", "poisson", "cox", *LOSSES):
            raise ValueError(f"--penalty group is for gaussian, binomial and multinomial, not for {self.family}")
        if self.errors == "hc3" and self.family == "cox":
            raise ValueError("--errors hc3 is not for cox, whose rows have no leverages: give --errors hc1")

    def check_folds(self) -> None:
        """Refuse folds, and measures of held-out rows, where there are none."""
        asked = self.folds is not None or self.group is not None
        if self.alpha is not None and (asked or self.select is not None):
            raise ValueError("--alpha sets the strength, --cv and --select choose it: give one or the other")
        if asked and self.select in ("aic", "bic"):
            raise ValueError(f"--select {self.select} needs no folds: leave out --cv")
        if isinstance(self.folds, str):
            one_of("--cv", self.folds, (BY_SITE,))
        if self.measure == "deviance":
            return
        if self.alpha is not None or self.select in ("aic", "bic"):
            raise ValueError(f"--measure {self.measure} is of held-out rows: leave out --alpha, --select aic and bic")
        of_rows = tuple(family for family in FAMILIES if family != "cox")
        serves = MEASURED.get(self.measure, of_rows)
        if self.kind not in serves:
            raise ValueError(f"--measure {self.measure} is for {MEASURES[self.measure].needs}, not for {self.family}")

    def check_site_effects(self) -> None:
        """Refuse what does not go together with intercepts of the sites' own."""
        if self.site_effects == "none":
            return
        if self.family == "cox":
            raise ValueError("--site-effects is not for cox, which has a baseline hazard for every site")
        if self.family == "mgaussian":
            raise ValueError("--site-effects is not for mgaussian: fit every response by itself")
        reason = unfit_for_sites(Family.of(self.family).loss()) if self.kind in LOSSES else None
        if reason is not None:
            raise ValueError(f"--site-effects is not for {self.family}: {reason}")
        if self.errors != "model":
            raise ValueError(f"--site-effects has the model's own standard errors, not --errors {self.errors}")
        if self.folds == BY_SITE:
            raise ValueError(f"--site-effects: a site that is left out has no intercept; give --cv 5, not {BY_SITE}")
        if self.measure != "deviance" and (self.measure, self.family) != ("mse", "gaussian"):
            raise ValueError(f"--site-effects is judged by the deviance, not by --measure {self.measure}")

    @property
    def per_feature(self) -> dict[str, dict[str, float]]:
        """The options that are given for single columns, by name."""
        given = {"penalty_factor": self.penalty_factor, "low": self.low, "high": self.high}
        return {name: dict(values) for name, values in given.items() if values}

    def check_per_feature(self) -> None:
        """Refuse factors and limits that mean nothing, or that a penalty does not have."""
        for name, values in self.per_feature.items():
            option = f"--{name.replace('_', '-')}"
            if name != "penalty_factor" and (self.penalty == "group" or self.family == "mgaussian"):
                norm = "mgaussian" if self.family == "mgaussian" else "--penalty group"
                raise ValueError(f"{option} is not for {norm}: coefficients in one norm have no limits of their own")
            if self.privacy is not None:
                raise ValueError(f"--epsilon goes without {option}")
            for column, value in values.items():
                wrong = value > 0 if name == "low" else value < 0
                if wrong or not math.isfinite(value):
                    allowed = "at most 0" if name == "low" else "at least 0"
                    raise ValueError(f"{option} must be finite and {allowed}, got {column}={value:g}")

    def check_columns(self, known: Collection[str]) -> None:
        """Refuse options of columns that are no features."""
        for name, values in self.per_feature.items():
            strange = [column for column in values if column not in known]
            if strange:
                raise ValueError(
                    f"--{name.replace('_', '-')}: {strange[0]!r} is no feature; they are {naming.listed(known)}"
                )

    def check_private(self) -> None:
        """Refuse what there is no differential privacy for."""
        if self.family not in ("gaussian", "binomial") or self.penalty == "group":
            raise ValueError(
                "--epsilon is for the families gaussian and binomial with the penalties l1 and elasticnet, not for "
                f"{self.family} with {self.penalty}"
            )
        if self.family == "binomial" and self.alpha is None:
            raise ValueError("--epsilon of the binomial family takes a strength: give --alpha")
        if self.level is not None:
            raise ValueError("--epsilon goes without intervals, whose sums would not be noised: leave out --infer")
        if self.class_weight is not None:
            raise ValueError("--epsilon goes without --class-weight: the noise is for rows that count alike")
        if self.group is not None or isinstance(self.folds, str) or self.measure != "deviance":
            raise ValueError("--epsilon takes a number of folds (--cv 5), and the deviance (--measure)")
        if self.steps:
            raise ValueError("--epsilon goes without steps, whose means and knots would not be noised")
        if self.site_effects != "none":
            raise ValueError("--epsilon goes without --site-effects: their sums would not be noised")

    @property
    def cluster(self) -> str | None:
        """The column by which rows are related, of standard errors by clusters."""
        return None if self.errors in ERRORS else self.errors

    @property
    def classifies(self) -> bool:
        """Whether the target is a class."""
        return self.family in ("binomial", "multinomial")

    def estimator(self, groups: list[str] | None = None, target: str = "") -> FederatedLinearModel:
        """The estimator that does this; `groups` has the variable of each feature, and `target` is what it predicts."""
        if self.privacy is not None:
            plain = dataclasses.replace(self, privacy=None).estimator(groups)
            settings: Privacy = self.privacy.settings(groups or [], target)
            return plain.set_params(privacy=settings)
        if self.per_feature:
            plain = dataclasses.replace(self, penalty_factor={}, low={}, high={}).estimator(groups, target)
            return plain.set_params(**self.per_feature)
        count = self.folds or FOLDS
        choice = {"cv": count if self.group is None else (self.group, count), "measure": self.measure}
        choice |= {"criterion": self.select or "min", "random_state": self.seed}
        ratio = {"l1_ratio": 0.5 if self.l1_ratio is None else self.l1_ratio}
        effects: dict = {} if self.site_effects == "none" else {"site_effects": self.site_effects}
        if self.classifies:
            given: dict = {"penalty": self.penalty} | (ratio if self.penalty == "elasticnet" else {})
            given |= {"groups": groups} if self.penalty == "group" else {}
            given |= effects if self.class_weight is None else effects | {"class_weight": self.class_weight}
            return with_strength(FederatedLogisticRegression, FederatedLogisticRegressionCV, self.alpha, given, choice)
        if self.kind in LOSSES:
            given = {"loss": Family.of(self.family).loss()} | (ratio if self.penalty == "elasticnet" else {}) | effects
            return with_strength(FederatedGLM, FederatedGLMCV, self.alpha, given, choice)
        if self.family in PAIRS:
            given = ratio if self.penalty == "elasticnet" else {"l1_ratio": 1.0}
            return with_strength(*PAIRS[self.family], self.alpha, given | effects, choice)
        if self.penalty == "group":
            given = {"groups": groups} | effects
            return with_strength(FederatedGroupLasso, FederatedGroupLassoCV, self.alpha, given, choice)
        if self.penalty == "elasticnet":
            return with_strength(FederatedElasticNet, FederatedElasticNetCV, self.alpha, ratio | effects, choice)
        return with_strength(FederatedLasso, FederatedLassoCV, self.alpha, effects, choice)


def with_strength(
    given_one: type[FederatedLinearModel],
    chosen_one: type[FederatedLinearModel],
    alpha: float | None,
    given: Mapping[str, object],
    choice: Mapping[str, object],
) -> FederatedLinearModel:
    """The estimator of this strength, or the one that chooses it."""
    if alpha is None:
        return chosen_one(**given, **choice)
    return given_one(alpha=alpha, **given)  # type: ignore[call-arg]


def one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse what is not one of several words."""
    if value not in choices:
        raise ValueError(f"{option} must be {', '.join(choices[:-1])} or {choices[-1]}, got {value!r}")
