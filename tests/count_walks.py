"""Count the product files that four walks through the code touch; not part of the suite.

    NUMBA_DISABLE_JIT=1 python tests/count_walks.py

A file counts if a line of a function body of it ran. Stand-ins and fakes are not product files.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from soulsgraph.cli.main import main as command_line
from soulsgraph.plan import Plan
from soulsgraph.stage_setup import StageSetup
from soulsgraph.training import trained_artifact
from soulsgraph.transfer.testing import pretend_run
from soulsgraph_clusters.session import connect
from soulsgraph_envs.combat import Combat, Horizon
from soulsgraph_envs.games import make_game
from soulsgraph_envs.live.settings import GameSettings
from soulsgraph_envs.memory.address_map import load_address_map
from soulsgraph_envs.memory.attaching import attach_game
from soulsgraph_envs.skills import make_skill
from soulsgraph_envs.standin.still_game import still_game
from soulsgraph_envs.testing.live import FakeTable
from soulsgraph_policies.inference import FusedNetworks
from soulsgraph_policies.sampler import Sampler

ROOT = Path(__file__).parents[1]
_FLOORS = tuple(str(ROOT / floor) + os.sep for floor in ("platform", "clusters", "policies", "envs"))
_APART = ("/standin/", "/testing/", "testing.py", "/bench/")


@contextmanager
def traced() -> Iterator[set[str]]:
    """Collect the product files in which a function runs, in every thread."""
    found: set[str] = set()

    def trace(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        name = code.co_filename
        if event == "call" and code.co_name != "<module>" and name.startswith(_FLOORS):
            if not any(part in name for part in _APART):
                found.add(name.removeprefix(str(ROOT) + os.sep))

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield found
    finally:
        sys.settrace(None)
        threading.settrace(None)


def tick_to_gradient(run: Any) -> set[str]:
    """One iteration of training dodge, in this process."""
    setup = StageSetup.of(run, run.plan.stage("dodge"))
    with connect("local", num_cpus=1) as session:
        algorithm = setup.build(session)
        with traced() as found:
            algorithm.train()
        algorithm.stop()
    return found


def weights_to_agent(run: Any) -> set[str]:
    """A module's weights saved, loaded, and played by."""
    setup = StageSetup.of(run, run.plan.stage("camera"))
    with connect("local", num_cpus=1) as session:
        algorithm = setup.build(session)
        skill, combat = setup.skills[-1], Combat(make_game(), setup.skills, setup.scenario, Horizon("camera", 10))
        with traced() as found:
            artifact = trained_artifact(setup, algorithm.weights("camera"), algorithm.normalizer, 10)
            run.library.save(artifact)
            loaded = run.library.load("camera")
            networks = FusedNetworks([loaded.network(skill, setup.scenario)])
            networks.act(combat.rows, combat.due, np.zeros((1, 1), np.int64))
        algorithm.stop()
    return found


def memory_to_transition(run: Any) -> set[str]:
    """One reading of a game's memory, and one decision of a game that runs in real time."""
    setup = StageSetup.of(run, run.plan.stage("camera"))
    with still_game("dark-souls-3-1.15.2") as process:
        game = attach_game(GameSettings(pid=process.pid), load_address_map("dark-souls-3-1.15.2"))
        with traced() as read:
            game.memory.read()
        game.reader.close()
    skills = (make_skill("camera"),)
    combat = Combat(FakeTable().game, skills, setup.scenario, Horizon("camera", 100))
    sampler = Sampler(combat, 0, lambda _: 0.1)
    networks = [run.library.load("camera").network(skills[0], setup.scenario)]
    sampler.set_networks(networks)
    sampler.sample(1)
    with traced() as sampled:
        sampler.sample(1)
    return read | sampled


def curriculum(folder: Path) -> set[str]:
    """`soulsgraph curriculum`, as small as it can be: the files of the upper two floors."""
    sys.argv = [
        "soulsgraph",
        "curriculum",
        "--run",
        str(folder / "run"),
        "--scale",
        "0.01",
        "--episodes",
        "1",
        "--json",
    ]
    with traced() as found:
        try:
            command_line()
        except SystemExit as end:
            assert not end.code, "the curriculum failed"
    return {name for name in found if name.startswith(("platform", "clusters"))}


def main() -> None:
    """Print each walk's count and files."""
    assert os.environ.get("NUMBA_DISABLE_JIT"), "set NUMBA_DISABLE_JIT=1: compiled functions leave no trace"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = pretend_run(folder / "pretended", Plan(scale=0.02, preset="paper"))
        walks: list[tuple[str, Callable[[], set[str]]]] = [
            ("one tick to the gradient", lambda: tick_to_gradient(run)),
            ("weights to the composed agent", lambda: weights_to_agent(run)),
            ("a memory reading to a transition", lambda: memory_to_transition(run)),
            ("curriculum (platform and clusters)", lambda: curriculum(folder)),
        ]
        for title, walk in walks:
            files = sorted(walk())
            print(f"{title}: {len(files)} files")
            print("".join(f"    {file}\n" for file in files), flush=True)


if __name__ == "__main__":
    main()
