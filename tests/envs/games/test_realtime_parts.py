"""The parts of a real-time driver by themselves: animations, translation, writes, arenas."""

from __future__ import annotations

import pytest

from fakes.realtime import FakeLink, FakeTime
from soulsgraph_envs.core.errors import EpisodeLostError, GameError
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.games import readings
from soulsgraph_envs.games.cycle_timer import Clock
from soulsgraph_envs.games.link import (
    FIELDS,
    DriverState,
    GameSettings,
    NotReachedError,
    Operations,
    Reading,
    check_side_by_side,
)
from soulsgraph_envs.games.readings import (
    Flasks,
    KeyEffects,
    Plausibility,
    arena_of,
    boss_animation_as_read,
    boss_table,
    player_table,
    supplied_raws,
    translate,
)

PLAYER = player_table(load_player("knight"))
PHASES = {phase: boss_table(load_boss(f"iudex-phase{phase}")) for phase in (1, 2)}


def boss(name: str, attack: int = -1, fallback: int = -1) -> Reading:
    return {"boss_animation": name, "boss_attack_id": attack, "boss_attack_id_fallback": fallback}


@pytest.mark.parametrize(
    ("phase", "reading", "title_or_role"),
    [
        (1, boss("Attack3003", 3003), "rapid slices"),
        (1, boss("PartBlend_Default", 3012), "thrust"),
        (1, boss("SABlend_1", -1, 3009), "spin"),
        (1, boss("Attack3003", -1, -1), "idle"),
        (1, boss("WalkLeftBattle"), "approach"),
        (1, boss("TurnBattle_Left90"), "turn"),
        (1, {"boss_animation_id": 3002}, "leap smash"),
    ],
)
def test_boss_animations_mean_what_the_data_say_in_that_phase(phase: int, reading: Reading, title_or_role: str) -> None:
    data = load_boss(f"iudex-phase{phase}")
    ids = {move.title: move.id for move in data.moves} | {k: a.id for k, a in data.animations.known().items()}
    assert PHASES[phase].translate(reading) == ids[title_or_role]


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (boss("Attack3099"), "Attack3099"),
        (boss("SABlend_1", -1, 3099), "Attack3099"),
        (boss("PartBlend_Default"), None),
        (boss("Sneeze"), "Sneeze"),
        ({"boss_animation_id": 3099}, "3099"),
        ({}, None),
    ],
)
def test_what_the_game_says_of_the_bosss_animation_is_kept_though_the_data_lack_it(
    reading: Reading, expected: str | None
) -> None:
    assert boss_animation_as_read(reading) == expected


def test_unknown_animations_are_idle_counted_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    table = player_table(load_player("knight"))
    for _ in range(3):
        assert table.translate({"player_animation": "Sneeze"}) == load_player("knight").animations.idle.id
    assert table.unknown == {"Sneeze": 3}
    assert caplog.text.count("Sneeze") == 1
    assert not table.among({"player_animation": "Sneeze"}, ("idle",))
    # An alias.
    assert table.translate({"player_animation": "DamageUpper"}) == load_player("knight").animations.knockdown.id


def reading(**changes: float | str) -> dict[str, float | str]:
    time = FakeTime()
    link = FakeLink(time)
    link.attach(1.0)
    return dict(link.read()) | changes


def test_raw_values_keep_their_promises_whatever_the_game_shows() -> None:
    shown = reading(player_angle=4.0, player_animation_time_s=9.0, player_hp=1.0, flasks=5)
    row = translate(shown, PLAYER, PHASES[1], Flasks(2, 8, shown))
    assert abs(row[Raw.PLAYER_ANGLE]) <= 3.1416
    assert row[Raw.PLAYER_ANIMATION_TIME_S] == row[Raw.PLAYER_ANIMATION_LENGTH_S]
    assert (row[Raw.PLAYER_HP], row[Raw.FLASKS]) == (0.0, 2.0)


def test_flasks_beyond_the_scenario_are_not_offered_and_drinks_are_counted_where_none_can_be_read() -> None:
    flasks = Flasks(1, 8, {"flasks": 3.0})
    assert [flasks.left({"flasks": count}, 0) for count in (3.0, 2.0, 1.0)] == [1, 0, 0]
    counted = Flasks(2, 8, {"flasks": float("nan")})
    assert [counted.left({}, animation) for animation in (0, 8, 8, 0, 8, 8, 0, 8)] == [2, 1, 1, 1, 0, 0, 0, 0]
    with pytest.raises(GameError, match="flasks"):
        Flasks(2, 8, {"flasks": 1.0})


def test_supplies_follow_from_the_fields_of_a_map() -> None:
    assert supplied_raws(frozenset(FIELDS)) == frozenset(Raw.__members__)
    without = supplied_raws(frozenset(FIELDS) - {"camera_x", "locked", "flasks", "player_animation"})
    assert frozenset(Raw.__members__) - without == {"CAMERA_X", "LOCKED", "FLASKS"}


def test_operations_refuse_other_fields_and_what_is_no_number() -> None:
    link = FakeLink(FakeTime())
    link.attach(1.0)
    for operation, stray in (("prevent_death", {"no_damage": 1.0}), ("set_boss_hp", {"boss_hp": float("inf")})):
        with pytest.raises(GameError, match=operation):
            Operations(link).run(operation, **stray)
    assert link.writes_log == []


def test_optional_operations_do_without_what_the_map_lacks() -> None:
    link = FakeLink(FakeTime(), without=frozenset({"no_move"}))
    link.attach(1.0)
    Operations(link).run("hold", no_attack=1.0, no_move=1.0)
    assert link.writes_log == [{"no_attack": 1.0}]
    assert Operations(link).missing() == {"hold": ("no_move",), "let_go": ("no_move",)}


def test_a_wait_in_vain_is_told_by_what_the_game_was_at_last() -> None:
    def waited(*, gone_at_first: bool = False, hung: bool = False) -> str:
        time = FakeTime()
        link = FakeLink(time)
        link.attach(1.0)
        link.crashed, link.hung = gone_at_first, hung

        def sleep(seconds: float) -> None:
            time.pass_by(seconds)
            link.crashed = link.crashed and time.now_s < 1.0

        session = DriverState(link, GameSettings(), Clock(time.clock.now, sleep))
        with pytest.raises(NotReachedError) as found:
            session.until("a rest", lambda _: False, 5.0, loading=gone_at_first)
        return str(found.value)

    assert "is gone" not in waited(gone_at_first=True)
    assert waited(hung=True) != waited()


def test_a_field_that_was_readable_must_stay_so() -> None:
    arena = arena_of(load_scenario("iudex-phase1"), "Iudex Gundyr")
    first = reading(frost_effect=float("nan"))
    Plausibility(arena, first).check(first | {"play_time_s": 9.0, "player_animation_time_s": 0.5}, 0.1)
    with pytest.raises(EpisodeLostError, match="boss_angle"):
        Plausibility(arena, first).check(first | {"boss_angle": float("nan")}, 0.1)
    with pytest.raises(EpisodeLostError, match="camera_x"):
        Plausibility(arena, first | {"camera_x": float("nan")})


def test_arenas_go_by_the_boss_and_else_by_the_scenarios_disc() -> None:
    iudex = arena_of(load_scenario("controls-blows"), "Iudex Gundyr, hard blows")
    assert (iudex.character, iudex.holds(142.0, 595.0, -68.8)) == ("c5110", True)
    assert iudex.transition is not None
    # The floor is that of the nearest known point.
    assert iudex.floor(132.0, 575.0) == -68.066
    disc = arena_of(load_scenario("vordt"), "Vordt of the Boreal Valley")
    assert disc.holds(142.0, 595.0, -68.8)
    assert not disc.holds(142.0, 640.0, -68.8)
    assert (disc.entrance, disc.transition) == (None, None)
    hall = arena_of(load_scenario("vordt-in-place"), "Vordt of the Boreal Valley, calm")
    assert (hall.low_m, hall.high_m) == ((13.0, -7.0, -27.0), (42.0, 46.0, -15.0))
    assert hall.entrance is not None
    assert hall.entrance.outside_m == (27.9, 46.0, -25.64)
    assert hall.reload == {"boss_flags": 0x40, "last_bonfire": 3002954}


@pytest.mark.parametrize(
    "pair",
    [
        (GameSettings(display=":7"), GameSettings(display=":7", pid=5)),
        (GameSettings(), GameSettings(map="stand-in")),
        (GameSettings(driver="siphon"), GameSettings(driver="siphon", speed=2.0)),
    ],
)
def test_games_play_side_by_side_if_none_shares_a_keyboard(pair: tuple[GameSettings, GameSettings]) -> None:
    with pytest.raises(GameError, match="display"):
        check_side_by_side(pair)
    check_side_by_side([GameSettings(display=":7"), GameSettings(display=":8"), GameSettings(driver="siphon")])


def looking(camera: float, animation: str = "Idle") -> Reading:
    return {"player_animation": animation, "locked": 0.0, "camera_x": camera, "camera_y": 0.0, "camera_z": 0.0}


def press_in_vain(effects: KeyEffects, sent: Control) -> None:
    for tick in range(40):
        effects.check(looking(float(tick)), sent)


@pytest.mark.parametrize(("lost", "doubtful"), [(Control.FORWARD, 8), (Control.ROLL, 4)])
def test_a_lost_key_is_in_doubt_since_it_was_pressed_whatever_others_do(lost: Control, doubtful: int) -> None:
    with pytest.raises(EpisodeLostError, match="keys") as told:
        press_in_vain(KeyEffects(PLAYER, looking(-1.0)), lost | Control.CAMERA_LEFT)
    assert told.value.doubtful_ticks == doubtful


@pytest.mark.parametrize("said", ["3012", "-1", "Attack3012"])
def test_what_a_recording_says_of_the_bosss_animation_is_a_reading_again(said: str) -> None:
    reading = readings.reading_of(said)
    assert [*reading.values()] == [said if said.startswith("A") else int(said)]
    assert readings.boss_animation_as_read(reading) == (None if said == "-1" else said)
