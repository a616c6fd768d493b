"""Tables of invented hospitals, one file per site in different formats and orders of columns."""

from pathlib import Path

import numpy as np
import pandas as pd

SIZES = {"bergen": 90, "leiden": 150, "padua": 60}


def pooled(seed: int = 0) -> pd.DataFrame:
    """All rows, with the hospital of each: `cost` is a number, `ill` and `stage` are words, `visits` counts."""
    rng = np.random.default_rng(seed)
    site = np.repeat(list(SIZES), list(SIZES.values()))
    table = pd.DataFrame(rng.normal(size=(len(site), 4)), columns=["age", "weight", "glucose", "distance"])
    table["sex"] = rng.choice(["female", "male"], len(site))
    lean = 1.5 * table["age"] - table["glucose"] + (table["sex"] == "male")
    table["cost"] = lean + 0.5 * rng.normal(size=len(site))
    table["ill"] = np.where(lean + rng.logistic(size=len(site)) > 0, "yes", "no")
    table["stage"] = np.select([lean + rng.logistic(size=len(site)) > 1, lean > -1], ["late", "early"], "none")
    table["visits"] = rng.poisson(np.exp(lean / 3))
    return table.assign(hospital=site)


def write(folder: Path, table: pd.DataFrame) -> Path:
    """A file per hospital: CSV, Parquet and Feather, the columns of the second in another order."""
    parts = {site: part.drop(columns="hospital") for site, part in table.groupby("hospital")}
    folder.mkdir()
    parts["bergen"].to_csv(folder / "bergen.csv", index=False)
    parts["leiden"][parts["leiden"].columns[::-1]].to_parquet(folder / "leiden.parquet")
    parts["padua"].reset_index(drop=True).to_feather(folder / "padua.feather")
    return folder
