"""What is public: found by looking, so that a new name cannot be forgotten."""

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import cofed

# Rooms whose public names are names of `cofed` too, or have a table of their own.
ELSEWHERE = {
    *("algorithms", "estimators", "gossip", "regularizers", "report", "transformers"),
    *("survival_curves", "SurvivalCurves"),
}

# Classes that cofed makes and a user reads: nothing is given to them.
READ = {
    *(
        "Communication",
        "DebugFailure",
        "Description",
        "ExcessRisk",
        "Forecast",
        "Heterogeneity",
        "History",
        "LeftOut",
        "MetaAnalysis",
        "Outcome",
    ),
    *("Replicates", "Result", "Solution", "Tuning", "topologies.Topology", "datasets.Split", "datasets.Synthetic"),
    "datasets.Images",
    *("callbacks.RunInfo", "callbacks.Snapshot", "samplers.Draw", "batches.Batch", "batches.ClientRound"),
    "disk.DiskFederation",
    "Federation",  # made by from_arrays and its kin, which check
}
# Methods that an engine calls, with what it has checked before: the contract of algorithms, losses, models, mirrors,
# compressors and callbacks. What users call of regularizers is in the table.
CONTRACT = {
    # The duality of losses and penalties, which the estimators' certificate calls.
    *("conjugate", "cumulant", "deviance", "dispersion", "dual_scaling", "excess", "label_sum", "label_units", "link"),
    *("dual_room", "in_units", "inverse_link", "natural", "variance", "with_rows"),
    "train",  # of models, which local steps call
    *("events", "mean_margin", "residual_scale", "saturated", "scaled", "zeroing_factor"),
    *("init", "refuses", "outputs", "correct", "compress", "to_dual", "to_primal", "to_primal_smooth"),
    *(
        "of",
        "open",
        "restored",
        "stack",
        "for_clients",
        "losses",
        "mean_loss",
        "ready",
        "part",
        "covers",
        "on_start",
        "on_row",
        "on_model",
        "score",
        "count",
        "on_end",
        "write",
        "send",
    ),
}
# What a contract declares and a class does not give: it refuses whatever is given.
NOT_OFFERED = {"AbstractRegularizer.prox_in_ball", "AbstractRegularizer.dual_norm", "AbstractMirror.norm"}


def public() -> dict[str, Callable[..., Any]]:
    """Every public callable by its dotted name, but for estimators, which have a table of their own."""
    found: dict[str, Callable[..., Any]] = {}
    for name in cofed.__all__:
        value = getattr(cofed, name)
        if name.startswith("Abstract"):  # what users derive from: they never make or call one
            continue
        if isinstance(value, ModuleType):
            if name not in ELSEWHERE:
                found |= members(name, value)
        elif name not in ELSEWHERE:
            found |= dict(entries(name, value))
    return found


def members(name: str, module: ModuleType) -> dict[str, Callable[..., Any]]:
    """The public callables of a module."""
    made = [member for member in module.__all__ if not member.startswith("Abstract")]
    return {k: v for member in made for k, v in entries(f"{name}.{member}", getattr(module, member))}


def entries(name: str, value: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A function; or a class that users make, and its methods that they call."""
    if not isinstance(value, type):
        yield name, value
        return
    if name not in READ and parameters(value):
        yield name, value
    contracts = (cofed.AbstractAlgorithm, cofed.Clock, cofed.means.AbstractMean, cofed.samplers.AbstractSampler)
    contracts = (*contracts, cofed.batches.AbstractBatches)
    if issubclass(value, (Exception, tuple, *contracts)):
        return
    for method in dir(value):
        function = inspect.getattr_static(value, method)
        function = function.__func__ if isinstance(function, classmethod) else function
        if method.startswith("_") or method in CONTRACT or not inspect.isfunction(function):
            continue
        if function.__qualname__ in NOT_OFFERED:
            continue
        if function.__module__.startswith("cofed.") and parameters(getattr(value, method), skip=("self",)):
            yield f"{name}.{method}", getattr(value, method)


def parameters(function: Callable[..., Any], skip: tuple[str, ...] = ()) -> list[str]:
    """The names of what can be given."""
    return [name for name in inspect.signature(function).parameters if name not in skip]
