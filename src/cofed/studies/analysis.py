"""An analysis of a study: one model to fit."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field, field_validator

from cofed._util.toml_mistakes import Place, did_you_mean
from cofed.losses.families import FAMILIES as LOSSES
from cofed.losses.families import Family
from cofed.losses.site_intercepts import unfit_for_sites
from cofed.sites.formulas import parse
from cofed.studies.planned_steps import PlannedStep
from cofed.studies.variables import StudyPart, Text, Variable, VariableKind

# Which kinds of variables a family predicts.
PREDICTS: dict[str, tuple[VariableKind, ...]] = {
    "gaussian": ("number", "count"),
    "mgaussian": ("number", "count"),
    "binomial": ("binary", "factor"),
    "multinomial": ("factor",),
    "poisson": ("count",),
    **dict.fromkeys(LOSSES, ("number", "count")),
    "cox": ("number", "count"),
}
ERRORS = ("model", "hc1", "hc3", "site")  # standard errors that are not by a column


class Analysis(StudyPart):
    """One model to fit.

    Parameters
    ----------
    name : str
        Its name in the study.
    target : str
        The variable to predict; of "cox", that of times.
    family : str
        What the target is: "gaussian", a number; "mgaussian", several numbers; "binomial", one of two classes;
        "multinomial", one of several; "poisson", a count; "negbin", a count that varies more; "gamma", a positive
        amount; "tweedie(power)", an amount that may be 0; "huber(delta)" and "quantile(level, width)", a number with
        outliers, and a quantile of one; "cox", the time to an event.
    features : list of str, optional
        The variables to predict from; all others where not given.
    penalty : {"l1", "elasticnet", "group"}
        "group" takes the levels of a factor together.
    l1_ratio : float, optional
        The part of "elasticnet" that is the l1 norm.
    alpha : float, optional
        The strength of the penalty; where not given, it is chosen.
    cv : int or "leave-one-site-out", optional
        The folds of the cross-validation that chooses the strength.
    group : str, optional
        A column whose groups of rows, such as those of a person, are each in one fold; it need not be a variable.
    measure : {"deviance", "mse", "mae", "misclassification", "auc", "c_index"}, optional
        What is cross-validated; where not given, the deviance.
    select : {"min", "1se", "aic", "bic"}, optional
        By what the strength is chosen.
    intervals : bool
        Whether confidence intervals are computed.
    errors : str, optional
        Their standard errors: "model", "hc1", "hc3", "site", or a column by which rows are related, which need not be a
        variable. Where not given, those of the model; "hc1" where it has none.
    missing : {"refuse", "drop", "impute"}
        What is done about missing values.
    seed : int
        Of the folds.
    event, entry : str, optional
        Of "cox": the binary variable that is 1 where a time ends with an event, and the times from which on rows are
        at risk.
    responses : list of str
        Of "mgaussian": the numbers that are predicted together with the target.
    weight, offset : str, optional
        The variables that say how much a row counts, and what is added to its prediction: no features.
    class_weight : {"balanced"}, optional
        Let all classes count the same, all together.
    site_effects : {"none", "fixed"}
        "fixed" gives every site an intercept of its own; not of "cox", "huber" and "quantile".
    penalty_factor, low, high : dict of str and float
        By feature: what the strength is multiplied by (0 is not penalised), and the limits of the coefficient.
    steps : list of PlannedStep
        What is done to the numbers of the features before the model, one step after another.

    Examples
    --------
    >>> from cofed.studies import Analysis
    >>> Analysis(name="main", family="binomial", target="ill").penalty
    'l1'
    """

    name: Text
    family: Text
    target: Text
    features: Annotated[tuple[Text, ...], Field(strict=False, min_length=1)] | None = None
    penalty: Literal["l1", "elasticnet", "group"] = "l1"
    l1_ratio: float | None = Field(default=None, ge=0, le=1)
    alpha: float | None = Field(default=None, ge=0)
    cv: Annotated[int, Field(ge=2, le=50)] | Literal["leave-one-site-out"] | None = None
    group: Text | None = None
    measure: Literal["deviance", "mse", "mae", "misclassification", "auc", "c_index"] | None = None
    select: Literal["min", "1se", "aic", "bic"] | None = None
    intervals: bool = False
    errors: Text | None = None
    missing: Literal["refuse", "drop", "impute"] = "refuse"
    seed: int = Field(default=0, ge=0, lt=2**31)
    event: Text | None = None
    entry: Text | None = None
    responses: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    weight: Text | None = None
    offset: Text | None = None
    class_weight: Literal["balanced"] | None = None
    site_effects: Literal["none", "fixed"] = "none"
    penalty_factor: dict[Text, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    low: dict[Text, Annotated[float, Field(le=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    high: dict[Text, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    steps: Annotated[tuple[PlannedStep, ...], Field(strict=False)] = ()

    @field_validator("family")
    @classmethod
    def known_family(cls, family: str) -> str:
        """Refuse what is no family, or has other numbers."""
        found = Family.of(family)
        if found.name not in PREDICTS or (found.numbers and found.name not in LOSSES):
            raise ValueError(f"it should be one of {', '.join(PREDICTS)}")
        if found.name in LOSSES:
            found.loss()
        return family

    @property
    def formula(self) -> str | None:
        """The formula that names the features, where there is one."""
        return self.steps[0].formula if self.steps else None

    def chosen(self, variables: Iterable[str]) -> tuple[str, ...]:
        """The features: those that are named, by a formula in its order, or all variables that are nothing else."""
        if self.formula is not None:
            return parse(self.formula).columns
        others = {*self.roles.values(), *self.responses}
        return self.features or tuple(name for name in variables if name not in others)

    @property
    def kind(self) -> str:
        """The family's name, without its numbers."""
        return Family.of(self.family).name

    @property
    def takes_robust_errors(self) -> bool:
        """Whether the model does not know the variances of its coefficients."""
        own = self.kind in LOSSES and not Family.of(self.family).loss().has_dispersion
        return own or self.class_weight is not None

    @property
    def predicted(self) -> tuple[str, ...]:
        """The variables that are predicted: one, or those of the time to an event or of several responses."""
        return tuple(name for name in (self.target, self.event, self.entry, *self.responses) if name is not None)

    @property
    def cluster(self) -> str | None:
        """The column by which rows are related, of standard errors by clusters."""
        return None if self.errors in (None, *ERRORS) else self.errors

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns that are groups or clusters: they need not be variables."""
        return tuple(name for name in (self.group, self.cluster) if name is not None)

    @property
    def roles(self) -> dict[str, str]:
        """The variables that are no features, by what they are."""
        named = {"target": self.target, "event": self.event, "entry": self.entry}
        named |= {"weight": self.weight, "offset": self.offset, "group": self.group, "errors": self.cluster}
        return {role: name for role, name in named.items() if name is not None}

    def mistakes(self, variables: dict[str, Variable]) -> Iterator[tuple[Place, str]]:
        """What does not go together with itself and with the variables."""
        wrong = [(("steps", i), why) for i, one in enumerate(self.steps) for why in one.mistakes(i == 0)]
        yield from wrong or self.unfit(variables)

    def unfit(self, variables: dict[str, Variable]) -> Iterator[tuple[Place, str]]:
        """What does not go together, where every step can be read."""
        yield from self.unfit_formula(variables)
        yield from self.unfit_levels(variables)
        lists = (("features", self.features or ()), ("responses", self.responses))
        for key, names in (*((role, [name]) for role, name in self.roles.items()), *lists):
            for name in names:
                if name not in variables and name not in self.labels:
                    yield (key,), f"{name!r} is no variable{did_you_mean(name, list(variables))}"
        if self.features is not None:
            twice = {name for name in self.features if self.features.count(name) > 1}
            if twice or set(self.predicted) & set(self.features):
                yield ("features",), "the features should differ from each other and from the target"
        yield from self.unfit_event(variables)
        yield from self.unfit_responses(variables)
        if self.target in variables:
            yield from self.unfit_target(variables[self.target])
        if self.l1_ratio is not None and self.penalty != "elasticnet":
            yield ("l1_ratio",), f"it is for the penalty elasticnet, which is {self.penalty} here"
        if self.alpha is not None and (self.cv is not None or self.select is not None):
            yield ("alpha",), "it sets the strength, cv and select choose it; give one or the other"
        if self.class_weight is not None and self.family not in ("binomial", "multinomial"):
            yield ("class_weight",), f"it is for classes, and the family is {self.family}"
        yield from self.unfit_choice()
        yield from self.unfit_roles(variables)
        yield from self.unfit_per_feature(variables)

    def unfit_formula(self, variables: dict[str, Variable]) -> Iterator[tuple[Place, str]]:
        """What of a formula does not fit the rest."""
        if self.formula is None:
            return
        parsed = parse(self.formula)
        if self.features is not None:
            yield ("features",), "the formula names the features: leave them out"
        if parsed.target not in (None, self.target):
            yield ("steps",), f"the formula predicts {parsed.target!r}, and the target is {self.target!r}"
        others = {*self.predicted, *self.roles.values()}
        for name in parsed.columns:
            if name not in variables or name in others:
                hint = did_you_mean(name, [one for one in variables if one not in others])
                yield ("steps",), f"the formula has {name!r}, which is no feature{hint}"
        for factor in parsed.factors:
            if factor.splines is not None and factor.column in variables and variables[factor.column].levels:
                yield ("steps",), f"{factor.text} takes a number, and {factor.column!r} has levels"

    def unfit_levels(self, variables: dict[str, Variable]) -> Iterator[tuple[Place, str]]:
        """The features that have no levels, where each level is to have a column."""
        if self.steps and self.steps[0].kind == "one_hot":
            for name in self.chosen(variables):
                if name in variables and not variables[name].levels:
                    yield ("steps",), f"one_hot is of factors, and {name!r} has no levels: name the features"

    def unfit_choice(self) -> Iterator[tuple[Place, str]]:
        """What cannot be cross-validated, and intervals that there are not."""
        has_folds = self.alpha is None and self.select not in ("aic", "bic")
        for key, value in (("group", self.group), ("measure", self.measure)):
            if value is not None and not has_folds:
                yield (key,), "it is for a strength that is chosen by folds: leave out alpha, and select by min or 1se"
        if self.group is not None and isinstance(self.cv, str):
            yield ("group",), "where every site is a fold, groups are not dealt to folds; give one or the other"
        if self.site_effects == "fixed" and has_folds:
            if isinstance(self.cv, str):
                yield (
                    ("cv",),
                    "with site_effects = 'fixed' a site that is left out has no intercept; give a number",
                )
            if self.measure not in (None, "deviance") and (self.measure, self.kind) != ("mse", "gaussian"):
                yield ("measure",), "with site_effects = 'fixed' it is the deviance"
        if self.errors is not None and not self.intervals:
            yield ("errors",), "it is for intervals = true"

    def unfit_per_feature(self, variables: dict[str, Variable]) -> Iterator[tuple[Place, str]]:
        """Why factors and limits do not fit the features."""
        used = self.chosen(variables)
        for key, values in (("penalty_factor", self.penalty_factor), ("low", self.low), ("high", self.high)):
            if values and key != "penalty_factor" and (self.penalty == "group" or self.family == "mgaussian"):
                norm = "mgaussian" if self.family == "mgaussian" else "the penalty group"
                yield (key,), f"it is not for {norm}: coefficients in one norm have no limits of their own"
            for name in values:
                if name not in used:
                    yield (key,), f"{name!r} is no feature{did_you_mean(name, list(used))}"

    def unfit_roles(self, variables: dict[str, Variable]) -> Iterator[tuple[Place, str]]:
        """Why variables cannot be weights or offsets, and sites have no intercepts of their own."""
        if self.site_effects == "fixed" and self.family == "cox":
            yield ("site_effects",), "it is not for cox, which has a baseline hazard for every site"
        if self.site_effects == "fixed" and self.family == "mgaussian":
            yield ("site_effects",), "it is not for mgaussian: let every response have an analysis of its own"
        reason = unfit_for_sites(Family.of(self.family).loss()) if self.kind in LOSSES else None
        if self.site_effects == "fixed" and reason is not None:
            yield ("site_effects",), f"it is not for {self.family}: {reason}"
        for role, name in self.roles.items():
            if role in ("target", "event"):
                continue
            is_label = role in ("group", "errors")
            others = [other for key, other in self.roles.items() if key != role]
            if is_label:  # one column may be both
                others = [other for key, other in self.roles.items() if key not in ("group", "errors")]
            if name in (*(self.features or ()), *self.responses, *others):
                yield (role,), f"{name!r} cannot be a feature, the target or another role, too"
            if not is_label and name in variables and variables[name].kind not in ("number", "count"):
                yield (role,), f"it should be a number or a count, but {name!r} is a {variables[name].kind}"

    def unfit_responses(self, variables: dict[str, Variable]) -> Iterator[tuple[Place, str]]:
        """What is wrong with the numbers that are predicted together."""
        if (self.family == "mgaussian") != bool(self.responses):
            yield ("family",), "mgaussian predicts several numbers, those of target and responses; no other family does"
        if len(set(self.predicted)) < len(self.predicted):
            yield ("responses",), "target and responses should be different variables"
        if self.responses and self.offset is not None:
            yield ("offset",), "several responses take no offset"
        for name in self.responses:
            if name in variables and variables[name].kind not in PREDICTS["mgaussian"]:
                yield ("responses",), f"{self.family} predicts a number or count, but {name!r} is not one"

    def unfit_event(self, variables: dict[str, Variable]) -> Iterator[tuple[Place, str]]:
        """What is wrong with the variables of the time to an event."""
        if self.family != "cox":
            if self.event is not None or self.entry is not None:
                yield ("family",), f"event and entry are for the family cox, which is {self.family} here"
            return
        if self.event is None:
            yield ("family",), "cox needs an event, the binary variable that is 1 where a time ends with one"
        if self.errors == "hc3":
            yield ("errors",), "it is not for cox, whose rows have no leverages; hc1 is"
        if self.event == self.target:
            yield ("event",), "target and event should be different variables"
        event = variables.get(self.event or "")
        if event is not None and (event.kind != "binary" or event.levels is not None):
            yield ("event",), f"an event is a binary variable of 0 and 1, and {self.event!r} is not"

    def unfit_target(self, target: Variable) -> Iterator[tuple[Place, str]]:
        """Why the family does not predict a variable of this kind."""
        if target.kind not in PREDICTS[self.kind]:
            kinds = " or ".join(PREDICTS[self.kind])
            yield ("family",), f"{self.family} predicts a {kinds}, but {self.target!r} is a {target.kind}"
        elif self.family == "binomial" and target.levels is not None and len(target.levels) > 2:
            yield ("family",), f"binomial predicts two levels, but {self.target!r} has {len(target.levels)}"
