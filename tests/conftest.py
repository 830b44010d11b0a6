"""Settings of every test: none depends on how busy the machine is, and files are tested beside each other."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

#: A worker may start a Ray and games of its own: with six on two processors the suite took longer than with four.
_MOST_WORKERS = 4

# Before numpy and torch are imported: threads of two workers would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Before gRPC is: a test may use Ray's before it imports what sets this.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Programs and Ray's workers find the fakes as the tests do.
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])

# As on a terminal, also where the suite runs in the background, which ignores both.
for number, usual in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
    if hasattr(signal, number):
        signal.signal(getattr(signal, number), usual)

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many workers `-n auto` starts: two for a processor, for tests of games and Ray mostly wait.

    `-n logical` starts one for a processor, where tests mostly compute.
    """
    from soulsgraph_envs.core.machine import usable_processors

    for_each = 1 if config.option.numprocesses == "logical" else 2
    return min(for_each * usable_processors(), _MOST_WORKERS)


#: The files that take longest, which one worker runs: at the end the others would wait for it.
_LONGEST = ("test_examples.py", "test_machines.py", "test_stand_ins.py", "test_supervise.py", "test_session.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest files; leave out what `make test-release` runs, unless it is asked for by its mark."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)
    for mark in ("chaos", "docs", "release"):
        if mark not in config.option.markexpr:
            config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(mark)])
            items[:] = [item for item in items if not item.get_closest_marker(mark)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-results", action="store_true", help="write what tests measure to docs/results")
    parser.addoption("--rewrite-pages", action="store_true", help="rewrite what the pages show as printed")


@pytest.fixture
def keep_result(request: pytest.FixtureRequest) -> Callable[[str, Mapping[str, Any]], None]:
    """Return what keeps a measurement in a file below docs/results, with its origin, where that is asked for."""
    from soulsgraph.results.origin import describe_origin
    from soulsgraph_envs.core.files import write_json

    def keep(name: str, measured: Mapping[str, Any]) -> None:
        if request.config.getoption("keep_results"):
            load = {"load_average": round(os.getloadavg()[0], 1)}
            write_json(Path(__file__).parents[1] / "docs" / "results" / name, {**describe_origin(), **load, **measured})

    return keep


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return a Chromium that opens pages, without a display."""
    from fakes.programs import BrowserError, find_chromium, open_browser, starts_by_itself

    if (program := find_chromium()) is None:
        pytest.skip("no Chromium is installed to open pages in")
    with ExitStack() as open_until_the_end:
        try:
            opened = open_until_the_end.enter_context(open_browser(program))
        except BrowserError as error:
            if starts_by_itself(program):
                raise
            pytest.skip(f"Chromium does not start here: {error}")
        yield opened
