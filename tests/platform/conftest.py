"""Fixtures of the command line."""

import pytest

from soulsgraph.cli import main
from soulsgraph.runs import workers
from soulsgraph_envs.simulator.driver import Simulator


@pytest.fixture
def command(monkeypatch, capsys):
    """Run a command in this process; return its exit code, what it printed, and its errors."""

    def ended(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["soulsgraph", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return ended


@pytest.fixture
def refuse(command):
    """Run a command that must end with one line and an exit code, and return the line."""

    def refused(*arguments: object, code: int = 2) -> str:
        found, _, errors = command(*arguments)
        assert found == code
        assert "Traceback" not in errors
        assert len(errors.strip().splitlines()) == 1, errors
        return errors

    return refused


@pytest.fixture
def printed(monkeypatch, capsys, tmp_path):
    """Run a command in an empty folder, and return what it printed; it compiles before it fights, with a word."""
    monkeypatch.chdir(tmp_path)
    stamp, reset = workers._stamp, Simulator.reset

    def ran(*arguments: object) -> str:
        asked = []
        monkeypatch.setattr("sys.argv", ["soulsgraph", *map(str, arguments)])
        with monkeypatch.context() as during:
            during.setattr(workers, "_stamp", lambda: asked.append(True) or stamp())
            during.setattr(Simulator, "reset", lambda *args: reset(*args) if asked else pytest.fail("not compiled yet"))
            main()
        return capsys.readouterr().out

    return ran
