"""Windows' own Python under Wine trains, evaluates, watches and records, by the commands that a Windows PC is given."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from fakes.programs import missing_for_wine
from fakes.windows import windows_pc
from soulsgraph.runs.run_folder import RunFolder

MISSING = missing_for_wine()
pytestmark = [pytest.mark.release, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
#: A whole command, everything compiled anew, on a busy machine.
WITHIN_S = 3600.0
AGENT, EPISODES = "iudex-phase1-best-0", "20"


@pytest.fixture(scope="module")
def pc(tmp_path_factory):
    with windows_pc(tmp_path_factory.mktemp("windows"), ["train"]) as pc:
        yield pc


def _here(*words):
    """Return what our command prints on this system."""
    command = [str(Path(sys.executable).with_name("soulsgraph")), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=WITHIN_S).stdout


def test_a_windows_python_trains_evaluates_watches_and_records(pc, keep_result):
    """Its run folder is read here, and an agent wins there as often as here; `--keep-results` keeps the seconds."""
    took = {}

    def done(*words):
        began_s = time.monotonic()
        code, text = pc.soulsgraph(*words, within_s=WITHIN_S)
        took[" ".join(word for word in words[:2] if "\\" not in word)] = time.monotonic() - began_s
        assert code == 0, text
        return text

    run, fights, picture = (pc.path(name) for name in ("run", "fights", "fight.gif"))
    done("curriculum", "--run", run, "--scale", "0.01", "--episodes", EPISODES)
    done("curriculum", "--run", run)
    evaluation = "evaluate", AGENT, "--episodes", EPISODES, "--json"
    won, won_here = (json.loads(text[text.index("{") :]) for text in (done(*evaluation), _here(*evaluation)))
    done("watch", run, "--file", picture)
    with Image.open(pc.folder / "fight.gif") as gif:
        assert gif.n_frames > 10
    done("data", "record", run, "--episodes", "3", "--out", fights)
    done("check", fights)
    assert AGENT in done("zoo")
    done("zoo", AGENT)
    assert RunFolder.open(pc.folder / "run").library.load("heal_attack", 1).card.training.steps == 900
    assert won["wins"] == won_here["wins"]
    there = {name: won[name] for name in ("packages", "machine", "wins", "episodes")}
    keep_result("windows/training.json", {"seconds": took, "there": there})
