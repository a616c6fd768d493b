"""The sites' end: a Flower ClientApp that answers for one site."""

import logging
from collections.abc import Callable, Mapping

from cofed._util import checks
from cofed._util.types import Given
from cofed.algorithms.base import AbstractAlgorithm
from cofed.flower.flwr_types import ClientApp, Context, Message, Mod
from cofed.flower.privacy import ClientPrivacy
from cofed.flower.settings import check_ends, check_privacy
from cofed.flower.site import Config, FromConfig, Keep, Load, Site
from cofed.flower.site_policy import algorithm_name, as_policy, as_roster, check_taking_part
from cofed.problem import Problem
from cofed.sites.policy import Policy, PolicyGuard

log = logging.getLogger("flwr")


def client_app(
    problem: Given[FromConfig[Problem]],
    algorithm: Given[FromConfig[AbstractAlgorithm]],
    load: Given[Load],
    *,
    keep: Given[Keep | None] = None,
    privacy: Given[ClientPrivacy | None] = None,
    plain: Given[bool] = False,
    roster: Given[Mapping[str, str] | Callable[[Config], Mapping[str, str]] | None] = None,
    policy: Given[Policy | Callable[[Config], Policy] | None] = None,
    mods: Given[list[Mod] | None] = None,
) -> ClientApp:
    """Make a Flower ClientApp for one site.

    Parameters
    ----------
    problem : Problem or callable
        The problem as the server has it, or a function of the run's configuration that gives it.
    algorithm : AbstractAlgorithm or callable
        The algorithm as the server has it, or a function of the run's configuration that gives it.
    load : callable
        From the node's configuration to this site's `(X, y)`, such as `lambda node: read(node["data"])`. The site's
        name is the entry `site` of the node's configuration, else its `partition-id`.
    keep : callable, optional
        From the node's configuration to a folder of this site's own. It holds what the site keeps between rounds (so
        that it can be stopped and come back), the compiled programs (so that each round's process starts fast), the
        site's personal model and the last model. Without it, a restarted node has lost its state.
    privacy : ClientPrivacy, optional
        The clip and noise that this site insists on: it then answers no server that asks for less, or for evaluations.
    plain : bool
        Whether this site also answers a server that sees its own updates. By default it sends them under masks only,
        so that the server sees sums over all sites of its cohort. The keys are in `keep`; without it, in memory.
    roster : mapping of str to str, or callable, optional
        By name, the long-term keys of the sites that this one's updates may be added up with, itself included: it then
        answers for exactly these. Without it, a site knows the others' keys from the server alone, which the strict
        policy does not allow. Or a function from the node's configuration to it.
    policy : Policy or callable, optional
        The site's rules: it takes part only in rounds that they allow, and its log says why not in others. The record
        of what it has answered is in `keep`; without it, in memory. Or a function from the node's configuration to
        them, such as `lambda node: load_policy(node["policy"])`. By default the strict rules hold;
        `cofed.sites.policy.TRIAL` is to go without any.
    mods : list of callable, optional
        Flower's own mods around every message, such as its `message_size_mod`.

    Returns
    -------
    flwr.clientapp.ClientApp
        The app that a SuperNode starts.

    Raises
    ------
    TypeError, ValueError
        Where one of these is not what it should be, or the policy allows no round without a roster.

    Examples
    --------
    >>> import numpy as np
    >>> import cofed
    >>> from cofed.flower import client_app
    >>> def load(node):
    ...     with np.load(node["data"]) as file:
    ...         return file["X"], file["y"]
    >>> roster = {"oslo": "5f0c" * 16, "rome": "a1b2" * 16, "bonn": "77e3" * 16}
    >>> app = client_app(cofed.Problem(), cofed.FedAvg(0.1), load, roster=roster)  # doctest: +SKIP
    """
    from flwr.clientapp import ClientApp

    check_ends(problem, algorithm)
    check_function("load", load, "this site's (X, y)")
    if keep is not None:
        check_function("keep", keep, "a folder of this site's own")
    if mods is not None and not (isinstance(mods, list) and all(callable(mod) for mod in mods)):
        raise TypeError(f"mods must be a list of Flower's mods, which are functions, got {mods!r}")
    check_privacy(privacy)
    if not callable(roster) or isinstance(roster, type):
        as_roster(roster)
    if not callable(policy) or isinstance(policy, type):
        check_policy(as_policy(policy), algorithm, roster is not None)
    masking = {"plain": checks.flag("plain", plain), "roster": roster, "policy": policy}
    app, site = ClientApp(mods=mods), Site(problem, algorithm, load, keep, privacy, **masking)

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        return site.answer(message, context)

    @app.train()
    def work(message: Message, context: Context) -> Message:
        return site.answer(message, context)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return site.answer(message, context)

    return app


def check_policy(policy: Policy, algorithm: object, has_roster: bool) -> None:
    """Refuse rules that no round can meet, and say where they do not allow the algorithm."""
    check_taking_part(policy, has_roster)
    if isinstance(algorithm, AbstractAlgorithm):
        refusal = PolicyGuard(policy, None, "").refuses_algorithm(algorithm_name(algorithm))
        if refusal is not None:
            log.warning("cofed: the policy lets this site take part in no round: %s", refusal.sentence)


def check_function(name: str, value: object, gives: str) -> None:
    """Refuse what is no function of a node's configuration."""
    if not callable(value) or isinstance(value, type):
        raise TypeError(f"{name} must be a function from the node's configuration to {gives}, got {value!r}")
