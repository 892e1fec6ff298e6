# make run        installs what is needed and starts the application on http://127.0.0.1:7860
# make test       installs what tests need as well, checks the code and runs the tests: something of everything
# make test-all   the same with every case of every test
# make test-fast  the unit tests that took no time when they last ran, for in between
# make test-long  simulations, the large sizes of statistical tests and measurements of time (docs/reliability.md)
# make test-paused  the tests of make test on a busy machine that stands still now and then (docs/reliability.md)
# make lint       the checks alone
# make test-engines  the plug-in for vLLM on vLLM's CPU build, in an environment of its own (docs/engines.md)
# make test-ray   runs of an experiment on a real Ray cluster of two nodes, in an environment of its own (docs/machines.md)
# make test-newest  the contract tests with the newest of what pyproject.toml allows, in an environment of its own
# make docs       docs/reference.md: every command, option, variable and column, as the program has them
# make freeze     what the program shows the outside, as tests/frozen holds it; a reviewer reads the diff
# make lock       the versions of everything, from the short lists requirements*.in
# make test-gpu   every method on a CUDA device, against the CPU (docs/performance.md)
# make coverage-table  how often intervals hold the truth, simulated and written into the documents
# make attack     tries to break it: kills, full disks, damaged files, hostile programs, foreign pages (docs/reliability.md)
#
# PYTHON=python3.12 make run   takes another Python; it must be 3.11 or later.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.requirements.stamp
DEVELOPMENT := $(VENV)/.requirements-dev.stamp
ENGINES := .venv-engines
RAY := .venv-ray
NEWEST := .venv-newest

PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
GATE := $(PYTEST) -m "not long and not wide"

.PHONY: run test gate test-all test-fast test-long test-paused test-engines test-ray test-newest test-gpu lint lock docs freeze attack coverage-table
.DELETE_ON_ERROR:

# What was compiled once is kept, whatever the machine says: each process of a test would compile all of it again.
export PYTHONDONTWRITEBYTECODE :=

run: $(RUNTIME)
	@$(BIN)/python app.py

# The checks run beside the tests, so that no core is idle; each says what it found, and make fails if one did.
test: $(DEVELOPMENT)
	@$(MAKE) --no-print-directory --jobs=2 gate lint

# One process of tests a core; a third would load all that they import once more.
gate: $(DEVELOPMENT)
	$(GATE) --durations=15

test-all: lint
	$(PYTEST) -m "not long" --durations=15

# After each change: all that took less than a tenth of a second when it last ran.
test-fast: $(DEVELOPMENT)
	$(BIN)/python -m pytest -n 2 -q --quick -m "not long and not wide" tests/unit

test-long: $(DEVELOPMENT)
	FSD_TEST_LONG=1 $(BIN)/python -m pytest -n 2 --dist loadfile tests/contract
	FSD_TEST_LONG=1 $(BIN)/python -m pytest -m long tests/unit tests/integration
	FSD_TEST_LONG=1 $(BIN)/python -m pytest -p no:xdist tests/ui/test_the_hour.py

# As on a machine of many tenants: three times in a row, and none may fail.
test-paused: $(DEVELOPMENT)
	for seed in 1 2 3; do $(BIN)/python -m tools.paused --seed $$seed $(GATE) || exit 1; done

test-engines: $(DEVELOPMENT) $(ENGINES)/.requirements.stamp
	FSD_ENGINES_PYTHON=$(ENGINES)/bin/python $(BIN)/python -m pytest -q -p no:xdist --timeout 3600 tests/engines

test-ray: $(DEVELOPMENT) $(RAY)/.requirements.stamp
	OMP_NUM_THREADS=1 $(RAY)/bin/python -m pytest -q -p no:xdist --timeout 1800 tests/ray

# What a wheel's user gets. torch is held: no later version has a build for CPUs in the registry.
test-newest:
	$(PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/python -m pip install --disable-pip-version-check $$(grep ^torch== requirements.in) . $$(sed -n 's/^\(pytest[^=]*\)=.*/\1/p' requirements-dev.in)
	$(NEWEST)/bin/python -m pip uninstall --yes --quiet fsd-lab
	$(NEWEST)/bin/python -m pytest -q -n 2 --dist loadfile --ignore tests/contract/test_one_state.py tests/contract
	$(NEWEST)/bin/python -m pip download --quiet --no-deps --dest $(NEWEST)/wheels vllm sglang
	$(NEWEST)/bin/python -m tools.engine_enumerations $(NEWEST)/wheels/*.whl

test-gpu: $(DEVELOPMENT)
	PYTHONHASHSEED=0 $(BIN)/python -m pytest -q -n 4 tests/gpu tests/contract/test_static.py

attack: $(DEVELOPMENT)
	@$(BIN)/python -m tools.attack

coverage-table: $(DEVELOPMENT)
	FSD_TEST_LONG=1 $(BIN)/python -m tools.coverage_table

lint: $(DEVELOPMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyrefly check

docs: $(RUNTIME)
	$(BIN)/python -m fsd_core docs > docs/reference.md

freeze: $(DEVELOPMENT)
	$(BIN)/python -m tools.freeze

# The versions of everything, from the short lists that people edit, for Python 3.11 and later. What is held stays where it
# can; `make lock UPGRADE=--upgrade` moves all. A torch brings the CUDA packages of its own build, or none.
RESOLVE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --custom-compile-command "make lock"

lock: $(DEVELOPMENT)
	$(RESOLVE) $(UPGRADE) requirements.in --output-file requirements.txt
	cp requirements.txt requirements-zerogpu.txt
	$(RESOLVE) requirements.in requirements-zerogpu.in --override requirements-zerogpu.in --output-file requirements-zerogpu.txt
	$(RESOLVE) $(UPGRADE) requirements-dev.in --output-file requirements-dev.txt

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "FSD Lab needs Python 3.11 or later, and '$(PYTHON)' was not found: install it, or name one with PYTHON=…"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("FSD Lab needs Python 3.11 or later; this is %d.%d. Name another one, such as: make run PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)

# Each module is compiled when it is first imported; most of them never are.
$(RUNTIME): requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile -r requirements.txt
	@touch $@

$(DEVELOPMENT): requirements-dev.txt $(RUNTIME)
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile -r requirements-dev.txt
	@touch $@

# vLLM and the plug-in, without what FSD Lab needs beside its rules. Where torch is built for CPUs, the torchvision and
# torchaudio of PyPI cannot be loaded beside it, and a text model needs neither.
$(ENGINES)/.requirements.stamp: engines/vllm/requirements-test.txt engines/vllm/pyproject.toml | $(BIN)/python
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --disable-pip-version-check -r engines/vllm/requirements-test.txt
	$(ENGINES)/bin/python -m pip uninstall --yes --quiet torchvision torchaudio torchcodec
	$(ENGINES)/bin/python -m pip install --disable-pip-version-check --no-deps -e . -e engines/vllm
	@touch $@

# Ray over what tests need anyway.
$(RAY)/.requirements.stamp: $(DEVELOPMENT)
	$(PYTHON) -m venv $(RAY)
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > $$($(RAY)/bin/python -c "import site; print(site.getsitepackages()[0])")/shared.pth
	$(RAY)/bin/python -m pip install --disable-pip-version-check "ray==2.60.0"
	@touch $@
