# Everything runs in .venv, which is made on first use. PYTHON picks the interpreter.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CORE   := $(VENV)/.installed
MODELS := $(VENV)/.installed-with-models
STAMP  := $(VENV)/.installed-to-develop
# Installed first and separately, so that an index with CPU builds provides it.
TORCH  ?= torch==2.13.0

.PHONY: demo demo-model demo-train demo-search teaches test test-slow fuzz fuzz-coverage test-trainers test-more-trainers install-lines audit test-vllm test-lower-bounds test-pythons release-check soak soak-server soak-kills soak-judge check bench pages docs clean

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

demo: $(CORE)
	@$(BIN)/rag-rewards score examples/arena.jsonl --recipe arena --table
	@$(BIN)/rag-rewards score examples/truthrl.jsonl --recipe truthrl --table
	@$(BIN)/rag-rewards score examples/ctrl-rag.jsonl --recipe ctrl-rag --table

# Log-probabilities by a model of half a million weights, which is part of the repository.
TINY := --model rag_rewards/tiny_world/checkpoint \
        --document-form '{text} [{label}] .' --document-separator ' '
demo-model: $(MODELS)
	@export TRANSFORMERS_VERBOSITY=error && \
	$(BIN)/rag-rewards score examples/tiny-world.jsonl --table \
	    --recipe ctrl-rag --set on_missing_support=zero $(TINY) && \
	$(BIN)/rag-rewards explain examples/tiny-world.jsonl --id ben-wrong-citation \
	    --recipe ctrl-rag $(TINY)

# GRPO by TRL's own trainer, in its environment, which is made when it is missing (1.6 GB).
TRL := build/trainers/trl
demo-train:
	@PYTHON=$(PYTHON) tests/trainers/make_environment.sh trl $(TRL)
	@$(TRL)/bin/python -m rag_rewards.tiny_world.demo -o build/tiny-world/curve.svg

# A search agent, with a reward for its answer alone and with turn credit.
demo-search:
	@PYTHON=$(PYTHON) tests/trainers/make_environment.sh trl $(TRL)
	@PYTHONPATH=benchmarks $(TRL)/bin/python -m tiny_search.demo -o build/tiny-world/search.svg

# The papers' ablations, and the learning adversary: two to three hours on two cores.
TEACHES := truthrl truthrl_ablations ctrl_rag ctrl_rag_baselines ground_grpo ground_grpo_ablations \
	lear lear_detached lear_paradigms arena arena_accuracy adversary
teaches:
	@PYTHON=$(PYTHON) tests/trainers/make_environment.sh trl $(TRL)
	@for each in $(TEACHES); do $(TRL)/bin/python benchmarks/teaches/$$each.py || exit 1; done

# On all cores, in five minutes on two. Tests of many seconds are marked as slow. Tests on Ray form a
# group that one process runs, so that they share a cluster.
test: $(STAMP)
	$(BIN)/python -m pytest -n auto -m "not slow" --cov --cov-report=
	@$(BIN)/coverage report --fail-under=95 --skip-covered

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadgroup -m slow

# Property tests with new random examples each time, and many more of them than `make test` tries.
FUZZ ?= tests
fuzz: $(STAMP)
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

fuzz-coverage: $(FUZZ_VENV)/.installed
	PYTHONPATH=adapters $(FUZZ_VENV)/bin/python tests/fuzz/coverage_guided.py \
	    --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS)

# Inside the real trainers, each in an environment of its own (1 to 2 GB), made when it is missing.
TRAINERS ?= trl verl ms_swift openrlhf
test-trainers:
	@for trainer in $(TRAINERS); do \
	    echo "== $$trainer"; \
	    PYTHON=$(PYTHON) tests/trainers/make_environment.sh $$trainer build/trainers/$$trainer && \
	    build/trainers/$$trainer/bin/python -m pytest -o filterwarnings=default \
	        tests/trainers/$$trainer || exit 1; \
	done

# Resolves the commands that install the trainers, with uv and a package index, in about two minutes.
install-lines: $(STAMP)
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

audit: $(AUDIT)/.installed
	$(AUDIT)/bin/uv pip compile pyproject.toml $(AUDIT_EXTRAS:%=--extra %) --generate-hashes \
	    --quiet --upgrade --python-version $(AUDIT_PYTHON) \
	    --output-file $(AUDIT)/requirements.txt
	$(AUDIT)/bin/cyclonedx-py requirements $(AUDIT)/requirements.txt --pyproject pyproject.toml \
	    --mc-type library --output-reproducible --output-file $(AUDIT)/bom.json
	$(AUDIT)/bin/pip-audit --requirement $(AUDIT)/requirements.txt --strict --disable-pip \
	    --require-hashes --progress-spinner off

# Trainers that continuous integration does not install.
MORE_TRAINERS ?= verifiers tinker axolotl skyrl nemo_gym
test-more-trainers:
	@$(MAKE) --no-print-directory test-trainers TRAINERS="$(MORE_TRAINERS)"

# Against a real vLLM server on the CPU, in an environment of its own (3 GB), which serves verl's
# trainer in its own as well.
VLLM ?= build/vllm
test-vllm: $(STAMP)
	test -x $(VLLM)/bin/python || PYTHON=$(PYTHON) tests/on_vllm/make_environment.sh $(VLLM)
	RAG_REWARDS_VLLM_PYTHON=$(VLLM)/bin/python $(BIN)/python -m pytest tests/on_vllm
	PYTHON=$(PYTHON) tests/trainers/make_environment.sh verl build/trainers/verl
	RAG_REWARDS_VLLM_PYTHON=$(VLLM)/bin/python build/trainers/verl/bin/python -m pytest \
	    -o filterwarnings=default tests/on_vllm/test_verl_on_vllm.py

# With the oldest versions of the dependencies that pyproject.toml allows.
test-lower-bounds: $(STAMP)
	$(BIN)/python tests/lower_bounds/run.py build/lower-bounds

# Long tests, about half an hour each on two cores. The server: 1,000,000 requests with faults, and
# 10,000 slow connections.
soak: soak-server soak-kills soak-judge
soak-server: $(STAMP)
	$(BIN)/python tests/soak/server_soak.py

# 200 kills of commands and their workers at random moments, in about 20 minutes.
soak-kills: $(STAMP)
	$(BIN)/python tests/soak/kills.py --output benchmarks/results/soak-kills.md

# 40 kills of runs with a judge, in about 5 minutes.
soak-judge: $(STAMP)
	$(BIN)/python tests/soak/judge_kills.py --output benchmarks/results/soak-judge.md

# The wheel in an empty environment for each version of Python on this machine: the same bytes of all
# outputs, and a fast part of the tests.
BUILDER := build/builder
$(BUILDER)/.installed:
	$(PYTHON) -m venv $(BUILDER)
	$(BUILDER)/bin/python -m pip install --quiet --disable-pip-version-check build twine uv
	touch $@

test-pythons: $(BUILDER)/.installed
	$(BUILDER)/bin/python tests/release/pythons.py build/pythons

# What a release needs: also the metadata, the extras for each version of Python, and the speed of the
# rules, whose page this writes. It needs a package index, a quiet machine and a quarter of an hour.
release-check: test-pythons $(CORE)
	$(BUILDER)/bin/twine check --strict build/pythons/dist/*.whl build/pythons/dist/*.tar.gz
	$(BUILDER)/bin/python tests/release/extras.py
	$(BIN)/python benchmarks/rules.py --strict

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The pages and parts of pages that are written from the code and from results.
pages: $(CORE)
	$(BIN)/python docs/build_hardened.py
	$(BIN)/python docs/build_hardening_cost.py
	$(BIN)/python docs/build_inserts.py
	$(BIN)/python docs/build_languages.py
	$(BIN)/python docs/build_marked_blocks.py
	$(BIN)/python docs/build_matrix.py
	$(BIN)/python docs/build_papers.py
	$(BIN)/python docs/build_recipes.py

# The site, in build/site.
docs: pages
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(CORE)
	$(BIN)/python benchmarks/rules.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
