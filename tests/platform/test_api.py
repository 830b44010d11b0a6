"""The Python interface on agents of the zoo: what is loaded when, who acts in which fight, what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import soulsgraph as sg
from fakes.runs import pretend_run
from soulsgraph.runs.plan import Plan
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.seeds import EpisodeSeeds
from soulsgraph_envs.core.state import StateRows
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.skills import SKILL_NAMES, training_scenario
from soulsgraph_policies.agents.agent import Agent
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


def test_neither_importing_nor_a_loaded_agent_needs_what_takes_long_to_import() -> None:
    code = f"""
import sys, numpy as np, soulsgraph as sg
def heavy(): return sorted({{'pandas', 'torch', 'ray'}} & {{*sys.modules}})
print(sg.__version__, heavy())
agent = sg.load({AGENT!r})
agent.act(np.zeros(25)); agent.evaluate(episodes=2)
print(heavy())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # Where nothing is compiled yet, lines say so between the two.
    assert [line.split()[-1] for line in done.stdout.splitlines() if line.endswith("]")] == ["[]", "[]"]


def test_every_public_name_is_there_and_no_other() -> None:
    assert dir(sg) == sorted(sg.__all__)
    assert all(getattr(sg, name) for name in sg.__all__)
    with pytest.raises(AttributeError, match="trian"):
        sg.__getattr__("trian")
    assert AGENT in sg.agents()
    assert {"paper", "best"} <= {*sg.presets()}
    assert "vordt" in sg.scenarios()


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


def test_it_plays_rllibs_environment_by_the_greedy_action_of_each_skill_that_decides(agent: sg.Run) -> None:
    environment = SkillGraphEnv(options=agent.plan.options)
    observations, _ = environment.reset(seed=0)
    decided: dict[str, int] = dict.fromkeys(SKILL_NAMES, 0)
    for _ in range(40):
        actions = agent.act(observations)
        assert actions == {name: agent.skills[name].q(seen).argmax() for name, seen in observations.items()}
        decided = {name: count + (name in actions) for name, count in decided.items()}
        observations, *_ = environment.step(actions)
    # Dodges take five ticks, the camera one.
    assert 40 == decided["camera"] > decided["dodge"] > 0 < decided["heal_attack"]


def test_an_evaluation_counts_as_its_rows_do_and_prints_a_table(agent: sg.Run, tmp_path: Path) -> None:
    results = agent.evaluate(episodes=30)
    assert results.win_rate == pytest.approx(results.frame["won"].mean())
    low, high = results.interval
    assert 0.0 <= low < results.win_rate <= high <= 1.0
    assert len(results.frame) == 30
    wins = f"{round(30 * results.win_rate)}/30"
    assert wins in repr(results)
    assert (results.save(tmp_path / "out") / "episodes.parquet").exists()
    weaker = agent.evaluate(episodes=30, random=("dodge", "heal_attack"))
    assert weaker.win_rate < results.win_rate


def test_it_acts_and_is_watched_and_replayed_in_the_scenario_and_from_the_start_that_were_asked_for(
    agent: sg.Run, tmp_path: Path
) -> None:
    scenario = agent.agent("vordt", start="long").scenario
    assert (scenario.name, scenario.start) == ("vordt", "long")
    begun = []
    for settings in ({}, {"scenario": "vordt"}, {"scenario": "vordt", "start": "long"}, {"seed": 5}):
        film = agent.watch(seconds=0.1, file=tmp_path / "fight.png", **settings)
        begun.append(film.fight.scenes[0].raw.tobytes())
    assert len({*begun}) == 4
    page = agent.replay(scenario="vordt", start="long", file=str(tmp_path / "fight.html"))
    text = page.file.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "vordt, start long" in text
    assert "srcdoc" in page._repr_html_()


def test_environments_are_made_by_skill_face_and_id_and_as_a_runs_skills_observe(agent: sg.Run) -> None:
    made = [sg.make(name) for name in ("dodge", "end-to-end", "end_to_end", "soulsgraph/Continual-v0")]
    assert [one.unwrapped.spec.id for one in made] == [
        "soulsgraph/Skill-v0",
        *["soulsgraph/EndToEnd-v0"] * 2,
        "soulsgraph/Continual-v0",
    ]
    assert sg.make("heal_attack", num_envs=3, scenario="vordt").num_envs == 3
    for name, policy in agent.skills.items():
        environment = agent.make(name)
        observation, _ = environment.reset(seed=0)
        environment.step(policy.act(observation))


def test_in_a_runs_environment_the_skills_before_play_as_it_trained_them(agent: sg.Run) -> None:
    """The dodge has there the return that it has in the agent, and another one where scripts play."""
    seeds, policy = EpisodeSeeds(1), agent.skills["dodge"]
    seeds.restart(5, np.random.default_rng(0))
    whole = agent.agent().agent
    scenario = training_scenario(whole.scenario, whole.skills[3])
    alone = Agent(scenario, whole.skills[:4], whole.networks).rollout(make_game(1))
    expected = alone.play(seeds.next(np.zeros(1, np.int64))).returns[0]

    def played(environment: Any) -> float:
        observation, _ = environment.reset(seed=5)
        total, ended = 0.0, False
        while not ended:
            observation, reward, *ends, _ = environment.step(policy.act(observation))
            total, ended = total + reward, any(ends)
        return total

    assert played(agent.make("dodge")) == pytest.approx(expected, abs=1e-3)
    assert played(sg.make("dodge", options=agent.plan.options)) != pytest.approx(expected, abs=1e-3)
    assert agent.make("dodge", num_envs=2, scenario="vordt").reset(seed=0)[0].shape == (2, len(policy.observed))


def test_a_run_shows_what_it_has_trained(tmp_path: Path) -> None:
    folder = pretend_run(tmp_path / "run", Plan(scale=0.02, seed=4))
    run = sg.open(str(tmp_path / "run"))
    assert all(word in repr(run) for word in (str(folder.path), "seed 4", "dodge", "1,600"))
    # Random weights win nothing.
    assert run.table(episodes=4, quiet=True).frame["wins"].sum() == 0
    with pytest.raises(SoulsGraphError, match="curves"):
        run.curves()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that is another's."""
    place = tmp_path_factory.mktemp("refusals")
    pretend_run(place / "other", replace(Plan(scale=0.02), seed=4))
    return place


@pytest.mark.parametrize(
    ("call", "error", "name"),
    [
        (lambda agent, new: sg.make("doge"), UnknownNameError, "'dodge'"),
        (lambda agent, new: agent.act(np.zeros(24)), SoulsGraphError, "25 values"),
        (lambda agent, new: agent.act({"dodge": np.zeros(3)}), SoulsGraphError, "skill dodge"),
        (lambda agent, new: agent.act({"doge": np.zeros(24)}), UnknownNameError, "'dodge'"),
        (lambda agent, new: agent.adapt("vordt"), SoulsGraphError, AGENT),
        (lambda agent, new: sg.train(run=new, gama=0.9), UnknownNameError, "'gamma'"),
        (lambda agent, new: sg.train(run=new, track="nowhere"), UnknownNameError, "nowhere"),
        (lambda agent, new: sg.train(scale=0.02, seed=5, run=new.with_name("other")), SoulsGraphError, "seed = 4"),
    ],
)
def test_what_cannot_be_is_refused_by_name_before_anything_is_begun(
    agent: sg.Run, place: Path, call: Callable[..., object], error: type[SoulsGraphError], name: str
) -> None:
    with pytest.raises(error) as refused:
        call(agent, place / "new")
    assert name in str(refused.value)
    assert not (place / "new").exists()
