# The two commands of the README: `make demo` and `make test`. Both work on a fresh machine.
PYTHON ?= python3
BIN := .venv/bin

.venv/cofed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable .
	touch $@

.venv/installed: .venv/cofed
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

.PHONY: demo test test-slow browser test-browser test-network test-network-heart check format bench bench-peers race benchopt reproduce reproduce-full docs docs-serve test-docs test-package test-lowest lock site clean

demo: .venv/cofed              ## the curse of primal averaging, in under a minute
	$(BIN)/cofed demo

test: .venv/installed check    ## lint, types and every fast test
	$(BIN)/pytest -n 2 -m "not slow and not network and not docs"

test-slow: .venv/installed     ## the tests that take long
	$(BIN)/pytest -n 2 -m slow

browser:                       ## a browser and its driver, installed where they are missing
	@if { command -v chromium || command -v google-chrome; } && command -v chromedriver; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then root=; elif command -v sudo; then root=sudo; \
	else echo "there is no chromium with its chromedriver here, and only root can install them" >&2; exit 1; fi; \
	$$root timeout 300 apt-get update && DEBIAN_FRONTEND=noninteractive \
	  $$root timeout 900 apt-get install --yes --no-install-recommends chromium chromium-driver

test-browser: .venv/installed browser  ## the pages in a real browser
	CI=true $(BIN)/pytest -m browser tests/report tests/fitting tests/watch tests/sites/audit

# Flower holds other packages back, so it has an environment of its own; FLWR=1.40 takes that version, in another one.
FLWR ?=
ROOM := .venv-network$(FLWR)

$(ROOM)/installed: pyproject.toml
	$(PYTHON) -m venv $(ROOM)
	$(ROOM)/bin/pip install --quiet --upgrade pip
	$(ROOM)/bin/pip install --quiet --editable '.[dev,flower,privacy]' $(if $(FLWR),'flwr==$(FLWR).*')
	touch $@

# What every commit must pass: all but the real processes, and of these one method's equality, one fit's, and killed servers.
HEART := not (test_network or test_fit or test_site_processes or test_refusals or test_watch) or (three_supernodes and FedDualAvg) or server_killed \
  or processes_give_the_model or (test_site_processes and killed_server)

test-network: $(ROOM)/installed  ## Flower's room: real processes on loopback; NETWORK picks tests, as pytest's -k
	$(ROOM)/bin/pyright --pythonpath $(ROOM)/bin/python --project tests/flower/pyright.json
	$(ROOM)/bin/pytest -n 0 -v --durations=0 -W default::DeprecationWarning tests/flower $(if $(NETWORK),-k "$(NETWORK)")

test-network-heart:            ## the heart of it
	$(MAKE) test-network NETWORK="$(HEART)"

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
	$(BIN)/python -m benchmarks.tuning

bench-peers: .venv/installed   ## beside FedJAX, pfl and Flower, each in its own environment; DATA=folder with MNIST
	$(if $(DATA),COFED_DATA=$(DATA)) $(BIN)/python -m benchmarks.peers

race: .venv/installed          ## every algorithm on a battery of problems, and the page and the README's table of it
	$(BIN)/cofed race --page docs/race --readme README.md

benchopt:                      ## the benchopt benchmark, in an environment of its own
	$(PYTHON) -m venv .venv-benchopt
	.venv-benchopt/bin/pip install --quiet benchopt skglm .
	.venv-benchopt/bin/benchopt run benchmarks/benchopt -n 12 -r 1 --no-display

reproduce: .venv/installed     ## every experiment of the papers, on its small setup; DATA=folder with MNIST and Haxby
	$(BIN)/cofed reproduce --all --quick $(if $(DATA),--data $(DATA))

reproduce-full: .venv/installed ## the papers' sizes: hours; what is finished is kept, and the page is written
	$(BIN)/cofed reproduce --all $(if $(DATA),--data $(DATA)) --page docs/results

.venv-docs/installed: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install --quiet --upgrade pip
	.venv-docs/bin/pip install --quiet --editable '.[docs]'
	touch $@

# Pages made from code and the gallery's results are kept below docs/, so that what did not change is not made again.
docs: .venv-docs/installed     ## the site, in docs/_build/html; a broken link, a missing name or a failing example stops it
	.venv-docs/bin/codespell README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md CITATION.cff .github paper docs src examples
	.venv-docs/bin/sphinx-build -W --keep-going -b html docs docs/_build/html

docs-serve: docs               ## the site on this machine's port 8000
	.venv-docs/bin/python -m http.server --bind 127.0.0.1 --directory docs/_build/html 8000

test-docs: docs .venv/installed browser  ## the code of the pages, and the site in a real browser
	CI=true $(BIN)/pytest -n 2 -m "docs and not slow" tests/documentation tests/test_docs.py

test-package:                  ## wheel and sdist, built, installed into a clean environment and run from another folder
	rm -rf build/package && mkdir -p build/package
	$(PYTHON) -m venv build/package/tools && build/package/tools/bin/pip install --quiet build
	build/package/tools/bin/python -m build --outdir build/package/dist .
	$(PYTHON) -m venv build/package/clean && build/package/clean/bin/pip install --quiet --only-binary :all: build/package/dist/*.whl
	cd / && PYTHONPATH= $(CURDIR)/build/package/clean/bin/cofed doctor
	cd build/package && clean/bin/cofed demo --quick --out demo && test -s demo/demo.png
	$(PYTHON) -m venv build/package/source && build/package/source/bin/pip install --quiet build/package/dist/*.tar.gz
	cd build/package && source/bin/cofed demo --quick --out from-source && test -s from-source/demo.png

# Everything that is asked for by name at its lowest version: the examples of all public names, the identities, the estimators' heart,
# the command line's words, experiment files.
test-lowest: .venv-lock/installed  ## the lower bounds of pyproject.toml, in an environment of their own
	rm -rf .venv-lowest && $(PYTHON) -m venv .venv-lowest
	.venv-lock/bin/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct --editable '.[dev]'
	.venv-lowest/bin/cofed doctor
	.venv-lowest/bin/pytest -n 2 -m "not slow and not network and not docs" -W default::DeprecationWarning tests/test_project.py tests/algorithms/test_identities.py \
	  tests/regularizers tests/sites/test_other_processes.py tests/estimators/test_agreement.py tests/test_cli.py tests/experiments/test_files.py

# What a site installs, with versions and hashes: for every system and Python, from pyproject.toml and what builds cofed.
lock: .venv-lock/installed     ## requirements/site.txt anew
	.venv-lock/bin/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'])" \
	  | .venv-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --annotation-style line --custom-compile-command "make lock" --extra flower --extra privacy \
	  --output-file requirements/site.txt pyproject.toml -

.venv-lock/installed:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet uv
	touch $@

site:                          ## an environment with exactly what is locked, and cofed
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/pip install --quiet --require-hashes --only-binary :all: -r requirements/site.txt
	.venv-site/bin/pip install --quiet --no-deps --no-build-isolation .

clean:
	rm -rf .venv .venv-benchopt .venv-docs .venv-lock .venv-lowest .venv-network* .venv-peers .venv-site build dist docs/_build docs/gallery docs/api docs/algorithms docs/regularizers docs/commands.rst
