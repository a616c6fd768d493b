"""The client's end: one site's card, and one site's work in a round, as a Flower ClientApp."""

import dataclasses
import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree
from safetensors.numpy import save_file

from cofed._util import checks, trees
from cofed._util.files import atomically
from cofed._util.programs import keep_programs
from cofed.algorithms import base
from cofed.algorithms.base import AbstractAlgorithm, AbstractServerAlgorithm, as_algorithm
from cofed.engine import evaluate, sampling
from cofed.engine.data import Data
from cofed.engine.plan import Plan
from cofed.engine.steps import make_steps
from cofed.federation import Federation
from cofed.federation.rows import fill
from cofed.flower import wire
from cofed.flower.client_state import Keeper, Lost
from cofed.flower.messages import Card, Terms, posed, stand_in
from cofed.flower.privacy import Privacy, privatised
from cofed.flower.settings import check_ends
from cofed.problem import Problem

log = logging.getLogger("flwr")
Node = dict[str, Any]  # a node's configuration, `--node-config "site='oslo'"`


def client_app(
    problem: Any,
    algorithm: Any,
    load: Callable[[Node], tuple[Any, Any]],
    *,
    keep: Callable[[Node], Any] | None = None,
    privacy: Privacy | None = None,
    mods: list[Callable] | None = None,
) -> Any:
    """A Flower ClientApp for one site.

    problem, algorithm: as the server has them; or functions of the run's configuration that give them.
    load: from the node's configuration to this site's (X, y), such as lambda node: read(node["data"]).
    keep: from the node's configuration to a folder of this site's own, for what it keeps between rounds (so that it
        can be stopped and come back), for the compiled programs (so that each round's process starts fast), for its
        personal model and for the last model. Without it a restarted node has lost its state.
    privacy: the clip and noise that this site insists on: it then answers no server that asks for less, or for
        evaluations.
    mods: Flower's own mods around every message, such as its `message_size_mod`.

    The site's name is the entry `site` of the node's configuration, else its `partition-id`.

    >>> import numpy as np, cofed
    >>> def load(node):
    ...     with np.load(node["data"]) as file:
    ...         return file["X"], file["y"]
    >>> from cofed.flower import client_app
    >>> app = client_app(cofed.Problem(), cofed.FedAvg(0.1), load)  # doctest: +SKIP
    """
    from flwr.clientapp import ClientApp

    check_ends(problem, algorithm)
    for name, value, gives in (("load", load, "this site's (X, y)"), ("keep", keep, "a folder of this site's own")):
        if (name == "load" or value is not None) and (not callable(value) or isinstance(value, type)):
            raise TypeError(f"{name} must be a function from the node's configuration to {gives}, got {value!r}")
    if mods is not None and not (isinstance(mods, list) and all(callable(mod) for mod in mods)):
        raise TypeError(f"mods must be a list of Flower's mods, which are functions, got {mods!r}")
    if privacy is not None and not isinstance(privacy, Privacy):
        raise TypeError(f"privacy must be a cofed.flower.Privacy, got {type(privacy).__name__}")
    app, site = ClientApp(mods=mods), Site(problem, algorithm, load, keep, privacy)

    @app.query()
    def hello(message: Any, context: Any) -> Any:
        return answered(message, context, site.hello)

    @app.train()
    def work(message: Any, context: Any) -> Any:
        return answered(message, context, site.work)

    return app


def answered(message: Any, context: Any, answer: Callable[[Any, Any], dict[str, Any]]) -> Any:
    """The reply to a message, which is a sentence where it cannot be answered.

    Only what is said of the server's message itself, or of the state, is sent: any other error may quote data, so its
    text stays in the site's own log.
    """
    from flwr.app import ConfigRecord, Message, RecordDict

    began, name = time.perf_counter(), site_name(context)
    try:
        content, kind, trouble = answer(message.content, context), "", ""
    except (wire.WireError, Lost, NotFinite) as error:
        content, kind, trouble = {}, type(error).__name__, str(error)
        log.warning("cofed: %s", error)
    except Exception as error:
        content, kind = {}, "Failed"
        trouble = f"it failed with a {type(error).__name__}; the site's own log says more"
        log.exception("cofed: the site %s failed", name)
    head = content.pop("head", {})
    head |= {"format": wire.FORMAT, "site": name, "kind": kind, "trouble": trouble}
    head["seconds"] = time.perf_counter() - began
    return Message(RecordDict({"cofed": ConfigRecord(head), **content}), reply_to=message)


class NotFinite(ValueError):
    """An update with NaN or infinite entries."""


def site_name(context: Any) -> str:
    """The name of a site: what its node's configuration calls it."""
    node = context.node_config
    return str(node.get("site", node.get("partition-id", context.node_id)))


def of(value: Any, config: dict[str, Any]) -> Any:
    """The value itself, or what it gives as a function of the run's configuration."""
    return value(dict(config)) if callable(value) and not isinstance(value, eqx.Module) else value


class Site:
    """What a site answers."""

    def __init__(
        self,
        problem: Any,
        algorithm: Any,
        load: Callable,
        keep: Callable | None,
        privacy: Privacy | None,
    ):
        self.problem, self.algorithm, self.load, self.keep = problem, algorithm, load, keep
        self.privacy = privacy

    def defined(self, context: Any) -> tuple[Problem, Any]:
        """The problem and the algorithm of this run."""
        problem, algorithm = of(self.problem, context.run_config), of(self.algorithm, context.run_config)
        return problem, as_algorithm(algorithm)

    def folder(self, context: Any) -> Path | None:
        """The site's own folder."""
        return None if self.keep is None else checks.folder("what keep gives", self.keep(dict(context.node_config)))

    def own(self, context: Any) -> Federation:
        """The site's data, checked like that of any client."""
        loaded = self.load(dict(context.node_config))
        if not isinstance(loaded, (tuple, list)) or len(loaded) != 2:
            raise TypeError(f"load must give this site's (X, y), but gave {type(loaded).__name__}")
        X, y = loaded
        return Federation.from_arrays({site_name(context): (X, y)})

    def hello(self, content: Any, context: Any) -> dict[str, Any]:
        """The site's card."""
        problem, algorithm = self.defined(context)
        self.check(content, problem, algorithm)
        data = self.own(context)
        problem.check(data)
        return {"head": identity(problem, algorithm) | Card.of(site_name(context), problem, data).entries()}

    def check(self, content: Any, problem: Problem, algorithm: AbstractAlgorithm) -> dict[str, Any]:
        """The head of a message from a server that runs the same."""
        return wire.check_head(content, **identity(problem, algorithm))

    def work(self, content: Any, context: Any) -> dict[str, Any]:
        """A round's work, or the last piece of it."""
        from flwr.app import MetricRecord

        problem, algorithm = self.defined(context)
        head = self.check(content, problem, algorithm)
        terms, folder = Terms.read(head), self.folder(context)
        keep_programs(None if folder is None else folder / "compiled")  # Flower has a new process for every message
        require_privacy(self.privacy, terms)
        federation = self.own(context)
        data = padded(federation, terms)
        card = Card.of(site_name(context), problem, federation)
        alike = stand_in([dataclasses.replace(card, outputs=terms.outputs)])
        model = jax.eval_shape(lambda: problem.start(alike, None, terms.seed))
        posed_problem, stage = posed(problem, algorithm, terms, data.X.dtype)
        down_shape, keeps_shape = jax.eval_shape(functools.partial(shapes, stage, posed_problem), model)
        down = wire.unpack(content, "down", down_shape)
        keeper = Keeper(context, folder, str(head.get("run")))
        if not jax.tree.leaves(keeps_shape):
            keeps = keeps_shape
        elif terms.counted < 0:
            keeps = stage.init_client(posed_problem, wire.unpack(content, "start", model))
        else:
            keeps = keeper.recall(terms.counted, keeps_shape)
        reply: dict[str, Any] = {"head": identity(problem, algorithm) | {"run": head["run"], "round": terms.round}}
        if terms.evaluate:
            scores = evaluated(posed_problem, data, wire.unpack(content, "model", model))
            reply["metrics"] = MetricRecord({name: float(value) for name, value in scores.items()})
        seed, round = jax.random.key(terms.seed), jnp.asarray(terms.round, jnp.int32)
        since = jnp.asarray(terms.round - terms.begun, data.X.dtype)
        arguments = (stage, posed_problem, data, terms.plan, seed, round, since, down, keeps)
        if terms.last:
            if stage.ends_locally:
                keeps, finite = last_work(*arguments)
                require_finite(finite)
            if folder is not None:
                w = wire.unpack(content, "model", model)
                save_model(folder / "model.safetensors", w)
                if stage.is_personal:
                    # The server's state is not here; what stands for it is a server that begins at the last model.
                    own = stage.personal_model(stage.init(posed_problem, w), keeps)
                    save_model(folder / "personal.safetensors", own)
            return reply
        up, keeps, finite = local_work(*arguments)
        require_finite(finite)
        keeper.keep(terms.round, keeps, terms.counted)
        if terms.clip:
            fresh = keeps_shape
            if jax.tree.leaves(keeps_shape):
                fresh = stage.init_client(posed_problem, wire.unpack(content, "start", model))
            up = privatised(stage, posed_problem, down, fresh, since, terms, up)
        reply["up"] = wire.pack(up)
        return reply


def identity(problem: Problem, algorithm: AbstractAlgorithm) -> dict[str, Any]:
    """What both ends must have in common."""
    return {
        "format": wire.FORMAT,
        "algorithm": type(algorithm).__name__,
        "definition": wire.definition(problem, algorithm),
    }


def shapes(algorithm: AbstractServerAlgorithm, problem: Problem, w0: PyTree) -> tuple[PyTree, PyTree]:
    """What comes down, and what a client keeps."""
    return algorithm.broadcast(algorithm.init(problem, w0)), algorithm.init_client(problem, w0)


def padded(federation: Federation, terms: Terms) -> Data:
    """The site's data as one client of the federation: padded to the largest one's size, as the engine pads it."""
    n = federation.n_samples
    if n > terms.most or not 0 <= terms.id < terms.clients:
        raise wire.WireError(
            f"the terms speak of at most {terms.most} samples and client {terms.id} of {terms.clients}, but there are "
            f"{n} samples here"
        )

    def pad(array: np.ndarray) -> Array:
        room = np.empty((1, terms.most, *array.shape[1:]), array.dtype)
        fill(room[0], array)
        return jnp.asarray(room)

    own_X, own_y = federation.pooled()
    one = lambda value, dtype: jnp.asarray([value], dtype)  # noqa: E731
    X = pad(own_X)
    return Data(X, pad(own_y), one(n, jnp.int32), one(terms.id, jnp.int32), one(1, X.dtype))


def require_finite(finite: Any) -> None:
    """Refuse work that has diverged."""
    if not bool(finite):
        raise NotFinite("its update is not finite")


def require_privacy(privacy: Privacy | None, terms: Terms) -> None:
    """Refuse terms that protect this site less than it insists on."""
    if privacy is None:
        return
    if terms.clip != privacy.clip or terms.noise < privacy.noise or terms.evaluate:
        asked = "evaluations" if terms.evaluate else f"clip {terms.clip:g} and noise {terms.noise:g}"
        raise wire.WireError(
            f"the server asks for {asked}, but this site insists on clip {privacy.clip:g}, noise {privacy.noise:g} and "
            "no evaluations"
        )


def steps_of(
    problem: Problem, data: Data, plan: Plan, seed: PRNGKeyArray, round: Int[Array, ""], since: Float[Array, ""]
) -> base.LocalSteps:
    """The client's local steps: the same batches as the engine gives this client in this round."""
    key = sampling.round_key(seed, round)
    return make_steps(problem, data, plan, jnp.zeros((), jnp.int32), None, key, since)


@eqx.filter_jit
def local_work(
    algorithm: AbstractServerAlgorithm,
    problem: Problem,
    data: Data,
    plan: Plan,
    seed: PRNGKeyArray,
    round: Int[Array, ""],
    since: Float[Array, ""],
    down: PyTree,
    keeps: PyTree,
) -> tuple[PyTree, PyTree, Bool[Array, ""]]:
    """One client's round, and whether all of it is finite."""
    steps = steps_of(problem, data, plan, seed, round, since)
    up, keeps = algorithm.local(problem, down, keeps, steps)
    return up, keeps, trees.all_finite((up, keeps))


@eqx.filter_jit
def last_work(
    algorithm: AbstractServerAlgorithm,
    problem: Problem,
    data: Data,
    plan: Plan,
    seed: PRNGKeyArray,
    round: Int[Array, ""],
    since: Float[Array, ""],
    down: PyTree,
    keeps: PyTree,
) -> tuple[PyTree, Bool[Array, ""]]:
    """The last piece of local work, and whether it is finite."""
    steps = steps_of(problem, data, plan, seed, round, since)
    keeps = algorithm.last_local(problem, down, keeps, steps)
    return keeps, trees.all_finite(keeps)


@eqx.filter_jit
def evaluated(problem: Problem, data: Data, w: PyTree) -> dict[str, Any]:
    """The model's loss on the site's data, and its accuracy where the loss has one."""
    loss, accuracy = evaluate.fits(problem, data, w)
    return {"loss": loss} | ({} if accuracy is None else {"accuracy": accuracy})


def save_model(path: Path, w: PyTree) -> None:
    """A model as a file."""
    tensors = {name: np.asarray(leaf) for name, leaf in zip(trees.names(w), jax.tree.leaves(w), strict=True)}
    atomically(path, lambda file: save_file(tensors, file))
