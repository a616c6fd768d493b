"""A fit from its plan to its files: every exchange is told as it happens, and warnings are kept for the report."""

import contextlib
import dataclasses
import time
import warnings
from pathlib import Path

import pandas as pd

from cofed.estimators.base import FederatedLinearModel
from cofed.fitting.events import FitEvents
from cofed.fitting.finished import FinishedFit, exchange_table
from cofed.fitting.outputs import write_fit, write_table
from cofed.fitting.page import title
from cofed.fitting.plan import FitPlan
from cofed.sites import AbstractSites


@dataclasses.dataclass(frozen=True)
class FitJob:
    """What to fit, over which sites, and where its files go.

    Attributes
    ----------
    plan : FitPlan
        The family, the penalty and so on.
    sites : AbstractSites
        Where the rows are.
    target : str
        The column that is predicted.
    groups : tuple of str
        The variable that each feature is of.
    known : pandas.DataFrame
        What is known of the sites: a row for each, with the columns `site` and `rows` first.
    out : Path
        The folder for the files.
    command : str
        The command that does the same again.
    """

    plan: FitPlan
    sites: AbstractSites
    target: str
    groups: tuple[str, ...]
    known: pd.DataFrame
    out: Path
    command: str = ""


def run_fit(job: FitJob, events: FitEvents) -> tuple[FinishedFit, list[Path]]:
    """Fit, tell how it goes, and write the files; what was exchanged is written however it ends.

    Parameters
    ----------
    job : FitJob
        What to do.
    events : FitEvents
        Where it is told.

    Returns
    -------
    FinishedFit, list of Path
        The fit, and its files.
    """
    began, exchanges = time.perf_counter(), job.sites.exchanges
    exchanges.listeners.append(events.tell)
    try:
        known = [
            {"name": str(site), "rows": int(rows)} for site, rows in zip(job.sites.names, job.sites.sizes, strict=True)
        ]
        events.tell("begin", title=title(job.plan, job.target), sites=known)  # type: ignore[arg-type]
        for before in exchanges:
            events.tell("exchange", **dataclasses.asdict(before))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = fitted(job)
        names = job.sites.feature_names or tuple(f"x{j}" for j in range(job.sites.n_features))
        notes = tuple(dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning)))
        seconds = time.perf_counter() - began
        done = FinishedFit(model, job.plan, job.target, names, job.known, tuple(exchanges), seconds, notes, job.command)
        files = write_fit(done, job.out)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the error that came first is the one to speak of
            write_table(job.out / "exchanges.csv", exchange_table(exchanges))
        words = "stopped" if isinstance(error, KeyboardInterrupt) else f"{error}"
        events.tell("end", ok=False, outcome="stopped", words=words)
        raise
    finally:
        exchanges.listeners.remove(events.tell)
    outcome = model.certificate_.outcome
    events.tell("end", ok=outcome != "not converged", outcome=outcome, words=f"The files are in {job.out}.")
    return done, files


def fitted(job: FitJob) -> FederatedLinearModel:
    """The fitted estimator, with intervals where they are asked for."""
    model = job.plan.estimator(list(job.groups)).fit(job.sites)
    if job.plan.level is not None:
        try:
            model.infer(job.sites, level=job.plan.level)
        except ValueError as error:  # the fit itself is good
            warnings.warn(str(error), stacklevel=2)
    return model
