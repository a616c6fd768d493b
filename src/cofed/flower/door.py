"""One app at a site, whatever is fitted: it answers the fixed list of questions, and no code comes to it."""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy.typing as npt
import pandas as pd

from cofed._util import checks
from cofed._util.programs import keep_programs
from cofed._util.types import Given
from cofed.flower.client import check_function
from cofed.flower.flwr_types import ClientApp, Context, Message
from cofed.flower.link import content, payload
from cofed.flower.site import Config, Keep, site_name
from cofed.flower.site_policy import as_policy
from cofed.sites.guard import OpenGuard
from cofed.sites.local import Consent, LocalSite, table_of_arrays
from cofed.sites.packing import Malformed
from cofed.sites.policy import TRIAL, Policy, PolicyGuard
from cofed.sites.site_table import SiteTable
from cofed.studies.consent import StudyConsent

Loaded = pd.DataFrame | tuple[npt.ArrayLike | pd.DataFrame, npt.ArrayLike | pd.Series]


def site_app(
    load: Given[Callable[[Config], Loaded]], *, keep: Given[Keep | None] = None, policy: Given[Policy | None] = None
) -> ClientApp:
    """Make a Flower ClientApp that answers an estimator's questions from one site's rows.

    It is the same app for every fit, so it is reviewed once: what it answers is the fixed list
    `cofed.sites.queries.QUERIES`, each a sum over the site's rows.

    Parameters
    ----------
    load : callable
        From the node's configuration to this site's table, a DataFrame; or to `(X, y)`, features and a label for
        each row. The site's name is the entry `site` of the node's configuration, else its `partition-id`. It is
        called once per process.
    keep : callable, optional
        From the node's configuration to a folder of this site's own, which holds its keys, compiled programs, so that a
        new process answers faster, and the studies that the site has approved (`cofed study approve --keep`): once
        there is one, only what approved studies contain is answered.
    policy : Policy, optional
        The site's rules. By default the strict ones: masked answers, summed over the sites of an approved study.

    Returns
    -------
    flwr.clientapp.ClientApp
        The app that a SuperNode starts.

    Raises
    ------
    TypeError, ValueError
        Where one of these is no function, or the policy would answer no question.

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.flower import site_app
    >>> def load(node):
    ...     return pd.read_csv(node["data"])
    >>> app = site_app(load)  # doctest: +SKIP
    """
    from flwr.clientapp import ClientApp

    check_function("load", load, "this site's table")
    if keep is not None:
        check_function("keep", keep, "a folder of this site's own")
    rules = as_policy(policy)
    if rules.silence:
        raise ValueError(f"policy: {rules.silence}")
    app = ClientApp()

    def table(name: str, node: Config, folder: Path | None) -> SiteTable:
        keep_programs(None if folder is None else folder / "compiled")
        loaded = load(node)
        if isinstance(loaded, (tuple, list)) and len(loaded) == 2:
            return table_of_arrays(name, *loaded)
        if not isinstance(loaded, pd.DataFrame):
            raise TypeError(f"load must give this site's table, or its (X, y), but gave {type(loaded).__name__}")
        return SiteTable(loaded, name)

    @functools.lru_cache(maxsize=1)
    def site(name: str, settings: tuple[tuple[str, bool | float | int | str], ...]) -> LocalSite:
        node = dict(settings)
        folder = None if keep is None else checks.folder("what keep gives", keep(node))
        consent = Consent() if folder is None else StudyConsent(folder)
        # A trial's rows are the user's own: nothing has to be judged, nor to be kept for later judgements.
        guard = OpenGuard() if rules == TRIAL else PolicyGuard(rules, folder, name)
        return LocalSite(name, lambda: table(name, node, folder), consent, guard, folder)

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        from flwr.app import Message

        own = site(site_name(context), tuple(context.node_config.items()))
        try:
            request = payload(message)
        except Malformed:
            request = b""  # which the site refuses
        return Message(content(own.answer(request)), reply_to=message)

    return app
