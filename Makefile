# Two commands do everything:  make lab  (work through the lessons)   make test  (check everything).
# Both set up .venv by themselves on first use. On Linux, `make lab CPU=1` takes PyTorch's small CPU build.
# Options of JupyterLab go into ARGS:  make lab ARGS="--no-browser --port 9999"

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
TORCH := $(shell sed -n 's/^ *"\(torch==[^"]*\)".*/\1/p' pyproject.toml)

TEACH := .venv-teach
NBGRADER := $(shell sed -n 's/^.*"\(nbgrader==[^"]*\)".*/\1/p' pyproject.toml)

.PHONY: help setup lab teach test test-all lessons release bench fuzz mutants lint clean
help:
	@echo "make lab      open the lessons in JupyterLab (in my_lessons/, your own copy)"
	@echo "make test     run every test that fits in a few minutes"
	@echo "make test-all run the long ones too"
	@echo "make lessons  rebuild lessons/, solutions/*.ipynb, docs/teaching/ and docs/glossary.md from solutions/*.py"
	@echo "make fuzz     drive the engine with random requests and failures for an hour (SECONDS=3600)"
	@echo "make mutants  plant faults, named and random: the tests must notice them (ARGS=\"random --count 20\")"
	@echo "make lint     ruff, mypy, codespell, links"
	@echo "make release  pack the course for a class, without solutions, into dist/"
	@echo "make teach    set up .venv-teach: nbgrader, beside everything in .venv"
	@echo "make setup    only set up .venv, with the real model"
	@echo "make clean    remove .venv, .venv-teach and build files (my_lessons/ is kept)"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"mini_engine needs Python 3.11 or newer, and {sys.executable} is {v.major}.{v.minor}. Try: make PYTHON=python3.11 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)

# Each stamp is made again only when pyproject.toml changed, so a second call costs nothing.
$(VENV)/.lab: pyproject.toml | $(BIN)/python
ifdef CPU
	$(BIN)/pip install --quiet "$(TORCH)" --index-url https://download.pytorch.org/whl/cpu
endif
	$(BIN)/pip install --quiet --editable .
	@$(BIN)/mini-engine download smollm2-135m || echo "The real model could not be installed; everything runs on the small one in data/. Try again later: $(BIN)/mini-engine download smollm2-135m"
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.lab
	$(BIN)/pip install --quiet --editable ".[test]"
	@touch $@

# What the bundle of `make release` leaves out: a command that needs it says so, before it sets anything up.
tests solutions benchmarks/common tools/mutants.py tools/release.py tools/nbgrader_course.py:
	@echo "make $(MAKECMDGOALS) needs $@, which is not in the bundle for a class: it is in the whole project" >&2; exit 2

# nbgrader adds menus to every JupyterLab that it shares an environment with: it gets one of its own, on top of .venv.
$(TEACH)/.done: pyproject.toml | $(VENV)/.test
	$(BIN)/python -m venv $(TEACH)
	@packages='import site; print(site.getsitepackages()[0])'; below=$$($(BIN)/python -c "$$packages"); \
	echo "import site; site.addsitedir('$$below')" > "$$($(TEACH)/bin/python -c "$$packages")/course.pth"
	$(TEACH)/bin/pip install --quiet "$(NBGRADER)"
	@ln -sfn "$(CURDIR)/$(VENV)/share/jupyter/nbconvert" $(TEACH)/share/jupyter/nbconvert
	@touch $@

setup: $(VENV)/.lab

teach: tools/nbgrader_course.py $(TEACH)/.done

lab: $(VENV)/.lab
	@$(BIN)/python tools/open_lab.py $(ARGS)

# One worker a core, each with one thread: OpenMP's spinning threads make small matrix products several times slower
# where cores are shared. Four at most: a worker and the kernel of its notebook hold about 2 GB.
test test-all: export OMP_NUM_THREADS := 1
PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses 4

test: tests $(TEACH)/.done
	$(PYTEST) -m "not slow"

test-all: tests $(TEACH)/.done
	$(PYTEST)

fuzz: tests $(VENV)/.test
	MINI_ENGINE_FUZZ_SECONDS=$(or $(SECONDS),3600) $(BIN)/python -m pytest -s tests/engine/test_state_machine.py

mutants: tools/mutants.py $(VENV)/.test
	$(BIN)/python tools/mutants.py $(ARGS)

lessons: solutions $(VENV)/.test
	$(BIN)/python tools/build_lessons.py
	$(BIN)/python tools/teaching.py
	$(BIN)/python tools/glossary.py

lint: tests $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/python -m pytest -q tests/quality/test_links.py

release: tools/release.py | $(BIN)/python
	$(BIN)/python tools/release.py

bench: benchmarks/common $(VENV)/.lab
	$(BIN)/pip install --quiet --editable ".[bench]"
	for script in benchmarks/*.py; do $(BIN)/python $$script || [ $$? -eq 2 ] || exit 1; done # 2: no GPU here, or no trace

clean:
	rm -rf $(VENV) $(TEACH) build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache
