"""Fights in running games: recorded as they were read, drawn from their readings, never played again."""

from dataclasses import replace

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from fakes.realtime import FakeTable, FakeTime
from fakes.recordings import read_all
from soulsgraph.recordings.check import check_file
from soulsgraph.recordings.files import read_recording, recording_files
from soulsgraph.recordings.recording import Fighter, record_in_games
from soulsgraph.runs.evaluate import evaluation_seeds
from soulsgraph_envs.core.scenario import load_boss
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.skills import SKILL_NAMES

SCENARIO = "iudex-phase1"


def random_fighter():
    """Return an agent whose skills all draw their actions."""
    oracle = Fighter.oracle(SCENARIO)
    agent = replace(oracle.agent, replaced=dict.fromkeys(SKILL_NAMES, "random"))
    played = tuple(replace(one, player="random") for one in oracle.played)
    return replace(oracle, name="nobody", agent=agent, played=played)


def play_in(table, monkeypatch):
    """Let what opens a game find the one of a table."""
    monkeypatch.setattr("soulsgraph.runs.evaluate.check_games", lambda games: None)
    monkeypatch.setattr("soulsgraph.runs.evaluate.open_live_game", lambda settings, clock: table.game)


def test_a_fight_in_a_game_is_recorded_as_it_was_read(tmp_path, monkeypatch):
    table = FakeTable()
    readings: list[np.ndarray] = []
    step = table.game.step

    def kept(*arguments):
        raw = step(*arguments)  # type: ignore[arg-type]
        readings.append(raw[0].copy())
        return raw

    monkeypatch.setattr(table.game, "step", kept)
    play_in(table, monkeypatch)
    (report,) = record_in_games(random_fighter(), evaluation_seeds(4, 1), tmp_path, (GameSettings(),))
    assert report.replays == 0
    (path,) = recording_files(tmp_path)
    recording = read_recording(path)
    header = recording.header
    assert (header.source, header.driver, header.player) == ("game", "memory", "nobody")
    assert {one.player for one in header.skills} == {"random"}
    assert_array_equal(recording.raw[1:], readings)
    assert recording.column("dodge/random")[recording.column("dodge/decides")].all()
    assert set(recording.column("invulnerable")) == {None}
    assert (header.map, header.game_version, header.speed) == ("dark-souls-3-1.15.2", "", 1.0)
    # The stand-in's clock goes by frames, and its ticks are as long as they should be.
    assert_allclose(recording.column("clock_s"), recording.column("time_s"), atol=1 / 60)
    assert {*recording.column("phase")} == {1}
    assert_array_equal(recording.column("player_hp_unfilled"), recording.column("player_hp"))
    boss = load_boss(SCENARIO)
    names = {one.id: one.name for one in (*boss.moves, *boss.animations.known().values())}
    read, ids = recording.column("boss_animation_read"), recording.column("boss_animation")
    # A blow that lands hides the name of what is no attack.
    shown = {(one, names[number]) for one, number in zip(read, ids, strict=True) if one is not None}
    assert shown <= {(name, name) for name in names.values()}
    assert len(shown) > 4
    assert check_file(path).verdict == "whole"


def test_the_probe_is_recorded_in_a_game_whose_ticks_come_late(tmp_path, monkeypatch):
    late, wait = np.random.default_rng(5), FakeTime.pass_by
    # A tick may last two frames longer, which no schedule foresees.
    monkeypatch.setattr(FakeTime, "pass_by", lambda self, seconds: wait(self, seconds + late.uniform(0.0, 0.03)))
    table, frames = FakeTable(), list[int]()
    step = table.game.step

    def kept(*arguments):
        raw = step(*arguments)  # type: ignore[arg-type]
        frames.append(table.link.world.frames)
        return raw

    monkeypatch.setattr(table.game, "step", kept)
    play_in(table, monkeypatch)
    record_in_games(Fighter.probe(SCENARIO), evaluation_seeds(4, 1), tmp_path, (GameSettings(speed=1.0),))
    recording = read_all(tmp_path)[0]
    assert recording.header.fight.startswith("probe-iudex-phase1-games-")
    clock_s = recording.column("clock_s")
    assert_allclose(np.diff(clock_s)[1:], np.diff(frames) / 60.0, atol=1e-6)
    assert np.diff(clock_s).std() > 0.004
    assert not recording.column("control/light_attack").any()
