"""Flower has an environment of its own (`make test-network`). Elsewhere these tests are not collected; where it is
installed, none of them is skipped."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("flwr") else ["*.py"]
