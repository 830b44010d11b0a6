"""The Python interface on agents of the zoo: what is loaded when, who acts, what is refused, what objects print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

import soulsgraph as sg
from fakes.runs import pretend_run
from soulsgraph.playing import TrainedAgent
from soulsgraph.runs.plan import Plan
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.state import StateRows
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.skills import SKILL_NAMES
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks

AGENT = "iudex-phase1-best-0"


@pytest.fixture(scope="module")
def agent() -> sg.Run:
    return sg.load(AGENT)


@pytest.fixture(scope="module")
def rows() -> StateRows:
    """Return State rows of a fight, (60, 25)."""
    environment = sg.make("dodge").unwrapped
    environment.reset(seed=3)
    found = []
    for _ in range(60):
        found.append(environment.rollout.combat.rows[0].copy())
        if any(environment.step(environment.action_space.sample())[2:4]):
            environment.reset()
    return np.array(found, np.float32)


def test_importing_loads_nothing_that_takes_long() -> None:
    code = "import sys, soulsgraph as sg; print(sg.__version__, sorted({'pandas', 'torch', 'ray'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1)[1].strip() == "[]"


def test_a_loaded_agent_acts_and_evaluates_without_torch_and_ray() -> None:
    code = f"""
import sys, numpy as np, soulsgraph as sg
agent = sg.load({AGENT!r})
agent.act(np.zeros(25)); agent.evaluate(episodes=2)
print(sorted({{'pandas', 'torch', 'ray'}} & {{*sys.modules}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_public_name_is_there_and_says_what_it_does() -> None:
    assert dir(sg) == sorted(sg.__all__)
    assert len(sg.__all__) <= 12
    for name in sg.__all__:
        assert getattr(sg, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        sg.__getattr__("trian")


def test_q_values_of_observations_are_those_by_which_it_plays(agent: sg.Run, rows: StateRows) -> None:
    playing = agent.agent()
    for name, policy in agent.skills.items():
        network = playing.agent.networks[name]
        assert isinstance(network, FrozenNetwork)
        expected = FusedNetworks([network]).q_values(0, rows)
        observed = playing.observe(rows)[name]
        np.testing.assert_allclose(policy.q(observed), expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(policy.act(observed), policy.q(observed).argmax(axis=1))
        assert policy.q(observed[0]).shape == (len(policy.actions),)


def test_a_state_row_and_what_skills_observe_of_it_lead_to_the_same_actions(agent: sg.Run, rows: StateRows) -> None:
    seen = agent.agent().observe(rows[7])
    chosen = agent.act(rows[7])
    assert list(chosen) == list(SKILL_NAMES)
    assert agent.act(seen) == chosen
    assert agent.act({"dodge": seen["dodge"]}) == {"dodge": chosen["dodge"]}
    assert {name: int(many[7]) for name, many in agent.act(rows).items()} == chosen


def test_it_plays_rllibs_environment(agent: sg.Run) -> None:
    environment = SkillGraphEnv(options=agent.plan.options)
    observations, _ = environment.reset(seed=0)
    for _ in range(20):
        observations, *_ = environment.step(agent.act(observations))


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (np.zeros(24), "a State row of 25 values, found an array of shape (24,)"),
        (
            {"dodge": np.zeros(3)},
            "expected an observation of 24 values, or several as rows, found an array of shape (3,)",
        ),
        ({"doge": np.zeros(24)}, "Did you mean 'dodge'?"),
    ],
)
def test_what_is_no_observation_is_refused(agent: sg.Run, observation: object, words: str) -> None:
    with pytest.raises(SoulsGraphError) as refused:
        agent.act(observation)
    assert words in str(refused.value)


def test_an_evaluation_counts_as_its_rows_do_and_prints_a_table(agent: sg.Run, tmp_path: Path) -> None:
    results = agent.evaluate(episodes=30)
    assert results.win_rate == pytest.approx(results.frame["won"].mean())
    low, high = results.interval
    assert 0.0 <= low < results.win_rate <= high <= 1.0
    assert len(results.frame) == 30
    wins = f"{round(30 * results.win_rate)}/30"
    assert wins in repr(results)
    assert f"<td>{wins}</td>" in results._repr_html_()
    assert (results.save(tmp_path / "out") / "episodes.parquet").exists()
    weaker = agent.evaluate(episodes=30, random=("dodge", "heal_attack"))
    assert weaker.win_rate < results.win_rate


def test_it_acts_in_another_scenario(agent: sg.Run) -> None:
    elsewhere = agent.agent("vordt", start="long")
    assert isinstance(elsewhere, TrainedAgent)
    assert repr(elsewhere).startswith(f"{AGENT} in vordt, start long\n  camera v1: 7 observed values -> camera_up")


def test_a_fight_is_written_by_the_ending_of_its_file(agent: sg.Run, tmp_path: Path) -> None:
    film = agent.watch(seconds=0.5, file=tmp_path / "fight.gif")
    with Image.open(tmp_path / "fight.gif") as gif:
        lasts_ms = sum(frame.info["duration"] for frame in ImageSequence.Iterator(gif))
    # At the speed of the game, and its end for a moment.
    assert lasts_ms == pytest.approx(500 + 1_500, abs=110)
    assert repr(film).startswith(f"fight 1: {AGENT} (camera v1")
    assert 'src="data:image/gif;base64,' in film._repr_html_()
    with pytest.raises(UnknownNameError, match="one of mp4, gif, png"):
        film.save(tmp_path / "fight.jpg")


def test_a_fights_page_is_one_file_that_a_notebook_shows_inside(agent: sg.Run, tmp_path: Path) -> None:
    page = agent.replay(file=str(tmp_path / "fight.html"))
    assert page.file.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert page._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')


def test_the_table_of_an_agent_is_its_cards(agent: sg.Run) -> None:
    table = agent.table()
    assert list(table["setting"]) == [AGENT]
    assert table["episodes"][0] >= 400


def test_environments_are_made_by_skill_face_and_id() -> None:
    made = [sg.make(name) for name in ("dodge", "end-to-end", "end_to_end", "soulsgraph/Continual-v0")]
    assert [one.unwrapped.spec.id for one in made] == [
        "soulsgraph/Skill-v0",
        *["soulsgraph/EndToEnd-v0"] * 2,
        "soulsgraph/Continual-v0",
    ]
    assert sg.make("heal_attack", num_envs=3, scenario="vordt").num_envs == 3
    with pytest.raises(UnknownNameError, match="Did you mean 'dodge'"):
        sg.make("doge")


def test_a_run_makes_environments_that_its_skills_observe(agent: sg.Run) -> None:
    for name, policy in agent.skills.items():
        environment = agent.make(name)
        observation, _ = environment.reset(seed=0)
        environment.step(policy.act(observation))


def test_names_lead_to_agents_presets_and_fights() -> None:
    assert AGENT in sg.agents()
    assert {"paper", "best"} <= {*sg.presets()}
    assert "vordt" in sg.scenarios()
    with pytest.raises(UnknownNameError, match=AGENT):
        sg.load(AGENT.replace("best", "bst"))


def test_a_run_says_what_it_has_trained(tmp_path: Path) -> None:
    plan = Plan(scale=0.02, seed=4)
    folder = pretend_run(tmp_path / "run", plan)
    run = sg.open(str(tmp_path / "run"))
    assert repr(run).splitlines()[:2] == [
        f"run {folder.path}: iudex-phase1, graph paper, preset {plan.preset}, seed 4",
        "  camera: v1, 400 decisions in iudex-phase1",
    ]
    assert "<li>dodge: v1, 1,600 decisions in iudex-phase1</li>" in run._repr_html_()
    # Random weights win nothing.
    assert run.table(episodes=4, quiet=True)["wins"].sum() == 0
    assert list(run.table()["episodes"].unique()) == [4]
    with pytest.raises(SoulsGraphError, match="expected a Parquet file of results, found none"):
        run.curves()


def test_what_cannot_be_trained_is_refused_before_a_folder_is_begun(tmp_path: Path) -> None:
    for asked, words in (
        ({"preset": "bst"}, "Did you mean 'best'?"),
        ({"gama": 0.9}, "Did you mean 'gamma'?"),
        ({"scenario": "vort"}, "Did you mean 'vordt'?"),
        ({"scale": 0.002}, "train with a `scale` of"),
        ({"seed": "one"}, "seed"),
        ({"run": 3}, "`run`: expected a path, found 3"),
    ):
        with pytest.raises(SoulsGraphError) as refused:
            sg.train(**{"run": tmp_path / "run", **asked})
        assert words in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_folder_with_another_plan_is_refused(tmp_path: Path) -> None:
    pretend_run(tmp_path / "run", Plan(scale=0.02, seed=4))
    with pytest.raises(SoulsGraphError, match=r"with seed = 5, found a run with seed = 4; name another folder"):
        sg.train(Plan.preset, scale=0.02, seed=5, run=tmp_path / "run")


def test_an_agent_of_the_zoo_is_adapted_in_a_copy_alone(agent: sg.Run, tmp_path: Path) -> None:
    with pytest.raises(SoulsGraphError, match="copy it first"):
        agent.adapt("vordt")
    pretend_run(tmp_path / "other", Plan(scale=0.02))
    with pytest.raises(SoulsGraphError, match=f"expected a copy of {AGENT}, found another run"):
        agent.adapt("vordt", run=tmp_path / "other")
    with pytest.raises(UnknownNameError, match="doge"):
        agent.adapt("vordt", "doge", run=tmp_path / "copy")
