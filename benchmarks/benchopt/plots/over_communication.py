"""The objective's gap over what communication costs: rounds, or bytes."""

from benchopt import BasePlot

LEAST = 1e-12  # a gap below this is drawn as this


class Plot(BasePlot):
    """A curve for each solver; the gap is to the best that any of them saw."""

    name = "gap_over_communication"
    type = "scatter"
    options = {"dataset": ..., "objective": ..., "cost": ["rounds", "bytes"]}

    def plot(self, df, dataset, objective, cost):
        """The curves."""
        df = df[(df["dataset_name"] == dataset) & (df["objective_name"] == objective)]
        best = df["objective_value"].min()
        curves = []
        for solver, rows in df.groupby("solver_name"):
            middle = rows.groupby("stop_val").median(numeric_only=True).sort_values(f"objective_{cost}")
            gap = (middle["objective_value"] - best).clip(lower=LEAST)
            curves.append(
                {
                    "x": middle[f"objective_{cost}"].tolist(),
                    "y": gap.tolist(),
                    "label": solver,
                    **self.get_style(solver),
                }
            )
        return curves

    def get_metadata(self, df, dataset, objective, cost):
        """Title and axes."""
        return {"title": f"{objective}\n{dataset}", "xlabel": cost, "ylabel": "objective, above the best"}
