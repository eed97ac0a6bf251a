# The verbs of this project. Each does the set-up that it needs, once, without root rights:
#   make demo    three small models traced, asked, replayed, swept: the real ttnn, no hardware
#   make test    everything, on ttnn's mock boards and with torch; with CI=true nothing may be left out
#   make check   format, lint, types, layers, unit tests: under a minute
#   make docs    the site of docs/ in build/site; a warning or a broken link is an error
#   make bench   ratios measured side by side
#   make clean   remove what the others made here
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help demo test check docs bench clean format constraints test-other-pythons test-parts

VENV := .venv
BIN := $(VENV)/bin
# Applied to build environments too, so that nothing is installed unpinned.
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# With it, each worker of pytest would compile all tests again in each run.
unexport PYTHONDONTWRITEBYTECODE
RECIPE := pyproject.toml constraints.txt hatch_build.py $(wildcard src/optrove/frameworks/_*.[ch])
INSTALL := tools/install $(BIN)/python --editable

help:
	@sed -n 's/^#   //p' Makefile

define MAKE_VENV
@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
  python=$$(tools/find-python 3.12 3.10) || { \
    echo "optrove runs the real ttnn, which has wheels for CPython 3.12 and 3.10 on Linux x86_64." >&2; \
    echo "Neither was found (PATH, pyenv, uv). Install one, or name it: make PYTHON=/path/to/python3.12" >&2; \
    exit 1; }; \
  echo "Setting up $(VENV) with $$python" >&2; \
  "$$python" -m venv --clear $(VENV); }
endef

# Three depths of set-up. The demo needs no torch, and of the test tools only pytest.
$(VENV)/demo.stamp: $(RECIPE)
	$(MAKE_VENV)
	@echo "Installing optrove and ttnn" >&2
	@$(INSTALL) '.[ttnn]' pytest
	@touch $@

$(VENV)/parts.stamp: $(RECIPE)
	$(MAKE_VENV)
	@echo "Installing optrove, ttnn and test tools" >&2
	@$(INSTALL) '.[ttnn,test]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp
	@echo "Installing torch, test and development tools (torch is large)" >&2
	@$(INSTALL) '.[ttnn,torch,test,dev]'
	@touch $@

demo: $(VENV)/demo.stamp
	@$(BIN)/optrove demo

# Four workers on two processors: many tests wait, for a deadline or a process.
test: $(VENV)/test.stamp test-other-pythons
	OPTROVE_BROWSER="$$(tools/get-browser)" OPTROVE_MISSING_PYTHONS="$(MISSING_PYTHONS)" \
	  $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

# One test for each part that comes from outside: is this machine fit for the tests? Without torch.
PARTS := "tests/trove/test_adding.py::test_an_import_is_read_as_it_was_added[postgresql]" \
  tests/web/test_report.py::test_the_table_of_ops_is_sorted_and_searched \
  tests/ttnn/test_ray_engine.py::test_real_operations_get_the_same_verdicts_as_on_this_machine \
  tests/ttnn/test_mock.py::test_the_same_board_can_be_entered_again

test-parts: $(VENV)/parts.stamp
	OPTROVE_BROWSER="$$(tools/get-browser)" $(BIN)/python -m pytest $(PARTS)

# The base package promises 3.10 to 3.13, with or without a ttnn wheel. Each Python found here runs
# what can differ between Pythons, in an environment of its own: live objects turned into records
# and back, the recorder, the journal, the store, a worker process, and the commands as such.
# They run side by side, each in one process: two workers for each in turn would collect all tests
# twice as often.
# Looking for them takes a second: other targets do without.
ifneq ($(filter test test-other-pythons,$(MAKECMDGOALS)),)
WANTED_PYTHONS := 3.10 3.11 3.13
OTHER_PYTHONS := $(foreach version,$(WANTED_PYTHONS),$(if $(shell PYTHON= tools/find-python $(version)),$(version)))
MISSING_PYTHONS := $(filter-out $(OTHER_PYTHONS),$(WANTED_PYTHONS))
endif
OF_EVERY_PYTHON := tests/golden $(addprefix tests/unit/, capture frameworks journal model pytest_plugin \
  runconfig serializer tracing trove cli/test_main.py cli/test_ask.py replay/test_workers.py \
  test_metrics.py test_public_names.py test_settings.py)

test-other-pythons: $(OTHER_PYTHONS:%=$(VENV)-%/test.stamp)
	@echo "Testing without frameworks on Python $(or $(OTHER_PYTHONS),(no other one is here))" >&2
	@$(if $^,$(MAKE) --no-print-directory --jobs=3 --output-sync=target $(OTHER_PYTHONS:%=test-python-%))

test-python-%: $(VENV)-%/test.stamp
	$(VENV)-$*/bin/python -m pytest -q -p no:cacheprovider -m "not slow" $(OF_EVERY_PYTHON)

.PRECIOUS: $(VENV)-%/test.stamp
$(VENV)-%/test.stamp: $(RECIPE)
	@echo "Setting up $(VENV)-$*" >&2
	@$(VENV)-$*/bin/python -m pip --version >/dev/null 2>&1 || "$$(PYTHON= tools/find-python $*)" -m venv --clear $(VENV)-$*
	@tools/install $(VENV)-$*/bin/python --editable '.[test]'
	@touch $@

check: $(VENV)/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -n 2 -m "not slow" tests/unit

format: $(VENV)/test.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/test.stamp
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

# In an environment of its own: the site needs none of the frameworks.
$(VENV)-docs/docs.stamp: $(RECIPE)
	@$(VENV)-docs/bin/python -m pip --version >/dev/null 2>&1 || "$$(tools/find-python 3.12 3.13 3.11 3.10)" -m venv --clear $(VENV)-docs
	@echo "Installing MkDocs" >&2
	@tools/install $(VENV)-docs/bin/python '.[docs]'
	@touch $@

docs: $(VENV)-docs/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html" >&2

# Renew the pinned versions for every supported Python and platform; needs uv on the PATH.
constraints:
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.10 --no-header --no-annotate --upgrade -o constraints.txt

clean:
	rm -rf $(VENV) $(VENV)-3.* $(VENV)-docs build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
