# The two words of the README are `demo` and `test`; people and CI use the same ones.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.bench-ready
ADAPTERS_READY := $(VENV)/.adapters-ready
RAY_READY := $(VENV)/.ray-ready
PEERS := .venv-peers
DOCS := .venv-docs

# Bytecode is kept, whatever the environment says: tests start thousands of processes, and each would spend 0.2 s on
# compiling the same modules.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test proofs test-all installed promises bench bench-events bench-loader bench-arrays bench-text bench-dedup bench-starting bench-scaling bench-projection check format lint types layers docs reference clean

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "penstock needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(BENCH_READY)
	@$(BIN)/python examples/demo.py

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal --ignore=tests/adapters -m "not proof"

# What only tests/adapters need (torch, jax, grain; about 1.4 GB): `test` does without them.
$(ADAPTERS_READY): $(READY) tests/adapters/requirements.txt constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/adapters/requirements.txt -c constraints.txt
	@touch $@

# The proofs that are too slow for `test`, without the heavy libraries: pyarrow imports pandas where it is installed,
# which takes 37 MB of every process, and proofs of memory are that exact.
proofs: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal --ignore=tests/adapters -m proof

# Everything: `test`, the slow proofs, the built packages, the docs site, and what needs the libraries.
test-all: test proofs installed docs $(ADAPTERS_READY)
	$(BIN)/python -m pytest tests/adapters -n 2

# Wheel and sdist, built, installed into a clean environment, and used there outside of the checkout.
installed: $(READY)
	$(BIN)/python tools/installed.py

# Ray, for the promises about clusters (about 260 MB).
$(RAY_READY): $(READY) constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[ray]' -c constraints.txt
	@touch $@

promises: $(READY) $(RAY_READY)
	PENSTOCK_THOROUGH=1 $(BIN)/python -m pytest tests/promises tests/prepare/tokenizers tests/base/stores tests/docs -n 2 --dist worksteal -vv

bench: $(READY)
	$(BIN)/python benchmarks/map_against_pyarrow.py

# What only the baselines need (DuckDB): no extra of penstock's own.
$(BENCH_READY): $(READY) benchmarks/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt
	@touch $@

# Simulated nodes beside what is projected for them. As root: a node is a cgroup with a quota of CPU time.
bench-projection: $(READY)
	$(BIN)/python -m benchmarks.projection --folder build/bench-projection

bench-events: $(BENCH_READY)
	$(BIN)/python benchmarks/events.py --events 20000000
	$(BIN)/python benchmarks/events.py --events 500000 --keys 18928 --workers auto --memory 2GB --repeat 3
	$(BIN)/python benchmarks/events.py --events 20000000 --skew
	$(BIN)/python benchmarks/events.py --tight

# The other loaders that ours is measured against pull in torch and more: in an environment of their own.
$(PEERS)/.ready: benchmarks/loader-requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[arrayrecord,loader]' -r $<
	@touch $@

bench-loader: $(READY) $(PEERS)/.ready
	$(BIN)/python -m benchmarks.loader --folder build/bench-loader --peers-python $(PEERS)/bin/python
	$(BIN)/python -m benchmarks.older_loaders --folder build/bench-loader --peers-python $(PEERS)/bin/python

bench-arrays: $(READY) $(PEERS)/.ready
	$(BIN)/python -m benchmarks.arrays --folder build/bench-arrays --peers-python $(PEERS)/bin/python

# The other text pipelines, which pull in torch and more, in an environment of their own.
$(PEERS)-text/.ready: benchmarks/text-requirements.txt constraints.txt
	$(PYTHON) -m venv $(PEERS)-text
	$(PEERS)-text/bin/python -m pip install --quiet --disable-pip-version-check -r $< -c constraints.txt
	$(PEERS)-text/bin/python -m pip install --quiet --disable-pip-version-check --no-deps text-dedup==0.4.0 click-option-group==0.5.9
	@touch $@

bench-text: $(READY) $(PEERS)-text/.ready
	$(BIN)/python -m benchmarks.corpus --folder build/bench-text
	$(BIN)/python -m benchmarks.text --folder build/bench-text --peers-python $(PEERS)-text/bin/python

bench-dedup: $(READY) $(PEERS)-text/.ready
	$(BIN)/python -m benchmarks.dedup --large --folder build/bench-dedup --peers-python $(PEERS)-text/bin/python

bench-starting: $(BENCH_READY)
	$(BIN)/python -m benchmarks.starting --folder build/bench-starting

bench-scaling: $(BENCH_READY)
	$(BIN)/python -m benchmarks.scaling --folder build/bench-scaling

check: lint types layers test

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy
	$(BIN)/mypy tools

layers: $(READY)
	$(BIN)/lint-imports
	$(BIN)/python tools/layers.py src/penstock

# The docs site, in build/site. It has an environment of its own, and needs no network once that is there.
$(DOCS)/.ready: docs/requirements.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

docs: $(DOCS)/.ready
	$(DOCS)/bin/python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env -d build/site-pages -c docs . build/site
	@echo "the docs site is build/site/index.html"

# The pages of docs/reference that are made from the code: the job file, stages, commands, Python.
reference: $(READY)
	$(BIN)/python tools/reference.py docs/reference

clean:
	rm -rf $(VENV) $(PEERS) $(PEERS)-text $(DOCS) demo build dist
