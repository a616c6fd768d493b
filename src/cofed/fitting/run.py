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
from cofed.fitting.transformed_sites import transformed_by
from cofed.sites import AbstractSites, Design, SiteRefused
from cofed.sites.link import SitesMissing
from cofed.sites.network import NetworkSites


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
    tables : pandas.DataFrame
        What is known of the sites' tables, by site: `rows_of_the_table` and `missing_values`.
    out : Path
        The folder for the files.
    command : str
        The command that does the same again.
    drop : bool
        Whether to begin anew without sites that do not answer, or that a rule of theirs forbids to.
    notes : tuple of str
        What the report has to say of it.
    """

    plan: FitPlan
    sites: AbstractSites
    target: str
    tables: pd.DataFrame
    out: Path
    command: str = ""
    drop: bool = False
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> list[str]:
        """The variable that each feature is of."""
        return list(agreed_design(self.sites).groups)

    @property
    def absent(self) -> tuple[str, ...]:
        """The sites that the fit goes on without."""
        return self.sites.left_out if isinstance(self.sites, NetworkSites) else ()

    def known(self) -> pd.DataFrame:
        """What is known of the sites, a row for each."""
        table = pd.DataFrame({"site": self.sites.names, "rows": self.sites.sizes})
        table = table.join(self.tables, on="site")
        whole = table["rows_of_the_table"].tolist() == list(self.sites.sizes)
        return table.drop(columns="rows_of_the_table") if whole else table

    @property
    def departures(self) -> tuple[str, ...]:
        """Why the fit goes on without some sites, a sentence for each."""
        reasons = self.sites.network.reasons if isinstance(self.sites, NetworkSites) else {}
        return tuple(f"Without {site}: {why}." for site, why in reasons.items())


def agreed_design(sites: AbstractSites) -> Design:
    """How the tables of sites become numbers."""
    assert sites.design is not None, "these sites have no tables"
    return sites.design


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
    before = list(exchanges)
    is_told = events.tell in exchanges.listeners  # since the sites came
    if not is_told:
        exchanges.listeners.append(events.tell)
    try:
        known = [
            {"name": str(site), "rows": int(rows)} for site, rows in zip(job.sites.names, job.sites.sizes, strict=True)
        ]
        events.tell("begin", title=title(job.plan, job.target), sites=known)  # type: ignore[arg-type]
        for one in () if is_told else before:
            events.tell("exchange", **dataclasses.asdict(one))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            job, model = fitted(job)
        names = job.sites.feature_names or tuple(f"x{j}" for j in range(job.sites.n_features))
        warned = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning))
        seconds = time.perf_counter() - began
        notes = (*job.departures, *job.notes, *warned)
        done = FinishedFit(
            model,
            job.plan,
            job.target,
            names,
            job.known(),
            tuple(exchanges),
            seconds,
            notes,
            job.command,
            job.sites.is_masked,
            job.absent,
        )
        files = write_fit(done, job.out)
    except BaseException:
        with contextlib.suppress(OSError):  # the error that came first is the one to speak of
            write_table(job.out / "exchanges.csv", exchange_table(exchanges))
        raise
    finally:
        exchanges.listeners.remove(events.tell)
    events.tell("end", ok=done.outcome != "not converged", outcome=done.outcome, words=f"The files are in {job.out}.")
    return done, files


def fitted(job: FitJob) -> tuple[FitJob, FederatedLinearModel]:
    """The job as it was done in the end, over fewer sites maybe, and the estimator, with intervals if asked for."""
    while True:
        try:
            made = dataclasses.replace(job, sites=transformed_by(job.plan.steps, job.sites))
            model = made.plan.estimator(made.groups, made.target).fit(made.sites)
            if job.plan.steps:
                vars(model)["from_tables_"] = True  # the file of it predicts from a table, which knows no step
            return with_intervals(made, model), model
        except (SitesMissing, SiteRefused) as error:
            if not job.drop or not isinstance(job.sites, NetworkSites):
                raise
            job = dataclasses.replace(job, sites=job.sites.after(error))


def with_intervals(job: FitJob, model: FederatedLinearModel) -> FitJob:
    """Add the intervals that are asked for; where there can be none, the job says why, and the model stays."""
    if job.plan.level is None:
        return job
    try:
        model.infer(job.sites, level=job.plan.level, errors=job.plan.errors)
    except ValueError as error:
        return dataclasses.replace(job, notes=(*job.notes, f"There are no intervals: {error}."))
    return job
