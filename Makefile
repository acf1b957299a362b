# Everything runs in .venv, which is made on first use. PYTHON picks the interpreter.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CORE   := $(VENV)/.installed
MODELS := $(VENV)/.installed-with-models
STAMP  := $(VENV)/.installed-to-develop
# Installed first and separately, so that an index with CPU builds provides it.
TORCH  ?= torch==2.13.0

# A target with a description after ## is listed by `make help`, under the last line with ##@.
.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\#.*/\1/p' $(firstword $(MAKEFILE_LIST)))
help: ## list the targets
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } \
	    /^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# The package alone is all that `make demo` needs; `make demo-model` needs torch and transformers,
# tests and checks their tools as well.
$(CORE): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $(CORE)

$(MODELS): $(CORE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[transformers]"
	touch $(MODELS)

$(STAMP): $(MODELS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $(STAMP)

##@ Try
demo: $(CORE) ## score the examples of three recipes
	@$(BIN)/rag-rewards score examples/arena.jsonl --recipe arena --table
	@$(BIN)/rag-rewards score examples/truthrl.jsonl --recipe truthrl --table
	@$(BIN)/rag-rewards score examples/ctrl-rag.jsonl --recipe ctrl-rag --table

# Log-probabilities by a model of half a million weights, which is part of the repository.
TINY := --model rag_rewards/tiny_world/checkpoint \
        --set models.document_form='{text} [{label}] .' --set models.document_separator=' '
demo-model: $(MODELS) ## score with log-probabilities of a small model
	@export TRANSFORMERS_VERBOSITY=error && \
	$(BIN)/rag-rewards score examples/tiny-world.jsonl --table \
	    --recipe ctrl-rag --set on_missing_support=zero $(TINY) && \
	$(BIN)/rag-rewards explain examples/tiny-world.jsonl --id ben-wrong-citation \
	    --recipe ctrl-rag $(TINY)

# The log-probabilities of SmolLM2, whose folder is made once in the cache of the user (540 MB).
demo-lm: $(MODELS) ## score with a language model of 135 million weights (93 MB)
	@PYTHONPATH=benchmarks $(BIN)/python -m language_model.demo

# GRPO by TRL's own trainer, in its environment, which is made when it is missing (1.6 GB).
TRL := build/trainers/trl
demo-train: ## train with GRPO in the tiny world (1.6 GB)
	@PYTHON=$(PYTHON) tests/trainers/make_environment.sh trl $(TRL)
	@$(TRL)/bin/python -m rag_rewards.tiny_world.demo -o build/tiny-world/curve.svg

# A search agent, with a reward for its answer alone and with turn credit.
demo-search: ## train a search agent in the tiny world (1.6 GB)
	@PYTHON=$(PYTHON) tests/trainers/make_environment.sh trl $(TRL)
	@PYTHONPATH=benchmarks $(TRL)/bin/python -m tiny_search.demo -o build/tiny-world/search.svg

# The papers' ablations, and the learning adversary: three to four hours on two cores.
TEACHES := truthrl truthrl_ablations ctrl_rag ctrl_rag_baselines ground_grpo ground_grpo_ablations \
	lear lear_detached lear_paradigms arena arena_accuracy truthrl_methods ground_grpo_methods \
	lear_methods arena_methods truthrl_types truthrl_sizes ground_grpo_types \
	arena_types adversary
teaches: ## repeat the ablations of the papers (3 to 4 hours)
	@PYTHON=$(PYTHON) tests/trainers/make_environment.sh trl $(TRL)
	@for each in $(TEACHES); do $(TRL)/bin/python benchmarks/teaches/$$each.py || exit 1; done

##@ Test
# Without files of byte code, each process of the tests compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

# Tests of many seconds are marked as slow. Slow tests on Ray form a group that one process runs, so
# that they share a cluster.
test: $(STAMP) ## run the fast tests on all cores (9 minutes on two)
	$(BIN)/python -m pytest -n auto -m "not slow"

# A measurement doubles the time of tests, so that only the tests of the code that turns a response
# into a score run with it. Together, both runs are the fast tests.
MEASURED := $(addprefix tests/,text matching rewards recipes test_compose.py test_recipe_object.py \
	metrics/test_claim_metrics.py)
coverage: $(STAMP) ## run the fast tests, and measure the branch coverage of the rewards
	$(BIN)/python -m pytest -n auto -m "not slow" $(MEASURED) --cov --cov-report=
	@$(BIN)/coverage report --fail-under=95 --skip-covered
	$(BIN)/python -m pytest -n auto -m "not slow" $(MEASURED:%=--ignore=%)

test-slow: $(STAMP) ## run the tests that are marked as slow
	$(BIN)/python -m pytest -n auto --dist loadgroup -m slow

# In a copy of the source, with places that change each time.
mutate: $(STAMP) ## change the source in 200 places, and list the changes that no test finds (hours)
	$(BIN)/python tests/mutation/mutate.py

##@ Fuzz
# Property tests with new random examples each time, and many more of them than `make test` tries.
FUZZ ?= tests
fuzz: $(STAMP) ## run the property tests with many random examples
	$(BIN)/python -m pytest -n auto -m hypothesis --hypothesis-profile fuzz $(FUZZ)

# The fuzz tests with inputs that reach new code, by atheris, in an environment of its own.
FUZZ_TARGETS ?=
FUZZ_SECONDS ?= 60
FUZZ_VENV    := build/fuzz
$(FUZZ_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(FUZZ_VENV)
	$(FUZZ_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --editable ".[parquet,html,judge,server]" "atheris>=3" "hypothesis>=6.140" pytest numpy
	touch $@

fuzz-coverage: $(FUZZ_VENV)/.installed ## run the fuzz tests with inputs that reach new code (atheris)
	PYTHONPATH=adapters $(FUZZ_VENV)/bin/python tests/fuzz/coverage_guided.py \
	    --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS)

##@ Test with other programs and versions
# Inside the real trainers, each in an environment of its own (1 to 2 GB), made when it is missing.
# Two trainers are tested at a time, each with one thread.
SYNC     := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
# OpenEnv is in the environment of TRL.
ALSO_trl := tests/trainers/openenv
TRAINERS ?= $(shell $(PYTHON) rag_rewards/trainers.py --quick)
test-trainers: ## run the tests inside TRL, verl, ms-swift and OpenRLHF (1 to 2 GB each)
	@test -n "$(strip $(TRAINERS))" || { echo "no trainer: set TRAINERS to names, or PYTHON to a" \
	    "Python that runs rag_rewards/trainers.py" >&2; exit 2; }
	@$(MAKE) --no-print-directory --jobs=2 $(SYNC) $(TRAINERS:%=trainer-%)

trainer-%:
	@echo "== $*"
	@PYTHON=$(PYTHON) tests/trainers/make_environment.sh $* build/trainers/$*
	@OMP_NUM_THREADS=1 build/trainers/$*/bin/python -m pytest -o filterwarnings=default \
	    tests/trainers/$* $(ALSO_$*)

# Resolves the commands that install the trainers, with uv and a package index, in about two minutes.
install-lines: $(STAMP) ## resolve the commands that install the trainers (network)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python tests/install/resolve.py

# The newest dependencies that the package and its extras allow: their bill of materials (CycloneDX),
# and the known vulnerabilities. Each vulnerability makes the target fail. It needs a package index
# and the advisories of PyPI. The tools have an environment of their own.
AUDIT        := build/audit
AUDIT_PYTHON ?= 3.12
AUDIT_EXTRAS := parquet zstd tables html transformers http vllm nli semantic judge trl server ray otel
$(AUDIT)/.installed:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check uv pip-audit cyclonedx-bom
	touch $@

audit: $(AUDIT)/.installed ## list the dependencies and their known vulnerabilities (network)
	$(AUDIT)/bin/uv pip compile pyproject.toml $(AUDIT_EXTRAS:%=--extra %) --generate-hashes \
	    --quiet --upgrade --python-version $(AUDIT_PYTHON) \
	    --output-file $(AUDIT)/requirements.txt
	$(AUDIT)/bin/cyclonedx-py requirements $(AUDIT)/requirements.txt --pyproject pyproject.toml \
	    --mc-type library --output-reproducible --output-file $(AUDIT)/bom.json
	$(AUDIT)/bin/pip-audit --requirement $(AUDIT)/requirements.txt --strict --disable-pip \
	    --require-hashes --progress-spinner off

# Trainers that continuous integration does not install.
test-more-trainers: ## run the tests inside the other trainers
	@$(MAKE) --no-print-directory test-trainers \
	    TRAINERS="$$($(PYTHON) rag_rewards/trainers.py --more)"

# Against a real vLLM server on the CPU, in an environment of its own (3 GB), which serves verl's
# trainer in its own as well.
VLLM ?= build/vllm
test-vllm: $(STAMP) ## run the tests against a real vLLM server (3 GB)
	test -x $(VLLM)/bin/python || PYTHON=$(PYTHON) tests/on_vllm/make_environment.sh $(VLLM)
	RAG_REWARDS_VLLM_PYTHON=$(VLLM)/bin/python $(BIN)/python -m pytest tests/on_vllm
	PYTHON=$(PYTHON) tests/trainers/make_environment.sh verl build/trainers/verl
	RAG_REWARDS_VLLM_PYTHON=$(VLLM)/bin/python build/trainers/verl/bin/python -m pytest \
	    -o filterwarnings=default tests/on_vllm/test_verl_on_vllm.py

# With the oldest versions of the dependencies that pyproject.toml allows.
test-lower-bounds: $(STAMP) ## run tests with the oldest supported dependencies
	$(BIN)/python tests/lower_bounds/run.py build/lower-bounds

##@ Soak
# Long tests, about half an hour each on two cores. The server: 1,000,000 requests with faults, and
# 10,000 slow connections.
soak: soak-server soak-kills soak-judge ## run all long tests
soak-server: $(STAMP) ## send 1,000,000 requests with faults to real servers
	$(BIN)/python tests/soak/server_soak.py

# 200 kills of commands and their workers at random moments, in about 20 minutes.
soak-kills: $(STAMP) ## kill commands and their workers 200 times, and compare the output
	$(BIN)/python tests/soak/kills.py --output benchmarks/results/soak-kills.md

# 40 kills of runs with a judge, in about 5 minutes.
soak-judge: $(STAMP) ## kill runs with a faulty judge 40 times
	$(BIN)/python tests/soak/judge_kills.py --output benchmarks/results/soak-judge.md

##@ Release
# The wheel in an empty environment for each version of Python on this machine: the same bytes of all
# outputs, and a fast part of the tests.
BUILDER := build/builder
$(BUILDER)/.installed:
	$(PYTHON) -m venv $(BUILDER)
	$(BUILDER)/bin/python -m pip install --quiet --disable-pip-version-check build twine uv
	touch $@

test-pythons: $(BUILDER)/.installed ## test the built package with each version of Python
	$(BUILDER)/bin/python tests/release/pythons.py build/pythons

# What a release needs: also the metadata, the extras for each version of Python, and the speed of the
# rules, whose page this writes. It needs a package index, a quiet machine and half an hour.
release-check: coverage test-pythons ## check what a release needs: coverage, metadata, extras, speed
	$(BUILDER)/bin/twine check --strict build/pythons/dist/*.whl build/pythons/dist/*.tar.gz
	$(BUILDER)/bin/python tests/release/extras.py
	$(BIN)/python benchmarks/rules.py --strict

##@ Check and document
# What mypy reads: the package, and the libraries whose types it checks.
CHECK := build/check
$(CHECK)/.installed: pyproject.toml
	$(PYTHON) -m venv $(CHECK)
	$(CHECK)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --editable ".[judge,otel,server,tables]" fastapi mypy numpy ruff types-PyYAML
	touch $@

check: $(CHECK)/.installed ## run ruff and mypy --strict, in a small environment of their own
	$(CHECK)/bin/ruff check .
	$(CHECK)/bin/ruff format --check .
	$(CHECK)/bin/mypy

# The pages and parts of pages that are written from the code and from results.
pages: $(CORE) ## write the pages, lists and counts that follow from the code
	$(BIN)/python docs/build_environments.py
	$(BIN)/python docs/build_hardened.py
	$(BIN)/python docs/build_hardening_cost.py
	$(BIN)/python docs/build_inserts.py
	$(BIN)/python docs/build_languages.py
	$(BIN)/python docs/build_marked_blocks.py
	$(BIN)/python docs/build_papers.py
	$(BIN)/python docs/build_recipes.py
	$(BIN)/python docs/build_runs.py

# The site, in build/site.
docs: pages ## build the documentation site in build/site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(CORE) ## measure the speed of the rules
	$(BIN)/python benchmarks/rules.py

clean: ## remove the environment and all caches
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
