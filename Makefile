# Every target sets up .venv first, tests and pages with the tools of development too (.venv/dev); `make
# PYTHON=/path/to/python3.12 ...` chooses another interpreter.
SUITABLE := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c '$(SUITABLE)' 2>/dev/null && echo $$python && break; done)
TORCH := $(subst <=,==,$(shell grep '^torch<=' constraints.txt))
# PyPI's torch is CUDA's, with gigabytes of libraries: without a GPU pip is shown the builds for processors too.
TORCH_INDEX := https://download.pytorch.org/whl/cpu
PIP := .venv/bin/python -m pip --disable-pip-version-check
RUN ?= runs/curriculum
SCALE ?= 1.0
# How many faults `make chaos` lets happen in one run, and where its log and table are kept.
CHAOS_FAULTS ?= 100
CHAOS_OUT ?= docs/results/chaos
# What draws the diagrams of the site, and what lets it be searched where it is opened from a file.
MERMAID := 11.9.0
IFRAME_WORKER := 1.0.4
# What draws a fight in three dimensions; its script is in the package, and `make three` fetches it anew.
THREE := 0.170.0
THREE_SCRIPT := platform/soulsgraph/pages/three.min.js
# Several files of tests beside each other; one whose worker dies is named (CONTRIBUTING.md).
TESTS := .venv/bin/pytest --dist loadfile --no-loadscope-reorder --max-worker-restart=0
# Which fights the film and the pictures of the pages show.
FILMED ?= iudex-full-best-0 --seed 1000028
PICTURED ?= iudex-phase1-best-0 --seed 1000003

# The pictures of README and docs: fights of agents of the zoo, a person's window, an own skill, and pages. It needs
# Chromium, and trains three agents: a few minutes.
.PHONY: pictures
pictures: .venv/dev
	.venv/bin/soulsgraph watch $(FILMED) --only-fight --file docs/fight.gif
	.venv/bin/soulsgraph watch $(PICTURED) --only-fight --seconds 5 --file docs/fight.png
	.venv/bin/soulsgraph watch $(PICTURED) --seconds 5 --file docs/watch.png
	.venv/bin/python site/picture_environments.py docs/environments
	.venv/bin/python site/picture_pages.py

# The notebooks as pages with what they show: it trains a run and a reproduction where there are none, a few minutes.
.PHONY: notebooks
notebooks: .venv/dev
	.venv/bin/python site/execute_notebooks.py

.PHONY: curriculum test test-quick test-slow test-release oldest pythons installs chaos check bench zoo docs docs-test docs-write tables clean screen

# The published results of continual learning on seeds and bosses that nothing was chosen on; each goes on where it was
# stopped. Skills are those of timing bosses, or selected where the shifts are labelled.
CONTINUAL := .venv/bin/soulsgraph study continual
CONTINUAL_RUNS ?= runs/continual
CONFLICTS := --seeds 10 --first-seed 340 --rows-every 5
REPEATS := --seeds 10 --first-seed 1020 --rows-every 5
SHIFTS := --seeds 10 --first-seed 980
MOVES := --skills dodge,heal_attack
.PHONY: continual
continual: .venv/ready
	$(CONTINUAL) S8 --methods all $(SHIFTS) --run $(CONTINUAL_RUNS)/S8
	$(CONTINUAL) S8 --methods kept $(SHIFTS) $(MOVES) --run $(CONTINUAL_RUNS)/S8-dodge-heal-attack
	$(CONTINUAL) S8 --methods packnet $(SHIFTS) --set packnet_units=192 --run $(CONTINUAL_RUNS)/S8-packnet-192
	$(CONTINUAL) S20 --methods kept,newest,clonex,replay $(REPEATS) $(MOVES) --run $(CONTINUAL_RUNS)/S20
	$(CONTINUAL) R20 --methods kept,newest,clonex $(REPEATS) $(MOVES) --run $(CONTINUAL_RUNS)/R20
	$(CONTINUAL) O20 --methods kept,newest,clonex $(REPEATS) $(MOVES) --run $(CONTINUAL_RUNS)/O20
	$(CONTINUAL) C20 --methods kept,newest,clonex $(CONFLICTS) $(MOVES) --run $(CONTINUAL_RUNS)/C20
	$(CONTINUAL) S20 --methods kept $(REPEATS) --graph end-to-end --preset fast --skills end_to_end \
		--run $(CONTINUAL_RUNS)/S20-end-to-end
	$(CONTINUAL) S20 --methods base $(REPEATS) $(MOVES) --held-out 8 --run $(CONTINUAL_RUNS)/S20-base
	$(CONTINUAL) S100 --methods base --set base_tasks=20 --seeds 10 --first-seed 370 --rows-every 100 $(MOVES) \
		--held-out 8 --run $(CONTINUAL_RUNS)/S100-base-20

# The published agents of `five-skills`, on seeds that nothing was chosen on, and what each skill is worth to them: by `best` with
# the paper's decisions, twice and three times as many, and by `wide`; preset, scale, first and last seed.
FIVE_RUNS ?= runs/five-skills
.PHONY: five-skills
five-skills: .venv/ready
	for agents in "best 1 1100 1109" "best 2 1100 1109" "best 3 1100 1109" "wide 1 1120 1139"; do \
		set -- $$agents; \
		for seed in $$(seq $$3 $$4); do \
			.venv/bin/soulsgraph curriculum --scenario five-skills --preset $$1 --scale $$2 --seed $$seed \
				--run $(FIVE_RUNS)/$$1-$$2-$$seed || exit; \
		done; \
		.venv/bin/soulsgraph evaluate $(FIVE_RUNS)/$$1-$$2-* --what ablations --episodes 200 --seed 5000000 \
			--out docs/results/five-skills/$$1-$$2 || exit; \
	done

curriculum: .venv/ready
	.venv/bin/soulsgraph train --run $(RUN) --scale $(SCALE)

# All but what is marked slow.
test: .venv/dev screen
	.venv/bin/python -m soulsgraph.runs.workers
	$(TESTS) -n auto -m "not slow"

# Of that the world's without running games, the mind's, and what holds for the tree.
test-quick: .venv/dev screen
	.venv/bin/python -m soulsgraph.runs.workers
	$(TESTS) -n logical -m "not slow" --ignore=tests/envs/games tests/envs tests/policies \
		tests/test_structure.py tests/test_docs.py

# What is marked slow: trainings, clusters, studies; twenty minutes.
test-slow: .venv/dev screen
	.venv/bin/python -m soulsgraph.runs.workers
	$(TESTS) -n auto -m slow

# What takes too long for every change: whoever resolves an issue runs it once, from a clean clone. An hour and a half.
test-release: .venv/dev screen
	.venv/bin/python -m soulsgraph.runs.workers
	$(TESTS) -n auto -m release -v
	$(MAKE) oldest installs chaos docs-test

# Also where it is switched off outside: the tests start hundreds of processes, each of which would compile the modules.
test test-quick test-slow test-release: export PYTHONDONTWRITEBYTECODE :=

# Trains, evaluates and records by the oldest of each dependency that pyproject.toml admits, from PyPI: a few minutes.
oldest: .venv/dev
	.venv/bin/python tests/installations.py oldest

# The core's wheel and the environments' tests on every other Python that this machine has, two at once.
pythons: .venv/dev
	.venv/bin/pytest -n logical --dist load -m release -v tests/test_pythons.py

# Installs in every way, each into a fresh environment, and plays and trains there: a quarter of an hour. `make installs
# WAYS=newest INTERPRETER=python3.13` does so in one way on another Python; OUT=docs/results/installations keeps figures.
installs: .venv/dev
	.venv/bin/python tests/installations.py $(WAYS) --python $(or $(INTERPRETER),.venv/bin/python) $(if $(OUT),--out $(OUT))

# Every test that is marked chaos, wherever it is: faults of a fleet one by one and in a row, messages of any bytes.
chaos: SHELL := bash
chaos: .SHELLFLAGS := -o pipefail -c
chaos: .venv/dev
	.venv/bin/python -m soulsgraph.runs.workers
	mkdir -p build $(CHAOS_OUT)
	CHAOS_FAULTS=$(CHAOS_FAULTS) CHAOS_OUT=$(CHAOS_OUT) .venv/bin/pytest -m chaos -v -s --durations=0 2>&1 \
		| tee build/chaos.log; ended=$$?; mv build/chaos.log $(CHAOS_OUT)/chaos.log; exit $$ended

# Linux tests keys and windows on a virtual screen; pygame opens its window through the two libraries.
screen:
	@test "$$(uname -s)" = Linux || exit 0; \
	missing="$$(command -v Xvfb > /dev/null || echo xvfb)"; \
	for library in libX11.so.6:libx11-6 libXext.so.6:libxext6; do \
		$(PYTHON) -c "import ctypes; ctypes.CDLL('$${library%:*}')" 2> /dev/null || missing="$$missing $${library#*:}"; \
	done; \
	test -n "$$missing" || exit 0; \
	install="apt-get install -y $$(echo $$missing)"; \
	if test "$$(id -u)" = 0 && command -v apt-get > /dev/null; then \
		echo "installing the tests' virtual screen: $$install"; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$install -qq; \
	else \
		echo "expected the tests' virtual screen, found these Debian packages missing:" $$missing"; type: sudo $$install" >&2; \
		exit 2; \
	fi

check: .venv/dev
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

bench: .venv/dev
	.venv/bin/python benchmarks/bench.py sim
	.venv/bin/python benchmarks/bench.py tick
	.venv/bin/python benchmarks/bench.py train

# Trains the agents of the zoo anew, going on where it was stopped, and plays each once more: a quarter of an hour of
# one core. A finished run in runs/zoo is not trained again: remove it to begin anew.
zoo: .venv/ready
	.venv/bin/python benchmarks/zoo_agents.py build
	.venv/bin/python benchmarks/zoo_agents.py verify --out docs/results/zoo
	.venv/bin/python benchmarks/zoo_agents.py compare --out docs/results/zoo

# Runs every command and piece of code of the pages, but for those that say why not.
docs-test: .venv/dev screen
	.venv/bin/pytest -m docs -s tests/test_pages.py tests/test_one_pc.py tests/test_two_machines.py \
		tests/platform/calibrate/test_tutorial.py

# Rewrites what the pages show as printed, by running it, and their tables, from the files of results.
docs-write: .venv/dev screen
	.venv/bin/pytest -m docs -s tests/test_pages.py --rewrite-pages
	$(MAKE) tables

# The tables of README and docs from the files of results; reference pages from the code. Seconds.
tables: .venv/dev
	PYTHONPATH=benchmarks .venv/bin/python site/write_tables.py

# The pages as a site in build/site, which loads nothing from another host. Two of its scripts come from npm.
docs: .venv/dev build/mermaid-$(MERMAID).min.js build/iframe-worker-$(IFRAME_WORKER).js
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --config-file site/mkdocs.yml
	@echo "open build/site/index.html"

build/mermaid-$(MERMAID).min.js: PACKED := mermaid-$(MERMAID) dist/mermaid.min.js
build/iframe-worker-$(IFRAME_WORKER).js: PACKED := iframe-worker-$(IFRAME_WORKER) shim/index.js
build/three-$(THREE).module.min.js: PACKED := three-$(THREE) build/three.module.min.js
build/three-$(THREE).LICENSE: PACKED := three-$(THREE) LICENSE
build/mermaid-$(MERMAID).min.js build/iframe-worker-$(IFRAME_WORKER).js build/three-$(THREE).module.min.js \
		build/three-$(THREE).LICENSE:
	@command -v npm > /dev/null || { echo "expected npm, which brings scripts of pages, found none;" \
		"install it: apt-get install npm" >&2; exit 2; }
	mkdir -p build
	set -- $(PACKED); unpacked=build/$$1.unpacked; mkdir -p $$unpacked; \
	npm pack --silent --pack-destination $$unpacked $${1%-*}@$${1##*-} > /dev/null && \
	tar -xzf $$unpacked/$$1.tgz -C $$unpacked package/$$2 && \
	mv $$unpacked/package/$$2 $@ && rm -r $$unpacked

.PHONY: three
three: .venv/ready build/three-$(THREE).module.min.js build/three-$(THREE).LICENSE
	.venv/bin/python site/script_of_module.py $(wordlist 2,3,$^) THREE $(THREE_SCRIPT)

clean:
	rm -rf build .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist

.venv/ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "expected Python 3.11 to 3.13 as python3.11, python3.12, python3.13 or python3, found none;" \
		"install one or name it: make PYTHON=/path/to/python3.12" >&2; exit 2; }
	@$(PYTHON) -c '$(SUITABLE)' 2> /dev/null || { echo "expected Python 3.11 to 3.13," \
		"found $$($(PYTHON) --version 2>&1 | head -n 1) as $(PYTHON); name another: make PYTHON=/path/to/python3.12" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	@echo "installing what plays, 0.5 GB, then what trains, 1.8 GB or with CUDA more, once: some minutes"
	$(PIP) install -c constraints.txt -e '.[watch,video]'
	# While that is not used: it takes two processors, and pip mostly a network.
	@.venv/bin/python -c "from rich.console import Console; from soulsgraph.runs.workers import precompile; \
		precompile(Console(quiet=True), training=False)" & \
	{ extra=; nvidia-smi -L > /dev/null 2>&1 || extra="--retries 1 --extra-index-url $(TORCH_INDEX)"; \
	$(PIP) install --no-deps $$extra $(TORCH) && $(PIP) install -c constraints.txt -e '.[train,watch,video]'; }; \
	installed=$$?; wait; exit $$installed
	touch $@

.venv/dev: .venv/ready
	$(PIP) install -c constraints.txt -e '.[dev]'
	touch $@
