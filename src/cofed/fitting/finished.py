"""A fit that is done: the model, where its rows are, what it cost, and its tables."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd

from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.fitted_state import output_names
from cofed.fitting.plan import FitPlan
from cofed.sites import Exchange, spent

INTERCEPT = "(intercept)"
INFERRED = ("debiased", "se", "low", "high", "p_value")  # of the intervals' table, in this order


@dataclasses.dataclass(frozen=True)
class FinishedFit:
    """What a fit has given.

    Attributes
    ----------
    model : FederatedLinearModel
        The fitted estimator.
    plan : FitPlan
        What was asked for.
    target : str
        The column that is predicted.
    feature_names : tuple of str
        The model's features.
    sites : pandas.DataFrame
        A row per site: its name, its rows, and whatever else is known of it.
    exchanges : tuple of Exchange
        What was asked of the sites.
    seconds : float
        How long it all took.
    notes : tuple of str
        What was warned of on the way.
    command : str
        The command that does the same again; empty where there was none.
    is_masked : bool or None
        Whether the server learnt sums over all sites only; None where all was in one process.
    absent : tuple of str
        Sites that the fit went on without.
    """

    model: FederatedLinearModel
    plan: FitPlan
    target: str
    feature_names: tuple[str, ...]
    sites: pd.DataFrame
    exchanges: tuple[Exchange, ...]
    seconds: float
    notes: tuple[str, ...] = ()
    command: str = ""
    is_masked: bool | None = None
    absent: tuple[str, ...] = ()

    @property
    def without(self) -> str:
        """Which sites the model is without, in a sentence; empty where all took part."""
        return f"WITHOUT {', '.join(self.absent)}: the model is of the other sites' rows." if self.absent else ""

    @property
    def outcome(self) -> str:
        """How exact the fit is, in the certificate's words; "private" where noise leaves no certificate."""
        certificate = self.model.certificate_
        return "private" if certificate is None else certificate.outcome

    @property
    def seen(self) -> str:
        """What the server has seen of the sites' answers, in a sentence; empty where there was none."""
        if self.is_masked is None:
            return ""
        if self.is_masked:
            return "The sites' answers were masked: the server has seen their sums over all sites, and no site's own."
        return "NOT MASKED: the server has seen the answers of each site (--plain)."

    @property
    def inferred(self) -> pd.DataFrame | None:
        """The intervals, where there are any."""
        return vars(self.model).get("inference_")

    @property
    def outputs(self) -> list[str]:
        """The classes or responses that have coefficients of their own; none where there is one vector of them."""
        values = np.atleast_2d(self.model.coef_)
        return [str(label) for label in output_names(self.model)] if len(values) > 1 else []

    def coefficients(self) -> pd.DataFrame:
        """A row per coefficient, the intercept first where there is one; of several classes or responses a long table
        with `class` or `response`.

        With intervals there are also their middle (`debiased`), `se`, `low`, `high` and `p_value`; of several classes
        these are of the log odds against the first class, and `log_odds` has them from the penalised coefficients.
        """
        names = [INTERCEPT, *self.feature_names]
        values = np.column_stack([np.atleast_1d(self.model.intercept_), np.atleast_2d(self.model.coef_)])
        tables = [pd.DataFrame({"feature": names, "coef": row}) for row in values]
        of = "class" if self.plan.classifies else "response"
        if self.outputs:
            for label, table in zip(self.outputs, tables, strict=True):
                table.insert(0, of, label)
        whole = pd.concat(tables, ignore_index=True)
        if self.plan.family == "cox":  # the sites' baseline hazards have it
            whole = whole.drop(index=0).reset_index(drop=True)
        inferred = self.inferred
        if inferred is None:
            return whole
        shown = inferred[[name for name in INFERRED if name in inferred.columns]]
        keys = list(whole["feature"])
        if self.outputs:
            keys = [f"{label}: {name}" for label, name in zip(whole[of], keys, strict=True)]
        if self.outputs and self.plan.classifies:
            shown = shown.assign(log_odds=inferred["coef"])[["log_odds", *shown.columns]]
        return pd.concat([whole, shown.reindex(keys).reset_index(drop=True)], axis=1)

    def summary(self) -> str:
        """The fit in words, without which sites, what the server has seen, and how many rows were left out."""
        first, last = (self.seen, "") if self.is_masked is False else ("", self.seen)
        parts = (first, self.without, self.model.summary(), self.left_out, last)
        return "\n".join(part for part in parts if part)

    @property
    def left_out(self) -> str:
        """How many rows were left out, in all and by site, and why; empty where there are none."""
        if "rows_of_the_table" not in self.sites:
            return ""
        rows, whole = self.sites["rows"].astype(int), self.sites["rows_of_the_table"].astype(int)
        design = vars(self.model).get("design_")
        weightless = " or a weight of 0" if design is not None and design.weight is not None else ""
        some = [
            f"{had - used} of {had} at {site}"
            for site, used, had in zip(self.sites["site"], rows, whole, strict=True)
            if used < had
        ]
        return (
            f"{rows.sum()} of {whole.sum()} rows are used; {whole.sum() - rows.sum()} have missing values{weightless} "
            f"and are left out: {', '.join(some)}"
        )

    def summary_table(self) -> pd.DataFrame:
        """The fit in figures, one per row."""
        model = self.model
        alpha = vars(model).get("alpha_", self.plan.alpha)
        figures = {
            "target": self.target,
            "family": self.plan.family,
            "penalty": self.plan.penalty,
            "alpha": alpha,
            "sites": len(self.sites),
            "rows": int(sum(model.client_sizes_)),
            "features": len(self.feature_names),
            "features_in_use": int(np.sum(model.support_)),
            "outcome": self.outcome,
            **self.exactness,
            "answers": {None: "in one process", True: "masked", False: "not masked"}[self.is_masked],
            "exchanges": spent(self.exchanges).rounds,
            "bytes_down": sum(one.down for one in self.exchanges),
            "bytes_up": sum(one.up for one in self.exchanges),
            "seconds": round(self.seconds, 3),
        }
        return pd.DataFrame({"name": list(figures), "value": [str(value) for value in figures.values()]})

    @property
    def exactness(self) -> dict[str, float]:
        """The certificate in figures; of a private fit, what it has cost."""
        certificate, privacy = self.model.certificate_, vars(self.model).get("privacy_")
        if privacy is not None:
            return {"epsilon": privacy.epsilon, "delta": privacy.delta, "noise_shares": privacy.shares}
        return {
            "objective": certificate.objective,
            "gap": certificate.gap,
            "gap_rounding": certificate.rounding,
            "null_loss": certificate.scale,
        }


def exchange_table(exchanges: Sequence[Exchange]) -> pd.DataFrame:
    """A row per exchange."""
    rows = [
        (number, one.what, one.rounds, one.down, one.up, one.seconds) for number, one in enumerate(exchanges, start=1)
    ]
    return pd.DataFrame(rows, columns=["exchange", "what", "rounds", "bytes_down", "bytes_up", "seconds"])
