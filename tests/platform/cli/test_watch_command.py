"""`soulsgraph watch`: a window on a virtual screen, files without a display, refusals in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from PIL import Image

from fakes.keys import virtual_screen
from fakes.programs import read_video
from fakes.runs import pretend_run
from soulsgraph.cli import main
from soulsgraph.runs.plan import Plan
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.guarded_device import find_window

_START_S = 180.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pretend_run(tmp_path_factory.mktemp("watch") / "run", Plan(scale=0.01)).path


@pytest.fixture
def watched(monkeypatch, capsys, folder):
    """Watch the run with some options, and return what was printed as JSON."""

    def ran(*options):
        monkeypatch.setattr("sys.argv", ["soulsgraph", "watch", *map(str, (folder, *options)), "--json"])
        monkeypatch.delenv("DISPLAY", raising=False)
        main()
        return json.loads(capsys.readouterr().out)

    return ran


#: Makes every environment that is registered here with a window, and prints the error of each.
_WINDOWS = """
import warnings
import gymnasium
import soulsgraph_envs
from soulsgraph_envs import eldengym
from soulsgraph_envs.core.errors import GameError

warnings.simplefilter("ignore")
ids = [id for id, spec in gymnasium.registry.items() if str(spec.entry_point).startswith("soulsgraph_envs.")]
ways = [(id, lambda id=id: gymnasium.make(id, render_mode="human")) for id in ids]
many = dict(num_envs=2, vectorization_mode="sync", render_mode="human")
ways += [("many", lambda: gymnasium.make_vec("soulsgraph/EndToEnd-v0", **many))]
ways += [("eldengym", lambda: eldengym.make("Margit-v0", render_mode="human", driver="simulator"))]
for name, make in ways:
    try:
        make()
        print(name, "made a window")
    except GameError as error:
        print(name, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("display", [None, ":99999"])
def test_without_a_display_every_window_is_refused_at_once_in_one_line(folder, tmp_path, display):
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "SDL_VIDEO_DRIVER", "XDG_RUNTIME_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"DISPLAY": display} if display else {}
    options = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True, "timeout": _START_S}
    for command in (["watch", str(folder)], ["play"], ["standin"]):
        ran = subprocess.run(
            [sys.executable, "-P", "-c", "from soulsgraph.cli import main; main()", *command], **options, check=False
        )
        assert (ran.returncode, ran.stdout) == (2, ""), command
        (line,) = ran.stderr.splitlines()
        assert "display to open a window on, found none" in line
        assert ("xvfb-run" if command == ["standin"] else "--gif or --mp4") in line
    ran = subprocess.run([sys.executable, "-P", "-c", _WINDOWS], **options, check=True)
    assert ran.stderr == ""
    assert len(ran.stdout.splitlines()) >= 12
    for line in ran.stdout.splitlines():
        assert "found none" in line, line
        assert 'render_mode="rgb_array"' in line, line


@pytest.mark.slow
def test_files_are_written_without_a_display(watched, folder, tmp_path):
    short = ("--seconds", 1.2, "--seed", 3)
    found = watched("--gif", tmp_path / "a.gif", "--episodes", 2, *short)
    assert [(fight["fight"], fight["agent"]) for fight in found["fights"]] == [(1, "run"), (2, "run")]
    assert len({fight["seed"] for fight in found["fights"]}) == 2
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.size == (640, 720)
    beside = watched("--side-by-side", folder, "--randomize", "dodge", "--mp4", tmp_path / "a.mp4", *short)
    assert [fight["seed"] for fight in beside["fights"]] == [found["fights"][0]["seed"]] * 2
    assert {fight["players"]["dodge"] for fight in beside["fights"]} == {"random"}
    shapes = [picture.shape for picture in read_video(tmp_path / "a.mp4")]
    # Twelve decisions' states with two pictures between them and the next, and the last one for another 1.5 s.
    assert (set(shapes), len(shapes)) == ({(720, 1280, 3)}, 11 * 3 + 1 + 45)


def test_a_side_is_named_by_its_versions(watched, folder, tmp_path):
    beside = watched("--side-by-side", f"{folder}@dodge=v1, movement=v1", "--gif", tmp_path / "a.gif", "--seconds", 0.5)
    assert [fight["agent"] for fight in beside["fights"]] == ["run", "run@dodge=v1,movement=v1"]


def test_an_agent_of_the_zoo_is_watched_by_its_name(monkeypatch, capsys, tmp_path):
    name, file = "vordt-best-0", tmp_path / "a.png"
    monkeypatch.setattr("sys.argv", ["soulsgraph", "watch", name, "--seconds", "2", "--only-fight", "--png", str(file)])
    main()
    assert f"fight 1: {name} (" in capsys.readouterr().out
    with Image.open(file) as picture:
        assert picture.size == (640, 360)


@pytest.mark.slow
def test_a_window_shows_the_fights_until_they_are_over(folder, tmp_path):
    with virtual_screen() as display:
        environment = {**os.environ, "DISPLAY": display, "SDL_VIDEODRIVER": "x11", "SDL_AUDIODRIVER": "dummy"}
        call = "from soulsgraph.cli import main; main()"
        options = ["watch", str(folder), "--episodes", "1", "--seconds", "60", "--json"]
        with subprocess.Popen(
            [sys.executable, "-P", "-c", call, *options], stdout=subprocess.PIPE, env=environment, text=True
        ) as process:
            try:
                window = _window(display, process)
                picture = window.capture()
                window.close()
                assert picture.shape == (720, 640, 3)
                assert len(set(map(tuple, picture.reshape(-1, 3).tolist()))) > 50
                assert process.poll() is None
            finally:
                process.terminate()


def _window(display, process):
    """Wait until the process has a window with a picture in it."""
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        with suppress(GameError):
            window = find_window(pid=process.pid, display=display)
            if window.capture().any():
                return window
            window.close()
        time.sleep(0.3)
    raise AssertionError("the window did not open")


@pytest.mark.slow
def test_what_cannot_be_watched_is_refused_in_one_line(refuse, folder, tmp_path, monkeypatch):
    assert "--mp4 and --gif" in refuse("watch", folder, "--mp4", tmp_path / "a.mp4", "--gif", tmp_path / "a.gif")
    assert "unknown skill to replace" in refuse("watch", folder, "--randomize", "doge", "--gif", tmp_path / "a.gif")
    assert "unknown start" in refuse("watch", folder, "--start", "near", "--gif", tmp_path / "a.gif")
    assert "seconds" in refuse("watch", folder, "--seconds", 0, "--gif", tmp_path / "a.gif")
    assert "episodes" in refuse("watch", folder, "--episodes", 0, "--gif", tmp_path / "a.gif")
    for wrong in ("dodge", "dodge=1", "dodge=v1,dodge=v1", "dodge=v0", ""):
        assert "expected a version of each skill after the @" in refuse("watch", f"{folder}@{wrong}")
    assert "version of dodge: expected one of v1, found v2" in refuse("watch", f"{folder}@dodge=v2")
    assert "unknown skill of run" in refuse("watch", folder, "--side-by-side", f"{folder}@doge=v1")
    assert "no such folder" in refuse("watch", tmp_path / "missing", "--gif", tmp_path / "a.gif")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    assert "display" in refuse("watch", folder)
    monkeypatch.setitem(sys.modules, "pygame", None)
    assert "[watch]" in refuse("watch", folder)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert "[video]" in refuse("watch", folder, "--mp4", tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == []
