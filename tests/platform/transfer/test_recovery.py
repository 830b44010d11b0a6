"""Recovery: every arm in a folder of its own, resumed, compared at the same steps."""

import json
from functools import partial

import pytest
from rich.console import Console

from fakes.runs import pretend_run, pretend_training
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.lineage import adaptation_stages, branch, domain_chain
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import Workplace
from soulsgraph.transfer.recovery import Arm, RecoveryTarget, _begin, arms_of, recover
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import SKILL_NAMES

SECOND = "iudex-phase2"
QUIET = Console(quiet=True)


@pytest.fixture
def run(tmp_path):
    return pretend_run(tmp_path / "run", Plan(scale=0.01))


def test_the_arms_are_the_recommended_each_single_skill_all_and_from_scratch(run):
    arms = arms_of(run, ("dodge", "heal_attack"))
    assert [arm.label for arm in arms] == ["recommended", *SKILL_NAMES, "all", "from scratch"]
    assert arms[0].folder == "dodge+heal_attack"
    assert len(arms_of(run, ())) == 7, "nothing recommended, no such arm"
    assert arms_of(run, ("dodge",))[0].folder == Arm("dodge", ("dodge",)).folder


def test_a_budget_too_small_for_every_skill_is_refused():
    with pytest.raises(SoulsGraphError, match="budget"):
        RecoveryTarget(SECOND, budget=10)


def test_a_branch_killed_on_its_way_is_whole_or_not_there(run, tmp_path, monkeypatch):
    def kill(*arguments):
        raise KeyboardInterrupt

    pretend_training(run, adaptation_stages(run, SECOND, ("dodge",)))
    assert branch(run, tmp_path / "home", "iudex-phase1").library.versions("dodge") == [1]
    path = tmp_path / "arm"
    with monkeypatch.context() as context:
        context.setattr("soulsgraph.runs.lineage.RunFolder.open", kill)
        with pytest.raises(KeyboardInterrupt):
            branch(run, path, SECOND)
    if path.exists():
        assert domain_chain(RunFolder.open(path)) == ("iudex-phase1", SECOND)
    else:
        branch(run, path, SECOND)


@pytest.mark.parametrize("preset", ["best", "whole"])
def test_an_arm_from_scratch_shares_its_steps_as_the_preset_shares_its_own(preset, tmp_path):
    run = pretend_run(tmp_path / "run", Plan(preset=preset))
    _, stages = _begin(run, RecoveryTarget(SECOND, budget=40_000), run.plan.scenario, Arm("from scratch", ()))
    assert sum(stage.steps for stage in stages) == pytest.approx(40_000, abs=len(SKILL_NAMES))
    assert [stage.skills for stage in stages] == [stage.skills for stage in run.plan.stages()]


@pytest.mark.slow
def test_arms_spend_the_same_steps_beside_a_run_that_stays_as_it_is(run):
    before = {path: path.read_bytes() for path in run.library.folder.rglob("*") if path.is_file()}
    arms = (Arm("dodge", ("dodge",)), Arm("all", SKILL_NAMES), Arm("from scratch", ()))
    with connect(None) as session:
        target, place = RecoveryTarget(SECOND, episodes=5, seed=3, budget=1_300), partial(Workplace, session=session)
        results, again = (recover(run, target, arms, partial(place, display="silent"), QUIET) for _ in range(2))
    assert {path: path.read_bytes() for path in run.library.folder.rglob("*") if path.is_file()} == before
    assert [row["setting"] for row in results] == ["nothing", "dodge", "all", "from scratch"]
    assert all(abs(row["steps"] - 1_300) <= len(SKILL_NAMES) for row in results[1:])
    assert again == results
    name = f"recovery-{SECOND}-1300"
    assert [row["steps"] for row in read_rows(run.results(name))] == [row["steps"] for row in results]
    assert json.loads((run.path / "results" / f"{name}.json").read_text())["scenario"] == SECOND
    arm = RunFolder.open(run.path / "recovery" / SECOND / "1300" / arms[1].folder)
    assert [arm.library.versions(skill) for skill in SKILL_NAMES] == [[1, 2]] * 5, "trained once"
