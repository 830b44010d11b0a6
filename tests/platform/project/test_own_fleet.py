"""Own skills trained by a fleet of game PCs and by a run's own games, by their commands."""

import os
import shutil
import signal

import pytest

from fakes.fleet_in_folder import FleetInFolder, read_records, require_once
from fakes.runs import of_stage, pretend_training
from fakes.waiting import until
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.fleet.gateway.status import read_status

pytestmark = pytest.mark.slow

#: Slow enough that a stage is still under way when it is interrupted.
GAMES = '[[games]]\ndriver = "simulator"\nspeed = 5.0\nlanes = 2\n'
GRAPH = "fencing/forked"
#: What is trained on top of frozen networks of random weights.
UPSTREAM = ("camera", "lock_on", "movement", "dodge")


@pytest.fixture
def run(fencing, tmp_path):
    """A run of the six-skill graph whose skills before the parry have random weights."""
    run = RunFolder.create(tmp_path / "run", Plan(scenario="iudex-phase1-whole", graph=GRAPH, scale=0.02))
    pretend_training(run, [run.plan.stage(name) for name in UPSTREAM])
    return run


@pytest.fixture
def fleet(tmp_path):
    fleet = FleetInFolder(tmp_path, {pc: GAMES for pc in ("attic", "den", "shed")})
    yield fleet
    fleet.close()


def test_a_fleet_trains_an_own_skill_and_pcs_without_the_code_are_refused_by_name(run, begun, fleet, tmp_path):
    changed = shutil.copytree(begun, tmp_path / "changed" / begun.name)
    skill = changed / "fencing" / "parry.py"
    skill.write_text(skill.read_text().replace("tried: float = 0.3", "tried: float = 0.2"))
    for pc, projects in (("attic", [begun]), ("den", []), ("shed", [changed])):
        fleet.host(pc, projects=projects)
    own = ("--run", run.path, "--project", begun)

    def train():
        return fleet.start("train", "train", "parry", *own, "--fleet", fleet.file)

    def journal():
        return of_stage(run.path / "journal", "parry")

    first = train()

    def chunks():
        status = read_status(run.path / "journal")
        return 0 if status is None else status.records

    until(lambda: chunks() > 3 or not first.running, "chunks")
    assert first.running, first.logs()
    os.kill(first.pid, signal.SIGINT)
    assert first.wait() == 130, first.logs()
    training = train()
    assert training.wait() == 0, training.logs()
    records = read_records(journal(), "parry")
    require_once(records)
    assert {record.pc for record in records if not record.refused} == {"attic"}
    code, text = fleet.call("check", run.path, "--journal", "parry", "--project", begun)
    assert code == 0, text
    for pc in ("den", "shed"):
        assert f"{pc}: refused: {pc}: expected the project 'fencing'" in fleet.logs("train")
        assert "`project`" in fleet.logs(f"host-{pc}")
    # Its code is asked for by every command that reads the run.
    code, text = fleet.call("fleet", "status", run.path)
    assert code == 2
    assert "'fencing'" in text
    code, text = fleet.call("data", "record", *own[1:], "--journal", "--out", tmp_path / "fights")
    assert code == 0, text
    code, text = fleet.call("check", tmp_path / "fights", "--project", begun)
    assert code == 0, text
    chance = ("--random", "heal_attack", "--episodes", 2)
    code, text = fleet.call("evaluate", *own[1:], "--fleet", fleet.file, *chance)
    assert code == 0, text
    assert "attic/1" in text


@pytest.fixture
def printing(begun):
    """Let the code of the project print."""
    skill = begun / "fencing" / "parry.py"
    skill.write_text(f'{skill.read_text()}\nprint("the code of an own skill prints")\n')


def test_a_runs_own_games_train_an_own_skill_whatever_its_code_prints(printing, run, begun, fleet):
    fleet.write_games("here", GAMES * 2)
    words = ("--run", run.path, "--project", begun)
    code, text = fleet.call("train", "parry", *words, "--games", fleet.folder / "here.toml")
    assert code == 0, text
    assert "here/1 joined, playing by simulator" in text
    assert "here/2 joined, playing by simulator" in text
    assert "the code of an own skill prints" in text
    assert run.library.versions("parry") == [1]
