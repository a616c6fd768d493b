"""Every test runs in 64 bits, with strict promotion of dtypes and ranks: a silent cast would hide an error."""

import jax
from hypothesis import settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Compilation makes the first example slow and the rest fast, so a deadline per example says nothing.
settings.register_profile("cofed", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("cofed")
