"""Constraints on handwritten digits: figures 13, 14, 15."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

import cofed
from cofed._util import trees
from cofed.experiments.digits import READS, by_writer
from cofed.experiments.measurements import Measurements, each
from cofed.experiments.specification import Claim, Comparison, Experiment, Numbers, Setup, Verdict, View
from cofed.experiments.yuan2021.common import CLIENT, PRIMAL, SERVER, four, tail


class LargestNorm(eqx.Module):
    """The largest norm of a kernel (or of coef), which the constraint bounds."""

    order: int = eqx.field(static=True)
    leaf: str = eqx.field(static=True)

    def __call__(self, w: PyTree) -> Float[Array, ""]:
        kernels = [x for name, x in zip(trees.names(w), jax.tree.leaves(w), strict=True) if self.leaf in name]
        return jnp.stack([jnp.linalg.norm(jnp.ravel(x), ord=self.order) for x in kernels]).max()


def constrained(n: Numbers, seed: int) -> Setup:
    """Softmax regression or a network on digits by writer, its kernels inside a norm ball."""
    train, test, source = by_writer(n, seed)
    model = cofed.MLP(hidden=(n.width, n.width)) if n.width else cofed.Linear()
    leaf = "kernel" if n.width else "coef"
    ball = cofed.L1Ball(n.radius) if n.order == 1 else cofed.L2Ball(n.radius)
    classes = 1 + int(train.pooled()[1].max())  # 10 digits; with the letters of FEMNIST 62
    problem = cofed.Problem(model, cofed.Softmax(classes), cofed.On(ball, leaf))
    run = {
        "rounds": n.rounds,
        "local_epochs": n.epochs,
        "batch_size": 10,
        "clients_per_round": 10,
        "evaluate_every": n.evaluate_every,
    }
    return Setup(problem, train, run, {"norm": LargestNorm(n.order, leaf)}, test, data=source)


def ahead_in_loss(rivals: tuple[str, ...], seen: Measurements) -> Verdict:
    """The lowest training loss in the end."""
    loss = tail(seen, "loss")
    return Verdict(
        all(loss["FedDualAvg"] < loss[label] for label in rivals),
        f"Training loss in the end: {each(loss, '{:.4f}')}; test accuracy: {each(tail(seen, 'test_accuracy'))}.",
        {f"loss {label}": value for label, value in loss.items()},
    )


def feasible(radius: float, seen: Measurements) -> Verdict:
    """The largest norm that any model of the server had."""
    largest = float(seen.table[seen.table["round"] > 0]["norm"].max())
    return Verdict(
        largest <= radius * (1 + 1e-5), f"The largest norm is {largest:.6g} of {radius:g}.", {"norm": largest}
    )


DIGITS = {
    "letters": False,
    "writers": 340,
    "images": 34_000,
    "rounds": 300,
    "epochs": 10,
    "evaluate_every": 10,
    "tune_every": 20,
    "tuned_over": 60,
    "client_lrs": CLIENT[:5],
    "server_lrs": SERVER[:5],
}
QUICK = {
    "writers": 40,
    "images": 2_000,
    "rounds": 20,
    "epochs": 1,
    "evaluate_every": 5,
    "tune_every": 5,
    "tuned_over": 5,
    "client_lrs": (1e-1,),
    "server_lrs": (1.0,),
}
L1_LINEAR = {"order": 1, "radius": 1000.0, "width": 0}
L2_LINEAR = {"order": 2, "radius": 10.0, "width": 0}
L1_NETWORK = {"order": 1, "radius": 1000.0, "width": 200}
STAND_IN = """FEMNIST where its files are in the data folder; else MNIST dealt out to pseudo-writers, who differ in
which digits they have and not in their hand. With TensorFlow Federated's files in DIR/femnist
(fed_emnist_digitsonly_*.h5, for figure 15 fed_emnist_*.h5) the same command with `--data DIR` runs on them. The
intercepts are free."""


def constraint(number: int, words: str, note: str, smaller: str, rivals: tuple[str, ...], **full) -> Experiment:
    """One of the figures with constraints."""
    return Experiment(
        id=f"yuan2021-fig{number}",
        title=f"{words}, on digits by writer",
        measure=Comparison(constrained, four, score="loss"),
        full=DIGITS | full,
        quick=QUICK | {"width": min(full["width"], 32)},
        views=(View("loss", label="training loss"), View("accuracy", label="training accuracy"), View("test_accuracy")),
        claims=(
            Claim(
                "FedDualAvg is ahead in training loss.",
                partial(ahead_in_loss, rivals),
                quick=False,
                quote=QUOTES[number],
                criterion=f"""The mean training loss over the last fifth of the rounds, below that of
                {", ".join(rivals)}, which are those that the paper names.""",
            ),
            Claim(
                "Every model of the server is feasible.",
                partial(feasible, full["radius"]),
                quote="all the trajectories of all the four algorithms are always in the feasible region",
                criterion="""The norm at every evaluated round of every seed, up to a round-off of 1e-5. The clients'
                points within a round are measured in yuan2021-feasible.""",
            ),
        ),
        note=f"{STAND_IN} {note}",
        reads=READS,
        smaller=smaller,
    )


OTHERS = ("FedMiD", "FedMiD-OSP", "FedDualAvg-OSP")
QUOTES = {
    13: "FedDualAvg outperforms the other three algorithms by a margin.",
    14: "FedDualAvg outperforms the FedMiD and FedMiD-OSP in all three metrics",
    15: "FedDualAvg outperforms FedMiD and FedMiD-OSP in all three metrics",
}
SHORT = """The paper's 25 pairs of rates and 10 local epochs, with fewer than its 5,000 rounds: a round takes {cost} CPU
seconds on MNIST, so that 5,000 of 25 pairs and five seeds of four methods take {whole}."""
SHORTER = """62 classes need FEMNIST's letters: without its files there are MNIST's 10 digits. 300 rounds of one local
epoch instead of 5,000 of ten, and nine pairs of rates: a round of ten epochs takes 3.2 CPU seconds on MNIST, so that
the paper's grid and rounds with five seeds take 22 days."""
CONSTRAINTS = [
    constraint(
        13,
        "Multinomial logistic regression with ||w||_1 <= 1000",
        SHORT.format(cost=0.17, whole="28 hours"),
        "300 of the paper's 5,000 rounds",
        OTHERS,
        **L1_LINEAR,
    ),
    constraint(
        14,
        "Multinomial logistic regression with ||w||_2 <= 10",
        SHORT.format(cost=0.06, whole="10 hours"),
        "1,000 of the paper's 5,000 rounds",
        PRIMAL,
        **L2_LINEAR,
        rounds=1000,
        tuned_over=200,
    ),
    constraint(
        15,
        "Two hidden layers, every kernel with ||w||_1 <= 1000",
        SHORTER,
        """300 rounds of one local epoch (the paper: 5,000 of ten), 9 of its 25 pairs of rates; 62 classes need the
        letters of FEMNIST, and without its files there are MNIST's 10 digits""",
        PRIMAL,
        **L1_NETWORK,
        letters=True,
        epochs=1,
        client_lrs=CLIENT[2:5],
        server_lrs=SERVER[2:5],
    ),
]
