# `make demo` and `make test` are all a newcomer needs; both set up .venv on their first run.
# While you work, `make test-fast` says within a minute whether you broke something.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# A worker for each core, and a file stays with its worker, so that what a module trains is trained once.
# Files come in the order that tests/conftest.py gives them: those that take longest first.
PYTEST_MODULE := pytest --numprocesses auto --dist loadfile --no-loadscope-reorder
PYTEST := $(RUN)/$(PYTEST_MODULE)

# The tests start many processes: each would compile the package again, and pytest rewrite every test.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install browser checks demo docs test test-fast lint types architecture tests coverage fuzz faults audit fix clean

install: $(INSTALLED)

# The stamp is written last, so that an interrupted installation goes on at the next call.
# torch comes first: alone, pip takes the CPU build that our bounds then hold on to.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "cascader needs Python 3.11 or newer; found $$($(PYTHON) --version). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo,dev]'
	touch $@

demo: install
	$(RUN)/cascader demo

# The documents as a site, in build/site: a link or an anchor that leads nowhere ends it. `make test` builds it, too.
docs: install
	$(RUN)/python docs/make_site.py

test: lint checks tests

test-fast: lint
	$(PYTEST) -m "not slow"

lint: install
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .

# Side by side: each keeps one core busy.
checks: install
	$(MAKE) --no-print-directory -j2 types architecture

types: install
	$(RUN)/mypy

architecture: install
	$(RUN)/lint-imports

# The page is tested in Chromium, best in the one without windows, tabs and menus: there, a page takes a third of the
# time. Where there is none and none can be installed, those tests are skipped.
BROWSERS := chromium-headless-shell chromium
browser:
	@{ command -v chromium-headless-shell || command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null || \
		{ test "$$(id -u)" = 0 && apt-get update -qq && for name in $(BROWSERS); do \
			apt-get install -qq --no-install-recommends $$name && break; done; } >/dev/null 2>&1 || \
		echo "There is no Chromium: the tests of the page will be skipped. On Debian: apt-get install chromium-headless-shell"

# SlipCover stops watching a line once it was reached, so counting lines costs seconds; coverage.py made the tests take
# two fifths longer. What runs in other processes only (workers, a server, a killed fit) is not counted.
FLOOR := 98
COVERED := $(VENV)/coverage.json
SLIPCOVER := $(RUN)/python -m slipcover
tests: install browser
	$(SLIPCOVER) --json --out $(COVERED) -m $(PYTEST_MODULE) --durations=10
	@$(SLIPCOVER) --silent --merge $(COVERED) --out $(COVERED) --format json --fail-under $(FLOOR) || \
		{ echo "The tests reach less than $(FLOOR) % of the lines. To see the others: make coverage"; exit 2; }

# Fifty signals at random moments of every long command, bad disks, damaged files, clocks that jump; and a table.
# `make faults SEED=7` repeats the same moments. As root, disks are really full and read-only.
faults: install
	OMP_NUM_THREADS=1 $(RUN)/python -m tests.faults $(if $(SEED),--seed $(SEED))

# Ten thousand bad inputs in a quarter of an hour. `make fuzz TARGET=archives SEED=7 CASES=100` repeats a batch.
fuzz: install
	OMP_NUM_THREADS=1 $(RUN)/python -m tests.fuzz $(if $(TARGET),--target $(TARGET)) $(if $(SEED),--seed $(SEED)) $(if $(CASES),--cases $(CASES))

# After `make tests`: the lines that no test reached.
coverage:
	@$(SLIPCOVER) --skip-covered --merge $(COVERED) --out $(COVERED) --format json

# The installed packages against published advisories; pip-audit stays apart from what it looks at. Where it or the
# advisories cannot be reached, there is nothing to compare with: that is said, and is no failure.
AUDIT := $(VENV)-audit
audit: install
	@test -x $(AUDIT)/bin/pip-audit || { $(PYTHON) -m venv $(AUDIT) && \
		$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check pip-audit; } || true
	@PIPAPI_PYTHON_LOCATION=$(RUN)/python $(AUDIT)/bin/pip-audit --skip-editable --progress-spinner off --format json \
		2>$(AUDIT)/log | $(RUN)/python .ci/audit.py

fix: install
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

clean:
	rm -rf $(VENV) $(AUDIT) .cache dist build
