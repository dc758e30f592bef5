# Every target works from a bare checkout: the first one to run creates .venv and installs into it.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
EVERYTHING := .venv/.everything

.DEFAULT_GOAL := help
.PHONY: help demo test test-all format bench matrix sbom release-check docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing vfg and its development tools into .venv; the first time takes minutes"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

$(EVERYTHING): $(INSTALLED)
	@echo "installing what only the slow tests need: ray, dask, spark, playwright and axe"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,all,dask,spark]' 'moto[server]' s3fs playwright axe-playwright-python
	touch $@

demo: $(INSTALLED) ## run the demonstration
	$(BIN)/python examples/demo.py

test: $(INSTALLED) ## check format, lint and types; run the fast tests and every docstring example
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto -m "not slow"

# Tests of one file run in one process: they share fitted models, browsers and clusters. pytest leaves
# with status 5 when no test is marked slow.
test-all: test $(EVERYTHING) ## the same, then the slow tests and the documentation
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile -m slow || test $$? -eq 5
	$(MAKE) docs

format: $(INSTALLED) ## format the code and apply the fixes of the linter
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

BENCHMARKS := imputation density likelihood speed bigtable gaussian_fit layerwise universality

bench: $(INSTALLED) ## run the main benchmarks at small sizes; without --quick they take hours
	@for name in $(BENCHMARKS); do \
		echo "experiments.benchmarks.$$name"; \
		$(BIN)/python -m experiments.benchmarks.$$name --quick || exit 1; \
	done; echo "results: outputs/"

matrix: $(INSTALLED) ## test the wheel on every Python that is installed, and with the oldest dependencies
	$(BIN)/python tools/matrix.py $(ROWS)

sbom: $(INSTALLED) ## write the bill of materials into dist/
	$(BIN)/python tools/sbom.py

release-check: $(INSTALLED) ## build wheel and sdist, check them, and run the README's code from the wheel
	rm -rf dist
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[release]'
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/python tools/matrix.py --wheel dist/*.whl 3.11
	$(MAKE) sbom

docs: $(INSTALLED) ## build the documentation into docs/_build/html
	rm -rf docs/api  # pages of names that are gone
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean: ## remove caches and everything built; .venv stays
	rm -rf build dist docs/_build docs/api .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
