"""What takes two cores by itself, beside the same on one, in a process of its own: JAX's devices are fixed at start.

python -m tests.engine.cores_cases          cofed first: prints how far each case is off
python -m tests.engine.cores_cases late     JAX first: prints what is said
"""

import json
import os
import sys
import warnings

import jax
import numpy as np
from tests.engine.mesh_cases import off

import cofed
from cofed.engine import spreading
from cofed.engine.spec import RunSpec

PROBLEM = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(0.02))
SETTINGS = {"rounds": 12, "local_steps": 2, "batch_size": 3, "evaluate_every": 3, "progress": False}
RATES = (0.001, 1e8, 0.01, 3e8, 0.05)  # an odd number, so that one device has fewer; two diverge


def federation():
    rng = np.random.default_rng(3)
    sizes = (9, 4, 12, 7, 5)
    return cofed.Federation.from_arrays([(X := rng.normal(size=(n, 4)), X @ np.r_[1, -1, 0, 2.0]) for n in sizes])


def eager() -> None:
    """Have jobs as small as these pay; else the model says, rightly, that they do not."""
    spreading.SECONDS, spreading.MESSAGE, spreading.BANDWIDTH, spreading.PAYS = 0, 0, 1e99, 1


def compare() -> dict[str, float]:
    data, found = federation(), {}
    eager()
    job = PROBLEM, data, cofed.FedDualAvg(0.05)
    plain = {name: value for name, value in SETTINGS.items() if name != "progress"}
    spread = spreading.spread(RunSpec(*job, **plain), None).mesh
    assert spread is not None
    assert spread.size == jax.local_device_count() == 2
    for more in ({"clients_per_round": 4}, {}):
        one, two = (cofed.run(*job, **SETTINGS, **more, cores=cores) for cores in (1, None))
        found[f"run {more}"] = max(off(two.model.coef, one.model.coef), off(*(r.history["loss"] for r in (two, one))))
    assert cofed.forecast(*job, **plain, seconds=0.01).bytes_on_wire == two.communication.total
    grid = [cofed.FedDualAvg(rate) for rate in RATES]
    one, two = (cofed.tune(PROBLEM, data, grid, **SETTINGS, cores=cores) for cores in (None, 2))
    assert two.table["diverged"].tolist() == one.table["diverged"].tolist()
    assert one.table["diverged"].sum() == 2
    for name, curves in one.curves.items():
        assert np.array_equal(np.isfinite(two.curves[name]), np.isfinite(curves))
        finite = np.isfinite(curves)
        found[f"tune {name}"] = off(two.curves[name][finite], curves[finite])
    assert "XLA_FLAGS" not in os.environ or "collective" not in os.environ["XLA_FLAGS"]
    return found


def late() -> list[str]:
    data = federation()
    eager()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        cofed.run(PROBLEM, data, cofed.FedDualAvg(0.05), **SETTINGS)
    return [str(one.message) for one in said]


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    if sys.argv[1:] == ["late"]:
        print(json.dumps(late()))
    else:
        print(json.dumps(compare()))
