"""Differential privacy of sums over sites: integer noise in shares, and what it costs."""

from cofed.privacy.accounting import BudgetSpent, Release, check_budget, epsilon_of, sigma_for
from cofed.privacy.noised_sum import NoisedSum
from cofed.privacy.settings import Privacy, PrivacyReport, guesses, noise_shares
from cofed.privacy.skellam import skellam

__all__ = [
    "BudgetSpent",
    "NoisedSum",
    "Privacy",
    "PrivacyReport",
    "Release",
    "check_budget",
    "epsilon_of",
    "guesses",
    "noise_shares",
    "sigma_for",
    "skellam",
]
