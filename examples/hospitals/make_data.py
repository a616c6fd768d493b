"""Invented patients of four hospitals, as the folder `data` has them: python make_data.py"""

from pathlib import Path

import numpy as np
import pandas as pd

FEATURES = ["age", "weight", "pressure", "glucose", "creatinine", "ward", "smoker", "visits", "days", "distance"]
COST = np.array([1.5, 0, 0, 2.0, 0, 0, 1.0, 0, 3.0, 0])  # in standard units: six features cost nothing
SITES = {"bergen": 90, "leiden": 150, "padua": 60, "turku": 120}

rng = np.random.default_rng(2024)
for site, patients in SITES.items():
    shift = 0.4 * rng.normal(size=len(FEATURES))  # hospitals differ in their patients
    X = rng.normal(size=(patients, len(FEATURES))) + shift
    cost = X @ COST + 5 + 0.5 * rng.normal(size=patients)
    folder = Path(__file__).parent / "data" / site
    folder.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame(X, columns=FEATURES).assign(cost=cost)
    table.round(3).to_csv(folder / "patients.csv", index=False)
