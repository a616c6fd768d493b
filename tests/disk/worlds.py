"""Tables of many unequal clients, as they come: in parquet files, in any order."""

import numpy as np
import pandas as pd

import cofed


def table(clients=30, d=4, seed=0, shuffled=True, labels=False, most=7):
    """Heterogeneous clients of 1 to `most` samples, one with all of them; "site 10" comes after "site 9"."""
    rng = np.random.default_rng(seed)
    sizes = np.append(rng.integers(1, most + 1, size=clients - 1), most)
    site = np.repeat([f"site {m}" for m in range(clients)], sizes)
    X = rng.normal(size=(len(site), d)) + np.repeat(rng.normal(size=(clients, d)), sizes, axis=0)
    y = X @ rng.normal(size=d) + rng.normal(size=len(site))
    df = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)])
    df["y"], df["site"] = (y > 0).astype(int) if labels else y, site
    return df.sample(frac=1, random_state=seed) if shuffled else df


def both(df, folder, rows=13, **options):
    """The same table as a federation in memory and on disk, the latter from several files of several row groups."""
    (folder / "data").mkdir(parents=True)
    half = len(df) // 2
    df[:half].to_parquet(folder / "data" / "a.parquet", row_group_size=rows, index=False)
    df[half:].to_parquet(folder / "data" / "b.parquet", row_group_size=rows, index=False)
    memory = cofed.Federation.from_frame(df, target="y", client="site", **options)
    disk = cofed.Federation.from_parquet(folder / "data", target="y", client="site", on_disk=True, **options)
    return memory, disk
