"""What a run with faults must end with: the same round in process, without the updates that were left out."""

from typing import Any

from cofed.flower import serve
from tests.flower import harness
from tests.flower.app.netapp import apps
from tests.flower.loopback import network


def faulty_run(method: str, faults: str, rounds: int, quorum: int) -> Any:
    """A run on a Grid in this process where these sites' replies never come in these rounds."""
    config = {"method": method}
    problem, algorithm = apps.problem(config), apps.algorithm(config)
    gone = {tuple(one.partition("@")[2].split(":")) for one in faults.split()}

    def fault(site: str, message: Any, reply: Any) -> Any:
        head = message.content.config_records["cofed"]
        if message.metadata.message_type == "train" and (str(head["round"]), site) in gone:
            return None
        return reply

    grid, _ = network(problem, algorithm, harness.data(), fault=fault)
    return serve(
        grid,
        problem,
        algorithm,
        clients=3,
        rounds=rounds,
        quorum=quorum,
        deadline=0.5,
        patience=5.0,
        plain=True,
        **apps.SETTINGS,
    )
