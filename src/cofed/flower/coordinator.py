"""The server's loop over a network: one round after another, and what to do when sites fail.

A round's mathematics is the engine's own: the weighted mean of the updates, then `algorithm.aggregate`.
"""

import dataclasses
import math
import time
import uuid
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from cofed import metrics
from cofed._util import trees
from cofed.algorithms import base
from cofed.algorithms.base import AbstractAlgorithm, AbstractServerAlgorithm
from cofed.engine import sampling
from cofed.engine.history import Communication, History, LeftOut, Outcome, Result
from cofed.engine.server_rounds import ServerTask, weighted_mean
from cofed.engine.steps import Data
from cofed.flower import wire
from cofed.flower.agreement import Agreement, agreement
from cofed.flower.client import identity
from cofed.flower.exchange import Exchange, Reply
from cofed.flower.membership import Roll
from cofed.flower.messages import Card, Terms, posed
from cofed.flower.privacy import Privacy
from cofed.flower.progress import Diary, Progress
from cofed.flower.run_folder import Folder
from cofed.flower.settings import Settings, check_same, description
from cofed.problem import Problem

AGAIN = 5.0  # seconds before a site that answered badly is asked again, where the quorum needs it


class Reason(NamedTuple):
    """Why a site's update did not count."""

    kind: str
    words: str


LATE, ABSENT = Reason("Silent", "it did not answer in time"), Reason("Absent", "it is absent")


class Starved(Exception):
    """The quorum was not reached within the time limit."""


class Coordinator:
    """A run over the network."""

    def __init__(
        self,
        grid: Any,
        problem: Problem,
        algorithm: AbstractAlgorithm,
        settings: Settings,
        weights: Any,
        w0: Any,
        privacy: Privacy | None,
        checkpoint: Any,
    ):
        self.problem, self.algorithm, self.settings = problem, algorithm, settings
        self.weights, self.w0, self.privacy = weights, w0, privacy
        self.folder = Folder(checkpoint)
        self.diary = Diary(self.folder)
        self.tell, self.now_and_then = self.diary.tell, self.diary.now_and_then
        self.described = description(problem, algorithm, settings, weights, privacy)
        self.before = self.folder.definition()
        check_same(self.before, self.described, self.folder.path)
        run = uuid.uuid4().hex if self.before is None else str(self.before["run"])
        told = [] if self.before is None else [Card.read(card) for card in self.before["cards"]]
        self.exchange = Exchange(grid, run, identity(problem, algorithm))
        cards = {card.site: card for card in told}
        self.roll = Roll(self.exchange, self.diary, settings, self.agree, self.write_definition, cards)

    @property
    def now(self) -> Progress:
        """Where the run is."""
        return self.diary.now

    def run(self) -> Result:
        """The whole run."""
        self.roll.gather()
        self.settings = self.roll.settings
        self.sites, self.dtype = self.agreed.sites, np.dtype(self.agreed.card.dtype)
        self.begin()
        outcome = Outcome.COMPLETED
        try:
            while self.now.round < self.settings.rounds:
                if not self.one_round():
                    outcome = Outcome.DIVERGED
                    break
        except Starved as error:
            outcome = Outcome.STARVED
            self.tell("stopped", str(error))
        if outcome is Outcome.COMPLETED:
            self.conclude()
        return self.finish(outcome)

    # What is agreed

    def agree(self, settings: Settings, cards: dict[str, Card]) -> Agreement:
        """What follows from the sites' cards."""
        return agreement(self.problem, self.algorithm, settings, self.weights, self.w0, cards)

    @property
    def agreed(self) -> Agreement:
        """What the sites that have come so far go by."""
        return self.roll.agreed

    def write_definition(self) -> None:
        """Write what the run is."""
        cards = [card.entries() for card in self.roll.cards.values()]
        self.folder.begin(self.described | {"run": self.exchange.run, "cards": cards})

    def begin(self) -> None:
        """The state to begin or to go on with."""
        start = self.agreed.start
        meta = self.folder.newest() if self.before is not None else None
        if meta is None:
            self.enter(0, start)
            if self.before is None:
                self.write_definition()
            self.now.rows.append(self.row(0, 0, 0))
            self.save()
        else:
            at = Progress.read(meta)
            self.enter(at.stage, start)  # for the shapes; what it begins is then put in place of
            self.diary.now = at
            self.now.spent |= self.folder.spent()
            loaded = self.folder.load({"server": self.server, "start": self.start})
            self.server, self.start = loaded["server"], loaded["start"]
            self.model_before = self.model()
            self.tell("resumed", f"going on with the run in {self.folder.path} at round {at.round}")

    def enter(self, stage: int, start: PyTree) -> None:
        """The state before a stage."""
        self.now.stage, self.now.begun, self.start = stage, self.now.round, start
        self.now.counted = dict.fromkeys(self.sites, -1)
        terms = self.terms(self.sites[0])
        self.posed, self.stage = posed(self.problem, self.algorithm, terms, self.dtype)
        self.server = self.stage.init(self.posed, start)
        if not trees.all_finite((self.server, start)):
            raise ValueError(f"{type(self.stage).__name__} cannot start from this w0: its state would not be finite")
        self.keeps_state = bool(jax.tree.leaves(jax.eval_shape(self.stage.init_client, self.posed, start)))
        plan, card, most = self.agreed.plans[stage], self.agreed.card, self.agreed.most

        def up(X: Array, y: Array, w0: PyTree) -> PyTree:
            one = jnp.ones(1, jnp.int32)
            data = Data(X, y, one, one, one.astype(X.dtype))
            return ServerTask(self.stage, self.posed, data, plan).messages(w0).up

        X = jax.ShapeDtypeStruct((1, most, *card.features), self.dtype)
        y = jax.ShapeDtypeStruct((1, most, *card.targets), np.dtype(card.label_dtype))
        self.up_shape = jax.eval_shape(up, X, y, start)

    def terms(self, site: str, last: bool = False) -> Terms:
        """The terms of the present round, for one site."""
        plan, settings, now = self.agreed.plans[self.now.stage], self.settings, self.now
        return Terms(
            seed=settings.seed,
            rounds=settings.rounds,
            round=now.round,
            begun=now.begun,
            stage=now.stage,
            local_steps=settings.local_steps or 0,
            steps=plan.steps,
            equal=plan.equal,
            epochs=plan.epochs or 0,
            batch=plan.batch or 0,
            participants=plan.participants,
            clients=plan.clients,
            # Where failures are expected a method must not rely on everybody.
            everyone=plan.everyone and settings.quorum == plan.clients,
            most=self.agreed.most,
            outputs=self.agreed.outputs,
            id=self.sites.index(site),
            counted=now.counted[site],
            evaluate=settings.due(now.round),
            last=last,
            clip=0.0 if self.privacy is None else float(self.privacy.clip),
            noise=0.0 if self.privacy is None else float(self.privacy.noise),
        )

    # A round

    def one_round(self) -> bool:
        """One round; False where it would have made the model non-finite."""
        now, settings = self.now, self.settings
        if now.round > 0 and now.stage + 1 < len(self.agreed.stages) and now.round == self.stage_end():
            self.enter(now.stage + 1, base.output(self.stage, self.posed, self.server))
        began = time.monotonic()
        key = sampling.round_key(jax.random.key(settings.seed), jnp.asarray(now.round, jnp.int32))
        plan = self.agreed.plans[now.stage]
        ids = range(plan.clients)
        if not plan.everyone:
            ids = np.asarray(sampling.participants(key, plan.clients, plan.participants)).tolist()
        asked = [self.sites[i] for i in ids]
        heard, scores, reasons = self.collect(asked, began)
        if self.hopeless(asked, reasons):
            self.leave_out(reasons)
            return False
        stacked = self.stack([heard.get(site) for site in asked])
        flags = jnp.asarray([site in heard for site in asked])
        server, finite = aggregated(
            self.stage, self.posed, self.server, stacked, self.agreed.pi[np.asarray(ids, np.int32)], flags
        )
        self.evaluated(scores)
        self.leave_out(reasons)
        if not bool(finite):
            return False
        self.server = server
        for site in heard:
            now.counted[site] = now.round
        now.round += 1
        now.seconds += time.monotonic() - began
        now.rows.append(self.row(now.round, len(heard), len(reasons)))
        self.tell(
            "round", f"round {now.round} of {settings.rounds}: {len(heard)} of {len(asked)} sites", **now.rows[-1]
        )
        self.save()
        return True

    def stage_end(self) -> int:
        """The round before which the present stage ends."""
        return sum(stage.rounds for stage in self.agreed.stages[: self.now.stage + 1])

    def collect(self, asked: list[str], began: float) -> tuple[dict[str, PyTree], dict[str, dict], dict[str, Reason]]:
        """The updates of this round, the evaluations that came with them, and why others have none."""
        now, settings = self.now, self.settings
        heard: dict[str, PyTree] = {}
        scores: dict[str, dict[str, float]] = {}
        reasons: dict[str, Reason] = {}
        again: dict[str, float] = {}  # site -> when to ask again
        wait: dict[str, float] = {}  # site -> how long to wait before that
        nodes: dict[str, int] = {}  # whom we asked in this round
        self.exchange.forget(now.round)
        while True:
            self.roll.look_around()
            there, clock = self.roll.present(), time.monotonic()
            for site in asked:
                if site in heard or site not in there:
                    continue
                back = nodes.get(site) not in (None, self.exchange.nodes[site])
                if site not in nodes or back or clock > again.get(site, math.inf):
                    nodes[site] = self.exchange.nodes[site]
                    # Below the quorum, a silent site is asked anew, for the message may have died with its node; at
                    # growing intervals, for it may only be slow. Work on a round can be repeated without harm.
                    wait[site] = 2 * wait.get(site, settings.deadline)
                    again[site] = clock + wait[site] / 2
                    self.ask(site)
            for reply in self.exchange.replies():
                if reply.asked.site is None:
                    self.roll.introduce(reply)
                elif reply.asked.round == now.round and reply.asked.site not in heard:
                    self.take(reply, heard, scores, reasons, again)
            late = clock - began > settings.deadline
            silent = [site for site in asked if site in there and site not in heard and site not in reasons]
            if len(heard) >= settings.quorum and (late or not silent):
                break
            if self.hopeless(asked, reasons):
                break
            if clock - began > settings.patience:
                missing = [site for site in asked if site not in heard]
                silence = Reason("Silent", "it did not answer")
                self.leave_out({site: reasons.get(site, silence) for site in missing})
                raise Starved(
                    f"round {now.round}: {len(heard)} of {settings.quorum} sites that it needs have answered in "
                    f"{settings.patience:g} s; missing: {', '.join(missing)}"
                )
            if late or (not silent and len(heard) < settings.quorum):
                self.now_and_then(
                    "quorum",
                    f"round {now.round}: {len(heard)} of {settings.quorum} sites that it needs have answered; waiting",
                )
            self.exchange.pause()
        for site in asked:
            if site not in heard and site not in reasons:
                reasons[site] = LATE if site in nodes else ABSENT
        return heard, scores, {site: why for site, why in reasons.items() if site not in heard}

    def ask(self, site: str, last: bool = False) -> None:
        """Send one site its message."""
        arrays = {"down": wire.pack(self.stage.broadcast(self.server))}
        terms = self.terms(site, last)
        if self.keeps_state and (terms.counted < 0 or terms.clip):
            arrays["start"] = wire.pack(self.start)
        if terms.evaluate or last:
            arrays["model"] = wire.pack(self.model_before)
        self.now.spent[site] = self.now.spent.get(site, 0) + 1
        if self.privacy is not None:  # written before it is sent: a server that is killed must not forget it
            self.folder.spend(self.now.spent)
        self.exchange.ask(site, self.now.round, terms.entries(), arrays, self.settings.patience)
        self.now.down += sum(array_bytes(part) for part in arrays.values())
        self.tell("asked", f"round {self.now.round}: asked {site}", site=site)

    def take(
        self,
        reply: Reply,
        heard: dict[str, PyTree],
        scores: dict[str, dict],
        reasons: dict[str, Reason],
        again: dict[str, float],
    ) -> None:
        """Take in a site's update, or why there is none."""
        site, why = str(reply.asked.site), Reason(reply.kind, reply.trouble)
        if reply.content is not None:
            try:
                up = wire.unpack(reply.content, "up", self.up_shape)
                self.now.up += array_bytes(reply.content.array_records["up"])
                if all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(up)):
                    heard[site], scores[site] = up, self.scores(reply.content)
                    reasons.pop(site, None)
                    work = wire.head_of(reply.content).get("seconds")
                    self.tell("heard", f"round {self.now.round}: {site} has answered", site=site, work=work)
                    return
                why = Reason("NotFinite", "its update is not finite")
            except wire.WireError as error:
                why = Reason("WireError", str(error))
        if why.kind == "Lost" and self.now.counted[site] >= 0:
            # Asked again at once, it begins anew; what the others keep stays as it is.
            self.now.counted[site] = -1
            again[site] = 0.0
            self.now.left_out.append((self.now.round, site, f"{why.words}, and begins anew"))
            self.tell("trouble", f"round {self.now.round}: {site}: {why.words}, and begins anew", site=site)
            return
        again[site] = time.monotonic() + min(AGAIN, self.settings.deadline)
        if reasons.get(site) != why:
            self.tell("trouble", f"round {self.now.round}: {site}: {why.words}", site=site)
        reasons[site] = why

    def scores(self, content: Any) -> dict[str, float]:
        """A site's evaluation of the model, where the reply has one."""
        found = content.metric_records.get("metrics", {})
        return {name: float(found[name]) for name in ("loss", "accuracy") if isinstance(found.get(name), float)}

    def stack(self, ups: list[PyTree]) -> PyTree:
        """The updates of all that were asked, with zeros for those that are missing."""
        empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), self.up_shape)
        filled = [empty if up is None else up for up in ups]
        return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *filled)

    def hopeless(self, asked: list[str], reasons: dict[str, Reason]) -> bool:
        """Whether everybody's update was not finite: to ask again would give the same."""
        return len(reasons) == len(asked) and all(why.kind == "NotFinite" for why in reasons.values())

    def leave_out(self, reasons: dict[str, Reason]) -> None:
        """Name those whose updates did not count."""
        for site, why in reasons.items():
            self.now.left_out.append((self.now.round, site, why.words))
            self.tell("left out", f"round {self.now.round}: without {site}: {why.words}", site=site)

    # The end, and what is told

    def conclude(self) -> None:
        """Send everybody the last model, for its evaluation and the last piece of local work."""
        personal = self.stage.ends_locally or self.stage.is_personal
        if not personal and not self.settings.due(self.now.round):
            return
        began, scores = time.monotonic(), {}
        there = self.roll.present()
        missing = {site: ABSENT for site in self.sites if site not in there}
        for site in sorted(there):
            self.ask(site, last=True)
        pending = set(there)
        while pending:
            late = time.monotonic() - began > self.settings.deadline
            for reply in self.exchange.replies():
                site = reply.asked.site
                if site not in pending or reply.asked.round != self.now.round:
                    continue
                pending.discard(site)
                if reply.content is None:
                    missing[str(site)] = Reason(reply.kind, reply.trouble)
                else:
                    scores[str(site)] = self.scores(reply.content)
            if late:
                break
            self.exchange.pause()
        missing |= dict.fromkeys(pending, LATE)
        self.evaluated(scores)
        self.leave_out(missing)

    def finish(self, outcome: Outcome) -> Result:
        """The result, also on disk."""
        w = jax.tree.map(np.asarray, self.model())
        events = [LeftOut(*event) for event in self.now.left_out]
        history = History(self.now.rows, events, [], self.sites)
        size = lambda tree: sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))  # noqa: E731
        result = Result(
            model=self.problem.ready(w),
            history=history,
            outcome=outcome,
            communication=Communication(
                size(self.stage.broadcast(self.server)), size(self.up_shape), self.now.down, self.now.up
            ),
            average=self.stage.average(self.posed, self.server),
        )
        epsilon = None if self.privacy is None else self.privacy.epsilon(max(self.now.spent.values(), default=0))
        self.folder.finish(result, w, epsilon)
        self.tell("end", f"{outcome.name.lower()} after round {self.now.round}: {outcome.value}", outcome=outcome.name)
        return result

    def model(self) -> PyTree:
        """The present model."""
        return self.stage.model(self.posed, self.server)

    def evaluated(self, scores: dict[str, dict[str, float]]) -> None:
        """Put what the sites say of the last model into its row: means by weight over those that said it."""
        known = {site: score for site, score in scores.items() if "loss" in score}
        if not known:
            return
        part = np.array([float(self.agreed.pi[self.sites.index(site)]) for site in known])
        if not part.sum() > 0:
            return
        part = part / part.sum()
        row = self.now.rows[-1]
        for name in ("loss", "accuracy"):
            if all(name in score for score in known.values()):
                row[name] = float(part @ [score[name] for score in known.values()])
        row["objective"] = row["loss"] + float(self.posed.regularizer.value(self.model_before))
        self.tell("evaluated", f"objective {row['objective']:.6g} after round {row['round']}", **row)

    def row(self, round: int, participants: int, left_out: int) -> dict[str, Any]:
        """A row of the history; what the sites say of the model comes later."""
        w = self.model_before = self.model()
        row: dict[str, Any] = {"round": round, "objective": math.nan, "loss": math.nan}
        if self.posed.regularizer.structure == "density":
            row["density"] = float(metrics.density()(self.posed.regularizer.part(w)))
        if self.problem.loss.has_accuracy:
            row["accuracy"] = math.nan
        return row | {
            "participants": participants,
            "left_out": left_out,
            "bytes_down": self.now.down,
            "bytes_up": self.now.up,
            "seconds": self.now.seconds,
            "stage": self.now.stage,
        }

    def save(self) -> None:
        """A checkpoint, before anybody is asked for the next round."""
        self.folder.save({"server": self.server, "start": self.start}, dataclasses.asdict(self.now))


@eqx.filter_jit
def aggregated(
    algorithm: AbstractServerAlgorithm,
    problem: Problem,
    server: PyTree,
    ups: PyTree,
    weights: Array,
    heard: Bool[Array, " asked"],
) -> tuple[PyTree, Bool[Array, ""]]:
    """The server's step on the updates that were heard, and whether it is finite."""
    mean, share = weighted_mean(base.expanded(algorithm, ups), weights, heard)
    new = algorithm.aggregate(problem, server, mean, share)
    return trees.where(share > 0, new, server), trees.all_finite(new)


def array_bytes(record: Any) -> int:
    """The bytes of a record's numbers, without their heads."""
    sizes = (math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in record.values())
    return int(sum(sizes))
