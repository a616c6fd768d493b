"""The consortium's end."""

from cofed.flower import server_app
from hospitals.task import algorithm, problem

app = server_app(problem, algorithm, rounds=10, clients=4, local_steps=20, batch_size=32, weights="samples")
