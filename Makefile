# Everything runs in an environment of its own, .venv, made from PYTHON with the locked packages in
# requirements/. Three layers, each with a stamp inside it: core (to predict and report), dev (to test
# and check), gpu (PyCUDA, built on the spot, so never part of the others).

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python -m
GEMMSIM := $(VENV)/bin/gemmsim
PIP := $(RUN) pip --disable-pip-version-check -qq install

CORE := $(VENV)/.core
DEV := $(VENV)/.dev
GPU := $(VENV)/.gpu
CUBLAS := $(VENV)/.cublas

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test fuzz check format golden registers docs bench measure lock wheel clean FORCE

help:
	@echo "make demo      predict the ladder for an H200, compare with the shipped records, write reports/"
	@echo "make test      run all tests (no GPU needed; ARGS='-k banks' for some of them)"
	@echo "make fuzz      run the property tests on new random examples (EXAMPLES=1000 each)"
	@echo "make check     lint, formatting, types"
	@echo "make format    bring the code into the form that check wants"
	@echo "make golden    write the golden predictions anew, to review in the diff"
	@echo "make registers compile the kernels for the table of registers (no GPU needed; minutes)"
	@echo "make docs      write docs/walk.md and its pictures anew, with the numbers of today"
	@echo "make bench     time the program itself"
	@echo "make bench-gpu time the kernels beside cuBLAS on this machine's GPU"
	@echo "make measure   run the ladder on this machine's GPU and compare with the predictions"
	@echo "make wheel     build the wheel and the source distribution in dist/"
	@echo "make lock      write requirements/ anew; UPGRADE=1 takes the newest versions"
	@echo "make clean     remove what make has made, except reports/"

demo: $(CORE)
	$(GEMMSIM) ladder 4096
	@echo
	$(GEMMSIM) compare
	@echo
	$(GEMMSIM) report --out reports >/dev/null
	@echo "The report is ready: open reports/index.html"

test: $(DEV)
	$(RUN) pytest --numprocesses auto --dist worksteal $(ARGS)

fuzz: $(DEV)
	EXAMPLES=$(or $(EXAMPLES),1000) $(RUN) pytest --numprocesses auto --dist worksteal -m 'property and not gpu' $(ARGS)

check: $(DEV)
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy

format: $(DEV)
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

golden: $(CORE)
	$(RUN) tests.golden

registers: $(DEV)
	$(RUN) campaigns.registers
	$(RUN) campaigns.register_streams

docs: $(CORE)
	$(RUN) docs.build

bench: $(CORE)
	$(RUN) benchmarks.speed
	$(RUN) benchmarks.occupancy
	$(RUN) benchmarks.search
	$(RUN) benchmarks.heuristics

bench-gpu: cuda $(CUBLAS)
	@mkdir -p reports
	$(RUN) benchmarks.cublas --out reports/cublas.jsonl

measure: cuda $(GPU)
	@mkdir -p reports
	$(GEMMSIM) measure --points campaigns/small.jsonl --out reports/measured.jsonl --resume
	$(GEMMSIM) compare reports/measured.jsonl

# What PyCUDA cannot be built or used without; asked before anything is built.
cuda:
	@missing=; \
	command -v nvcc >/dev/null || test -f "$(CUDA_ROOT)/include/cuda.h" || missing="a CUDA toolkit (nvcc on PATH, or \
	make measure CUDA_ROOT=/usr/local/cuda)"; \
	command -v nvidia-smi >/dev/null || $(PYTHON) -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null || \
	    missing="$${missing:+$$missing and }an NVIDIA driver (nvidia-smi or libcuda.so.1)"; \
	test -z "$$missing" || { echo "to measure, this machine lacks" $$missing >&2; exit 3; }

wheel: $(CORE)
	$(RUN) hatchling build

clean:
	rm -rf $(VENV) build dist .pytest_cache .hypothesis .ruff_cache .mypy_cache
	find gemmsim tests -name __pycache__ -exec rm -rf {} +

# The environment. It is made anew when it was not finished, when a lock has changed, when the checkout
# has moved, and when the Python that it was made from has changed or gone.
HOME_OF_ENV = pwd -P; $(VENV)/bin/python --version 2>/dev/null || echo none
ifneq ($(shell $(HOME_OF_ENV)),$(shell cat $(VENV)/.made 2>/dev/null))
$(VENV)/.made: FORCE
endif

$(VENV)/.made: $(wildcard requirements/*.txt)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "$(PYTHON) is not Python 3.11 or later; name one that is: make PYTHON=/path/to/python3"; exit 1; } >&2
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "$(PYTHON) cannot make environments; install its venv module (on Debian and Ubuntu: python3-venv)"; exit 1; } >&2
	@echo "making the environment $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)
	@($(HOME_OF_ENV)) > $@

$(CORE): pyproject.toml gemmsim/__init__.py $(VENV)/.made
	@echo "installing the packages of requirements/core.txt"
	@$(PIP) --only-binary :all: --requirement requirements/core.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): $(CORE)
	@echo "installing the packages of requirements/dev.txt, the CUDA compiler among them"
	@$(PIP) --only-binary :all: --requirement requirements/dev.txt
	@touch $@

$(GPU): $(CORE)
	@echo "installing the packages of requirements/gpu.txt; PyCUDA is built against this machine's CUDA toolkit"
	@$(PIP) --requirement requirements/gpu.txt >$(VENV)/gpu.log 2>&1 || \
	    { echo "PyCUDA could not be built, $(VENV)/gpu.log says why; it needs a C++ compiler and the CUDA toolkit, which, if it" \
	    "is there, can be named: make measure CUDA_ROOT=/usr/local/cuda"; exit 1; } >&2
	@touch $@

$(CUBLAS): $(GPU)
	@echo "installing cuBLAS, and the rest of requirements/beside.txt"
	@$(PIP) --requirement requirements/beside.txt
	@touch $@

# The locks: every package with its version and hashes, for the oldest Python that is supported. Each
# layer keeps to the versions of the one before.
LOCKER := build/lock
COMPILE = CUSTOM_COMPILE_COMMAND="make lock" $(LOCKER)/bin/python -m piptools compile --quiet --no-color \
    --generate-hashes --allow-unsafe --strip-extras --no-emit-options --build-deps-for editable \
    $(if $(UPGRADE),--upgrade) pyproject.toml

lock:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	    { echo "the locks are made with Python 3.11: make lock PYTHON=/path/to/python3.11"; exit 1; } >&2
	$(PYTHON) -m venv --clear $(LOCKER)
	$(LOCKER)/bin/python -m pip -qq install pip==26.3 pip-tools==7.6.2
	$(COMPILE) --output-file requirements/core.txt
	$(COMPILE) --output-file requirements/dev.txt --constraint requirements/core.txt \
	    --extra compile --extra test --extra check
	$(COMPILE) --output-file requirements/gpu.txt --constraint requirements/dev.txt --extra compile --extra gpu
	$(COMPILE) --output-file requirements/beside.txt --constraint requirements/gpu.txt \
	    --extra cublas --extra heuristics --extra cluster
