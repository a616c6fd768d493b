"""MC-FedDA: multi-stage constrained federated dual averaging.

Problem     min_w  sum_m pi_m F_m(w) + lambda R(w), high-dimensional
When        the model is sparse or of low rank in high dimension, and its strength is known roughly.
Stages      m = 0, 1, ...: C-FedDA with strength lambda_m and radius epsilon_m, restarted (all counters) from the
            output of the stage before: its average, or, with `last_share` 1, its last model
Strengths   lambda_m = lambda_0 2^-m down to the target lambda, or a given list
Radii       epsilon_m = 108 Psi^2 lambda_m / mu, Psi^2 the sparsity or rank asked for, or a given list, or no ball
Reference   bao2022, Algorithm 3, Theorem 3.2.
Deviations  The run's rounds are split evenly over the stages (the first ones take the remainder) unless
            `stage_rounds` says otherwise. The authors' code has constant weights and restarts from the last model:
            `growth=0, last_share=1`. The history's objective is that of the target lambda in every stage.
"""

from typing import ClassVar

import equinox as eqx
import numpy as np

from cofed._util import checks
from cofed._util.checks import shown
from cofed._util.scalars import number, rate, require_between, require_nonnegative, require_positive, require_radius
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractAlgorithm, AbstractStagedAlgorithm, Stage
from cofed.algorithms.cfedda import CFedDA
from cofed.problem import Problem


def optional_numbers(values: object) -> tuple[Hyperparameter, ...] | None:
    """A field converter: a tuple of numbers, or None; a single number becomes a tuple of one."""
    if values is None:
        return None
    if isinstance(values, (list, tuple)) or (isinstance(values, np.ndarray) and values.ndim == 1):
        return tuple(number(value) for value in values)
    return (number(values),)  # type: ignore[arg-type]


class MCFedDA(AbstractStagedAlgorithm):
    """C-FedDA in stages of falling strength (see cofed.algorithms.mcfedda).

    Parameters
    ----------
    mu : float
        mu, the strong convexity of the loss.
    L : float
        L, the smoothness of the loss.
    strengths : sequence of float, optional
        lambda_m of each stage; by default four times the problem's own strength, twice, and once (three stages, as
        Bao et al. 2022 run it).
    sparsity : float, optional
        Psi^2, the sparsity or rank asked for, from which the radii epsilon_m follow.
    radii : sequence of float, optional
        epsilon_m of each stage, instead of `sparsity`; with neither there is no ball.
    stage_rounds : sequence of int, optional
        The rounds of each stage; by default the run's rounds are split evenly.
    growth : float, default 1.0
        The growth of the weights, as in CFedDA: 1 as in the paper, 0 for constant weights.
    last_share : float, default 0.0
        The last model's part of what the next stage begins from, from 0 (the average) to 1 (the last model alone).

    Examples
    --------
    >>> import cofed
    >>> cofed.MCFedDA(mu=0.1, L=600.0, strengths=(0.125, 0.0625, 0.03125)).strengths
    (0.125, 0.0625, 0.03125)
    """

    mu: Hyperparameter = eqx.field(converter=rate)
    L: Hyperparameter = eqx.field(converter=rate)
    strengths: tuple[Hyperparameter, ...] | None = eqx.field(converter=optional_numbers, default=None)
    sparsity: Hyperparameter | None = None
    radii: tuple[Hyperparameter, ...] | None = eqx.field(converter=optional_numbers, default=None)
    stage_rounds: tuple[int, ...] | None = eqx.field(
        static=True, default=None, converter=lambda r: tuple(r) if isinstance(r, (list, tuple)) else r
    )
    growth: Hyperparameter = eqx.field(converter=number, default=1.0)
    last_share: Hyperparameter = eqx.field(converter=number, default=0.0)

    needs: ClassVar[tuple[str, ...]] = ("convex", "norm")
    equal_steps: ClassVar[bool] = True
    paper: ClassVar[str] = "bao2022"
    counts_rounds: ClassVar[bool] = True
    stage_form: ClassVar[type[AbstractAlgorithm]] = CFedDA

    def __check_init__(self):
        require_nonnegative("MCFedDA", mu=self.mu, growth=self.growth)
        require_positive("MCFedDA", L=self.L)
        require_between("MCFedDA", 0.0, 1.0, last_share=self.last_share)
        for name, values in (("strengths", self.strengths), ("radii", self.radii)):
            for i, value in enumerate(values or ()):
                require_radius("MCFedDA", **{f"{name}[{i}]": value})
                if np.ndim(value):
                    raise ValueError(f"MCFedDA: {name} must hold one number per stage, got {shown(value)}")
        if self.sparsity is not None:  # the radii are 108 sparsity lambda_m / mu
            require_positive("MCFedDA", sparsity=self.sparsity, mu=self.mu)
        if self.strengths == ():
            raise ValueError("MCFedDA: strengths must have at least one entry")
        for rounds in self.stage_rounds if isinstance(self.stage_rounds, tuple) else ():
            checks.integer("MCFedDA: each of stage_rounds", rounds)
        if not isinstance(self.stage_rounds, tuple | None):
            raise TypeError(f"MCFedDA: stage_rounds must be a list of integers, got {shown(self.stage_rounds)}")
        self.check_stages()

    def check_stages(self) -> None:
        """Refuse lists that contradict each other."""
        for i, strength in enumerate(self.strengths or ()):
            require_positive("MCFedDA", **{f"strengths[{i}]": strength})
        if self.radii is not None and self.sparsity is not None:
            raise ValueError("MCFedDA: give radii or sparsity, not both")
        counts = {
            name: len(values)
            for name, values in (
                ("strengths", self.strengths),
                ("radii", self.radii),
                ("stage_rounds", self.stage_rounds),
            )
            if values is not None
        }
        if len(set(counts.values())) > 1:
            raise ValueError(f"MCFedDA: one entry per stage is expected in each list, got {counts}")

    def stages(self, problem: Problem, rounds: int, local_steps: int | None) -> list[Stage]:
        """One C-FedDA per strength."""
        target = problem.regularizer.norm_strength
        if isinstance(target, float) and not target > 0:
            raise ValueError(f"MCFedDA needs a regularizer of strength > 0, got {target}")
        given = self.radii if self.strengths is None else self.strengths
        count = 3 if given is None else len(given)
        if self.stage_rounds is not None:
            count = len(self.stage_rounds)
        strengths = self.strengths or tuple(target * 2.0 ** (count - 1 - m) for m in range(count))
        if self.radii is not None:
            radii: tuple[Hyperparameter | None, ...] = self.radii
        elif self.sparsity is not None:
            radii = tuple(108 * self.sparsity * strength / self.mu for strength in strengths)
        else:
            radii = (None,) * count
        split = self.stage_rounds or tuple(rounds // count + (m < rounds % count) for m in range(count))
        if rounds < count:
            raise ValueError(f"MCFedDA has {count} stages and needs as many rounds at least, got rounds={rounds}")
        if sum(split) != rounds:
            raise ValueError(f"MCFedDA: stage_rounds {split} add up to {sum(split)}, but rounds={rounds}")
        same = {"growth": self.growth, "last_share": self.last_share}
        return [
            Stage(CFedDA(self.mu, self.L, radius, scale=strength / target, **same), n)
            for strength, radius, n in zip(strengths, radii, split, strict=True)
        ]
