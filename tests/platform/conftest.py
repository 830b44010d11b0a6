"""Fixtures of the command line."""

import pytest

from soulsgraph.cli import main


@pytest.fixture
def refuse(monkeypatch, capsys):
    """Run a command that must end with one line and exit code 2, and return the line."""

    def refused(*arguments: object) -> str:
        monkeypatch.setattr("sys.argv", ["soulsgraph", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        assert stop.value.code == 2
        assert "Traceback" not in captured.err
        assert len(captured.err.strip().splitlines()) == 1, captured.err
        return captured.err

    return refused


@pytest.fixture
def printed(monkeypatch, capsys, tmp_path):
    """Run a command in an empty folder, and return what it printed."""
    monkeypatch.chdir(tmp_path)

    def ran(*arguments: object) -> str:
        monkeypatch.setattr("sys.argv", ["soulsgraph", *map(str, arguments)])
        main()
        return capsys.readouterr().out

    return ran
