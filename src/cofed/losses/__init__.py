"""Losses of one sample: functions of the model's prediction and the label. See `AbstractLoss` for the contract.

A loss is anything that maps `(prediction, y)` of ONE sample to a number, so a plain function serves as well. The engine
takes the mean over a client's samples. The classes here add what a function cannot say: which labels they accept, how
many outputs the model needs, when a prediction counts as correct, and the mathematics from which an estimator certifies
its fit.
"""

from cofed.losses.base import AbstractLoss, Label, Prediction
from cofed.losses.cox import AbstractPartialLikelihood, Breslow, Efron
from cofed.losses.deviance import Deviance
from cofed.losses.dual_room import DualRoom
from cofed.losses.function import FunctionLoss
from cofed.losses.huber import Huber
from cofed.losses.label_units import LabelMoments, LabelUnits
from cofed.losses.logistic import Logistic
from cofed.losses.negative_binomial import NegativeBinomial
from cofed.losses.poisson import Poisson, PoissonDeviance
from cofed.losses.quantile import SmoothQuantile
from cofed.losses.reweighted import Reweighted
from cofed.losses.site_class_intercepts import SiteClassIntercepts
from cofed.losses.site_intercepts import SiteIntercepts
from cofed.losses.softmax import Softmax
from cofed.losses.squared import Squared
from cofed.losses.tweedie import Gamma, Tweedie

__all__ = [
    "AbstractLoss",
    "AbstractPartialLikelihood",
    "Breslow",
    "Deviance",
    "DualRoom",
    "Efron",
    "FunctionLoss",
    "Gamma",
    "Huber",
    "Label",
    "LabelMoments",
    "LabelUnits",
    "Logistic",
    "NegativeBinomial",
    "Poisson",
    "PoissonDeviance",
    "Prediction",
    "Reweighted",
    "SiteClassIntercepts",
    "SiteIntercepts",
    "SmoothQuantile",
    "Softmax",
    "Squared",
    "Tweedie",
]
