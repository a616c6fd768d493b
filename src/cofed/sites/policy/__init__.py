"""A policy at every site: which questions are answered, and a record of what was."""

from cofed.sites.policy.advice import advice
from cofed.sites.policy.guard import PolicyGuard
from cofed.sites.policy.ledger import LedgerLost
from cofed.sites.policy.schema import (
    TRIAL,
    Policy,
    PolicyError,
    default_policy_toml,
    load_policy,
    parse_policy,
    policy_toml,
)

__all__ = [
    "TRIAL",
    "LedgerLost",
    "Policy",
    "PolicyError",
    "PolicyGuard",
    "advice",
    "default_policy_toml",
    "load_policy",
    "parse_policy",
    "policy_toml",
]
