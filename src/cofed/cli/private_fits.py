"""`--epsilon` of `cofed fit` and `cofed serve`"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from cofed._util.extras import imported

if TYPE_CHECKING:
    from cofed.fitting import FitPlan, PrivacyPlan
    from cofed.sites import Design


def private(epsilon: float | None, delta: float | None, guesses: Path | None) -> "PrivacyPlan | None":
    """The privacy that the options ask for; a ValueError where they do not fit, an ImportError without the extra."""
    if epsilon is None:
        lonely = "--delta" if delta is not None else "--guesses" if guesses is not None else None
        if lonely is not None:
            raise ValueError(f"{lonely} goes with --epsilon")
        return None
    from cofed.fitting import PrivacyPlan, read_guesses

    imported("dp_accounting", "--epsilon", "dp-accounting", "privacy")
    return PrivacyPlan(epsilon, 1e-6 if delta is None else delta, {} if guesses is None else read_guesses(guesses))


def with_privacy(plan: "FitPlan", design: "Design", privacy: "PrivacyPlan | None") -> "FitPlan":
    """What an analysis of a study fits, with this privacy."""
    if privacy is None:
        return plan
    if design.weight is not None or design.offset is not None:
        raise ValueError("--epsilon takes neither weights nor offsets: the noise is for rows that count alike")
    from cofed.sites.site_table import parts

    privacy.check_columns([part.name for part in parts(design)])
    return dataclasses.replace(plan, privacy=privacy)
