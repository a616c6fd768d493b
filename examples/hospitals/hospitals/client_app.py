"""A hospital's end: its patients' data are read here and never sent."""

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


app = client_app(problem, algorithm, load, keep=keep)
