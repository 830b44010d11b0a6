"""What was written before options had their present names: read, found again, and of the same digests."""

import json
import shutil
from pathlib import Path

import pytest

from soulsgraph.cli.studies import study_values
from soulsgraph.paper.study import Study
from soulsgraph.runs.lineage import finished_versions, own_stage
from soulsgraph.runs.plan import Plan, digest_of, how_it_learns, plan_values
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import Workplace, train_stage
from soulsgraph.zoo.card import Digests
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.core.config import RENAMED, present_names, to_table
from soulsgraph_envs.core.errors import DataError
from soulsgraph_policies.agents.library import SkillLibrary

DATA = Path(__file__).parent / "data"
#: A run with `overrides` by earlier names: camera and lock-on trained, and the last checkpoint of lock-on.
RUN = DATA / "run_by_earlier_names"
#: Digests that the version before the present names took of plans.
DIGESTS = json.loads((DATA / "digests_by_earlier_names.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("names", [dict, present_names], ids=["earlier", "present"])
@pytest.mark.parametrize("sample", DIGESTS, ids=[f"{one['preset']}-{index}" for index, one in enumerate(DIGESTS)])
def test_digests_of_plans_are_those_of_the_version_before(sample, names):
    plan = Plan(preset=sample["preset"], overrides=names(sample["overrides"]), scale=0.5)
    stages = plan.stage("camera"), plan.stage("dodge", "vordt", 1)
    assert [how_it_learns(plan, stage) for stage in stages] == sample["learning"]
    assert digest_of(plan_values(plan)) == sample["plan"]
    assert Digests.of(plan).preset == sample["zoo"]


def test_a_run_begun_by_earlier_names_is_found_again_and_goes_on(tmp_path):
    shutil.copytree(RUN, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "library" / "lock_on")
    run = RunFolder.open(tmp_path / "run")
    written = {"target_period": 100, "exploration_fraction": 0.2, "discount": 0.98, "decisions_per_update": 16}
    assert json.loads((RUN / "plan.json").read_text(encoding="utf-8"))["plan"]["overrides"] == written
    numbers = run.plan.hyperparameters(own_stage(run, "camera"))
    assert (numbers.target_update_interval, numbers.epsilon_fraction, numbers.gamma) == (100, 0.2, 0.98)
    assert finished_versions(run, own_stage(run, "camera"))

    before = SkillLibrary(RUN / "library", run.plan.skill_graph).card("lock_on", 1)
    with connect("local", num_cpus=1) as session, Workplace(run, session, "silent") as workplace:
        (card,) = train_stage(workplace, own_stage(run, "lock_on"))
    assert (card.digest, card.training.learning) == (before.digest, before.training.learning)


def test_a_study_takes_options_by_either_name():
    names = {"preset": "fast", "skills": True}
    earlier, present = (Study(overrides=one, **names) for one in ({"discount": 0.9}, {"gamma": 0.9}))
    assert earlier == present
    assert to_table(earlier)["overrides"] == {"gamma": 0.9}
    given = study_values({"overrides": ("target_period=500", "double=true")}, range(3))
    assert given["overrides"] == {"target_update_interval": 500, "double": True}


def test_an_option_by_both_of_its_names_is_refused():
    with pytest.raises(DataError, match="expected gamma, or discount by its earlier name, found both"):
        Plan(overrides={"discount": 0.9, "gamma": 0.9})


def test_every_renamed_option_is_read_by_its_earlier_name():
    plans = {"gamma": 0.9, "epsilon_initial": 0.9, "epsilon_final": 0.1, "epsilon_fraction": 0.3, "tau": 0.01}
    plans |= {"target_update_interval": 9, "train_freq": 2, "max_grad_norm": 2.0, "td_lambda": 0.5, "update_epochs": 2}
    for name, value in [*plans.items(), ("num_steps", 512)]:
        numbers, plain = (Plan(preset="fast", overrides=one).method.learning for one in ({RENAMED[name]: value}, {}))
        assert {**plain, name: value} == numbers
    assert Plan(overrides={RENAMED["steps_per_round"]: 64}).method.steps_per_round == 64
