"""The agents of the zoo fit the code, play as their cards say, and stay as they are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import soulsgraph as sg
from fakes.runs import pretend_run
from soulsgraph import zoo
from soulsgraph.paper.study import evaluation_seed
from soulsgraph.runs.evaluate import CURVE_SEED, EVALUATION_SEED, check_library, evaluation_seeds
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder, RunFolderError
from soulsgraph.zoo.card import (
    CARD,
    PAGE,
    ZOO_SEED,
    Digests,
    EvaluationScore,
    TrainingOrigin,
    Verification,
    read_card,
    verify_agent,
)
from soulsgraph_envs.core.config import to_table
from soulsgraph_envs.core.errors import DataError
from soulsgraph_envs.core.files import write_json
from zoo_agents import PLANNED, card_page, make_card, plan_of

_ONE = "iudex-phase1-best-0"


def test_no_agent_that_was_planned_is_left_out():
    assert zoo.agent_names() == tuple(sorted(PLANNED))


@pytest.mark.parametrize("name", zoo.agent_names())
def test_an_agents_skills_card_and_page_fit_the_code_and_each_other(name):
    run, card = zoo.open_agent(name), read_card(zoo.AGENTS / name)
    plan = run.plan
    assert plan == plan_of(name)
    assert card.digests.differing(Digests.of(plan)) == ()
    skills = check_library(run)
    assert [(one.skill, one.version, one.digest) for one in card.lineage] == [
        (one.skill, one.version, one.digest) for one in skills
    ]
    assert [one.budget for one in card.lineage] == [part.budget for stage in plan.stages() for part in stage.parts]
    assert (card.name, card.scenario, card.preset) == (name, plan.scenario, plan.preset)
    assert (card.graph, card.seed, card.budget) == (plan.graph, plan.seed, sum(stage.steps for stage in plan.stages()))
    assert card.reached == EvaluationScore.of(card.reached.outcomes, ZOO_SEED)
    assert card.reached.episodes == 1_000
    assert card.origin.commit
    assert "modified" not in card.origin.commit
    assert (zoo.AGENTS / name / PAGE).read_text(encoding="utf-8") == card_page(card)


def test_the_evaluation_seeds_of_the_cards_are_used_for_nothing_else():
    # The last are those of examples/compare_cloning.py and of the notebooks that examine a fight and compare runs.
    others = {EVALUATION_SEED, CURVE_SEED, *map(evaluation_seed, range(700))}
    others |= {*range(50_000, 52_000), *range(60_000, 62_000), 7, 2_000_000}
    assert ZOO_SEED not in others
    mine = set(evaluation_seeds(ZOO_SEED, 1_000).tolist())
    assert all(mine.isdisjoint(evaluation_seeds(seed, 1_000).tolist()) for seed in others)


@pytest.mark.parametrize("change", ["preset", "scenario", "observations"])
def test_a_change_of_what_an_agent_was_trained_with_is_found(change):
    plan = Plan(preset="best")
    changed = {
        "preset": replace(plan, overrides={"train_batch_size_per_learner": 128}),
        "scenario": replace(plan, scenario="vordt"),
        "observations": replace(plan, overrides={"observations": "extended"}),
    }[change]
    found = Digests.of(plan).differing(Digests.of(changed))
    expected = {"preset": ("preset",), "scenario": ("scenario",), "observations": ("preset", *plan.skill_graph.order)}
    assert set(expected[change]) <= set(found)


def test_the_first_episodes_of_a_card_are_played_again_with_the_same_outcomes():
    found = verify_agent(_ONE, episodes=64)
    assert found.changed == ()
    assert found.holds
    if found.same_processor:
        assert found.differing == 0


def _reached(*wins: int, episodes: int = 200) -> list[EvaluationScore]:
    return [EvaluationScore.of(np.arange(episodes) < count, ZOO_SEED) for count in wins]


@pytest.mark.parametrize(
    ("found", "same", "holds"), [(102, True, True), (103, True, False), (103, False, True), (130, False, False)]
)
def test_a_rate_holds_within_a_point_here_and_within_the_interval_elsewhere(found, same, holds):
    card, now = _reached(100, found)
    verified = Verification("one", card, now, same, ())
    assert (verified.holds, verified.differing) == (holds, found - 100)


def test_outcomes_are_kept_bit_by_bit():
    won = np.random.default_rng(0).random(37) < 0.4
    reached = EvaluationScore.of(won, 5)
    assert reached.outcomes.tolist() == won.tolist()
    assert (reached.wins, reached.episodes) == (won.sum(), 37)
    assert reached.first(11) == EvaluationScore.of(won[:11], 5)


def test_a_cards_page_has_the_header_of_a_model_hub(tmp_path):
    card = make_card("pretended", pretend_run(tmp_path / "run", Plan()), TrainingOrigin.now(), episodes=16)
    header = yaml.safe_load(card_page(card).split("---\n")[1])
    (model,) = header["model-index"]
    (result,) = model["results"]
    assert header["library_name"] == "soulsgraph"
    assert (model["name"], result["dataset"]["type"]) == ("pretended", "iudex-phase1")
    assert result["metrics"][0]["value"] == pytest.approx(100 * card.reached.rate, abs=0.05)


def test_a_folder_of_an_agents_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert zoo.open_run(Path(_ONE)).path == zoo.AGENTS / _ONE
    RunFolder.create(tmp_path / _ONE, Plan(seed=77))
    assert zoo.open_run(Path(_ONE)).plan.seed == 77


def test_a_copy_is_a_run_of_ones_own(tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "new", tmp_path / "empty"):
        copied, agent = zoo.copy_agent(_ONE, folder), zoo.open_agent(_ONE)
        assert copied.path == folder
        assert copied.plan == agent.plan
        assert [card.digest for card in check_library(copied)] == [card.digest for card in check_library(agent)]
        with copied.locked():
            pass
        assert zoo.copy_agent(_ONE, folder).plan == agent.plan, "it is gone on with"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(RunFolderError, match="other"):
        zoo.copy_agent(_ONE, tmp_path / "other")


@pytest.mark.parametrize(("edit", "name"), [({"format": "another"}, "format"), ({"seed": "zero"}, "seed")])
def test_a_damaged_card_is_refused(tmp_path, edit, name):
    values = to_table(read_card(zoo.AGENTS / _ONE))
    write_json(tmp_path / CARD, {**values, **edit})
    with pytest.raises(DataError, match=name):
        read_card(tmp_path)


def test_an_agent_is_not_adapted_in_a_folder_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    RunFolder.create(tmp_path / _ONE, Plan(seed=77))
    with pytest.raises(RunFolderError, match="read-only agent"):
        sg.load(_ONE).adapt("vordt", "dodge")
