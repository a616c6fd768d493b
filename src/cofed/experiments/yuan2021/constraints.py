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
    problem = cofed.Problem(model, cofed.Softmax(10), cofed.On(ball, leaf))
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
    """The largest norm that any iterate of any method had."""
    largest = float(seen.table[seen.table["round"] > 0]["norm"].max())
    return Verdict(
        largest <= radius * (1 + 1e-5), f"The largest norm is {largest:.6g} of {radius:g}.", {"norm": largest}
    )


def constraint(number: int, words: str, order: int, radius: float, width: int, rivals: tuple[str, ...]) -> Experiment:
    """One of the figures with constraints."""
    return Experiment(
        id=f"yuan2021-fig{number}",
        title=f"{words}, on digits by writer",
        measure=Comparison(constrained, four, score="loss"),
        full={
            "order": order,
            "radius": radius,
            "width": width,
            "writers": 340,
            "images": 34_000,
            "rounds": 5000,
            "epochs": 10,
            "evaluate_every": 100,
            "tune_every": 100,
            "tuned_over": 1000,
            "client_lrs": CLIENT[:5],
            "server_lrs": SERVER[:5],
        },
        quick={
            "width": min(width, 32),
            "writers": 40,
            "images": 2_000,
            "rounds": 20,
            "epochs": 1,
            "evaluate_every": 5,
            "tune_every": 5,
            "tuned_over": 5,
            "client_lrs": (1e-1,),
            "server_lrs": (1.0,),
        },
        views=(View("loss", label="training loss"), View("accuracy", label="training accuracy"), View("test_accuracy")),
        claims=(
            Claim("FedDualAvg is ahead in training loss.", partial(ahead_in_loss, rivals), quick=False),
            Claim("Every iterate of all four is feasible.", partial(feasible, radius)),
        ),
        note="""FEMNIST where its files are in the data folder; else MNIST dealt out to pseudo-writers, who differ in
        which digits they have and not in their hand. The intercepts are free.""",
        reads=READS,
    )


OTHERS = ("FedMiD", "FedMiD-OSP", "FedDualAvg-OSP")
CONSTRAINTS = [
    constraint(13, "Multinomial logistic regression with ||w||_1 <= 1000", 1, 1000.0, 0, OTHERS),
    constraint(14, "Multinomial logistic regression with ||w||_2 <= 10", 2, 10.0, 0, PRIMAL),
    constraint(15, "Two hidden layers, every kernel with ||w||_1 <= 1000", 1, 1000.0, 200, PRIMAL),
]
