"""Try all cases of the table, or those of the names or parts that are given, and count."""

import importlib
import json
import os
import sys
import tempfile
import time
from collections import Counter

os.environ["JAX_TRACEBACK_FILTERING"] = "off"  # where an error comes from is what is asked
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"

PARTS = ("calls", "calls_of_data", "calls_of_engine", "commands")
VERDICTS = ("refused", "right", "raw", "silent")


def main(arguments: list[str]) -> int:
    """Print the counts, by verdict, and what went wrong; --json is one line for programs, --every=4 tries a quarter."""
    from tests.bad_inputs.calls import CALLS
    from tests.bad_inputs.judge import Case, cases, limit_memory

    as_json = "--json" in arguments
    every = int(next((one.partition("=")[2] for one in arguments if one.startswith("--every=")), "1"))
    parts = [part for part in PARTS if part in arguments] or list(PARTS)
    wanted = [one for one in arguments if not one.startswith("--") and one not in PARTS]
    for part in parts:
        importlib.import_module(f"tests.bad_inputs.{part}")
    names = [name for name in CALLS if not wanted or any(f"{name}.".startswith(f"{one}.") for one in wanted)]
    if "calls" not in parts and not wanted:  # it comes with every part, for its examples
        names = [name for name in names if CALLS[name].__module__ != "tests.bad_inputs.calls"]
    limit_memory()
    done: list[Case] = []
    for name in names:
        began = time.perf_counter()
        os.chdir(tempfile.mkdtemp())  # what a case writes under an odd name goes there
        done += cases(name, CALLS[name](), every)
        if not as_json:
            print(f"{name}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    if "commands" in parts and not wanted:
        from tests.bad_inputs import commands

        os.chdir(tempfile.mkdtemp())
        done += commands.cases(every)
    counts = Counter(case.verdict for case in done)
    bad = [case for case in done if case.verdict in ("raw", "silent")]
    if as_json:
        print(json.dumps({"counts": counts, "bad": [vars(case) for case in bad], "names": names}))
    else:
        for case in bad:
            print(f"{case.verdict:6} {case.where} = {case.value}  {case.words}")
        print(f"{len(done)} inputs tried: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
