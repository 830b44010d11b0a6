"""What is found again is found by all that determines it: each case here once answered by something else."""

from pathlib import Path
from typing import Any

import pytest

import soulsgraph as sg
from fakes.runs import pretend_run, pretend_training
from soulsgraph.calibrate.rows import read_fights
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import Setting, allowed_rows, evaluation_seeds
from soulsgraph.runs.lineage import adaptation_stages
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder, RunFolderError
from soulsgraph.tune.folder import Sweep, SweepFolder, SweptRun
from soulsgraph.tune.space import SearchSpace
from soulsgraph.tune.sweep import adapted_plan, opened_sweep
from soulsgraph_envs.core.config import find
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_boss
from soulsgraph_policies.learning.own_learner import find_learner, learner_name

HOME, SECOND = "iudex-phase1", "iudex-phase2"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return pretend_run(tmp_path / "run", Plan(scale=0.05, episodes=4))


def _swept(run: RunFolder, scenario: str) -> Sweep:
    adapted = SweptRun(str(run.path), scenario, ("dodge",), 1_600)
    return Sweep(adapted_plan(adapted, {}), SearchSpace({"dodge.gamma": (0.9,)}), (200,), source=adapted)


def test_an_adapting_sweep_is_of_its_targets_fight(run, tmp_path):
    target = tmp_path / "mine.toml"
    target.write_text(find("scenario", "vordt").read_text())
    SweepFolder.create(tmp_path / "sweep", _swept(run, str(target)))
    SweepFolder.open(tmp_path / "sweep")
    target.write_text(target.read_text().replace("boss_hp = [889.0, 439.0]", "boss_hp = [60.0, 10.0]"))
    with pytest.raises(RunFolderError):
        SweepFolder.open(tmp_path / "sweep")


def test_an_adapting_sweep_goes_on_by_its_copy_where_its_source_moved(run, tmp_path):
    asked = _swept(run, "vordt")
    folder = SweepFolder.create(tmp_path / "sweep", asked)
    folder.prepare()
    run.path.rename(tmp_path / "moved")
    again: tuple[Any, ...] = (folder.path, None, {}, {}, {"run": str(run.path)})
    assert opened_sweep(*again).plan == folder.plan
    folder.prepare()
    setting = {"dodge.gamma": 0.9}
    assert folder.run(folder.run_path(setting, 200, ""), setting, 200).library.versions("dodge") == [1]


def test_a_table_is_of_its_seed_and_episodes(run):
    opened = sg.open(run.path)
    first = opened.table(8, quiet=True).frame
    written = (run.path / "results" / "table.json").read_text()
    assert opened.table(8, quiet=True).frame.equals(first)
    assert (run.path / "results" / "table.json").read_text() == written
    with run.locked(), pytest.raises(RunFolderError):
        opened.table(9, quiet=True)
    for asked in ({"episodes": 8, "seed": 5}, {"episodes": 9, "seed": 5}, {}):
        before = (run.path / "results" / "table.json").read_text()
        found = opened.table(**asked, quiet=True).frame
        assert set(found["episodes"]) == {asked.get("episodes", run.plan.episodes)}
        assert (run.path / "results" / "table.json").read_text() != before


def test_fights_from_before_and_after_a_change_of_the_boss_are_not_fitted_together(tmp_path):
    scenario, boss, fights = tmp_path / "own.toml", tmp_path / "boss.toml", tmp_path / "fights"
    scenario.write_text('based_on = "iudex-phase1"\nname = "own"\nboss = "boss.toml"\n')
    boss.write_text('based_on = "iudex-phase1"\nname = "b"\n')
    agent = sg.load("iudex-phase1-best-0").folder
    for seed, factor in ((1, 1.0), (2, 3.0)):
        boss.write_text(f'based_on = "iudex-phase1"\nname = "b"\n[scaled]\ndamage_factor = {factor}\n')
        record(Fighter.of_run(agent, Setting(str(scenario), HOME)), evaluation_seeds(seed, 2), fights)
        if seed == 1:
            assert len(read_fights(fights, load_boss("iudex-phase1"), True).fights) == 2
    with pytest.raises(SoulsGraphError):
        read_fights(fights, load_boss("iudex-phase1"), True)


class Plain:
    bias = 1.0

    def act(self, observations):
        return self.layers()

    receive = learn = act

    def layers(self):
        return self.bias


class Biased(Plain):
    """The same but for a constant."""

    bias = 2.0


def _learner(bias: float):
    class Own(Plain):
        def layers(self):
            return bias

    return Own


def test_a_learner_is_known_by_what_its_code_does():
    assert learner_name(_learner(1.0)) == learner_name(_learner(1.0))
    names = {learner_name(_learner(1.0)), learner_name(_learner(2.0)), learner_name(Biased), learner_name(Plain)}
    assert len(names) == 4
    assert find_learner(learner_name(Plain)) is Plain
    with pytest.raises(SoulsGraphError):
        find_learner(learner_name(Plain)[:-1] + "x")


@pytest.mark.parametrize(
    ("adapted", "label", "paper"),
    [
        (("dodge", "heal_attack"), "dodge and heal-attack fine-tuned", 52.0),
        (("dodge",), "dodge fine-tuned", None),
        (
            ("camera", "lock_on", "movement", "dodge", "heal_attack"),
            "camera and lock-on and movement and dodge and heal-attack fine-tuned",
            None,
        ),
    ],
)
def test_a_row_of_the_table_names_the_skills_that_were_adapted(run, adapted, label, paper):
    assert not [row for row in allowed_rows(run) if row.trained_on == SECOND]
    pretend_training(run, adaptation_stages(run, SECOND, adapted))
    (row,) = (row for row in allowed_rows(run) if row.trained_on == SECOND)
    assert (row.label, row.paper_percent) == (label, paper)
