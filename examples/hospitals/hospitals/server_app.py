"""The consortium's end."""

from cofed.flower import server_app
from hospitals.task import algorithm, problem

# How many rounds, who takes part, how long to wait: pyproject.toml says it; `flwr run . --run-config` may change it.
app = server_app(problem, algorithm, local_steps=20, batch_size=32, weights="samples")
