"""Excess risk, where the truth is known: what the papers bound, measured."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import PyTree

from cofed import trees
from cofed.federation import Federation
from cofed.problem import Problem, like
