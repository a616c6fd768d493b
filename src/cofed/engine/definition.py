"""What a run is defined by: written into its checkpoint folder, read from there, and compared with what is given."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from cofed._util.caller import warn_caller
from cofed._util.files import atomically, read_json
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine import fingerprints, recorded
from cofed.engine.contracts import metric_arguments, round_of
from cofed.engine.job import plan_of
from cofed.engine.plan import pose
from cofed.engine.serialization import decode, encode, encode_or_none
from cofed.engine.spec import RunSpec
from cofed.federation import AbstractFederation, DiskFederation, Federation
from cofed.federation.disk.index import Index
from cofed.problem import Problem
from cofed.samplers import AbstractSampler

JSON = dict[str, Any] | list[Any] | str | float | bool | None  # what json gives


def write_definition(folder: Path, every: int, keep: int, run: RunSpec, start: PyTree) -> None:
    """The files of the definition, run.json last."""
    if isinstance(run.federation, DiskFederation):
        recorded.write_record(folder / "federation.json", on_disk(run.federation))
    elif isinstance(run.federation, Federation):
        write_federation(folder / "federation.safetensors", run.federation)
    if run.evaluation is not None:
        write_federation(folder / "evaluation.safetensors", run.evaluation)
    weights = run.weights if isinstance(run.weights, str) else np.asarray(run.weights)
    sampler = run.clients_per_round if isinstance(run.clients_per_round, AbstractSampler) else None
    record = recorded.RunRecord(
        format=recorded.FORMAT,
        **recorded.made_by(),
        settings=recorded.settings_record(run),
        checkpoint_every=every,
        keep_checkpoints=keep,
        problem=encode_or_none(run.problem),
        algorithm=encode_or_none(run.algorithm),
        algorithm_name=type(run.algorithm).__name__,
        weights=encode(weights),
        metrics={name: encode_or_none(metric) for name, metric in run.metrics.items()},
        own=own_code(run, start),
        evaluation=run.evaluation is not None,
        evaluation_fingerprint=None if run.evaluation is None else fingerprints.fingerprint(run.evaluation),
        fingerprint=fingerprints.fingerprint(run.federation),
        topology=encode(run.topology),
        link_failure=float(run.link_failure),
        stream=run.federation.draw is not None,
        steps_by_client=None if run.steps_by_client is None else list(run.steps_by_client),
        clock=encode(run.clock),
        mean=encoded(run.mean, "a mean", "cofed.means"),
        sampler=encoded(sampler, "a sampler", "cofed.samplers"),
        batches=encoded(run.batches, "a sampler of batches", "cofed.batches"),
    )
    recorded.write_record(folder / "run.json", record)


def stage_starts(spec: RunSpec) -> list[JSON]:
    """What must stay when a run gets more rounds: when each of its stages begins, its method and its local steps."""
    begins, found = 0, []
    for stage in spec.algorithm.stages(spec.problem, spec.rounds, spec.local_steps):
        found.append([begins, fingerprints.outline(stage.algorithm), stage.local_steps])
        begins += stage.rounds
    return found


def encoded(given: object, what: str, room: str) -> dict[str, Any] | None:
    """A part of a run that must be one of cofed's own, as JSON; None where there is none."""
    found = encode_or_none(given)
    if found is None and given is not None:
        raise ValueError(
            f"checkpoint: {type(given).__name__} is {what} with code of its own, which no file can hold; leave "
            f"checkpoint= out, or take one of {room}"
        )
    return found


@dataclasses.dataclass(frozen=True)
class WrittenRun:
    """The definition in a folder, as it was written."""

    folder: Path
    record: recorded.RunRecord

    @classmethod
    def read(cls, folder: Path) -> "WrittenRun":
        """Read it, or refuse in a sentence."""
        try:
            is_file = folder.is_file()
        except OSError as error:  # such as a name that is too long
            raise ValueError(f"checkpoint: {folder} cannot be read: {error.strerror}") from None
        if is_file:
            raise ValueError(f"checkpoint: {folder} is a file, not the folder of a run")
        return cls(folder, recorded.read_run(folder))

    def definition(
        self,
        problem: Problem | None,
        federation: AbstractFederation | None,
        algorithm: AbstractAlgorithm | None,
        metrics: Mapping[str, Callable],
        evaluation: Federation | None,
    ) -> RunSpec:
        """The definition of the run, with what the caller gives in place of what a file cannot hold."""
        written = self.record
        self.check_version()
        if algorithm is not None and type(algorithm).__name__ != written.algorithm_name:
            raise ValueError(
                f"the run in {self.folder} is one of {written.algorithm_name}, not of {type(algorithm).__name__}"
            )
        run = RunSpec(
            problem=self.part("problem", written.problem, problem),
            algorithm=self.part("algorithm", written.algorithm, algorithm),
            federation=self.federation(federation),
            **self.schedule(),
            weights=self.decoded(written.weights, "weights"),
            metrics=self.metrics(dict(metrics)),
            evaluation=self.evaluation(evaluation),
            topology=self.decoded(written.topology, "topology"),
            link_failure=written.link_failure,
            clock=self.decoded(written.clock, "clock"),
            mean=self.decoded(written.mean, "mean"),
        )
        self.check_code(run)
        return run

    @property
    def rounds(self) -> int:
        """The run's rounds: those that it began with, or was given later."""
        path = self.folder / "rounds.json"
        if not path.exists():
            return self.record.settings.rounds
        refusal = f"{path} is damaged; delete it to go on with the rounds that the run began with"
        return recorded.checked(recorded.ExtensionRecord, read_json(path, refusal), refusal).rounds

    def extend(self, spec: RunSpec, rounds: int) -> RunSpec:
        """The run with more rounds, which the folder knows from here on."""
        longer = dataclasses.replace(spec, rounds=rounds)
        if stage_starts(longer) != stage_starts(spec):
            raise ValueError(
                f"rounds: {spec.algorithm.name} divides its rounds into stages, which {rounds} rounds would move; "
                "begin a new run with cofed.run"
            )
        recorded.write_record(self.folder / "rounds.json", recorded.ExtensionRecord(rounds=rounds))
        return longer

    def schedule(self) -> dict[str, Any]:
        """The settings of the run, with its present rounds and what draws its clients and batches."""
        found: dict[str, Any] = self.record.settings.model_dump()
        found["rounds"] = self.rounds
        if self.record.steps_by_client is not None:
            found["local_steps"] = self.record.steps_by_client
        if self.record.sampler is not None:
            found["clients_per_round"] = self.decoded(self.record.sampler, "sampler")
        if self.record.batches is not None:
            found["batch_size"] = self.decoded(self.record.batches, "batches")
        return found

    def check_version(self) -> None:
        """Another version may go on with a run of a format that it knows, but not promise the same bits."""
        now = recorded.made_by()
        if (self.record.cofed, self.record.jax or now["jax"]) != (now["cofed"], now["jax"]):
            warn_caller(
                f"the run in {self.folder} was begun with cofed {self.record.cofed}"
                + (f" and JAX {self.record.jax}" if self.record.jax else "")
                + f", and goes on with cofed {now['cofed']} and JAX {now['jax']}: its last bits may be others"
            )

    def decoded(self, value: JSON, name: str) -> Any:
        """A part of run.json as an object; one that is damaged is named."""
        path = self.folder / "run.json"
        try:
            return decode(value, path)
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged, in {name}: {error}") from error

    def part(self, name: str, ours: JSON, given: object) -> Any:
        """A part of the definition: the folder's or, where that has code of its own, the caller's, if they agree."""
        if given is None:
            if ours is None:
                article = "an" if name == "algorithm" else "a"
                raise ValueError(
                    f"the run in {self.folder} has {article} {name} with code of its own, which no file can hold: "
                    f"pass {name}= to resume"
                )
            return self.decoded(ours, name)
        known = ours if ours is not None else self.record.own[name].outline if name in self.record.own else None
        if known is not None:
            contradiction = fingerprints.contradiction(known, fingerprints.outline(given), name)
            if contradiction is not None:
                self.refuse(contradiction, name.partition(".")[0], in_folder=ours is not None)
        return given

    def refuse(self, contradiction: str, name: str, in_folder: bool) -> NoReturn:
        """Refuse what is not as it was; what the folder holds need not be given at all."""
        advice = f"Leave {name}= out" if in_folder else f"Give {name}= as it was"
        raise ValueError(
            f"resume was given another {name} than the run in {self.folder} has: {contradiction}. {advice} to go on "
            "with that run, or begin a new one with cofed.run"
        )

    def metrics(self, given: dict[str, Callable]) -> dict[str, Callable]:
        """All metrics of the run."""
        has = f"the run in {self.folder} has the metrics {sorted(self.record.metrics)}"
        if set(given) - set(self.record.metrics):
            raise ValueError(f"{has}, and resume was given metrics={sorted(given)}: leave the others out")
        if any(ours is None and name not in given for name, ours in self.record.metrics.items()):
            raise ValueError(
                f"{has}, some with code of their own, which no file can hold: pass them as metrics= to resume"
            )
        return {name: self.part(f"metrics.{name}", ours, given.get(name)) for name, ours in self.record.metrics.items()}

    def federation(self, given: AbstractFederation | None) -> AbstractFederation:
        """The run's data, which must be what they were."""
        found = given
        if found is None and self.record.stream:
            raise ValueError(
                f"the federation of the run in {self.folder} draws its samples with code of its own, which no file can "
                "hold: pass federation= to resume"
            )
        if found is None and (self.folder / "federation.json").exists():
            found = reopened(self.folder / "federation.json")
        elif found is None:
            found = read_federation(self.folder / "federation.safetensors", "federation")
        if not isinstance(found, AbstractFederation):
            raise TypeError(f"federation must be a cofed.Federation, got {type(found).__name__}")
        if fingerprints.fingerprint(found) != self.record.fingerprint:
            if given is None:
                raise ValueError(
                    f"the data of the run in {self.folder} were changed or damaged; pass federation= to resume"
                )
            raise ValueError(f"this federation is not the one of the run in {self.folder}: their data differ")
        return found

    def evaluation(self, given: Federation | None) -> Federation | None:
        """The run's held-out data, which must be what they were."""
        if not self.record.evaluation:
            if given is not None:
                raise ValueError(
                    f"the run in {self.folder} has no evaluation federation, and resume was given one: leave "
                    "evaluation= out, or begin a new run with cofed.run"
                )
            return None
        found = given
        if found is None:
            found = read_federation(self.folder / "evaluation.safetensors", "evaluation")
        if not isinstance(found, Federation):
            raise TypeError(f"evaluation must be a cofed.Federation, got {type(found).__name__}")
        if self.record.evaluation_fingerprint not in (None, fingerprints.fingerprint(found)):
            raise ValueError(
                f"this evaluation federation is not the one of the run in {self.folder}: their data differ"
            )
        return found

    def check_code(self, run: RunSpec) -> None:
        """A user's own code must compute what it did; other versions of JAX write it in other ways."""
        if self.record.jax != recorded.made_by()["jax"]:
            return
        start = jax.eval_shape(lambda: run.problem.start(run.federation, None, 0))
        for name, now in own_code(run, start).items():
            before = self.record.own.get(name)
            if before is not None and before.code not in (None, now.code):
                changed = f"its code computes something else than it did ({name})"
                self.refuse(changed, name.partition(".")[0], in_folder=False)


def write_federation(path: Path, federation: Federation) -> None:
    """The data of a federation, names as metadata."""
    tensors = {name: np.asarray(array) for name, array in federation.stored().items()}
    names = {"names": json.dumps(federation.names), "feature_names": json.dumps(federation.feature_names)}
    atomically(path, lambda f: save_file(tensors, f, metadata=names))


def read_federation(path: Path, parameter: str) -> Federation:
    """The federation that `write_federation` wrote."""
    try:
        with safe_open(path, framework="numpy") as file:
            meta, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if tensors["X"].dtype == np.float64:
            jax.config.update("jax_enable_x64", True)
        features = json.loads(meta["feature_names"])
        names = tuple(json.loads(meta["names"]))
        return Federation.restored(tensors, names, None if features is None else tuple(features))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the data of the run, {path}, is damaged or missing; pass {parameter}= to resume") from error


def on_disk(federation: DiskFederation) -> recorded.OnDiskRecord:
    """Where the clients are, and which the history is measured on."""
    measured = None if federation.measured is None else federation.measured.tolist()
    return recorded.OnDiskRecord(index=str(federation.index.folder.resolve()), measured=measured)


def reopened(path: Path) -> DiskFederation:
    """The federation that `on_disk` described."""
    refusal = f"{path} is damaged; pass federation= to resume"
    told = recorded.checked(recorded.OnDiskRecord, read_json(path, refusal), refusal)
    folder = Path(told.index)
    if not folder.exists():
        raise ValueError(f"the clients of this run were in {folder}, which is gone; pass federation= to resume")
    measured = None if told.measured is None else np.asarray(told.measured)
    return dataclasses.replace(DiskFederation.of(Index.open(folder)), measured=measured)


def own_code(run: RunSpec, start: PyTree) -> dict[str, recorded.OwnCode]:
    """What can be told of the parts that a file cannot hold; `start` has the shapes of the model."""
    found = {}
    if encode_or_none(run.problem) is None:
        code = fingerprints.code_of_problem(run.problem, run.federation, start)
        found["problem"] = recorded.OwnCode(outline=fingerprints.outline(run.problem), code=code)
    if encode_or_none(run.algorithm) is None:
        outline = fingerprints.outline(run.algorithm)
        found["algorithm"] = recorded.OwnCode(outline=outline, code=code_of_round(run, start))
    for name, metric in run.metrics.items():
        if encode_or_none(metric) is None:
            code = fingerprints.code_of(metric, *metric_arguments(run.problem, run.federation, metric, start))
            found[f"metrics.{name}"] = recorded.OwnCode(outline=fingerprints.outline(metric), code=code)
    return found


def code_of_round(run: RunSpec, start: PyTree) -> str | None:
    """A hash of what a round of the method computes, in its first stage; None where it cannot be computed."""
    first = run.algorithm.stages(run.problem, run.rounds, run.local_steps)[0]
    problem = pose(run.problem, plan_of(run, run.local_steps if first.local_steps is None else first.local_steps))
    one_round = round_of(problem, start, run.topology is not None)
    try:
        return fingerprints.code_of(lambda w0: one_round(first.algorithm, w0), start)
    except Exception:  # of a user's own code: what is wrong with it is said where the run is prepared
        return None
