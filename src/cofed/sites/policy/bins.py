"""The rule about counts of values between edges."""

import numpy as np

from cofed.sites.guard import Refusal
from cofed.sites.policy.case import Case
from cofed.sites.queries import HeldOutMessage, HistogramMessage, PermutedMessage

COUNTING = (HistogramMessage, HeldOutMessage, PermutedMessage)  # questions that count values between edges


def histograms(case: Case) -> Refusal | None:
    """Whether histograms have more bins than the rows can fill."""
    message = case.message
    if not isinstance(message, COUNTING) or not np.shape(message.edges)[1]:
        return None
    rows = case.fold_rows if isinstance(message, HeldOutMessage) else case.honest_rows
    bins, most = np.shape(message.edges)[1] + 1, int(case.policy.parameters.per_row * rows)
    if bins <= most:
        return None
    of_fold = " of a fold" if message.n_folds > 1 else ""
    why = f"a histogram would have {bins} bins, and {int(rows)} rows of all sites{of_fold} may have {most}"
    return Refusal("bins", f"{why} (parameters.per_row)")
