# Python 3.11+, make and pip are all that is needed. Everything is installed into .venv.
PYTHON ?= python3
# For machines without a GPU: make test TORCH_INDEX="--extra-index-url https://download.pytorch.org/whl/cpu"
TORCH_INDEX ?=
BIN := .venv/bin
# the venv of the libraries that benchmarks compare with
PEERS ?= .venv-peers
# Python keeps the bytecode of what it imports, whatever the environment says: without it, every process spends two seconds on compiling torch
export PYTHONDONTWRITEBYTECODE :=
# --no-compile: only what is imported is compiled, a small part of what is installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(TORCH_INDEX) -c constraints.txt

.PHONY: reproduce standard standard-fit paper gallery test test-all test-browser chromium test-compile bench bench-authors bench-beyond bench-equations bench-training docs release-check lint clean

.venv/lab: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e ".[lab]"
	@touch $@

# in one go: what lab asks for is part of it
.venv/dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e ".[dev]"
	@touch .venv/lab $@

$(PEERS)/done: benchmarks/peers.txt constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH_INDEX) -c constraints.txt torch numpy
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/peers.txt
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

reproduce: .venv/lab  ## the paper's table as a smoke run, on the screen and in runs/quick, with a page to open: runs/quick/report.html
	$(BIN)/inbounds table --preset quick
	$(BIN)/inbounds report runs/quick

standard: .venv/lab  ## the table in earnest, an hour or more on 2 cores, dataset by dataset; results/table
	for d in sphere disk so3 protein flock cs; do $(BIN)/inbounds table --preset standard --datasets $$d --results results/table || exit 1; done
	$(BIN)/inbounds table --preset standard

# the rows on fitted sets, beside those of make standard: ten minutes more
ALL := regular,proj-iaa,exp-iaa,flow-iaa,prob,proj-faa,exp-faa,flow-faa,wide-faa,wide-iaa,fit-iaa,fit-faa
standard-fit: standard  ## the standard table with the rows Fit IAA and Fit FAA
	for d in sphere disk so3 protein flock cs; do $(BIN)/inbounds table --preset standard --datasets $$d --models $(ALL) --results results/table || exit 1; done

# the paper's full protocol: finished stacks are shipped in results/paper and are not run again; stop it whenever you like
PAPER_ROWS := regular,proj-faa,prob,exp-faa,proj-iaa,exp-iaa
paper: .venv/lab  ## the full protocol, hours of one core at low priority, small cells first; see docs/paper.md
	nice -n 19 $(BIN)/inbounds table --preset paper --yes --workers 1 --datasets sphere,disk,so3,protein --models $(PAPER_ROWS) --shipped results/paper --export results/paper

gallery: .venv/lab  ## noise projected on every set: table in the terminal, pictures in results/gallery
	$(BIN)/inbounds gallery --out results/gallery

test: .venv/dev  ## every law; a hundred thousand points for each set, one set for each kernel under the transforms
	$(BIN)/python -m pytest -m "not inductor_all and not nightly and not browser"

test-all: .venv/dev  ## the same with a million points for each set, random laws, every set under every transform; an hour
	$(BIN)/python -m pytest -m "not inductor_all and not browser" --hypothesis-profile nightly

test-browser: .venv/dev chromium  ## the report and its planner in a headless Chromium
	$(BIN)/python -m pytest -n 0 -m browser tests/browser

chromium:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	if [ "$$(id -u)" = 0 ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver; \
	else echo "make test-browser needs a browser. Write: sudo apt-get install chromium chromium-driver" >&2; exit 1; fi

test-compile: .venv/dev  ## every set through inductor; several minutes
	$(BIN)/python -m pytest -m inductor_all

bench: $(PEERS)/done  ## speed and violation against peers, one thread; writes results/geometry.json
	$(PEERS)/bin/python benchmarks/geometry.py

bench-beyond: $(PEERS)/done  ## optimisers, distributions, ODEs and flows beside their peers, a quarter of an hour; writes results/beyond*.json
	$(PEERS)/bin/python benchmarks/beyond.py
	$(PEERS)/bin/python benchmarks/beyond_ode.py
	$(PEERS)/bin/python benchmarks/beyond_flows.py

.venv-equations/done: benchmarks/equations.txt constraints.txt
	$(PYTHON) -m venv .venv-equations
	.venv-equations/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH_INDEX) -c constraints.txt torch numpy
	.venv-equations/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/equations.txt
	.venv-equations/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

.venv-equations-jax/done: benchmarks/equations-jax.txt
	$(PYTHON) -m venv .venv-equations-jax
	.venv-equations-jax/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/equations-jax.txt
	@touch $@

bench-equations: .venv-equations/done .venv-equations-jax/done  ## sets from equations against their peers, a quarter of an hour; writes results/equations.json
	.venv-equations/bin/python benchmarks/equations.py

bench-authors: .venv-equations/done .venv-equations-jax/done  ## the schemes of inbounds compare next to their authors' code, seconds; writes results/compare/authors.json
	.venv-equations/bin/python benchmarks/authors.py $(if $(CHECKOUTS),--checkouts $(CHECKOUTS))

bench-training: .venv/dev  ## a stack of ten models against plain loops, one thread; writes results/training.json
	$(BIN)/python benchmarks/training.py

.venv/docs: .venv/dev
	$(PIP) -e ".[docs]"
	@touch $@

docs: .venv/docs  ## the documentation as a site in site/; a warning is an error
	$(BIN)/python -m mkdocs build --strict

release-check: .venv/dev  ## builds wheel and sdist, and tries both: the wheel in an empty venv with torch alone
	$(BIN)/python scripts/release_check.py -- $(TORCH_INDEX) -c constraints.txt

lint: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/pyright -p pyright-strict.json

clean:
	rm -rf .venv .venv-peers .venv-equations .venv-equations-jax site dist
