"""What a site's policy says, as pydantic models, and the file `policy.toml` that holds it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from cofed._util.toml_mistakes import Place, TomlFile, did_you_mean
from cofed.algorithms.base import AbstractAlgorithm, AbstractGossipAlgorithm
from cofed.engine.serialization import classes
from cofed.sites.queries import QUERIES

Whole: TypeAlias = Annotated[int, Field(ge=1)]
Share: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Names: TypeAlias = Annotated[tuple[str, ...], Field(strict=False)]
EVERYTHING: Names = ("*",)


class PolicyError(ValueError):
    """What is wrong with a policy file, a line for each mistake."""


class PolicyPart(BaseModel):
    """A table of a policy file: unknown keys are refused, and so is text where a number belongs."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RowRules(PolicyPart):
    """How many rows an answer, or a difference of answers, must stand for."""

    site: Whole = Field(default=10, description="Rows that this site must have in what is asked about. Source: ours.")
    atom: Whole = Field(
        default=3,
        description="Rows that any difference of answers must stand for. Source: DataSHIELD nfilter.subset, 3.",
    )
    fold: Whole = Field(default=3, description="Rows of this site in every fold. Source: DataSHIELD nfilter.subset, 3.")
    cell: Whole = Field(
        default=3, description="Rows of every level of a factor and of every class. Source: DataSHIELD nfilter.tab, 3."
    )


class SumRules(PolicyPart):
    """Over whom answers are added up before anybody sees them."""

    masked: Literal["pinned", "required", "optional"] = Field(
        default="pinned",
        description='"pinned": masked, with sites of an approved study; "required": masked; "optional": also plain.',
    )
    sites: Whole = Field(default=3, description="Sites in a sum, and in a difference of sums. Source: vantage6, 3.")
    colluding: Annotated[int, Field(ge=0, le=31)] = Field(
        default=1, description="Other sites that may work with the server: their rows protect nobody. Source: ours."
    )
    released: Names = Field(
        default=(),
        description="Long-term keys of sites that may be the difference of sums, as this site knows from themselves.",
    )


class QuestionRules(PolicyPart):
    """What may be asked, and how often."""

    queries: Names = Field(default=EVERYTHING, description='Queries that are answered; "*" is all.')
    algorithms: Names = Field(default=EVERYTHING, description='Algorithms whose rounds are taken part in; "*" is all.')
    per_day: Whole = Field(default=1000, description="Different questions answered in a day (UTC). Source: ours.")
    in_all: Whole = Field(default=10000, description="Different questions answered in all. Source: ours.")
    failures: Whole = Field(
        default=3, description="Silent refusals in a study, after which nothing more is answered. Source: ours."
    )
    text: Whole = Field(
        default=80, description="Characters of a name in a question. Source: DataSHIELD nfilter.string, 80."
    )


class ParameterRules(PolicyPart):
    """How many columns the products of columns are told for."""

    per_row: Share = Field(
        default=0.33,
        description="Columns of Gram and Hessian matrices, per row (of a fold). Source: DataSHIELD nfilter.glm.",
    )


class PointRules(PolicyPart):
    """How many models a site lets the others look at, and which."""

    per_row: Share = Field(
        default=0.33, description="Points, per row of all sites, whatever they are. Source: as nfilter.glm."
    )
    grid_rows: Whole = Field(
        default=500, description="Rows of all sites from which on a grid may have more. Source: ours."
    )
    grid_per_row: Share = Field(
        default=5.0, description="Points of grids, per row of all sites. Source: ours, measured."
    )
    grid_directions: Share = Field(
        default=0.33,
        description="Directions in which these points differ, per row of all sites. Source: as nfilter.glm.",
    )
    size: Share = Field(
        default=50.0, description="The sum of a model's absolute coefficients, in units of 1 sd. Source: ours."
    )
    dominance: Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(
        default=3.0,
        description="Rows that must share a model's slopes: (sum |s|)^2 / sum s^2. Source: dominance rules, 3.",
    )
    leverage: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.99, description="The most of a row that combinations of points may isolate; 1 is off. Source: ours."
    )


class PrivacyRules(PolicyPart):
    """The budget of answers with noise."""

    epsilon: Share = Field(default=10.0, description="Spent by all answers with noise together. Source: ours.")


class UpdateRules(PolicyPart):
    """What rounds of algorithms may send."""

    norm: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.0,
        description="The longest update of a round, counted from that of a client without gradients; longer ones are "
        "cut to it. 0 is no bound. Source: ours.",
    )


class Policy(PolicyPart):
    """The rules of a site; without arguments the strict ones that hold where there is no file.

    Parameters
    ----------
    rows, sums, questions, parameters, points, privacy, updates : dict
        The tables of the file; `default_policy_toml` shows every key, its default and where that comes from.

    Examples
    --------
    >>> from cofed.sites.policy import Policy
    >>> Policy().rows.atom, Policy().sums.masked
    (3, 'pinned')
    >>> Policy(rows={"atom": 10}).rows.atom
    10
    """

    rows: RowRules = RowRules()
    sums: SumRules = SumRules()
    questions: QuestionRules = QuestionRules()
    parameters: ParameterRules = ParameterRules()
    points: PointRules = PointRules()
    privacy: PrivacyRules = PrivacyRules()
    updates: UpdateRules = UpdateRules()

    @property
    def least_sites(self) -> int:
        """The sites of a sum: enough that two remain whom the server knows nothing of."""
        return max(self.sums.sites, self.sums.colluding + 2)

    def mistakes(self) -> Iterator[tuple[Place, str]]:
        """What in the policy does not go together: where, and why."""
        for name in self.questions.queries:
            if name != "*" and name not in QUERIES:
                known = ", ".join(QUERIES)
                hint = did_you_mean(name, list(QUERIES))
                yield ("questions", "queries"), f"{name!r} is no query{hint}; there are {known}"
        for name in self.questions.algorithms:
            if not is_algorithm(name):
                hint = did_you_mean(name, algorithm_names())
                yield (
                    ("questions", "algorithms"),
                    f"{name!r} is no algorithm{hint}; there are {', '.join(algorithm_names())}, and one of your own "
                    'goes by its module, "package.module.Name"',
                )
        for key in self.sums.released:
            if not re.fullmatch("[0-9a-f]{64}", key):
                yield ("sums", "released"), f"{key!r} is no long-term key of a site, of 64 hexadecimal digits"
        if not self.questions.queries and not self.questions.algorithms:
            yield ("questions", "queries"), 'neither a query nor an algorithm is allowed; ["*"] allows all of them'

    @property
    def silence(self) -> str:
        """Why a site with this policy would answer no question at all; empty where it does."""
        return "" if self.questions.queries else 'questions.queries is empty: no question is answered; ["*"] is all'


def algorithm_names() -> list[str]:
    """The names that cofed's own algorithms with a server have in a policy."""
    kinds = {name: kind for name, kind in classes().items() if issubclass(kind, AbstractAlgorithm)}
    return sorted(
        n for n, k in kinds.items() if not (n.startswith("Abstract") or issubclass(k, AbstractGossipAlgorithm))
    )


def is_algorithm(name: str) -> bool:
    """Whether a policy may name an algorithm so: one of cofed's, anybody's own with its module, or all.

    >>> from cofed.sites.policy.schema import is_algorithm
    >>> is_algorithm("FedAvg"), is_algorithm("FedAvgg"), is_algorithm("clinic.methods.FedAvgg"), is_algorithm("*")
    (True, False, True, True)
    """
    parts = name.split(".")
    is_own = len(parts) > 1 and all(part.isidentifier() for part in parts)
    return name == "*" or name in algorithm_names() or is_own


TRIAL = Policy(
    rows=RowRules(site=1, atom=1, fold=1, cell=1),
    sums=SumRules(masked="optional", sites=1, colluding=0),
    questions=QuestionRules(per_day=10**9, in_all=10**9, failures=10**9, text=10**6),
    parameters=ParameterRules(per_row=1e9),
    points=PointRules(per_row=1e9, size=1e300, dominance=1.0, leverage=1.0),
    privacy=PrivacyRules(epsilon=1e9),
)
"""No rules, for rows of one's own, as in a trial on one machine: everything is answered, and nothing is protected.

It is a `Policy`, such as `client_app(..., policy=TRIAL)` takes.
"""


def load_policy(path: str | Path) -> Policy:
    """Read and check a policy file.

    Parameters
    ----------
    path : str or Path
        A TOML file. Keys that are not there have their defaults.

    Returns
    -------
    Policy
        What it says.

    Raises
    ------
    PolicyError
        If the file cannot be read, or has mistakes: the sentences name line, key and what is allowed.

    Examples
    --------
    >>> from cofed.sites.policy import load_policy
    >>> load_policy("no-such.toml")
    Traceback (most recent call last):
    cofed.sites.policy.schema.PolicyError: there is no file no-such.toml
    """
    return FILE.load(path)


def parse_policy(text: str) -> Policy:
    """The policy of a TOML text."""
    return FILE.parse(text)


def allowed_keys(raw: dict[str, Any]) -> dict[int, list[str]]:
    """The keys that each table of a file may have, by the table's identity."""
    parts = {name: type(part) for name, part in Policy()}
    found = {id(raw): list(parts)}
    return found | {id(raw[name]): list(part.model_fields) for name, part in parts.items() if name in raw}


FILE = TomlFile(Policy, Policy.mistakes, allowed_keys, PolicyError)


def default_policy_toml() -> str:
    """The default policy as a file: every key, with what it means and where its default comes from.

    Returns
    -------
    str
        TOML that `load_policy` reads as `Policy()`.

    Examples
    --------
    >>> from cofed.sites.policy import default_policy_toml
    >>> for line in default_policy_toml().splitlines()[2:5]:
    ...     print(line)
    [rows]
    # Rows that this site must have in what is asked about. Source: ours.
    site = 10
    """
    return policy_toml(Policy())


def policy_toml(policy: Policy) -> str:
    """A policy as a file, with what every key means."""
    lines = ["# The policy of a site: what it answers. Keys that are not here have these defaults."]
    for name, part in policy:
        lines += ["", f"[{name}]"]
        for key, field in type(part).model_fields.items():
            lines += [f"# {field.description}", f"{key} = {json.dumps(getattr(part, key))}"]
    return "\n".join(lines) + "\n"
