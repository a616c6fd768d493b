"""The advice in words and tables, for readers who know the sites but not the method; shared by all ways to show it."""

import numpy as np
import pandas as pd

from cofed.advise.advice import Advice
from cofed.advise.table import Prepared
from cofed.statistics.heterogeneity import Heterogeneity

LOSSES = {
    "linear": "half the squared error",
    "logistic": "log loss",
    "multinomial": "log loss",
    "poisson": "Poisson loss",
}
NAMES = {
    "shared": "one model for all sites",
    "local": "a model for each site",
    "prox": "a model for each site, held near a common one",
}


def short(strength: float) -> str:
    """A strength with two significant digits.

    >>> from cofed.advise.words import short
    >>> short(100.0), short(0.0316)
    ('100', '0.032')
    """
    return f"{float(f'{strength:.2g}'):g}"


def loss(value: float) -> str:
    """A loss with four decimals, or three significant digits where it is large.

    >>> from cofed.advise.words import loss
    >>> loss(0.46161), loss(5091661869.7)
    ('0.4616', '5.09e+09')
    """
    return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.3g}"


def gain(value: float) -> str:
    """A difference of losses, with its sign.

    >>> from cofed.advise.words import gain
    >>> gain(0.01234), gain(-121378.7)
    ('+0.0123', '-1.21e+05')
    """
    return f"{value:+.4f}" if abs(value) < 100 else f"{value:+.3g}"


def spread(value: float) -> str:
    """A standard error of a difference of losses.

    >>> from cofed.advise.words import spread
    >>> spread(0.01234), spread(537808.2)
    ('0.0123', '5.4e+05')
    """
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.2g}"


def title(advice: Advice) -> str:
    """The question that the advice answers."""
    return f"Should these {advice.prepared.federation.n_clients} sites share one model?"


def data(advice: Advice) -> str:
    """What the advice is based on, in a sentence or two."""
    ready = advice.prepared
    fed = ready.federation
    together = " Rows of one group stay together." if ready.groups is not None else ""
    more = f" of {fed.n_clients + len(ready.excluded)}" if ready.excluded else ""
    return (
        f"{fed.n_samples:,} rows of {fed.n_clients}{more} sites, {fed.n_features} features, target {ready.target!r} "
        f"({ready.kind} regression). Each choice was trained on {advice.folds - 1} of {advice.folds} parts of every "
        f"site's rows and judged on the rest, in turn, so that each row is judged once.{together}"
    )


def recommendation(advice: Advice) -> str:
    """The recommendation as a headline."""
    chosen = NAMES[advice.recommendation]
    strength = f" (FedProx, strength {short(advice.strengths[advice.best])})" if advice.recommendation == "prox" else ""
    return chosen[0].upper() + chosen[1:] + strength


def reasons(advice: Advice) -> list[str]:
    """The reasons for the recommendation, and how certain it is."""
    shared, local, near = advice.risks[-1], advice.risks[0], advice.risks[advice.best]
    kind = LOSSES[advice.prepared.kind]
    said = [
        f"On rows that the models had not seen, the {kind} is {loss(shared)} with one model for all and "
        f"{loss(local)} with a model each (lower is better); knowing no features at all it would be "
        f"{loss(advice.baseline)}."
    ]
    if advice.risks.min() >= advice.baseline:
        said.append("No choice does better than that: these features do not help to predict the target.")
    better, error = advice.held_near.difference, advice.held_near.standard_error
    strength = f"{short(advice.strengths[advice.best])}"
    if advice.recommendation == "prox":
        said.append(
            f"Between the two, at strength {strength}, it is {loss(near)}: better than either by at least {better:.2g} "
            f"(standard error {error:.2g}). The strength was chosen on the same rows, which flatters it a little."
        )
    else:
        other = "a model each" if advice.recommendation == "shared" else "one model for all"
        size, error = abs(advice.apart.difference), advice.apart.standard_error
        said.append(
            f"That is a difference of {size:.2g} (standard error {error:.2g}) to {other}. {sureness(advice.sure)}"
        )
        said.append(
            f"Something between (FedProx, at best at strength {strength}) gives {loss(near)}: not clearly better."
            if better > 0
            else f"Nothing between the two (FedProx, at best at strength {strength}: {loss(near)}) is better."
        )
    return said


def sureness(sure: float) -> str:
    """A probability in words."""
    if sure < 0.75:
        return "That is no more than a toss-up: the two are as good as each other."
    odds = f"{sure:.0%}" if sure < 0.995 else "more than 99 %"
    how = "This leans that way" if sure < 0.9 else "This is fairly sure" if sure < 0.975 else "This is sure"
    return f"{how} ({odds})."


def difference(advice: Advice) -> str:
    """How different the sites are."""
    found = advice.different
    if isinstance(found, str):
        return f"How different the sites are could not be estimated: {found}."
    low, high = found.interval
    ratio = found.R_squared / found.threshold
    words = {
        "share": "less than their samples can tell apart: what a site would gain from a model of its own, it would "
        "lose by having fewer rows",
        "separate": "more than their samples' size explains: what a site would gain from the others' rows, it would "
        "lose by their being different",
        "between": "by an amount that these samples cannot settle: neither sharing nor going alone is plainly right",
    }
    all_sites, here = len(advice.prepared.federation.names) + len(advice.prepared.excluded), len(found.table)
    rests = f" This rests on {here} of {all_sites} sites" + (", the others are left out." if here < all_sites else ".")
    return (
        f"The sites' true models differ {words[found.verdict]}. In figures: their mean squared distance from the "
        f"average model (the theory's R², not a share of variance) is estimated as {found.R_squared:.3g} "
        f"({found.level:.0%} interval {low:.3g} to {high:.3g}), {ratio:.2g} times the "
        f"error that sites make when they fit alone, {found.threshold:.3g}. Sharing pays below that, going alone "
        f"above.{rests}"
    )


def choices(advice: Advice) -> pd.DataFrame:
    """A row per choice, from one model for all to a model each."""
    rows = []
    for place in reversed(range(len(advice.strengths))):
        strength, risk = advice.strengths[place], advice.risks[place]
        name = "one model for all" if np.isinf(strength) else "a model each" if strength == 0 else "FedProx"
        rows.append(
            {
                "choice": name,
                "strength": "∞" if np.isinf(strength) else short(strength),
                "held-out loss": f"{loss(risk)}",
                "against one for all": "" if np.isinf(strength) else gain(risk - advice.risks[-1]),
                "± s.e.": "" if np.isinf(strength) else spread(advice.errors[place]),
                "explained": f"{1 - risk / advice.baseline:.1%}" if advice.baseline > 0 else "",
                "best": place == int(np.argmin(advice.risks)),
            }
        )
    return pd.DataFrame(rows)


def sites(advice: Advice) -> pd.DataFrame:
    """A row per site: what each choice gives there."""
    gaps = advice.apart.table
    rows = []
    for m, name in enumerate(advice.prepared.federation.names):
        shared, near, local = (advice.by_site[m, place] for place in (-1, advice.best, 0))
        least = min(shared, near, local)
        gap, error = gaps["difference"].iloc[m], gaps["standard_error"].iloc[m]
        row = {
            "site": name,
            "rows": f"{int(gaps['samples'].iloc[m]):,}",
            "one for all": f"{loss(shared)}",
            f"FedProx {short(advice.strengths[advice.best])}": f"{loss(near)}",
            "own model": f"{loss(local)}",
            "gain of own ± s.e.": f"{gain(gap)} ± {spread(error)}",
            "best here": "one for all" if least == shared else "FedProx" if least == near else "own model",
        }
        if isinstance(advice.different, Heterogeneity) and name in advice.different.table.index:
            row["times unlike"] = f"{advice.different.table['ratio'][name]:.1f}"
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def left_out(advice: Advice) -> pd.DataFrame:
    """A row per site that is not in all of the comparison, with the reason; none where all are."""
    rows = [(name, "all", why) for name, why in advice.prepared.excluded.items()]
    if isinstance(advice.different, Heterogeneity):
        rows += [(name, "how different", why) for name, why in advice.different.left_out.items()]
    return pd.DataFrame(rows, columns=["site", "left out of", "because"])


def remarks(advice: Advice) -> list[str]:
    """What else was left out, and how to read the page."""
    said = list(advice.prepared.notes)
    said.append('"Explained" is the part of the loss without features that a choice takes away.')
    said.append("Features are scaled to mean 0 and variance 1 over all sites; sites count by their rows.")
    if isinstance(advice.different, Heterogeneity):
        said.append(
            '"Times unlike" is how far a site\'s own model is from the average one, squared, as a multiple of what '
            "chance alone would give (1 is no difference)."
        )
    return said


def how_to(advice: Advice) -> str:
    """A line of Python that trains what is recommended."""
    strength = advice.strengths[advice.best] if advice.recommendation == "prox" else 0.0
    rate = short(1 / (smoothness(advice.prepared) + strength))
    method = {
        "shared": f"cofed.FedDecouple(client_lr={rate})",
        "local": f"cofed.PureLocal(client_lr={rate})",
        "prox": f"cofed.FedProx(strength={short(strength)}, client_lr={rate})",
    }[advice.recommendation]
    named = type(advice.prepared.problem.loss).__name__
    return (
        f"cofed.run(cofed.Problem(cofed.Linear(), cofed.{named}()), federation, {method}, rounds=500, local_steps=5, "
        'weights="samples")\n'
        "with `federation` made of the features scaled as here (mean 0 and variance 1 over all sites)"
    )


def smoothness(ready: Prepared) -> float:
    """The largest curvature of any site's loss (for counts at four times their mean), whose inverse is a safe step."""
    bend = {"linear": 1.0, "logistic": 0.25, "multinomial": 0.5}.get(ready.kind)
    largest = 0.0
    for name in ready.federation.names:
        X, y = ready.federation.client(name)
        X = np.column_stack([X, np.ones(len(X))])
        largest = max(largest, (bend or 4 * y.mean()) * np.linalg.eigvalsh(X.T @ X / len(X))[-1])
    return float(largest)
