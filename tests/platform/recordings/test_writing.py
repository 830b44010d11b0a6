"""The writer: whatever ticks it takes, a file gives back; and nothing is there before a fight is finished."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from soulsgraph.recordings.check import check_file
from soulsgraph.recordings.files import read_recording
from soulsgraph.recordings.format import make_header
from soulsgraph.recordings.recording import FightWriter, seen_in, seen_of
from soulsgraph_envs.combat.rollout import Outcome
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import HitWindow, load_scenario
from soulsgraph_envs.core.state import ALL_CONTROLS, RAW_SIZE, Control, Raw
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.simulator.scene import Activity, AnimationWords, Area, Change, Scene

SCENARIO = load_scenario("iudex-phase1")
_WHOLE = [Raw.PLAYER_ANIMATION, Raw.BOSS_ANIMATION, Raw.FLASKS]


def header_of(fight, **others):
    who = {"source": "person", "driver": "simulator", "player": "somebody"}
    return make_header(SCENARIO, fight=fight, scenario="iudex-phase1", **who, **others)


HEADER = header_of("drawn")
_floats = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
_shares = st.floats(0.0, 1.0)
_parts = st.lists(st.tuples(_shares, _shares), max_size=3).map(tuple)
_animations = st.builds(Activity, st.text(max_size=20), st.just(0.0), _parts, _shares)
_areas = st.builds(
    lambda reach, arc, offset, winding, is_open: Area(
        HitWindow((0.0, 0.0), reach, arc, 0.0, offset_m=offset), winding, is_open
    ),
    *(_floats, _floats, _floats, _shares, st.booleans()),
)
_changes = st.builds(Change, _floats, st.floats(0.0, 10.0) | st.just(np.inf))


@st.composite
def raws(draw):
    raw = draw(hnp.arrays(np.float64, RAW_SIZE, elements=_floats))
    raw[_WHOLE] = draw(st.lists(st.integers(0, 30000), min_size=3, max_size=3))
    raw[Raw.LOCKED] = draw(st.sampled_from([0.0, 1.0]))
    raw[[Raw.PLAYER_ANIMATION_LENGTH_S, Raw.BOSS_ANIMATION_LENGTH_S]] = draw(st.floats(0.1, 9.0))
    return raw


@st.composite
def moments(draw):
    raw = draw(raws())
    scene = None
    if draw(st.booleans()):
        scene = Scene(
            raw=raw,
            arena=SCENARIO.arena,
            radii_m=(HEADER.ground.player_radius_m, HEADER.ground.phases[0].radius_m),
            boss_name=HEADER.ground.phases[0].boss,
            phase=1,
            boss=draw(_animations),
            player=draw(_animations),
            areas=tuple(draw(st.lists(_areas, max_size=2))),
            until_hit_s=draw(st.floats(0.0, 5.0) | st.just(np.inf)),
            invulnerable=draw(st.booleans()),
            player_change=draw(_changes),
            boss_change=draw(_changes),
            build_up=draw(_shares),
        )
    names = {f"{who}_animation_name": draw(st.none() | st.text(max_size=9)) for who in ("player", "boss")}
    controls = draw(st.integers(0, int(ALL_CONTROLS))) & int(ALL_CONTROLS)
    return raw, controls, names if scene is None else {**seen_of(scene), **names}, scene


@settings(max_examples=20, deadline=None)
@given(ticks=st.lists(moments(), min_size=2, max_size=4), outcome=st.sampled_from(get_args(Outcome)))
def test_a_file_gives_back_what_the_writer_took(ticks, outcome):
    with TemporaryDirectory() as folder:
        writer = FightWriter(Path(folder), HEADER)
        for raw, controls, seen, _ in ticks[:-1]:
            writer.add(raw, controls, seen)
        found = read_recording(writer.finish(ticks[-1][0], outcome, ticks[-1][2]))
    assert_array_equal(found.raw, [raw for raw, *_ in ticks])
    assert found.controls.tolist() == [*(controls for _, controls, *_ in ticks[:-1]), 0]
    assert (found.header.result.outcome, len(found)) == (outcome, len(ticks) - 1)
    for row, (*_, seen, scene) in enumerate(ticks):
        drawn = found.scene(row)
        if scene is None:
            assert (drawn.areas, drawn.invulnerable) == ((), False)
            assert drawn.boss.name == (seen["boss_animation_name"] or "")
            continue
        for name in ("areas", "until_hit_s", "invulnerable", "player_change", "boss_change", "build_up", "phase"):
            assert getattr(drawn, name) == getattr(scene, name)
        for one, other in ((drawn.boss, scene.boss), (drawn.player, scene.player)):
            assert (one.name, one.parts) == (other.name, other.parts)
        assert drawn.player.moment == scene.player.moment


def play(writer, seed, ticks):
    """Let somebody hold and press a few keys."""
    game = make_game()
    raw = game.reset(np.zeros(1, np.int64), SCENARIO, np.array([seed], np.uint64))[0].copy()
    words = AnimationWords.of(SCENARIO)
    for tick in range(ticks):
        controls = int(Control.FORWARD | (Control.ROLL if tick % 7 == 3 else Control.NONE))
        writer.add(raw, controls, seen_in(game, raw, words))
        raw = game.step(np.array([controls], np.uint32))[0].copy()
    return writer.finish(raw, "cut", seen_in(game, raw, words))


def test_a_persons_fight_in_the_simulator_is_the_same_when_it_is_played_again(tmp_path):
    path = play(FightWriter(tmp_path, header_of("played", seed=2**64 - 5)), 2**64 - 5, 40)
    assert check_file(path).verdict == "same"
    recording = read_recording(path)
    assert recording.header.skills == ()
    assert recording.column("control/roll").sum() == 6
    without = play(FightWriter(tmp_path, header_of("without-seed")), 4, 5)
    assert check_file(without).verdict == "whole"


def test_nothing_is_written_before_a_fight_is_finished(tmp_path):
    writer = FightWriter(tmp_path / "fights", HEADER)
    writer.add(np.zeros(RAW_SIZE), 0)
    assert not [*tmp_path.iterdir()]
    writer.finish(np.zeros(RAW_SIZE), "cut")
    assert [path.name for path in (tmp_path / "fights").iterdir()] == ["drawn.parquet"]


def test_what_cannot_be_written_is_refused_before_the_fight(tmp_path):
    with pytest.raises(SoulsGraphError, match="tick"):
        FightWriter(tmp_path, HEADER).finish(np.zeros(RAW_SIZE), "cut")
    for header, name in (
        *((header_of(fight), "name") for fight in ("", "../up", ".hidden", "a/b", "x" * 200)),
        (replace(HEADER, player="two\nlines"), "player"),
        (replace(HEADER, player="x" * 5000), "player"),
        (replace(HEADER, scenario="//server/share/fight.toml"), "scenario"),
        (replace(HEADER, tick_s=1e9), "tick_s"),
    ):
        with pytest.raises(SoulsGraphError, match=name):
            FightWriter(tmp_path, header)
    assert not [*tmp_path.iterdir()]
