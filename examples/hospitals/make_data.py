"""Invented patients of four hospitals, as the folders `tables` and `data` have them: python make_data.py"""

from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent


def readmissions() -> None:
    """`tables`: was a patient readmitted within thirty days? Age, creatinine, earlier stays and smoking matter."""
    rng = np.random.default_rng(2026)
    for site, patients in {"bergen": 260, "leiden": 420, "padua": 180, "turku": 340}.items():
        older, n = rng.normal(scale=3), patients  # hospitals differ in their patients
        table = pd.DataFrame(
            {
                "age": rng.normal(64 + older, 12, n).round(),
                "sex": rng.choice(["female", "male"], n),
                "bmi": rng.normal(27, 4, n).round(1),
                "pressure": rng.normal(135, 18, n).round(),
                "glucose": rng.normal(6.1, 1.4, n).round(1),
                "creatinine": rng.gamma(9, 10, n).round(),
                "smoker": rng.choice(["no", "former", "yes"], n, p=[0.5, 0.3, 0.2]),
                "stays": rng.poisson(0.8, n),
                "days": rng.poisson(4, n),
                "distance": rng.gamma(2, 9, n).round(1),
            }
        )
        risk = 0.05 * (table["age"] - 64) + 0.02 * (table["creatinine"] - 90) + 0.6 * table["stays"]
        risk += np.where(table["smoker"] == "yes", 0.9, 0) - 1.3
        table["readmitted"] = np.where(risk + rng.logistic(size=n) > 0, "yes", "no")
        (HERE / "tables").mkdir(exist_ok=True)
        table.to_csv(HERE / "tables" / f"{site}.csv", index=False)


def costs() -> None:
    """`data`: what a treatment costs, from ten features in standard units, of which four matter."""
    features = ["age", "weight", "pressure", "glucose", "creatinine", "ward", "smoker", "visits", "days", "distance"]
    effect = np.array([1.5, 0, 0, 2.0, 0, 0, 1.0, 0, 3.0, 0])
    rng = np.random.default_rng(2024)
    for site, patients in {"bergen": 90, "leiden": 150, "padua": 60, "turku": 120}.items():
        shift = 0.4 * rng.normal(size=len(features))
        X = rng.normal(size=(patients, len(features))) + shift
        cost = X @ effect + 5 + 0.5 * rng.normal(size=patients)
        folder = HERE / "data" / site
        folder.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(X, columns=features).assign(cost=cost).round(3).to_csv(folder / "patients.csv", index=False)


readmissions()
costs()
