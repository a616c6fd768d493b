"""Tables of sites: what a study of hospitals looks like, with factors, truth values and gaps."""

import numpy as np
import pandas as pd
from hypothesis import strategies as st

WARDS = ["ward 2", "ward 10", "ICU", "Å"]


def hospital(rows: int, seed: int, gaps: float = 0.0) -> pd.DataFrame:
    """One hospital's patients."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.integers(20, 95, rows),
            "pressure": np.round(rng.normal(120, 15, rows), 1),
            "sex": rng.choice(["female", "male"], rows),
            "ward": rng.choice(WARDS, rows),
            "smoker": rng.random(rows) < 0.3,
            "ill": rng.choice(["no", "yes"], rows),
        }
    )
    for column in ("age", "pressure", "sex", "ward"):
        table[column] = table[column].mask(rng.random(rows) < gaps)
    return table


@st.composite
def frames(draw: st.DrawFn, gaps: bool = False) -> tuple[pd.DataFrame, np.ndarray]:
    """One table of all rows, and the site of each; every site has a row, some lack levels and classes."""
    rows, sites = draw(st.integers(6, 40)), draw(st.integers(1, 4))
    table = hospital(rows, draw(st.integers(0, 2**16)), 0.2 if gaps else 0.0)
    table.loc[0, ["age", "pressure", "sex", "ward", "smoker", "ill"]] = [50, 100.5, "male", "ICU", True, "no"]
    table.loc[1, ["age", "pressure", "sex", "ward", "smoker", "ill"]] = [60, 110.5, "female", "Å", False, "yes"]
    own = np.concatenate([np.arange(sites), draw(st.randoms()).choices(range(sites), k=rows - sites)])
    return table, own
