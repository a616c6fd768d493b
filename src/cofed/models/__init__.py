"""Models: how a parameter pytree predicts from the features of ONE sample.

A model is a description without parameters: `init(key, x, outputs)` makes them from the shape of one sample and
the number of outputs that the loss asks for (None: a single number), and `model(w, x)` predicts. Any equinox
module with `__call__(x)` serves as a model too: its floating arrays are the parameters.
"""

from cofed.models.base import AbstractModel
from cofed.models.equinox_model import EquinoxModel
from cofed.models.linear import Linear, Trace, Weights
from cofed.models.networks import CNN, MLP, Layer, Layers

__all__ = ["CNN", "MLP", "AbstractModel", "EquinoxModel", "Layer", "Layers", "Linear", "Trace", "Weights"]
