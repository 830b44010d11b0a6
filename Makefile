# Every target sets up .venv first; `make PYTHON=/path/to/python3.11 ...` chooses another interpreter.
PYTHON ?= $(shell for python in python3.11 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && echo $$python && break; done)
TORCH := $(shell grep '^torch==' constraints.txt)
RUN ?= runs/curriculum
SCALE ?= 1.0

.PHONY: curriculum test check bench clean

curriculum: .venv/ready
	.venv/bin/soulsgraph curriculum --run $(RUN) $(if $(RESUME),--resume,--scale $(SCALE))

test: .venv/ready
	.venv/bin/pytest

check: .venv/ready
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

bench: .venv/ready
	.venv/bin/soulsgraph bench sim
	.venv/bin/soulsgraph bench tick
	.venv/bin/soulsgraph bench train

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist

.venv/ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "expected Python 3.11 as python3.11 or python3, found neither;" \
		"install it or name it: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet $(TORCH)
	.venv/bin/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@
