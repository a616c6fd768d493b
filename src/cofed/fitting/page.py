"""What the page of a fit shows, as JSON: the script `fit.js` beside the report's lays it out."""

import platform
from collections.abc import Sequence
from datetime import datetime
from importlib import metadata
from typing import Any

import numpy as np
import pandas as pd

from cofed.estimators.certificate import Certificate
from cofed.estimators.fitted_path import RegularizationPath
from cofed.estimators.held_out_curves import HeldOutCurves
from cofed.estimators.measures import MEASURES
from cofed.estimators.plots import COLOURS
from cofed.fitting.finished import INTERCEPT, FinishedFit, exchange_table
from cofed.fitting.plan import FitPlan
from cofed.privacy import PrivacyReport
from cofed.report.curves import compact, on_dark, short
from cofed.sites import Exchange, spent, totals

FAMILIES = {
    "gaussian": "Linear model",
    "mgaussian": "Linear model of several responses",
    "binomial": "Logistic model",
    "multinomial": "Multinomial logistic model",
    "poisson": "Poisson model",
    "gamma": "Gamma model",
    "tweedie": "Tweedie model",
    "negbin": "Negative binomial model",
    "huber": "Robust linear model",
    "quantile": "Quantile regression",
    "cox": "Cox model",
}
PENALTIES = {"l1": "an L1 penalty", "elasticnet": "an elastic net penalty", "group": "a group penalty"}
CHOICES = {
    "min": "the {best} cross-validated {measure}",
    "1se": "the strongest penalty within one standard error of the {best} cross-validated {measure}",
    "aic": "Akaike's criterion",
    "bic": "the Bayesian information criterion",
}
VERDICTS = {
    "converged": {"kind": "good", "sign": "✓", "name": "exact"},
    "limited by rounding": {"kind": "open", "sign": "≈", "name": "limited by rounding"},
    "not converged": {"kind": "bad", "sign": "✗", "name": "not converged"},
    "private": {"kind": "open", "sign": "≈", "name": "private: with noise"},
}
# What the picture of a coefficient is made of, with the columns of the table.
PARTS = {"coef": "coef", "middle": "debiased", "low": "low", "high": "high"}
TELLING = 0.05  # a p-value below it shows a coefficient that the penalty has set to zero
LEVEL = 0.95
LINES = 12  # features of the path's chart; more cannot be told apart
MOST = 100  # exchanges that are listed one by one
PACKAGES = ("cofed", "jax", "numpy", "scikit-learn")
JSON = dict[str, Any]


def content(done: FinishedFit) -> JSON:
    """Everything that the page shows."""
    model, plan = done.model, done.plan
    used, rows = int(np.sum(model.support_)), int(sum(model.client_sizes_))
    alpha = vars(model).get("alpha_", plan.alpha)
    taken = spent(done.exchanges)
    return {
        "over": " ".join(
            part
            for part in (f"{len(done.sites)} sites, whose rows stay where they are.", done.without, done.seen)
            if part
        ),
        "title": title(plan, done.target),
        "facts": [
            f"alpha {alpha:.4g}, {'given' if plan.alpha is not None else 'by ' + chosen_by(plan)}",
            f"written {datetime.now().astimezone():%Y-%m-%d %H:%M}",
        ],
        "verdict": VERDICTS[done.outcome],
        "notes": list(done.notes),
        "tiles": [
            [f"{used} of {len(done.feature_names)}", "features in use"],
            [f"{rows:,}", "rows"],
            [f"{len(done.sites)}", "sites"],
            [f"{taken.rounds}", "exchanges"],
            [size(taken.bytes), "sent and received"],
        ],
        "certificate": certified(model.certificate_) if done.outcome != "private" else noised(vars(model)["privacy_"]),
        "coefficients": coefficients(done),
        "charts": charts(done),
        "curves": curves(done),
        "sites": table(done.sites),
        "exchanges": {
            "words": [
                "A site answers a question with sums over its rows, and only their total over all sites is used. "
                "Bytes are of all sites together."
            ],
            "table": exchanged(done.exchanges),
        },
        "reproduce": {
            "command": done.command,
            "python": "from cofed.estimators import load\n\n"
            'model = load("model.safetensors")\nmodel.predict(table)  # a pandas table with the features\' columns',
            "versions": {"Python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES},
        },
    }


def title(plan: FitPlan, target: str) -> str:
    """What a fit is, in a line.

    >>> from cofed.fitting.page import title
    >>> from cofed.fitting.plan import FitPlan
    >>> title(FitPlan("binomial"), "ill")
    'Logistic model of ill, with an L1 penalty'
    """
    return f"{FAMILIES[plan.kind]} of {target}, with {PENALTIES[plan.penalty]}"


def chosen_by(plan: FitPlan) -> str:
    """By what the strength was chosen, in words.

    >>> from cofed.fitting.page import chosen_by
    >>> from cofed.fitting.plan import FitPlan
    >>> chosen_by(FitPlan("binomial", measure="auc"))
    'the largest cross-validated area under the ROC curve'
    """
    words = "deviance" if plan.measure == "deviance" else MEASURES[plan.measure].words
    best = "largest" if MEASURES[plan.measure].is_better_large else "least"
    return CHOICES[plan.select or "min"].format(best=best, measure=words)


def certified(certificate: Certificate) -> list[str]:
    """The certificate in plain words."""
    known = certificate.gap + certificate.rounding
    if not np.isfinite(known):
        bound = "No bound is known on how far the objective is from its minimum."
    else:
        bound = (
            f"No model whatsoever has an objective that is lower than this one's ({certificate.objective:.8g}) by more "
            f"than {known:.2g}, which is {known / certificate.scale if certificate.scale else 0:.2g} of the loss of "
            "the model without features."
        )
    meaning = {
        "converged": "The coefficients are those of the pooled rows, up to rounding.",
        "limited by rounding": (
            "The conditions of optimality hold as far as double precision can tell; more exchanges would bring nothing."
        ),
        "not converged": "The fit has not converged: the coefficients may be good, but this is all that is certain.",
    }[certificate.outcome]
    return [meaning, f"{bound} This is a duality gap, computed from the sites' sums and not from trust in the solver."]


def noised(privacy: PrivacyReport) -> list[str]:
    """What a private fit has cost, and what it rests on, in plain words."""
    cost = f"epsilon {privacy.epsilon:.3g} at delta {privacy.delta:g}"
    assumed = f" Assumed: {privacy.assumed}." if privacy.assumed else ""
    return [f"Every {privacy.level} is protected by noise: {cost}.{assumed}", f"Of this fit, {privacy.sentence}."]


def coefficients(done: FinishedFit) -> JSON:
    """The table of coefficients, each with a picture on one scale."""
    found, path = done.coefficients().drop(columns="se", errors="ignore"), vars(done.model).get("path_")
    scale = np.ones(len(done.feature_names)) if path is None else path.scale
    units = dict(zip(done.feature_names, scale.tolist(), strict=True))
    picture, head = "coefficient x standard deviation" if path is not None else "picture", list(found).index("coef")
    columns = [str(name).replace("_", " ") for name in found]
    drawn, rows, parts = [], [], PARTS | ({"coef": "log_odds"} if "log_odds" in found else {})
    for row in found.to_dict("records"):
        cells, place = [cell(value) for value in row.values()], None
        if row["feature"] != INTERCEPT:
            place = len(drawn)
            values = {part: row.get(column) for part, column in parts.items()}
            drawn.append({part: scaled(value, units[row["feature"]]) for part, value in values.items()})
        matters = place is None or row["coef"] != 0 or row.get("p_value", 1) < TELLING
        rows.append({"cells": [*cells[:head], place, *cells[head:]], "shown": bool(matters)})
    names = [["coef", "penalised coefficient"]]
    words = "Numbers are for the features as they are; the picture has one scale for all of them."
    if "low" in found:
        level = f"its {100 * (done.plan.level or LEVEL):g} % interval"
        names += [["middle", "without the penalty's bias"], ["interval", level]]
        words += f" Intervals: {vars(done.model).get('inference_note_', '')}."
    if "log_odds" in found:
        words += f" The picture and the intervals are of the log odds against {done.outputs[0]}."
    return {
        "columns": [*columns[:head], picture, *columns[head:]],
        "units": picture,
        "rows": rows,
        "drawn": drawn,
        "names": names,
        "words": words,
    }


def scaled(value: int | float | None, factor: int | float) -> float | int | None:
    """A coefficient in the units of the picture."""
    return None if value is None or not np.isfinite(value) else short(float(value) * factor)


def charts(done: FinishedFit) -> list[JSON]:
    """The path and the cross-validated curve, strengths from the weakest to the strongest."""
    held = vars(done.model)
    if "path_" not in held:
        return []
    path: RegularizationPath = held["path_"]
    drawn = [path_chart(path, done.outputs, held["alpha_"])]
    if "cv_mean_" in held:
        marks = [{"label": name, "value": float(held[f"alpha_{name}_"])} for name in ("min", "1se")]
        mean, se = held["cv_mean_"][::-1], held["cv_se_"][::-1]
        line = {
            "series": series("held-out rows", 0),
            "x": compact(path.alphas[::-1]),
            "mean": compact(mean),
            "low": compact(mean - se),
            "high": compact(mean + se),
        }
        is_squared = path.gaussian and done.plan.measure == "deviance"  # which is the mean squared error then
        words = MEASURES["mse" if is_squared else done.plan.measure].words
        note = "The shade is one standard error over the folds."
        drawn.append(
            {"lines": [line], "yName": words, "title": "on held-out rows", "marks": marks, "bands": True, "note": note}
        )
    return drawn


def curves(done: FinishedFit) -> list[JSON]:
    """The ROC curve and the calibration curve, each beside the diagonal, where predictions were counted."""
    curves: HeldOutCurves | None = vars(done.model).get("curves_")
    if curves is None:
        return []
    found, table = curves.roc, curves.calibration()
    diagonal = {"series": series("the diagonal", 1), "x": [0.0, 1.0], "mean": [0.0, 1.0]}
    roc = {"x": compact(found["false_positive"].to_numpy()), "mean": compact(found["true_positive"].to_numpy())}
    seen = {name: compact(table[name].to_numpy()) for name in ("low", "high")}
    seen |= {"x": compact(table["expected"].to_numpy()), "mean": compact(table["observed"].to_numpy())}
    area = f"Area {curves.auc:.3f}, off by {curves.auc_bound:.3f} at most: predictions are counted in bins."
    rows = "The shade is Wilson's 95 % interval."
    return [
        {"lines": [{"series": series("held-out rows", 0), **roc}, diagonal], "title": "ROC curve", "bands": False}
        | {"xName": "false positives", "yName": "true positives", "note": area},
        {"lines": [{"series": series("held-out rows", 0), **seen}, diagonal], "title": "calibration", "bands": True}
        | {"xName": "expected", "yName": "observed", "note": rows},
    ]


def path_chart(path: RegularizationPath, outputs: list[str], chosen: float) -> JSON:
    """The coefficients by strength, of the features that matter most."""
    lines = (path.coefs * path.scale).reshape(len(path.alphas), -1)[::-1]
    largest = np.argsort(-np.abs(lines).max(axis=0), kind="stable")
    used = [int(column) for column in largest if np.any(lines[:, column] != 0)]
    labels = [f"{label}: {name}" for label in outputs for name in path.feature_names] or list(path.feature_names)
    shown = [
        {"series": series(labels[column], rank), "x": compact(path.alphas[::-1]), "mean": compact(lines[:, column])}
        for rank, column in enumerate(used[:LINES])
    ]
    more = len(used) - len(shown)
    note = f"The {LINES} largest; {more} more are in path.png." if more > 0 else ""
    words = "coefficient x standard deviation" if np.any(path.scale != 1) else "coefficient"
    return {
        "lines": shown,
        "yName": words,
        "title": "the path",
        "marks": [{"label": "chosen", "value": float(chosen)}],
        "bands": False,
        "note": note,
    }


def exchanged(exchanges: Sequence[Exchange]) -> JSON:
    """The table of exchanges; of very many, their totals by kind."""
    if len(exchanges) <= MOST:
        return table(exchange_table(exchanges).drop(columns="rounds"))
    rows = [(one.what, one.rounds, one.down, one.up) for one in totals(exchanges)]
    return table(pd.DataFrame(rows, columns=["what", "exchanges", "bytes down", "bytes up"]))


def series(label: str, rank: int) -> dict[str, str]:
    """How a line looks."""
    shade = COLOURS[rank % len(COLOURS)]
    return {"label": label, "light": shade, "dark": on_dark(shade), "dash": "" if rank < len(COLOURS) else "7 4"}


def table(frame: pd.DataFrame) -> JSON:
    """A table for the page."""
    columns = [str(name).replace("_", " ") for name in frame]
    return {"columns": columns, "rows": [[cell(value) for value in row] for row in frame.itertuples(index=False)]}


def cell(value: object) -> float | int | str | None:
    """A cell of a table: a number or text; nothing where a number is missing."""
    if isinstance(value, (bool, str)):
        return str(value)
    if isinstance(value, (int, float, np.integer, np.floating)):
        return short(float(value)) if np.isfinite(value) else None
    return None if value is None else str(value)


def size(count: int | float) -> str:
    """Bytes to read.

    >>> from cofed.fitting.page import size
    >>> size(999), size(123_456), size(4.2e6)
    ('999 B', '123 kB', '4.2 MB')
    """
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
