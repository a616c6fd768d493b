"""A hospital's end: its patients' data are read here and never sent."""

import tomllib
from pathlib import Path

import pandas as pd

from cofed.flower import client_app
from hospitals.task import algorithm, problem


def load(node):
    """The hospital's own table: every column but the cost is a feature."""
    table = pd.read_csv(Path(node["data"]) / "patients.csv")
    return table.drop(columns=["cost"]), table["cost"]


def keep(node):
    """The hospital's own folder, for its state, its compiled programs and the last model."""
    return node["keep"]


def roster(node):
    """The hospitals whose updates may be added up with this one's, and their keys: a file of this hospital's own."""
    return tomllib.loads(Path(node["roster"]).read_text())


# No policy is given, so the strict rules of docs/policy.md hold.
app = client_app(problem, algorithm, load, keep=keep, roster=roster)
