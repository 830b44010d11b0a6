"""Whatever makes a folder somebody's own does so under its lock: of several processes at once, one owns it."""

from __future__ import annotations

import multiprocessing
from contextlib import closing, contextmanager
from pathlib import Path

from fakes.waiting import PATIENCE_S
from soulsgraph.project import begin_project
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import evaluation_seeds
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.zoo import agent_names, copy_agent
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings, sole_head
from soulsgraph_clusters.fleet.protocol.tokens import Tokens
from soulsgraph_clusters.fleet.store import Journal
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import whole_folder

PROCESSES, ROUNDS = 3, 2
FIGHTS = 3


@contextmanager
def run(path, number):
    """Begin a run of a seed; the other ways to one are planned and locked alike."""
    planned = RunFolder.planned(path, Plan(seed=number, scale=0.01))
    with planned.locked():
        yield planned.plan.seed, RunFolder.open(path).plan.seed


@contextmanager
def copy(path, number):
    name = agent_names()[number]
    copied = copy_agent(name, path)
    with copied.locked():
        yield copied.plan, RunFolder.open(path).plan


@contextmanager
def branch(path, number):
    with whole_folder(path) as temporary:
        (temporary / "owner").write_text(f"{number}")
    yield f"{number}", (path / "owner").read_text()


@contextmanager
def project(path, number):
    path = path.with_name(f"owned_{path.name}")
    begin_project(path)
    (path / "owner").open("x").close()
    yield True, (path / "pyproject.toml").is_file()


@contextmanager
def head(path, number):
    path.mkdir(exist_ok=True)
    with sole_head(Fleet(FleetSettings("127.0.0.1:0"), path)):
        yield True, True


@contextmanager
def journal(path, number):
    with closing(Journal(path, "camera")) as own:
        yield True, own.end == 0


OWNERS = {way.__name__: way for way in (run, copy, branch, project, head, journal)}


def _compete(folder, ways, barrier, found, number):
    for name in ways:
        for turn in range(ROUNDS):
            path = Path(folder) / f"{name}_{turn}"
            barrier.wait(PATIENCE_S)
            try:
                with OWNERS[name](path, number) as (mine, there):
                    found.put((name, turn, "", mine == there))
                    barrier.wait(PATIENCE_S)
            except SoulsGraphError as error:
                found.put((name, turn, str(error), True))
                barrier.wait(PATIENCE_S)


def _together(tmp_path, target, *arguments):
    """Run a function in several processes at once, and return what they put into a queue."""
    context = multiprocessing.get_context("fork")
    barrier, found = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(target=target, args=(str(tmp_path), *arguments, barrier, found, number))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    everything = [found.get(timeout=PATIENCE_S) for _ in range(PROCESSES * ROUNDS * len(arguments[0]))]
    for process in processes:
        process.join(PATIENCE_S)
        assert process.exitcode == 0
    return everything


def test_of_several_processes_at_once_one_owns_a_folder_and_the_others_are_refused_in_a_line(tmp_path):
    everything = _together(tmp_path, _compete, [*OWNERS])
    for name in OWNERS:
        for turn in range(ROUNDS):
            lines = [(line, holds) for one, number, line, holds in everything if (one, number) == (name, turn)]
            assert len(lines) == PROCESSES
            assert [holds for _, holds in lines] == [True] * PROCESSES, name
            refused = [line for line, _ in lines if line]
            assert len(refused) == PROCESSES - 1, (name, lines)
            assert not any("\n" in line for line in refused), refused
    assert not [path for path in tmp_path.rglob(".unfinished-*")]


def _share(folder, ways, barrier, found, number):
    folder = Path(folder)
    for turn in range(ROUNDS):
        place = folder / f"shared_{turn}"
        barrier.wait(PATIENCE_S)
        tokens = Tokens(place / "tokens.json")
        token = tokens.issue(f"pc-{number}")
        tokens.drain(f"pc-{number}", True)
        try:
            record(Fighter.oracle("iudex-phase1"), evaluation_seeds(0, FIGHTS), place / "fights")
            line = ""
        except SoulsGraphError as error:
            line = str(error)
        found.put((turn, number, token, line))


def test_what_several_processes_change_at_once_has_every_change_and_no_fight_is_played_twice(tmp_path):
    (tmp_path / "none").mkdir()
    everything = _together(tmp_path, _share, ["shared"])
    for turn in range(ROUNDS):
        place, found = tmp_path / f"shared_{turn}", [one for one in everything if one[0] == turn]
        tokens = Tokens(place / "tokens.json")
        assert all(tokens.holder_of(token) == (f"pc-{number}", True) for _, number, token, _ in found)
        assert {pc for pc, one in tokens.known.items() if one.drained} == {f"pc-{n}" for n in range(PROCESSES)}
        assert len([*(place / "fights").glob("*.parquet")]) == FIGHTS
        assert all(line == "" or "oracle" in line for *_, line in found)
        assert {path.name for path in place.iterdir()} == {"tokens.json", "fights"}
        assert not [*(place / "fights").glob(".*")]
