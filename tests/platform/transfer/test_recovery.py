"""Recovery: every arm in a folder of its own, resumed, compared at the same steps."""

import json
import logging
from functools import partial

import pytest
from rich.console import Console

from fakes.runs import pretend_run, pretend_training
from soulsgraph.cli import adapting, main
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.lineage import adaptation_stages, branch, domain_chain
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.progress import Interruption
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import Workplace
from soulsgraph.transfer import TransferOptions
from soulsgraph.transfer.recovery import Arm, RecoveryTarget, arms_of, joint_arms, recover
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


def test_joint_arms_adapt_the_same_skills_at_the_same_steps(run):
    together, apart = joint_arms(("dodge", "heal_attack"))
    assert (together.label, apart.label) == ("jointly", "one after another")
    assert (together.folder, apart.folder) == ("dodge+heal_attack-jointly", "dodge+heal_attack")


def test_a_budget_too_small_for_every_skill_is_refused():
    with pytest.raises(SoulsGraphError, match="budget: expected a value from 1000"):
        RecoveryTarget(SECOND, budget=10)


def adapted(run):
    stages = adaptation_stages(run, SECOND, ("dodge",))
    pretend_training(run, stages)


def test_a_branch_holds_the_versions_and_the_chain_up_to_a_scenario(run, tmp_path):
    adapted(run)
    home, second = (branch(run, tmp_path / name, name) for name in ("iudex-phase1", SECOND))
    assert home.library.versions("dodge") == [1]
    assert second.library.versions("dodge") == [1, 2]
    assert domain_chain(home) == ("iudex-phase1",)
    assert domain_chain(second) == ("iudex-phase1", SECOND)


@pytest.mark.parametrize("killed_in", ["record_domain", "RunFolder.open"])
def test_a_branch_killed_on_its_way_is_whole_or_not_there(run, tmp_path, killed_in, monkeypatch):
    def kill(*arguments):
        raise KeyboardInterrupt

    adapted(run)
    path = tmp_path / "arm"
    with monkeypatch.context() as context:
        context.setattr(f"soulsgraph.runs.lineage.{killed_in}", kill)
        with pytest.raises(KeyboardInterrupt):
            branch(run, path, SECOND)
    if path.exists():
        assert domain_chain(RunFolder.open(path)) == ("iudex-phase1", SECOND)
    else:
        branch(run, path, SECOND)


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


@pytest.mark.slow
def test_jointly_is_compared_with_one_after_another_over_seeds(tmp_path, monkeypatch, capsys):
    runs = [pretend_run(tmp_path / f"run-{seed}", Plan(scale=0.01, seed=seed)) for seed in (0, 1)]
    options = ["--scenario", SECOND, "--budget", "1000", "--episodes", "4", "--jointly", "dodge,heal_attack"]
    out = ["--out", str(tmp_path / "out"), "--json"]
    monkeypatch.setattr("sys.argv", ["soulsgraph", "recovery", *(str(run.path) for run in runs), *options, *out])
    main()
    (table,) = json.loads(capsys.readouterr().out).values()
    assert [row["setting"] for row in table["rows"]] == ["nothing", "jointly", "one after another"]
    assert [row["steps"] for row in table["rows"]] == [0, 1_000, 1_000]
    assert all(row["seeds"] == 2 for row in table["rows"])
    assert "jointly_ahead_points" in table["rows"][2]
    for run in runs:
        rows = json.loads((run.path / "results" / f"jointly-{SECOND}-1000.json").read_text())["rows"]
        assert [row["setting"] for row in rows] == ["nothing", "jointly", "one after another"]


def test_a_recovery_keeps_rays_advice_to_itself(run, monkeypatch):
    def stop(*_):
        raise Interruption(logging.getLevelName(logging.getLogger("ray.rllib").level))

    monkeypatch.setattr("soulsgraph.transfer.recovery.recover", stop)
    # As importing Ray leaves it.
    monkeypatch.setattr(logging.getLogger("ray.rllib"), "level", logging.WARNING)
    with pytest.raises(Interruption, match=r"^ERROR$"):
        adapting.recovery((run.path,), evaluation=TransferOptions(SECOND, episodes=4), jointly="camera")
