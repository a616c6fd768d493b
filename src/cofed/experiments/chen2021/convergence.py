"""Appendix B: how fast FedProx's algorithm comes to its optimum, in rounds and in local steps."""

from typing import NamedTuple

import numpy as np

import cofed
from cofed.experiments.measurements import Measurements
from cofed.experiments.specification import Claim, Experiment, Method, Numbers, Sweep, Verdict, View
from cofed.federation import Federation

OUTER, INNER = "global model, against rounds", "local models, against local steps"
PROBLEM = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared())


class Quadratics(NamedTuple):
    """Clients with F_i(w) = w'H_i w/2 - b_i'w + const, all F_i mu-strongly convex, and FedProx's strength lambda."""

    federation: Federation
    H: np.ndarray
    b: np.ndarray
    mu: float
    strength: float

    def prox(self, w: np.ndarray) -> np.ndarray:
        """The minimiser of F_i + lambda/2 ||. - w||^2, of every client."""
        pulled = self.H + self.strength * np.eye(w.size)
        return np.linalg.solve(pulled, (self.b + self.strength * w)[..., None])[..., 0]

    def optimum(self) -> np.ndarray:
        """The global model at FedProx's optimum: it is the mean of the clients' proxes of it, which is affine in it."""
        d = self.b.shape[1]
        offset = self.prox(np.zeros(d)).mean(axis=0)
        linear = np.stack([self.prox(unit).mean(axis=0) - offset for unit in np.eye(d)], axis=1)
        return np.linalg.solve(np.eye(d) - linear, offset)


def quadratics(n: Numbers, seed: int) -> Quadratics:
    """Linear regression with features uniform on [-1, 1]^d; clients' coefficients are R apart; lambda = n.ratio mu."""
    rng = np.random.default_rng(seed)
    truths = rng.normal(size=n.d) + n.R * rng.normal(size=(n.clients, n.d))
    X = rng.uniform(-1, 1, size=(n.clients, n.samples, n.d))
    y = np.einsum("isd,id->is", X, truths) + n.noise * rng.normal(size=(n.clients, n.samples))
    H, b = np.einsum("isd,ise->ide", X, X) / n.samples, np.einsum("isd,is->id", X, y) / n.samples
    mu = float(np.linalg.eigvalsh(H)[:, 0].min())
    return Quadratics(Federation.from_arrays(list(zip(X, y, strict=True))), H, b, mu, n.ratio * mu)


def squared_errors(n: Numbers, count: int, seed: int) -> list[dict]:
    """Squared distances after so many rounds (with as many local steps, times two) or so many local steps."""
    posed, outer = quadratics(n, seed), n.outer
    # ||prox_i(w)|| <= ||prox_i(0)|| + lambda/(mu + lambda) ||w||: no prox of a point of the ball is outside of it.
    assert np.linalg.norm(posed.prox(np.zeros(n.d)), axis=1).max() < n.radius / (1 + n.ratio)
    optimum, rows = posed.optimum(), []
    for repeat in range(n.repeats):
        result = cofed.run(
            PROBLEM,
            posed.federation,
            cofed.FedProx(posed.strength, mu=posed.mu, radius=n.radius),
            rounds=count if outer else 1,
            local_steps=2 * count if outer else count,
            batch_size=n.batch,
            clients_per_round=n.per_round if outer else None,
            evaluate_every=count,
            seed=1000 * seed + repeat,
            progress=False,
        )
        model = np.asarray(result.model.coef)
        apart = model - optimum
        if not outer:  # after the last stage, the clients' models are near their proxes of the last global model
            assert result.personal_models is not None
            apart = np.asarray(result.personal_models.coef) - posed.prox(model)
        error = float(np.sum(apart**2, axis=-1).mean())
        rows.append({"algorithm": "FedProx", "x": count, "squared_error": error, "repeat": repeat})
    return rows


def falls_like_one_over(panel: str, seen: Measurements) -> Verdict:
    """The slope of the log squared error against the log of the rounds or steps."""
    slope, curve = seen.slope("FedProx", "squared_error", panel), seen.curve("FedProx", "squared_error", panel)
    return Verdict(
        slope <= -0.9,
        f"The squared error falls from {curve.iloc[0]:.2g} (at {curve.index[0]}) to {curve.iloc[-1]:.2g} (at "
        f"{curve.index[-1]}): a power of {slope:.2f}.",
        {"slope": slope},
    )


CRITERION = (
    "The slope of log squared error against log count is at most -0.9: over a factor of 32, 0.1 is a factor of 1.4; a "
    "bound says nothing against a faster fall."
)

CONVERGENCE = Experiment(
    id="chen2021-convergence",
    title="FedProx's distance to its optimum against rounds and local steps",
    measure=Sweep(
        "rounds or local steps",
        lambda n: n.counts,
        squared_errors,
        lambda n: [Method("FedProx", cofed.FedProx, {"strength": (n.ratio,), "mu": (1.0,), "radius": (n.radius,)})],
    ),
    full={
        "counts": (4, 8, 16, 32, 64, 128),
        "clients": 20,
        "per_round": 5,
        "samples": 40,
        "d": 4,
        "R": 0.5,
        "noise": 0.5,
        "ratio": 1.0,
        "radius": 8.0,
        "batch": 4,
        "repeats": 20,
    },
    quick={"counts": (4, 16, 64), "repeats": 5},
    panels={OUTER: {"outer": True}, INNER: {"outer": False}},
    views=tuple(
        View("squared_error", panel, panel, label="squared error", log=True, log_x=True) for panel in (OUTER, INNER)
    ),
    claims=(
        Claim(
            "The global model's squared distance to the optimum falls at least like 1/t (Lemma B.2).",
            lambda seen: falls_like_one_over(OUTER, seen),
            quick=False,
            quote="E ||w_t - w~||^2 <= 12 (lambda + mu)^2 m ||p||^2 (beta^2 D^2 ^ 2 lambda |l| ^ lambda^2 D^2)/"
            "(lambda^2 mu^2 (t+1)) (B.5)",
            criterion=CRITERION,
        ),
        Claim(
            "The local models' squared distance to their prox falls at least like 1/k (Lemma B.1).",
            lambda seen: falls_like_one_over(INNER, seen),
            quick=False,
            quote="Then for any k >= 0, we have E[||w_(t,k) - Prox(w_t)||^2 | F_(t,0), i in C_t] <= 8 beta^2 D^2/(mu^2 "
            "(k+1))",
            criterion=CRITERION,
        ),
    ),
    note="""Squared losses, so that the optimum is known to round-off; the paper's falling steps with the exact mu and
    lambda = mu (in the table of hyperparameters in units of mu); 5 of 20 clients take part in a round, on batches of 4.
    Lemma B.2 asks for local steps that grow with the round: here a run of t rounds has 2t in each. The ball that the
    models stay in is large enough for the proxes of all its points: in an earlier run it was not with seed 3, whose
    local models stopped at its border, away from the prox that they were compared with.""",
)
