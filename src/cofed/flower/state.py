"""The state of a run over the network: one frozen value, which the loop's functions take and give back."""

import dataclasses
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from cofed import metrics
from cofed._util import trees
from cofed.algorithms.base import AbstractServerAlgorithm, output
from cofed.engine.checkpoint import LoadedCheckpoint
from cofed.engine.data import Data
from cofed.engine.history import History, LeftOut, Log, Outcome
from cofed.flower.agreement import Agreement
from cofed.flower.local_work import RoundWork
from cofed.flower.membership import Membership
from cofed.flower.messages import SCORES, RoundInstructions, stage_at
from cofed.flower.progress import Event
from cofed.flower.run_folder import NetworkCheckpoint
from cofed.flower.transport import Trouble
from cofed.problem import Problem


@dataclasses.dataclass(frozen=True)
class ServerStage:
    """A stage of the algorithm, at the server's end."""

    number: int
    begun: int  # the round in which it began
    start: PyTree  # the model that it began from
    algorithm: AbstractServerAlgorithm
    problem: Problem
    up_shape: PyTree  # of one site's update
    keeps_state: bool  # whether clients keep anything between rounds

    @classmethod
    def enter(cls, agreed: Agreement, number: int, begun: int, start: PyTree) -> "ServerStage":
        """The stage with this number, which begins in this round, from this model."""
        example, dtype = agreed.example, np.dtype(agreed.example.dtype)
        problem, algorithm = stage_at(agreed.spec.problem, agreed.spec.algorithm, agreed.outline(number), dtype)
        kept = jax.eval_shape(algorithm.init_client, problem, start)

        def update(X: Array, y: Array, w0: PyTree) -> PyTree:
            one, zero = jnp.ones(1, jnp.int32), jnp.zeros((), jnp.int32)
            data = Data(X, y, one, one, one.astype(X.dtype))
            down = algorithm.broadcast(algorithm.init(problem, w0))
            own = algorithm.init_client(problem, w0)
            plan, key = agreed.plans[number], jax.random.key(0)
            return RoundWork(algorithm, problem, data, plan, key, zero, zero.astype(X.dtype), down, own).local()[0]

        X = jax.ShapeDtypeStruct((1, agreed.most, *example.features), dtype)
        y = jax.ShapeDtypeStruct((1, agreed.most, *example.targets), np.dtype(example.label_dtype))
        up_shape = jax.eval_shape(update, X, y, start)
        return cls(number, begun, start, algorithm, problem, up_shape, bool(jax.tree.leaves(kept)))

    def init(self) -> PyTree:
        """The server's state before the first round of the stage."""
        server = self.algorithm.init(self.problem, self.start)
        if not trees.all_finite((server, self.start)):
            name = type(self.algorithm).__name__
            raise ValueError(f"{name} cannot start from this w0: its state would not be finite")
        return server


@dataclasses.dataclass(frozen=True)
class NetworkState:
    """All of a run that changes.

    Parameters
    ----------
    membership : Membership
        The sites.
    stage : ServerStage
        The present stage.
    server : pytree
        The server's state.
    model : pytree
        The model after the last finished round, which the sites evaluate along with the next one.
    round : int
        The next round, over all stages.
    counted : mapping of str to int
        The last round of this stage in which each site's update counted; -1 where none did.
    spent : mapping of str to int
        How many updates each site was asked for.
    log : Log
        The history so far and the traffic, as in the engine.
    outcome : Outcome, optional
        How the run ended; None while it goes on.
    """

    membership: Membership
    stage: ServerStage
    server: PyTree
    model: PyTree
    round: int
    counted: Mapping[str, int]
    spent: Mapping[str, int]
    log: Log
    outcome: Outcome | None = None

    @classmethod
    def begin(cls, membership: Membership) -> "NetworkState":
        """The state before the first round."""
        return cls.without_history(membership, 0, 0).with_row(0, 0)

    @classmethod
    def without_history(cls, membership: Membership, stage: int, begun: int) -> "NetworkState":
        """The state of a run whose first stage is this one, which begins in this round."""
        agreed = membership.agreement
        first = ServerStage.enter(agreed, stage, begun, agreed.start)
        server = first.init()
        return cls(
            membership=membership,
            stage=first,
            server=server,
            model=first.algorithm.model(first.problem, server),
            round=begun,
            counted=dict.fromkeys(agreed.sites, -1),
            spent={},
            log=Log(History([], [], [], agreed.sites), []),
        )

    @classmethod
    def resume(cls, membership: Membership, loaded: LoadedCheckpoint, spent: Mapping[str, int]) -> "NetworkState":
        """The state in a checkpoint; `spent` counts also what the sites were asked for since."""
        number, begun = (int(loaded.tensors[f"state.{name}"]) for name in ("stage", "begun"))
        like = cls.without_history(membership, number, begun)  # has the shapes that the checkpoint must have
        found, log = loaded.restore(like.checkpoint(), like.stage.start, like.agreed.sites)
        by_site = lambda values: dict(zip(like.agreed.sites, values.tolist(), strict=True))  # noqa: E731
        return dataclasses.replace(
            like,
            stage=dataclasses.replace(like.stage, start=found.start),
            server=found.server,
            model=like.stage.algorithm.model(like.stage.problem, found.server),
            round=int(found.round),
            counted=by_site(found.counted),
            spent=by_site(found.spent) | dict(spent),
            log=log,
        )

    @property
    def agreed(self) -> Agreement:
        """What the sites go by."""
        return self.membership.agreement

    @property
    def rows(self) -> list[dict[str, float | int]]:
        """The rows of the history so far."""
        return self.log.history.rows

    def current_stage(self) -> "NetworkState":
        """The state in the stage of the next round, which begins now where the one before has ended."""
        at = self.stage
        if self.round == 0 or at.number + 1 >= len(self.agreed.stages) or self.round < self.agreed.end_of(at.number):
            return self
        start = output(at.algorithm, at.problem, self.server)
        stage = ServerStage.enter(self.agreed, at.number + 1, self.round, start)
        counted = dict.fromkeys(self.agreed.sites, -1)
        return dataclasses.replace(self, stage=stage, server=stage.init(), counted=counted)

    def instructions(self, site: str, *, last: bool = False) -> RoundInstructions:
        """What a site is told about its work in the next round."""
        agreed, spec, privacy = self.agreed, self.agreed.spec, self.membership.spec.privacy
        outline = agreed.outline(self.stage.number)
        plan = outline.plan
        return RoundInstructions(
            seed=spec.seed,
            rounds=spec.rounds,
            round=self.round,
            begun=self.stage.begun,
            stage=self.stage.number,
            local_steps=spec.local_steps or 0,
            steps=plan.steps,
            equal=plan.equal,
            epochs=plan.epochs or 0,
            batch=plan.batch or 0,
            participants=plan.participants,
            clients=plan.clients,
            everyone=outline.everyone,
            most=agreed.most,
            outputs=agreed.outputs,
            id=agreed.sites.index(site),
            counted=self.counted[site],
            evaluate=agreed.settings.due(self.round),
            last=last,
            clip=0.0 if privacy is None else float(privacy.clip),
            noise=0.0 if privacy is None else float(privacy.noise),
        )

    # What happens to it

    def asked(self, site: str, sent: int) -> "NetworkState":
        """The state after a site was asked for an update in a message of so many bytes."""
        spent = {**self.spent, site: self.spent.get(site, 0) + 1}
        return dataclasses.replace(self, spent=spent, log=dataclasses.replace(self.log, down=self.log.down + sent))

    def received(self, size: int) -> "NetworkState":
        """The state after an update of so many bytes has come."""
        return dataclasses.replace(self, log=dataclasses.replace(self.log, up=self.log.up + size))

    def left_out(self, troubles: Mapping[str, Trouble]) -> tuple["NetworkState", list[Event]]:
        """The state with the sites named whose work did not count in this round."""
        new = [LeftOut(self.round, site, trouble.words) for site, trouble in troubles.items()]
        events = [
            Event("left out", f"round {self.round}: without {one.client}: {one.why}", {"site": one.client})
            for one in new
        ]
        history = dataclasses.replace(self.log.history, left_out=[*self.log.history.left_out, *new])
        return self.with_history(history), events

    def lost(self, site: str, why: str) -> tuple["NetworkState", list[Event]]:
        """The state after a site has lost what it kept: it begins anew, and what the others keep stays as it is."""
        words = f"{why}, and begins anew"
        history = self.log.history
        history = dataclasses.replace(history, left_out=[*history.left_out, LeftOut(self.round, site, words)])
        state = dataclasses.replace(self.with_history(history), counted={**self.counted, site: -1})
        return state, [Event("trouble", f"round {self.round}: {site}: {words}", {"site": site})]

    def finished_round(self, server: PyTree, heard: list[str], missing: int, seconds: float) -> "NetworkState":
        """The state after a round, with its row of the history."""
        state = dataclasses.replace(
            self,
            server=server,
            model=self.stage.algorithm.model(self.stage.problem, server),
            round=self.round + 1,
            counted={**self.counted, **dict.fromkeys(heard, self.round)},
            log=dataclasses.replace(self.log, seconds=self.log.seconds + seconds),
        )
        return state.with_row(len(heard), missing)

    def with_row(self, participants: int, left_out: int) -> "NetworkState":
        """The state with a row for the present model; what the sites say of that comes later."""
        row: dict[str, float | int] = {"round": self.round, "objective": math.nan, "loss": math.nan}
        problem = self.stage.problem
        if problem.regularizer.structure == "density":
            row["density"] = float(metrics.density()(problem.regularizer.part(self.model)))
        if problem.loss.has_accuracy:
            row["accuracy"] = math.nan
        row |= {
            "participants": participants,
            "left_out": left_out,
            "bytes_down": self.log.down,
            "bytes_up": self.log.up,
            "seconds": self.log.seconds,
            "stage": self.stage.number,
        }
        return self.with_history(dataclasses.replace(self.log.history, rows=[*self.rows, row]))

    def evaluated(self, found: Mapping[str, float]) -> tuple["NetworkState", list[Event]]:
        """The state with the means of what the sites say of the model in its row."""
        if "loss" not in found:
            return self, []
        objective = found["loss"] + float(self.stage.problem.regularizer.value(self.model))
        row = self.rows[-1] | dict(found) | {"objective": objective}
        words = f"objective {objective:.6g} after round {row['round']}"
        history = dataclasses.replace(self.log.history, rows=[*self.rows[:-1], row])
        return self.with_history(history), [Event("evaluated", words, row)]

    def mean_scores(self, scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """The means of the sites' scores, by weight over those that gave any; a score that one lacks is left out."""
        known = {site: score for site, score in scores.items() if "loss" in score}
        part = np.array([float(self.agreed.weights[self.agreed.sites.index(site)]) for site in known])
        if not part.sum() > 0:
            return {}
        part = part / part.sum()
        return {
            name: float(part @ [score[name] for score in known.values()])
            for name in SCORES
            if all(name in score for score in known.values())
        }

    def with_history(self, history: History) -> "NetworkState":
        """The state with this history."""
        return dataclasses.replace(self, log=dataclasses.replace(self.log, history=history))

    def with_membership(self, membership: Membership) -> "NetworkState":
        """The state with these sites."""
        return dataclasses.replace(self, membership=membership)

    def ended(self, outcome: Outcome) -> "NetworkState":
        """The state of a run that has ended so."""
        return dataclasses.replace(self, outcome=outcome)

    def checkpoint(self) -> NetworkCheckpoint:
        """What is kept of the state on disk, beside its log."""
        number, sites = lambda value: jnp.asarray(value, jnp.int32), self.agreed.sites
        return NetworkCheckpoint(
            server=self.server,
            start=self.stage.start,
            round=number(self.round),
            begun=number(self.stage.begun),
            stage=number(self.stage.number),
            counted=number([self.counted[site] for site in sites]),
            spent=number([self.spent.get(site, 0) for site in sites]),
        )
