"""Kaplan and Meier's curves of all sites together, and the log-rank test: from counts of rows between times."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from cofed._util import checks, naming
from cofed._util.figure_types import Figure
from cofed._util.pandas_types import Frame
from cofed._util.spreadsheets import to_csv
from cofed._util.types import Given
from cofed.estimators.survival_plot import plot_curves
from cofed.losses import Breslow
from cofed.sites import AbstractSites, Design, Exchange, Target, agree
from cofed.sites.queries import GroupsMessage, LifeTableAnswer, LifeTableMessage, life_table, log_rank
from cofed.sites.table_sites import as_tables, sites_by_design, tables_of_frame
from cofed.statistics.survival import KaplanMeier, LogRank, kaplan_meier, log_rank_sums, log_rank_test

HERE, ELSEWHERE = 2000, 100  # the most times of a grid: of rows in this process, of rows at sites
ALLOWED = 0.33  # times of all groups that sites tell by default, per row of all sites but the largest
SPENT = 0.3  # the part of them that a grid takes: a model's columns count, too
POWERS = 2.0 ** np.arange(-8, 25)  # between which times are looked for
EVERYBODY = "all"


@dataclasses.dataclass(frozen=True)
class SurvivalCurves:
    """The curves of groups; `cofed.survival_curves` makes it.

    Attributes
    ----------
    curves : dict of str to KaplanMeier
        The curve of each group.
    resolution : float
        To what width times were rounded up; 0 where the curves are those of the times as they are.
    log_rank : LogRank or None
        Whether the groups' hazards are the same, all sites taken together; None where there is one group.
    by_site : LogRank or None
        The same, each site a stratum: rows are compared with rows of their own site only. Of the times as they are.
    sites : dict of str to int
        The rows of each site.
    exchanges : tuple of Exchange
        What was asked.
    table : pandas.DataFrame
        All curves, a row for each group and time.
    medians : pandas.DataFrame
        Of each group its rows, events and median time with its limits; NaN where it is not reached.
    """

    curves: dict[str, KaplanMeier]
    resolution: float
    log_rank: LogRank | None
    by_site: LogRank | None
    sites: dict[str, int]
    exchanges: tuple[Exchange, ...]

    @property
    def table(self) -> Frame:
        """The curves as one table."""
        parts = [pd.DataFrame({"group": name, **dataclasses.asdict(curve)}) for name, curve in self.curves.items()]
        return pd.concat(parts, ignore_index=True)

    @property
    def medians(self) -> Frame:
        """The median times."""
        rows = []
        for name, curve in self.curves.items():
            median, low, high = curve.quantile()
            rows.append((name, curve.rows, curve.events.sum(), median, low, high))
        columns = ["group", "rows", "events", "median", "low", "high"]
        return pd.DataFrame(rows, columns=columns).astype({"rows": int, "events": int})

    def summary(self) -> str:
        """The medians and the tests, as text.

        Returns
        -------
        str
            A line for each group and test.
        """
        total, many = sum(self.sites.values()), len(self.sites)
        medians = self.medians.to_string(index=False, na_rep="not reached")
        lines = [f"{total} rows at {many} site{'' if many == 1 else 's'}", "", medians]
        for what, test in (("log-rank", self.log_rank), ("log-rank, each site a stratum", self.by_site)):
            if test is not None and test.freedom:
                found = f"chi2 = {test.statistic:.3f}, df = {test.freedom}, p = {test.p_value:.3g}"
                lines += ["", f"{what}: {found}"]
            elif test is not None:
                lines += ["", f"{what}: none, as no two groups are at risk together"]
        step = self.resolution
        rounded = "as they were given" if step == 0 else f"rounded up, by less than {step:g}"
        return "\n".join([*lines, "", f"In curves and medians times are {rounded}."])

    def plot(self, path: Given[str | Path | None] = None) -> Figure:
        """Draw the curves with their limits, and how many rows are at risk.

        Parameters
        ----------
        path : str or Path, optional
            A file for it, .png, .svg or .pdf.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        return plot_curves(self.curves, self.log_rank, path)

    def to_csv(self, path: Given[str | Path]) -> None:
        """Write the table to a CSV file.

        Parameters
        ----------
        path : str or Path
            Where to.
        """
        to_csv(self.table, checks.file_to_write("path", path))


def survival_curves(
    sites: Given[AbstractSites | Mapping[str, pd.DataFrame] | pd.DataFrame | str | Path],
    time: Given[str],
    event: Given[str],
    *,
    group: Given[str | None] = None,
    entry: Given[str | None] = None,
    client: Given[str | None] = None,
    times: Given[np.ndarray | list[float] | None] = None,
    level: Given[float] = 0.95,
    missing: Given[str] = "refuse",
) -> SurvivalCurves:
    """Kaplan and Meier's curves of the rows of all sites, and the log-rank test between groups.

    Sites tell how many rows of a group have an event, or leave without one, between the times of a grid that all of
    them share; and for the test by site, observed and expected events. Both are sums over all sites, under each site's
    policy (see the page "survival").

    Parameters
    ----------
    sites : AbstractSites, mapping, DataFrame or path
        The sites, which have tables; or their tables by name; or one table of all with a column that names the site;
        or a folder with a file for each site.
    time, event : str
        The columns with times, >= 0, and with 1 for an event or 0 for a row that was followed until then.
    group : str, optional
        The column that tells groups apart; None is one curve.
    entry : str, optional
        The column with times from which on rows are at risk.
    client : str, optional
        The column of one table that names a row's site.
    times : list of float, optional
        The grid. None looks for one: it has all times where they are whole numbers and few enough, else times of one
        distance, as many as sites allow by default.
    level : float, default=0.95
        The coverage of the limits.
    missing : {"refuse", "drop"}, default="refuse"
        What is done where a value is missing.

    Returns
    -------
    SurvivalCurves
        The curves, with `plot`, `table`, `medians` and `summary`.

    Examples
    --------
    >>> import pandas as pd
    >>> import cofed
    >>> frame = pd.DataFrame({"site": list("aabbab"), "days": [1, 2, 2, 3, 4, 4], "dead": [1, 0, 1, 1, 1, 0]})
    >>> found = cofed.survival_curves(frame, "days", "dead", client="site")
    >>> found.curves["all"].survival.round(3).tolist(), found.resolution
    ([1.0, 0.833, 0.667, 0.444, 0.222], 0.0)
    """
    jax.config.update("jax_enable_x64", True)
    share = checks.share("level", level)
    names = {"time": time, "event": event, "group": group, "entry": entry}
    chosen = {what: checks.text(what, name) for what, name in names.items() if name is not None}
    checks.one_of("missing", missing, ("refuse", "drop"))
    held = opened(sites, client, chosen, str(missing))
    if held.has_weights:
        raise ValueError("survival_curves: rows count alike, but these sites have weights; open them without")
    asked = GroupedSites(held, *groups_of(held, chosen.get("group")))
    grid, step = asked.grid() if times is None else (given_times(times), np.nan)
    counts = asked.counts(grid)
    curves = curves_of(asked.levels, grid, counts, share)
    one_group = len(curves) == 1
    at_risk, events = (np.array([getattr(curve, part) for curve in curves.values()]) for part in ("at_risk", "events"))
    return SurvivalCurves(
        curves=curves,
        resolution=resolution(grid, step, float(counts.fractions)),
        log_rank=None if one_group else log_rank_test(*log_rank_sums(events, at_risk)),
        by_site=None if one_group else asked.by_site(),
        sites=dict(zip(held.names, held.sizes, strict=True)),
        exchanges=tuple(held.exchanges),
    )


@dataclasses.dataclass(frozen=True)
class GroupedSites:
    """Sites with times to an event, and the groups to be told apart."""

    sites: AbstractSites
    groups: np.ndarray  # positions of the features that tell them
    levels: tuple[str, ...]  # the groups' names

    def counts(self, edges: np.ndarray, groups: np.ndarray | None = None) -> LifeTableAnswer:
        """The life tables of all sites together."""
        chosen = self.groups if groups is None else groups
        return self.sites.ask(life_table, LifeTableMessage(chosen, np.asarray(edges, np.float64), loss=Breslow()))

    def by_site(self) -> LogRank:
        """The log-rank test, each site a stratum."""
        found = self.sites.ask(log_rank, GroupsMessage(self.groups, loss=Breslow()))
        return log_rank_test(*(np.asarray(part) for part in found))

    def grid(self) -> tuple[np.ndarray, float]:
        """Times to count between, and their distance, after a look at where the times of all rows are."""
        found = self.counts(POWERS, self.groups[:0])
        ends = np.asarray(found.events + found.censored)[0]
        if ends[-1] > 0:
            raise ValueError(f"times above {POWERS[-1]:g} are not looked for; give times=, or times in other units")
        top = float(POWERS[np.flatnonzero(ends)[-1]])
        most = self.most_times()
        if float(found.fractions) == 0:
            step = max(1.0, np.ceil(top / most))
            return np.arange(0.0, max(top, 1.0) + step, step), step
        return np.linspace(0.0, top, most + 1), top / most

    def most_times(self) -> int:
        """How many times a grid has: few enough that sites answer by default, where they have rules."""
        if self.sites.is_masked is None:
            return HERE
        rows = sum(self.sites.sizes) - (max(self.sites.sizes) if len(self.sites.sizes) > 1 else 0)
        left = ALLOWED * rows - len(POWERS)
        return int(np.clip(min(SPENT * ALLOWED * rows, left) / len(self.levels) - 1, 1, ELSEWHERE))


def curves_of(
    levels: tuple[str, ...], grid: np.ndarray, counts: LifeTableAnswer, level: float
) -> dict[str, KaplanMeier]:
    """The curves of all groups, up to the last time at which anybody leaves."""
    events, censored, entered = (np.asarray(part) for part in (counts.events, counts.censored, counts.entered))
    if not events.sum() > 0:
        raise ValueError("there is no event: all rows are censored")
    empty = np.flatnonzero(entered.sum(axis=1) == 0)
    if len(empty):
        raise ValueError(f"the group {levels[empty[0]]!r} has no rows with a time and an event")
    beyond = bool((events + censored)[:, -1].any())
    last = len(grid) if beyond else int(np.flatnonzero((events + censored).sum(axis=0))[-1]) + 1
    return {
        name: kaplan_meier(grid[:last], d[:last], c[:last], e[:last], level)
        for name, d, c, e in zip(levels, events, censored, entered, strict=True)
    }


def resolution(grid: np.ndarray, step: float, fractions: float) -> float:
    """To what width times were rounded up; 0 where whole numbers have a time each."""
    if fractions == 0 and len(grid) > 1 and (np.diff(grid) == 1).all() and float(grid[0]).is_integer():
        return 0.0
    return float(np.diff(grid).max(initial=grid[0])) if np.isnan(step) else step


def given_times(times: object) -> np.ndarray:
    """A grid that was given."""
    try:
        grid = np.asarray(times, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"times must be numbers, got {checks.shown(times)}") from None
    if grid.ndim != 1 or not len(grid) or not np.isfinite(grid).all() or not (np.diff(grid) > 0).all():
        raise ValueError(f"times must be one or more finite numbers that ascend, got {checks.shown(times)}")
    return grid


def groups_of(sites: AbstractSites, group: str | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """The positions of the features that tell groups apart, and the groups' names."""
    place, design = 0, sites.design
    for feature in () if design is None or group is None else design.features:
        if feature.name == group:
            assert feature.levels is not None
            return np.arange(place, place + len(feature.levels) - 1, dtype=np.int32), feature.levels
        place += len(feature.encoded)
    return np.zeros(0, np.int32), (EVERYBODY,)


def opened(sites: object, client: object, chosen: dict[str, str], missing: str) -> AbstractSites:
    """The sites, whose tables become groups and times to an event."""
    agree_on = partial(agreed, chosen=chosen, missing=missing)
    if isinstance(sites, pd.DataFrame):
        if client is None:
            raise ValueError("survival_curves: one table of all sites needs client=, the column that names the site")
        name = checks.text("client", client)
        if name in chosen.values():
            raise ValueError(f"survival_curves: client={name!r} names a column that is asked about, too")
        return sites_by_design(tables_of_frame(sites, name), agree_on).of_times()
    if client is not None:
        raise ValueError("survival_curves: client= is for one table of all sites; others name the sites themselves")
    if not isinstance(sites, AbstractSites):
        return sites_by_design(as_tables(sites), agree_on).of_times()  # type: ignore[arg-type]
    if sites.design is None:
        raise ValueError("survival_curves: these sites have no tables, whose columns could be named")
    if tells(sites.design, chosen):
        return sites.of_times()
    return sites.with_design(agree_on(sites.infos)).of_times()


def tells(design: Design, chosen: dict[str, str]) -> bool:
    """Whether a design has these times and groups already, as that of a study's analysis may."""
    factors = {one.name for one in design.features if one.levels is not None}
    wanted = [chosen[what] for what in ("entry", "time", "event") if what in chosen]
    held = [] if design.target is None or design.target.event is None else [one.name for one in design.target.columns]
    return held == wanted and ("group" not in chosen or chosen["group"] in factors)


def agreed(infos: Mapping, chosen: dict[str, str], missing: str) -> Design:
    """The design of all sites: the group is a factor, and nothing else is a feature."""
    naming.require_different("the columns of survival curves", list(chosen.values()))
    target = Target(name=chosen["time"], event=chosen["event"], entry=chosen.get("entry"))
    features = [chosen["group"]] if "group" in chosen else []
    return agree(infos, target, features, factors=features, missing=missing)
