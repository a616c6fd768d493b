"""What the consortium has agreed on: the model, the penalty, the method."""

import cofed


def problem(config):
    """A sparse linear model of the cost of a treatment; the intercept is not penalised."""
    penalty = cofed.On(cofed.L1(float(config["strength"])), "coef")
    return cofed.Problem(cofed.Linear(intercept=True), cofed.Squared(), penalty)


def algorithm(config):
    """Dual averaging: the models stay sparse although they are averaged."""
    return cofed.FedDualAvg(client_lr=float(config["client-lr"]))
