# Every target sets up .venv first; `make PYTHON=/path/to/python3.11 ...` chooses another interpreter.
PYTHON ?= $(shell for python in python3.11 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && echo $$python && break; done)
TORCH := $(shell grep '^torch==' constraints.txt)
RUN ?= runs/curriculum
SCALE ?= 1.0

.PHONY: curriculum test check bench clean screen

curriculum: .venv/ready
	.venv/bin/soulsgraph curriculum --run $(RUN) $(if $(RESUME),--resume,--scale $(SCALE))

test: .venv/ready screen
	.venv/bin/python -m soulsgraph.precompile
	.venv/bin/pytest -n auto --dist loadfile --no-loadscope-reorder

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
