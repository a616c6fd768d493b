"""A fit as a table of text."""

import numpy as np
import pandas as pd

from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.fitted_state import output_names
from cofed.sites.intake import feature_names

MOST = 40  # rows of coefficients
OUTCOMES = {
    "converged": "converged",
    "limited by rounding": "limited by rounding: optimal as far as float64 can tell, which is less than tol asks for",
    "not converged": "NOT converged",
}


def summary(model: FederatedLinearModel) -> str:
    """Coefficients in use (with intervals, where there are any), the certificate, sites, rounds and bytes."""
    table = coefficients(model)
    left_out = len(table) - MOST
    sites = ", ".join(f"{name} ({n})" for name, n in zip(model.clients_[:8], model.client_sizes_[:8], strict=True))
    more = len(model.clients_) - 8
    lines = [
        f"{type(model).__name__}: {int(model.support_.sum())} of {len(model.support_)} features in use",
        "",
        table.head(MOST).to_string(float_format=lambda value: f"{value:.5g}"),
        *([f"... and {left_out} more"] if left_out > 0 else []),
        "",
        *intervals(model),
        *exactness(model),
        *([f"events        {vars(model)['n_events_']}"] if "n_events_" in vars(model) else []),
        *([f"loss          {vars(model)['loss_']}, by maximum likelihood"] if "loss_" in vars(model) else []),
        *effects(model),
        f"clients       {len(model.clients_)}: {sites}{f' and {more} more' if more > 0 else ''}",
        f"algorithm     {model.algorithm_}",
        f"exchanged     {model.n_rounds_} rounds, {model.bytes_:,} bytes: "
        + ", ".join(f"{one.what} {one.rounds}" for one in model.exchanges_),
    ]
    return "\n".join(lines)


def effects(model: FederatedLinearModel) -> list[str]:
    """The clients' own intercepts, where each has one."""
    if not model._has_site_effects:
        return []
    known = vars(model).get("site_effects_")
    if known is None:
        return ["intercepts    one for every client, which keeps it to itself; shown is their mean"]
    shown = {name: " / ".join(f"{one:.5g}" for one in np.ravel(value)) for name, value in list(known.items())[:8]}
    values, more = [f"{name} {value}" for name, value in shown.items()], len(known) - 8
    return [f"intercepts    {', '.join(values)}{f' and {more} more' if more > 0 else ''}; shown above is their mean"]


def exactness(model: FederatedLinearModel) -> list[str]:
    """The certificate; or what a private fit has cost, and why it has none."""
    certificate, privacy = model.certificate_, vars(model).get("privacy_")
    if privacy is not None:
        cost = f"epsilon {privacy.epsilon:.3g} at delta {privacy.delta:g}"
        noise = "all of it from every site" if privacy.shares == 1 else f"in shares, of which {privacy.shares} suffice"
        return [
            f"privacy       of each {privacy.level}: {cost}; noise: {noise}",
            *([f"assumed       {privacy.assumed}"] if privacy.assumed else []),
            f"certificate   none: {privacy.sentence}",
        ]
    gap = "none known" if np.isinf(certificate.gap) else f"{certificate.gap:.2e}"
    return [
        f"objective     {certificate.objective:.8g}",
        f"duality gap   {gap} (prox-gradient {certificate.prox_gradient:.2e}; "
        f"{'within' if certificate.converged else 'NOT within'} tol = {certificate.tol:g} of {certificate.scale:.4g})",
        f"outcome       {OUTCOMES[certificate.outcome]}",
    ]


def intervals(model: FederatedLinearModel) -> list[str]:
    """How the intervals came about; of several classes, the intervals, too."""
    inference = vars(model).get("inference_")
    if inference is None:
        return []
    lines = [f"intervals     {vars(model).get('inference_note_', '')}"]
    if len(np.atleast_2d(model.coef_)) == 1:
        return lines
    title = f"log odds against {output_names(model)[0]}:" if model._loss().any_shift else "by response:"
    table = inference.head(MOST).to_string(float_format=lambda value: f"{value:.5g}")
    more = len(inference) - MOST
    return [title, table, *([f"... and {more} more"] if more > 0 else []), "", *lines]


def coefficients(model: FederatedLinearModel) -> pd.DataFrame:
    """The intercept, where there can be one, and the coefficients in use, and all that have intervals."""
    names = feature_names(model)
    inference = vars(model).get("inference_")
    values = np.atleast_2d(model.coef_)
    columns = list(map(str, output_names(model))) if len(values) > 1 else ["coef"]
    table = pd.DataFrame(values.T, index=names, columns=columns)
    shown = list(model.support_)
    if inference is not None and len(values) == 1:
        table = table.join(inference.drop(columns="coef"))
        shown = [used or name in inference.index for used, name in zip(shown, names, strict=True)]
    if not model._loss().rowwise:
        return table.loc[shown].astype(float)
    intercept = pd.DataFrame([np.atleast_1d(model.intercept_)], index=["(intercept)"], columns=columns)
    return pd.concat([intercept.reindex(columns=table.columns), table.loc[shown]]).astype(float)
