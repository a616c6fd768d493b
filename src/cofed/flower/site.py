"""A site's answers to the server: who it is, its work in a round, and its evaluation of a model.

`Site.answer` is the one door: every message comes in and every reply goes out through it.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import equinox as eqx
import jax
import numpy.typing as npt

from cofed._util import checks
from cofed._util.programs import keep_programs
from cofed._util.types import Given
from cofed.algorithms.base import AbstractAlgorithm, as_algorithm
from cofed.federation import Federation
from cofed.flower import wire
from cofed.flower.client_state import ClientStates, Lost
from cofed.flower.flwr_types import Context, Message, RecordDict
from cofed.flower.local_work import RoundWork, last_work, local_work
from cofed.flower.messages import Identity, RoundInstructions, SiteInfo, SumTerms, stage_at, stand_in
from cofed.flower.opened_round import Answer, NotFinite, OpenedRound, padded
from cofed.flower.privacy import ClientPrivacy
from cofed.flower.run_folder import save_model
from cofed.flower.site_audit import write_line
from cofed.flower.site_policy import RoundRefused, algorithm_name, as_policy, as_roster, require_hello, require_policy
from cofed.flower.site_sums import SiteSum, card_in_run
from cofed.problem import Problem
from cofed.sites.base import QuestionRefused
from cofed.sites.packing import Malformed
from cofed.sites.policy import TRIAL, Policy, PolicyGuard
from cofed.sites.policy.rounds import AskedRound
from cofed.sites.secure.cards import RUN
from cofed.sites.secure.keys import SiteKeys
from cofed.sites.secure.site_end import SiteMasks

log = logging.getLogger("flwr")
T = TypeVar("T")
Config = dict[str, bool | float | int | str]  # of a run (`--run-config`), or of a node (`--node-config`)
FromConfig = T | Callable[[Config], T]  # a value, or a function of the run's configuration that gives it
Load = Callable[[Config], tuple[npt.ArrayLike, npt.ArrayLike]]
Keep = Callable[[Config], str | Path]
FromNode = T | Callable[[Config], T]  # a value, or a function of the node's configuration that gives it


@dataclasses.dataclass(frozen=True)
class Site:
    """What a site answers with: see `cofed.flower.client_app` for its parts."""

    problem: Given[FromConfig[Problem]]
    algorithm: Given[FromConfig[AbstractAlgorithm]]
    load: Given[Load]
    keep: Given[Keep | None] = None
    privacy: ClientPrivacy | None = None
    plain: bool = False
    roster: Given[FromNode[Mapping[str, str]] | None] = None
    policy: Given[FromNode[Policy] | None] = None
    guards: dict[str, PolicyGuard] = dataclasses.field(default_factory=dict)  # by site, without `keep`
    in_memory: dict[str, SiteMasks] = dataclasses.field(default_factory=dict)  # keys, by site, without `keep`

    def answer(self, message: Message, context: Context) -> Message:
        """The reply to a message, or why there is none, once the site's log of what left speaks of it.

        What is wrong with the message itself, or with the kept state, is said in the reply. Any other error may quote
        data, so its text stays in the site's own log.
        """
        from flwr.app import Message

        began, name = time.perf_counter(), site_name(context)
        answers = {"query": self.introduce, "train": self.work, "evaluate": self.evaluate}
        answer, kind, trouble, rule, note = Answer({}), "", "", "", ""
        try:
            answer = answers[message.metadata.message_type](message.content, context)
        except (wire.WireError, Lost, NotFinite, Malformed, QuestionRefused) as error:
            kind, trouble = type(error).__name__, str(error)
            rule, note = (error.rule, error.noted) if isinstance(error, RoundRefused) else ("", trouble)
            log.warning("cofed: %s", error)
        except Exception as error:
            kind = "Failed"
            trouble = f"it failed with a {type(error).__name__}; the site's own log says more"
            log.exception("cofed: the site %s failed", name)
        head = answer.head | {"format": wire.FORMAT, "site": name, "kind": kind, "trouble": trouble, "rule": rule}
        head["seconds"] = time.perf_counter() - began
        return Message(self.logged(message, context, Answer(head, answer.records), note), reply_to=message)

    def logged(self, message: Message, context: Context, answer: Answer, note: str) -> RecordDict:
        """What is sent, once the log of what left speaks of it; where that cannot be written, nothing leaves.

        `note` is why a site's rules refuse, for that log alone.
        """
        from flwr.app import ConfigRecord, RecordDict

        content = RecordDict({"cofed": ConfigRecord(answer.head), **answer.records})  # pyright: ignore
        try:
            folder = self.folder(context)
            if folder is not None:
                write_line(folder, message.metadata.message_type, message.content, content, note)
        except Exception as error:
            log.exception("cofed: the log of what left cannot be written")
            words = f"its log of what left cannot be written ({type(error).__name__}); the site's own log says more"
            head = {name: answer.head[name] for name in ("format", "site", "seconds")}
            content = RecordDict({"cofed": ConfigRecord(head | {"kind": "Failed", "trouble": words})})  # pyright: ignore
        return content

    def introduce(self, content: RecordDict, context: Context) -> Answer:
        """Who the site is, to a server that runs the same algorithm on the same problem."""
        problem, algorithm = self.defined(context)
        identity = Identity.of(problem, algorithm).entries()
        head = wire.check_head(content, **identity)
        require_hello(self.guard(context), self.pinned(context) is not None)
        data = self.data(context)
        problem.check(data)
        said = identity | SiteInfo.of(site_name(context), problem, data).entries()
        if head.get("masked") is True:
            said["card"] = card_in_run(self.masks(context), run_in(head), data).model_dump_json()
        return Answer(said)

    def work(self, content: RecordDict, context: Context) -> Answer:
        """The site's update in a round, or the last piece of work."""
        opened = self.open(content, context)
        instructions, work = opened.instructions, opened.work()
        scores = opened.scores() if instructions.evaluate else {}
        if instructions.last:
            return opened.answer(None, scores, self.finish(opened, work))
        up, kept, finite = local_work(work)
        if bool(finite):
            opened.states.keep(instructions.round, kept, instructions.counted)
            up = opened.bounded(up)
            if instructions.clip:
                up = opened.private(up)
        return opened.answer(up, scores, bool(finite))

    def finish(self, opened: OpenedRound, work: RoundWork) -> bool:
        """The piece of work after the last round, and whether it is finite; the models go into the site's folder."""
        kept, algorithm = work.kept, opened.algorithm
        if algorithm.ends_locally:
            kept, finite = last_work(work)
            if not bool(finite):
                return False
        if opened.folder is None:
            return True
        w = opened.part("model", opened.model_shape)
        save_model(opened.folder / "model.safetensors", w)
        if algorithm.is_personal:
            # The server's state is not here; what stands for it is a server that begins at the last model.
            own = algorithm.personal_model(algorithm.init(opened.problem, w), kept)
            save_model(opened.folder / "personal.safetensors", own)
        return True

    def evaluate(self, content: RecordDict, context: Context) -> Answer:
        """The loss of the model in the message, and its accuracy where the loss has one."""
        opened = self.open(content, context, evaluates=True)
        return opened.answer(None, opened.scores(), True)

    def open(self, content: RecordDict, context: Context, evaluates: bool = False) -> OpenedRound:
        """A message of a round: checked, and put together with the site's data."""
        problem, algorithm = self.defined(context)
        identity = Identity.of(problem, algorithm)
        head = wire.check_head(content, **identity.entries())
        federation, total = self.data(context), None
        if "sum" in head:
            total = self.part_in_sum(content, context, federation)
            head |= total.terms.of_site(site_name(context))
        elif not self.plain:
            raise wire.WireError(
                "the server asks for this site's own numbers, but this site sends them under masks only "
                "(client_app(..., plain=True) would send them)"
            )
        instructions = RoundInstructions.read(head)
        require_privacy(self.privacy, instructions, evaluates or instructions.evaluate)
        folder = self.folder(context)
        keep_programs(None if folder is None else folder / "compiled")  # Flower has a new process for every message
        data = padded(federation, instructions)
        info = SiteInfo.of(site_name(context), problem, federation)
        alike = stand_in([dataclasses.replace(info, outputs=instructions.outputs)])
        posed, stage = stage_at(problem, algorithm, instructions.outline, data.X.dtype)
        opened = OpenedRound(
            content=content,
            identity=identity,
            instructions=instructions,
            problem=posed,
            algorithm=stage,
            data=data,
            model_shape=jax.eval_shape(lambda: problem.start(alike, None, instructions.seed)),
            folder=folder,
            states=ClientStates(context, folder, run_in(head)),
            total=total,
            rules=self.rules(context),
        )
        guard, over = self.guard(context), None if total is None else total.over
        if guard is not None:
            release = None if evaluates or opened.noise is None else opened.noise.release
            digest = wire.digest(content)
            name = algorithm_name(algorithm)
            require_policy(guard, AskedRound(name, digest, federation.n_samples, over, release))
        return opened

    def part_in_sum(self, content: RecordDict, context: Context, federation: Federation) -> SiteSum:
        """The site's part in the masked sum that a message is about."""
        head = wire.head_of(content)
        terms = SumTerms.read(head)
        if terms.total.run != head.get("run"):
            raise wire.WireError("the message is of one run, and its sum of another")
        return SiteSum.checked(self.masks(context), terms, wire.digest(content), federation, self.pinned(context))

    def masks(self, context: Context) -> SiteMasks:
        """The site's keys: those in its folder, or in memory."""
        folder, name = self.folder(context), site_name(context)
        if folder is not None:
            return SiteMasks(name, SiteKeys.of_folder(folder), folder)
        if name not in self.in_memory:
            self.in_memory[name] = SiteMasks(name, SiteKeys.new())
        return self.in_memory[name]

    def rules(self, context: Context) -> Policy:
        """The site's policy; the strict one where it says nothing else."""
        return as_policy(self.policy(dict(context.node_config)) if callable(self.policy) else self.policy)

    def pinned(self, context: Context) -> Mapping[str, str] | None:
        """The sites and keys that this one insists on; None where it takes them from the server."""
        return as_roster(self.roster(dict(context.node_config)) if callable(self.roster) else self.roster)

    def guard(self, context: Context) -> PolicyGuard | None:
        """What holds the site's rules, with the record of what it has answered, in its folder or in memory."""
        rules, name = self.rules(context), site_name(context)
        if rules == TRIAL:  # rows of one's own: nothing is to be judged
            return None
        guard = PolicyGuard(rules, self.folder(context), name)
        return guard if guard.keep is not None else self.guards.setdefault(name, guard)

    def defined(self, context: Context) -> tuple[Problem, AbstractAlgorithm]:
        """The problem and the algorithm of this run."""
        problem, algorithm = from_config(self.problem, context), from_config(self.algorithm, context)
        return problem, as_algorithm(algorithm)

    def folder(self, context: Context) -> Path | None:
        """The site's own folder."""
        return None if self.keep is None else checks.folder("what keep gives", self.keep(dict(context.node_config)))

    def data(self, context: Context) -> Federation:
        """The site's data, checked like those of any client."""
        loaded = self.load(dict(context.node_config))
        if not isinstance(loaded, (tuple, list)) or len(loaded) != 2:
            raise TypeError(f"load must give this site's (X, y), but gave {type(loaded).__name__}")
        X, y = loaded
        return Federation.from_arrays({site_name(context): (X, y)})


def site_name(context: Context) -> str:
    """The name of a site: what its node's configuration calls it."""
    node = context.node_config
    return str(node.get("site", node.get("partition-id", context.node_id)))


def from_config(value: FromConfig[T], context: Context) -> T:
    """The value itself, or what it gives as a function of the run's configuration."""
    if isinstance(value, eqx.Module) or not callable(value):
        return value  # pyright: ignore[reportReturnType]  # a module may be callable
    return value(dict(context.run_config))  # pyright: ignore[reportReturnType]


def run_in(head: wire.Head) -> str:
    """The run that a message is of; it becomes a file's name."""
    run = head.get("run")
    if not isinstance(run, str) or not RUN.fullmatch(run):
        raise wire.WireError(f"the message is of the run {wire.clipped(run)}, expected 32 hexadecimal digits")
    return run


def require_privacy(privacy: ClientPrivacy | None, instructions: RoundInstructions, evaluates: bool) -> None:
    """Refuse instructions that protect this site less than it insists on."""
    if privacy is None:
        return
    if instructions.clip != privacy.clip or instructions.noise < privacy.noise or evaluates:
        asked = "evaluations" if evaluates else f"clip {instructions.clip:g} and noise {instructions.noise:g}"
        raise wire.WireError(
            f"the server asks for {asked}, but this site insists on clip {privacy.clip:g}, noise {privacy.noise:g} and "
            "no evaluations"
        )
