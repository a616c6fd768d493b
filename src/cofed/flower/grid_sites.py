"""The sites of a fit over Flower: what an estimator's `fit` takes where the rows are at SuperNodes."""

from collections.abc import Sequence
from pathlib import Path

from cofed._util import checks
from cofed._util.types import Given
from cofed.flower.flwr_types import Grid
from cofed.flower.link import FlowerLink
from cofed.flower.progress import ProgressLog
from cofed.flower.run_folder import RunFolder
from cofed.flower.settings import site_names
from cofed.sites.chosen_columns import ChosenColumns
from cofed.sites.design import Design, Target
from cofed.sites.network import NetworkSites
from cofed.sites.secure.invitation import PLAIN
from cofed.studies import Study
from cofed.studies.consent import invitation_to


def sites(
    grid: Given[Grid],
    *,
    clients: Given[int | str | Sequence[str]],
    target: Given[str | Target | None] = "y",
    features: Given[Sequence[str] | None] = None,
    missing: Given[str] = "refuse",
    design: Given[Design | None] = None,
    patience: Given[float] = 600.0,
    log: Given[str | Path | None] = None,
    study: Given[Study | None] = None,
    plain: Given[bool] = False,
) -> NetworkSites:
    """The sites of a Flower Grid, for an estimator's `fit`.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The Grid that a ServerApp is given.
    clients : int, str or sequence of str
        The sites' names, as a list or as one text, or how many sites there are.
    target : str or Target, optional
        The column to predict; of the time to an event, a `cofed.sites.Target(name="days", event="dead")`. Labels that
        came without a name are called "y".
    features : sequence of str, optional
        The columns to learn from; by default all others. Text becomes a factor with the union of the sites' levels.
    missing : str
        "refuse" missing values, "drop" the rows that have some, or "impute" the mean or the most frequent level of
        all sites.
    design : Design, optional
        How the tables become numbers, such as `study.design("main")`, instead of target, features and missing.
    patience : float
        Seconds to wait for a site that is silent, or does not come. Then the fit ends with a `SitesMissing`.
    log : str or Path, optional
        A folder for the log of exchanges. Started again with the same folder, the same fit takes the answers that it
        had from there, and goes on; it ends with the same bits.
    study : Study, optional
        The study that the sites have approved; with the sites' keys in it, nobody can pose as one of them.
    plain : bool
        Whether the server sees each site's answers. By default they are masked, and it learns sums over all sites only.

    Returns
    -------
    NetworkSites
        The sites, once all are there.

    Raises
    ------
    SitesMissing
        Where they do not all come within `patience`.
    TypeError, ValueError
        Where an argument is wrong, the sites do not fit together, or the log is of another fit.

    Examples
    --------
    >>> from flwr.serverapp import ServerApp  # doctest: +SKIP
    >>> from cofed import estimators, flower
    >>> app = ServerApp()  # doctest: +SKIP
    >>> @app.main()  # doctest: +SKIP
    ... def main(grid, context):
    ...     sites = flower.sites(grid, clients=["oslo", "rome"], log="log")
    ...     print(estimators.FederatedLassoCV().fit(sites).summary())
    """
    from flwr.serverapp import Grid

    if not isinstance(grid, Grid):
        raise TypeError(f"grid must be the flwr.serverapp.Grid that a ServerApp is given, got {type(grid).__name__}")
    wanted = site_names(clients) or checks.integer("clients", clients)
    folder = None if log is None else checks.folder("log", log)
    names = None if features is None else tuple(checks.items("features", features, "names of columns"))
    if design is not None and not isinstance(design, Design):
        raise TypeError(f"design must be a cofed.sites.Design, got {type(design).__name__}")
    chosen = target if isinstance(target, Target) else checks.optional_text("target", target)
    policy = checks.text("missing", missing)
    columns = ChosenColumns(chosen, names, missing=policy, design=design)
    if study is not None and not isinstance(study, Study):
        raise TypeError(f"study must be a cofed.studies.Study, got {type(study).__name__}")
    invitation = PLAIN if checks.flag("plain", plain) else invitation_to(study)
    link = FlowerLink(grid, checks.positive("patience", patience), ProgressLog(RunFolder(folder)), invitation)
    return NetworkSites.open(link, wanted, columns, folder)
