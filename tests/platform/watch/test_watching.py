"""Fights that are watched: who plays, what is kept of every tick, and the pictures of it in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fakes.programs import read_video
from fakes.runs import pretend_run, pretend_training
from soulsgraph.runs.evaluate import Setting, evaluation_seeds, make_agent, play, save_checkpoint
from soulsgraph.runs.lineage import stage_key
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.watch import watching
from soulsgraph.watch.watching import (
    FIGHT_SIZE,
    PICTURES_PER_S,
    SIZE,
    AgentSource,
    Fight,
    FightWindow,
    draw,
    frames,
    play_fight,
    write_gif,
    write_mp4,
)
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.render.pictures import import_pygame
from soulsgraph_envs.simulator.render import panel_width

SEEDS = evaluation_seeds(7, 1)
#: Pictures of a tick, of the end, and of the whole fight below.
A_TICK, END_FRAMES, FRAMES = 3, 45, 39 * 3 + 1 + 45


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return pretend_run(tmp_path_factory.mktemp("watched") / "run", Plan(scale=0.01))


@pytest.fixture(scope="module")
def fight(run: RunFolder) -> Fight:
    return play_fight(AgentSource(run).agent(), SEEDS, 40)


def test_the_fight_watched_is_the_one_that_an_evaluation_plays(run: RunFolder) -> None:
    watched = play_fight(AgentSource(run).agent(), SEEDS, 10_000)
    played = play(make_agent(run, Setting("iudex-phase1", "iudex-phase1")), SEEDS)
    assert watched.seconds == pytest.approx(played.seconds[0])
    assert watched.outcome == ("died" if played.died[0] else "won" if played.won[0] else "time over")
    last = watched.scenes[-1].raw
    assert last[Raw.BOSS_HP] / last[Raw.BOSS_HP_MAX] == pytest.approx(played.rows[0, 6], abs=1e-6)


def test_every_action_is_the_best_value_of_what_was_observed(fight: Fight) -> None:
    for mind in fight.minds:
        assert mind.values is not None
        decided = mind.actions >= 0
        assert decided.any()
        assert mind.observations.shape == (len(fight), mind.skill.observation.size)
        np.testing.assert_array_equal(mind.values[decided].argmax(axis=1), mind.actions[decided])


def test_a_decision_begins_where_the_skills_durations_say(fight: Fight) -> None:
    dodge = next(mind for mind in fight.minds if mind.skill.name == "dodge")
    begun = np.flatnonzero(dodge.begun)
    assert begun[0] < 5
    assert len(begun) > 2
    for first, following in pairwise(begun):
        assert following - first == dodge.skill.actions[dodge.actions[first]].ticks
        assert len(set(dodge.actions[first:following].tolist())) == 1


def test_a_random_skill_has_no_values_and_is_called_random(run: RunFolder) -> None:
    watched = AgentSource(run, randomize=("dodge",)).agent()
    fight = play_fight(watched, SEEDS, 10)
    players = {mind.skill.name: mind.player for mind in fight.minds}
    assert players == {"camera": "v1", "lock_on": "v1", "movement": "v1", "dodge": "random", "heal_attack": "v1"}
    assert [mind.skill.name for mind in fight.minds if mind.values is None] == ["dodge"]


def test_a_run_in_training_fights_by_its_newest_checkpoint(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", Plan(scale=0.01))
    camera, lock_on = run.plan.stages()[:2]
    begun = AgentSource(run).agent()
    assert begun.players == {"camera": "random"}
    assert begun.agent.scenario.refill  # The stage's training scenario.
    pretend_training(run, (camera,))
    # Any weights of the right shapes serve as those of a checkpoint.
    other = pretend_run(tmp_path / "other", Plan(scale=0.01))
    weights = [other.library.load("lock_on", 1).weights, other.library.load("lock_on", 1).weights]
    weights[1] = {name: values * 2.0 for name, values in weights[1].items()}
    folder = run.curve(stage_key(run, lock_on))
    for step, one in zip((1000, 2000), weights, strict=True):
        save_checkpoint(folder, step, {"lock_on": one})
        watched = AgentSource(run).agent()
        assert watched.players == {"camera": "v1", "lock_on": f"in training, step {step:,}"}
        network = watched.agent.networks["lock_on"]
        np.testing.assert_array_equal(network.weights["q_network.0.bias"], one["q_network.0.bias"])
    pretend_training(run, run.plan.stages()[1:])
    assert set(AgentSource(run).agent().players.values()) == {"v1"}


def test_two_agents_fight_beside_each_other_from_the_same_seed(run: RunFolder, fight: Fight) -> None:
    other = play_fight(AgentSource(run, randomize=("movement",)).agent(), SEEDS, 25)
    assert fight.seed == other.seed
    # The first tick's places differ by one tick of walking at most: the same start.
    assert np.abs(fight.scenes[0].raw[:6] - other.scenes[0].raw[:6]).max() < 1.0
    both = draw((fight, other), 30)
    assert both.shape == (SIZE[0], 2 * SIZE[1], 3)
    np.testing.assert_array_equal(both[:, : SIZE[1]], draw((fight,), 30))
    # One that has ended stays as it ended.
    left = SIZE[1] - panel_width(FIGHT_SIZE)
    np.testing.assert_array_equal(both[:, SIZE[1] :][:, :left], draw((other,), len(other) - 1)[:, :left])


def test_two_versions_of_a_run_fight_beside_each_other(tmp_path: Path) -> None:
    run = pretend_run(tmp_path / "run", Plan(scale=0.01))
    again = next(stage for stage in run.plan.stages() if stage.skill == "dodge")
    pretend_training(run, (replace(again, seed=again.seed + 1),))
    first, newest = AgentSource(run, versions={"dodge": 1}).agent(), AgentSource(run).agent()
    assert (first.name, newest.name) == ("run@dodge=v1", "run")
    assert (first.players["dodge"], newest.players["dodge"]) == ("v1", "v2")
    assert {name for name in first.players if first.players[name] != newest.players[name]} == {"dodge"}
    for watched, version in ((first, 1), (newest, 2)):
        wanted = run.library.load("dodge", version).weights["q_network.0.bias"]
        np.testing.assert_array_equal(watched.agent.networks["dodge"].weights["q_network.0.bias"], wanted)


def test_a_picture_shows_the_chosen_action_of_every_skill(fight: Fight) -> None:
    picture = draw((fight,), 20)
    assert picture.shape == (*SIZE, 3)
    chosen = (picture == (74, 112, 190)).all(-1)
    width, (high, _) = SIZE[1] // len(fight.minds), fight.line_sizes
    for index, mind in enumerate(fight.minds):
        lines = [24 + FIGHT_SIZE[0] + 4 + 32 + high * number + 3 for number in range(len(mind.skill.actions))]
        # Every bar begins at the left, however long it is.
        covered = chosen[lines, index * width + 2 : index * width + 4].mean(axis=1)
        assert (covered > 0.9).tolist() == [number == mind.actions[20] for number in range(len(lines))]


@pytest.mark.slow
def test_a_file_has_thirty_frames_a_second_in_the_requested_size(fight: Fight, tmp_path: Path) -> None:
    write_gif(tmp_path / "fight.gif", frames((fight,)))
    with Image.open(tmp_path / "fight.gif") as gif:
        assert gif.size == SIZE[::-1]
        durations = []
        for number in range(gif.n_frames):
            gif.seek(number)
            durations.append(gif.info["duration"])
    # Equal pictures at the end are one, shown for longer.
    assert sum(durations) == pytest.approx(1000 * FRAMES / PICTURES_PER_S, abs=10)
    write_mp4(tmp_path / "fight.mp4", frames((fight, fight), only_fight=True))
    pictures = read_video(tmp_path / "fight.mp4")
    assert [picture.shape for picture in pictures] == [(FIGHT_SIZE[0], 2 * FIGHT_SIZE[1], 3)] * FRAMES
    wanted = draw((fight, fight), 12, only_fight=True).astype(int)
    assert np.abs(pictures[12 * A_TICK].astype(int) - wanted).mean() < 6.0


def test_between_ticks_both_move_evenly(fight: Fight) -> None:
    first, half, second = (fight.scene_at(tick).raw for tick in (20, 20.5, 21))
    for value in (Raw.PLAYER_X, Raw.PLAYER_Y, Raw.BOSS_X, Raw.BOSS_HP):
        assert half[value] == pytest.approx(0.5 * (first[value] + second[value]))
    assert len(fight.scene_at(20.5).ways[0]) == 5
    assert fight.scene_at(len(fight) + 3.5).raw.tolist() == fight.scenes[-1].raw.tolist()


def test_of_fights_beside_each_other_the_first_has_the_legend(fight: Fight) -> None:
    width = FIGHT_SIZE[1]
    picture = draw((fight, replace(fight)), 12, only_fight=True)
    differs = np.argwhere((picture[:, :width] != picture[:, width:]).any(-1))
    assert len(differs) > 200
    assert differs[:, 1].min() > width - panel_width(FIGHT_SIZE)


def test_nothing_half_written_lies_there_while_a_film_is_drawn_or_stays_behind(fight: Fight, tmp_path: Path) -> None:
    def broken():  # type: ignore[no-untyped-def]
        yield from list(frames((replace(fight, scenes=fight.scenes[:3]),)))[:3]
        assert list(tmp_path.iterdir()) == []
        raise SoulsGraphError("stopped")

    for write, name in ((write_gif, "a.gif"), (write_mp4, "a.mp4")):
        with pytest.raises(SoulsGraphError, match="stopped"):
            write(tmp_path / name, broken())
    assert list(tmp_path.iterdir()) == []


def test_keys_pause_step_go_on_and_end(fight: Fight, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame = import_pygame()
    window = FightWindow(SIZE, pictures_per_s=1000.0)
    fight = replace(fight, scenes=fight.scenes[:8])
    drawn: list[float] = []

    def watched(keys: dict[int, str]) -> tuple[bool, list[float]]:
        """Play the fight, pressing each key with the picture of that number; return the ticks that were drawn."""
        drawn.clear()

        def draw_and_press(fights: Sequence[Fight], tick: float, only_fight: bool) -> Picture:
            if key := keys.get(len(drawn)):
                pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.key.key_code(key)))
            drawn.append(tick)
            return draw(fights, tick, only_fight)

        monkeypatch.setattr(watching, "draw", draw_and_press)
        return window.play((fight,)), list(drawn)

    pygame.event.get()
    whole, last = [number / A_TICK for number in range(200)], len(fight) * A_TICK + END_FRAMES
    assert watched({}) == (True, [number / A_TICK for number in range(last)])
    # Space stops within tick 1, the arrows step from tick to tick, space goes on, Escape ends.
    stepped = {3: "space", 6: "right", 7: "right", 8: "left", 10: "space", 12: "escape"}
    stopped = [*whole[:4], 1.0, 1.0, 1.0, 2.0, 3.0, 2.0, 2.0]
    assert watched(stepped) == (False, [*stopped, whole[7], whole[8]])
    assert watched({5: "n"}) == (True, whole[:6])
    assert watched({0: "left", 2: "q"}) == (False, [0, 0, 0])
    window.close()
