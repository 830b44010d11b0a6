"""What is already there: whatever is found again is of the same fight, versions and learner, or not taken."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fakes.runs import pretend_run, pretend_training
from soulsgraph import zoo
from soulsgraph.pages.run_report import ReportedRun
from soulsgraph.paper.study import ReproductionFolder, SeedJob, Study
from soulsgraph.runs.evaluate import EVALUATION_SEED, Setting, evaluate, source_of, table_inputs
from soulsgraph.runs.lineage import (
    adaptation_stages,
    branch,
    cards_of,
    domain_chain,
    finished_versions,
    own_stages,
    stage_inputs,
    stage_key,
    stages_made,
    version_in_play,
)
from soulsgraph.runs.plan import Plan, differing
from soulsgraph.runs.run_folder import RunFolder, RunFolderError
from soulsgraph.runs.train import StageSetup, Workplace, train_stages
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.errors import SoulsGraphError

HOME, SECOND, THIRD = "iudex-phase1", "iudex-phase2", "vordt"
DODGE = ("dodge",)


def write_fight(path, flasks=3, base=SECOND):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'based_on = "{base}"\nname = "boss"\nflasks = {flasks}\n')
    return str(path)


@pytest.fixture
def run(tmp_path):
    return pretend_run(tmp_path / "run", Plan(scale=0.01))


@pytest.fixture
def fight(tmp_path):
    return write_fight(tmp_path / "a" / "boss.toml")


def replanned(run, **values):
    """Write other values into the run's plan, as an edited file or another version of the package has them."""
    file = run.path / "plan.json"
    begun = json.loads(file.read_text())
    begun["plan"] |= values
    file.write_text(json.dumps(begun))
    return RunFolder.open(run.path)


def edited(run, fight, tmp_path):
    return run, write_fight(tmp_path / "a" / "boss.toml", flasks=7)


def edited_boss(run, fight, tmp_path):
    (tmp_path / "a" / "own.toml").write_text('based_on = "vordt"\nname = "own"\n')
    (tmp_path / "a" / "boss.toml").write_text(f'based_on = "{SECOND}"\nname = "boss"\nflasks = 3\nboss = "own.toml"\n')
    return run, fight


def same_stem(run, fight, tmp_path):
    return run, write_fight(tmp_path / "b" / "boss.toml", flasks=7)


def other_parents(run, fight, tmp_path):
    pretend_training(run, adaptation_stages(run, fight, ("movement",), after=HOME))
    return run, fight


def other_learner(run, fight, tmp_path):
    return replanned(run, overrides={"lr": 0.01}), fight


def other_rewards(run, fight, tmp_path):
    options = json.loads((run.path / "plan.json").read_text())["plan"]["skill_options"]
    name = next(iter(options["dodge"]))
    return replanned(run, skill_options=options | {"dodge": options["dodge"] | {name: 0.123}}), fight


def other_budget(run, fight, tmp_path):
    return replanned(run, scale=0.02), fight


def other_seed(run, fight, tmp_path):
    return replanned(run, seed=9), fight


CHANGES = (
    same_stem, other_parents, other_learner, other_rewards, other_budget, other_seed,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_no_stage_takes_what_another_one_left(run, fight, tmp_path, change):
    (first,) = adaptation_stages(run, fight, DODGE, after=HOME)
    inputs, key = stage_inputs(run, first), stage_key(run, first)
    (card,) = pretend_training(run, [first])
    assert finished_versions(run, first) == [card]
    assert finished_versions(run, adaptation_stages(run, fight, DODGE, after=HOME)[0]) == [card], "the same again"
    checkpoint = run.checkpoints(key) / "step-000000100"
    checkpoint.mkdir(parents=True)
    assert StageSetup(run, first).checkpoints == [checkpoint]

    run, scenario = change(run, fight, tmp_path)
    (stage,) = adaptation_stages(run, scenario, DODGE, after=HOME)
    assert not finished_versions(run, stage)
    assert stage_inputs(run, stage) != inputs
    setup = StageSetup(run, stage)
    assert setup.key == stage_key(run, stage) != key
    assert not setup.checkpoints, "they are of another stage"


@pytest.mark.parametrize("edit", [edited, edited_boss])
def test_a_scenario_that_was_edited_is_refused_by_its_name_until_it_is_restored(run, fight, tmp_path, edit):
    (card,) = pretend_training(run, adaptation_stages(run, fight, DODGE))
    assert (domain_chain(run), source_of(run, fight)) == ((HOME, fight), fight)
    edit(run, fight, tmp_path)
    assert domain_chain(run) == (HOME, fight), "no file is read again to know what was trained"
    assert version_in_play(run, "dodge", fight) == card.version
    for call in (
        lambda: source_of(run, fight),
        lambda: evaluate(run, Setting(fight, fight), 2),
        lambda: adaptation_stages(run, fight, DODGE),
    ):
        with pytest.raises(SoulsGraphError, match=r"boss\.toml"):
            call()
    renamed = str(shutil.copy(fight, Path(fight).with_name("second.toml")))
    (new,) = pretend_training(run, adaptation_stages(run, renamed, DODGE))
    assert (new.parent, domain_chain(run, renamed)) == (card.version, (HOME, fight, renamed))
    assert [card.training.scenario for card in cards_of(run, DODGE)] == [HOME, fight, renamed]
    copied = branch(run, tmp_path / "copy", fight)
    assert (copied.library.versions("dodge"), domain_chain(copied)) == ([1, 2], (HOME, fight))
    write_fight(tmp_path / "a" / "boss.toml")
    assert source_of(run, fight) == fight, "restored"


def test_a_fight_is_the_same_wherever_its_file_lies(run, fight, tmp_path):
    (card,) = pretend_training(run, adaptation_stages(run, fight, DODGE))
    moved = write_fight(tmp_path / "elsewhere" / "renamed.toml")
    assert version_in_play(run, "dodge", moved) == card.version
    (stage,) = adaptation_stages(run, moved, DODGE)
    assert finished_versions(run, stage) == [card]
    own = write_fight(tmp_path / "copy.toml", base=HOME)
    other = pretend_run(tmp_path / "other", Plan(scenario=own, scale=0.01))
    with pytest.raises(SoulsGraphError, match="scenario"):
        adaptation_stages(other, write_fight(tmp_path / "again" / "copy.toml", base=HOME), DODGE)


def test_a_stage_has_the_key_of_its_curves_whatever_came_later(run, fight, tmp_path):
    other, keys = write_fight(tmp_path / "b" / "boss.toml", flasks=8), []
    stages = []
    for target, budget in ((fight, None), (other, None), (other, 150)):
        (stage,) = adaptation_stages(run, target, DODGE, budget)
        keys.append(stage_key(run, stage))
        stages.append(stage)
        pretend_training(run, [stage])
    pretend_training(run, [replace(run.plan.stage("movement"), seed=5)])
    made = stages_made(run)
    assert [[card.version for card in made[key][1]] for key in keys] == [[2], [3], [4]]
    assert [made[key][0] for key in keys] == stages
    assert len({*keys}) == 3


def test_a_run_is_not_resumed_in_another_version_of_its_own_fight(run):
    begun = json.loads((run.path / "plan.json").read_text()) | {"scenario_digest": "0" * 64}
    (run.path / "plan.json").write_text(json.dumps(begun))
    changed = RunFolder.open(run.path)
    assert evaluate(changed, Setting(HOME, HOME), 1).episodes.won.shape == (1,), "but it plays"
    stages = (replace(own_stages(changed)[0], budget=300),)
    refused = pytest.raises(SoulsGraphError, match=rf"^{HOME}.*00000000")
    with Workplace(changed, Session(local=True), Console(quiet=True)) as workplace, refused:
        train_stages(workplace, stages)


def test_a_copy_of_an_agent_holds_its_very_versions(tmp_path):
    name = "iudex-phase1-best-0"
    copied = zoo.copy_agent(name, tmp_path / "copy")
    assert zoo.copy_agent(name, tmp_path / "copy").plan == copied.plan
    pretend_run(tmp_path / "own", copied.plan)
    with pytest.raises(RunFolderError, match=f"a copy of {name}"):
        zoo.copy_agent(name, tmp_path / "own")


STUDY = Study(seeds=(100,), episodes=4, scale=0.01)


@pytest.mark.parametrize(
    "plan", [{"scale": 0.02}, {"episodes": 5}, {"preset": "best"}, {"overrides": {"double_q": True}}]
)
def test_a_study_takes_no_record_of_another_one(tmp_path, plan):
    folder = ReproductionFolder.create(tmp_path / "study", STUDY)
    for unit in folder.units:
        folder.keep(unit, {})
    assert folder.left == []
    other = ReproductionFolder(folder.path, replace(STUDY, **plan))
    assert {"100 skills", "100 end_to_end"} <= {unit.name for unit in other.left}
    job = SeedJob(100, "skills")
    folder.run(job)
    with pytest.raises(SoulsGraphError):
        other.run(job)


def test_a_page_says_where_other_versions_play_than_were_evaluated(run, printed, fight):
    printed("evaluate", "--what", "table", run.path, "--episodes", 2)
    table = run.path / "results" / "table.json"
    assert json.loads(table.read_text())["inputs"] == json.loads(json.dumps(table_inputs(run, 2, EVALUATION_SEED)))
    assert ReportedRun(run).note == ""
    pretend_training(run, [replace(run.plan.stage("camera"), seed=5)])
    assert ReportedRun(run).note != ""


def test_values_differ_by_content_and_order_and_where_they_are_missing():
    asked = {"fight": "a", "budgets": (1, 2)}
    assert differing(asked, {"fight": "a", "budgets": [1, 2], "weather": "rain"}) == ()
    assert differing(asked, {"fight": "a", "budgets": [2, 1]}) == ("budgets",)
    assert differing(asked, {"fight": None}) == differing(asked, None) == ("fight", "budgets")


def test_a_journal_of_another_stage_is_not_replayed(run):
    stage = run.plan.stage("dodge")
    run.journal(stage_key(run, stage)).mkdir(parents=True)
    pretend_training(run, [replace(run.plan.stage("movement"), seed=5)])
    with pytest.raises(SoulsGraphError, match="journal"):
        StageSetup(run, stage).replay()
