"""cofed's own share of a round over Flower: the CPU seconds of a cold client process, Flower's own left aside.

    python -m benchmarks.share --d 10000

Every message starts a new process at a site. Its share is what comes on top of Flower's imports: importing cofed,
reading the site's data, tracing, the compiled program from disk (or, the first time, compiling it), ten local steps
and an evaluation. CPU time, since that does not depend on what else the machine does.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SAMPLES = 200
CHILD = """
import json, sys, time
from pathlib import Path
import flwr.clientapp, flwr.app, flwr.common.serde as serde
from flwr.proto.recorddict_pb2 import RecordDict
flower = time.process_time()
import cofed, cofed.flower
imported = time.process_time()
from benchmarks.share import site
where = Path(sys.argv[1])
content = serde.recorddict_from_proto(RecordDict.FromString((where / "message").read_bytes()))
context = flwr.app.Context(1, 1, {"site": "a"}, flwr.app.RecordDict(), {})
site(where).work(content, context)
done = time.process_time()
print(json.dumps({"flower": flower, "import": imported - flower, "work": done - imported}))
"""


def parts():
    """The problem and the method."""
    import cofed

    return cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(0.01)), cofed.FedDualAvg(0.01)


def site(where: Path):
    """The site, as an app would make it."""
    import numpy as np

    from cofed.flower.site import Site

    def load(node):
        with np.load(where / "data.npz") as file:
            return file["X"], file["y"]

    return Site(*parts(), load, lambda node: where / "kept", None)


def write(where: Path, d: int) -> None:
    """The site's data, and the message that a server would send it in round one."""
    import flwr.common.serde as serde
    import jax.numpy as jnp
    import numpy as np
    from flwr.app import ConfigRecord, RecordDict

    from cofed.flower import wire
    from cofed.flower.messages import Identity, RoundInstructions, stage_at

    X = (np.random.default_rng(0).normal(size=(SAMPLES, d)) / np.sqrt(d)).astype(np.float32)
    np.savez(where / "data.npz", X=X, y=X[:, 0])
    numbers = {"seed": 0, "rounds": 10, "round": 1, "begun": 0, "stage": 0, "local_steps": 10, "steps": 10}
    numbers |= {"equal": True, "epochs": 0, "batch": 32, "participants": 2, "clients": 2, "everyone": True}
    numbers |= {"most": SAMPLES, "outputs": 0, "id": 0, "counted": 0, "evaluate": True, "last": False}
    told = RoundInstructions(**numbers, clip=0.0, noise=0.0)
    problem, method = parts()
    ready, stage = stage_at(problem, method, told.outline, jnp.float32)
    w = problem.model.init(None, jnp.zeros(d, jnp.float32), None)
    head = Identity.of(problem, method).entries() | {"run": "0" * 32, "round": 1} | told.entries()
    arrays = {"down": wire.pack(stage.broadcast(stage.init(ready, w))), "model": wire.pack(w)}
    content = serde.recorddict_to_proto(RecordDict({"cofed": ConfigRecord(head), **arrays}))
    (where / "message").write_bytes(content.SerializeToString())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="cofed's own share of a round, in CPU seconds of a cold process.")
    parser.add_argument("--d", type=int, default=10_000, help="numbers of the model")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), given.d)
        for name in ("first, which compiles", "a later one", "a later one"):
            done = subprocess.run([sys.executable, "-c", CHILD, folder], capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
            print(f"{name}: {json.dumps({k: round(v, 2) for k, v in json.loads(done.stdout).items()})}", flush=True)
