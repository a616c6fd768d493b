"""Theorem 2.1: linear speed-up."""

import jax
import jax.numpy as jnp
import numpy as np

import cofed
from cofed.experiments.measurements import Measurements
from cofed.experiments.specification import Claim, Experiment, Method, Numbers, Sweep, Verdict, View


def speedup(n: Numbers, clients: int, seed: int) -> list[dict]:
    """The squared error of Fast-FedDA after a fixed number of rounds, with so many identical clients.

    y = <x, w> + noise with x ~ N(0, I): F(w) = ||w - truth||^2/2, so the optimum with an l1 penalty is the truth,
    soft-thresholded, and mu = 1 exactly.
    """
    truth = jnp.asarray(np.where(np.arange(n.d) < n.d // 4, 1.0, 0.0), jnp.float32)
    best = jnp.sign(truth) * jnp.maximum(jnp.abs(truth) - n.strength, 0)

    def draw(key, client, size):
        sample = jax.random.normal(key, (size, n.d + 1), jnp.float32)
        return sample[:, : n.d], sample[:, : n.d] @ truth + n.noise * sample[:, n.d]

    federation = cofed.Federation.from_stream(draw, clients, samples=8, seed=seed)
    problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(n.strength))
    rows = []
    for repeat in range(n.repeats):
        result = cofed.run(
            problem,
            federation,
            cofed.FastFedDA(mu=1.0, L=n.L),
            rounds=n.rounds,
            local_steps=n.local_steps,
            batch_size=n.batch,
            evaluate_every=n.rounds,
            seed=1000 * seed + repeat,
            progress=False,
        )
        error = float(np.sum((np.asarray(result.model.coef) - np.asarray(best)) ** 2))
        rows.append({"algorithm": "FastFedDA", "x": clients, "squared_error": error, "repeat": repeat})
    return rows


def linear_speedup(seen: Measurements) -> Verdict:
    """The slope of log error against log clients."""
    slope = seen.slope("FastFedDA", "squared_error")
    low = {int(x): float(v) for x, v in seen.curve("FastFedDA", "squared_error").items()}
    return Verdict(
        abs(slope + 1) <= 0.2,
        f"The slope is {slope:.3f}; the squared error falls from {low[min(low)]:.3g} with {min(low)} client to "
        f"{low[max(low)]:.3g} with {max(low)}.",
        {"slope": slope},
    )


SPEEDUP = Experiment(
    id="bao2022-speedup",
    title="Fast-FedDA's error against the number of clients",
    measure=Sweep(
        "clients",
        lambda n: n.clients,
        speedup,
        lambda n: [Method("FastFedDA", cofed.FastFedDA, {"mu": (1.0,), "L": (n.L,)})],
    ),
    full={
        "clients": (1, 2, 4, 8, 16, 32, 64),
        "d": 32,
        "strength": 0.1,
        "noise": 5.0,
        "L": 40.0,
        "rounds": 2000,
        "local_steps": 4,
        "batch": 1,
        "repeats": 20,
    },
    quick={"clients": (1, 4, 16), "rounds": 1000, "repeats": 8},
    views=(View("squared_error", label="squared error", log=True, log_x=True),),
    claims=(
        Claim(
            "Linear speed-up (Theorem 2.1, Table 1): the error falls like 1/K with K clients (slope -1 +- 0.2).",
            linear_speedup,
            quote="we show that Fast-FedDA enjoys linear speedup",
            criterion="""The slope of log squared error against log K, from 1 to 64 clients, is -1 +- 0.2: over a factor
            of 64 that is a factor of 2.3, and no speed-up (0) and one like the square root (-0.5) are told apart from
            it.""",
        ),
    ),
    note="""Homogeneous clients that draw fresh samples; the error is the squared distance to the exact optimum, mu = 1.
    Of the theorem's terms only the variance falls with K. The noise is 5, so that with these rounds the variance is the
    largest term up to 64 clients; with less noise the start's share, the same for every K, is a floor that is reached
    sooner.""",
)
