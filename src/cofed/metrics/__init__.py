"""Metrics of a model, as functions of its parameters: for `cofed.run(..., metrics={"f1": cofed.metrics.f1(truth)})`.

A metric of your own is any function of the parameters that computes one number with jax.numpy. One that sees data, by
`on_samples` or derived from `AbstractDataMetric`, is a function of predictions and labels. Both are compiled when they
are first used: a global variable that they read keeps the value of that moment, and later changes go unnoticed. Make a
number that changes between runs a field of an `equinox.Module`, as the metrics here do.
"""

from cofed.metrics.of_models import (
    F1,
    Declared,
    DeclaredOnData,
    Density,
    Distance,
    Precision,
    Rank,
    Recall,
    density,
    distance,
    f1,
    higher_is_better,
    rank,
    support,
)
from cofed.metrics.on_data import AbstractDataMetric, HigherIsBetter, SampleMean, on_samples

__all__ = ["AbstractDataMetric", "density", "distance", "f1", "higher_is_better", "on_samples", "rank", "support"]

# Their classes, which checkpoints and rankings know.
CLASSES = (F1, Declared, DeclaredOnData, Density, Distance, HigherIsBetter, Precision, Rank, Recall, SampleMean)
