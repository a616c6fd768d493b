# The two commands of the README: `make demo` and `make test`. Both work on a fresh machine.
PYTHON ?= python3
BIN := .venv/bin

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

.PHONY: demo test test-slow test-network check format bench clean

demo: .venv/installed          ## the curse of primal averaging, in under a minute
	$(BIN)/cofed demo

test: .venv/installed check    ## lint, types and every fast test
	$(BIN)/pytest -n 2 -m "not slow and not network"

test-slow: .venv/installed     ## the tests that take long
	$(BIN)/pytest -n 2 -m slow

test-network: .venv/installed  ## real processes over Flower on loopback; NETWORK picks tests, as pytest's -k
	$(BIN)/pytest -n 0 -m network -v --durations=0 $(if $(NETWORK),-k "$(NETWORK)")

check: .venv/installed         ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: .venv/installed        ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/installed         ## rounds per second beside a NumPy loop
	$(BIN)/python -m benchmarks.rounds
	$(BIN)/python -m benchmarks.gossip

clean:
	rm -rf .venv build dist
