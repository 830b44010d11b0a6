"""The shipped data by name, or a file of one's own: scenarios, bosses, players.

A name is a file under `data/`; anything that ends in `.toml` is a path. Inside a scenario file a
path is relative to that file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from soulsgraph_envs.encounter import BossData, Move, PlayerAction, PlayerData, Window
from soulsgraph_envs.errors import UnknownNameError
from soulsgraph_envs.scenario import START_NAMES, Scenario
from soulsgraph_envs.schema import Where, read_table, read_toml

_DATA = Path(__file__).parent / "data"
_KINDS = {"scenario": "scenarios", "boss": "bosses", "player": "players"}


def scenario_names() -> tuple[str, ...]:
    """Name the scenarios that are shipped."""
    return _names("scenario")


def load_scenario(name_or_path: str | Path) -> Scenario:
    """Load one encounter with the boss and the player it names.

    Raises:
        UnknownNameError: if no shipped scenario has that name.
        DataError: for a missing, misspelt, mistyped or out-of-range value.
    """
    path = _find("scenario", name_or_path)
    values, where = read_toml(path), Where(path)
    for key in ("boss", "player"):
        values[key] = _reference(values.get(key), path, where.at(key))
    if "boss_hp_full" in values:
        raise where.at("boss_hp_full").error("the boss data's hp_max alone to say this", values["boss_hp_full"])
    boss, player = load_boss(values["boss"]), load_player(values["player"])
    scenario = read_table(Scenario, {**values, "boss_hp_full": boss.hp_max}, where)
    _check_scenario(scenario, values, where)
    _check_fits(scenario, boss.radius_m + player.body.radius_m, where)
    return scenario


def load_boss(name_or_path: str | Path) -> BossData:
    """Load one phase of a boss; raises as `load_scenario` does."""
    path = _find("boss", name_or_path)
    where = Where(path)
    boss = read_table(BossData, read_toml(path), where)
    others = [boss.animations.idle, boss.animations.approach, boss.animations.back_off, boss.animations.turn]
    _check_unique([m.id for m in boss.moves] + [a.id for a in others], where.at("moves"), "animation ids")
    _check_unique([m.title for m in boss.moves], where.at("moves"), "titles")
    if not any(move.weight > 0 for move in boss.moves):
        raise where.at("moves").error("a move with a weight above 0", "weights of 0 only")
    for index, move in enumerate(boss.moves):
        _check_move(move, where.at("moves").at(index))
    titles = [move.title for move in boss.moves]
    if boss.rear.counter not in titles:
        raise where.at("rear.counter").error(f"one of {', '.join(titles)}", repr(boss.rear.counter))
    for key in ("wait_s", "near_wait_s"):
        _check_ordered(getattr(boss.aggression, key), where.at("aggression").at(key))
    if boss.motion.back_off_within_m > boss.motion.approach_beyond_m:
        found = boss.motion.back_off_within_m
        raise where.at("motion.back_off_within_m").error("at most motion.approach_beyond_m", found)
    return boss


def load_player(name_or_path: str | Path) -> PlayerData:
    """Load one player character; raises as `load_scenario` does."""
    path = _find("player", name_or_path)
    where = Where(path)
    player = read_table(PlayerData, read_toml(path), where)
    actions = vars(player.animations)
    _check_unique([action.id for action in actions.values()], where.at("animations"), "animation ids")
    for key, action in actions.items():
        _check_action(action, where.at("animations").at(key))
    for key in ("light_1", "light_2", "light_3", "rolling_attack", "estus"):
        if actions[key].hit_s < 0:
            raise where.at("animations").at(key).at("hit_s").error("the moment of the effect", actions[key].hit_s)
    _check_ordered(player.attack.damage, where.at("attack.damage"))
    if player.camera.lock_break_m < player.camera.lock_range_m:
        raise where.at("camera.lock_break_m").error("at least camera.lock_range_m", player.camera.lock_break_m)
    return player


def _names(kind: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (_DATA / _KINDS[kind]).glob("*.toml")))


def _find(kind: str, name_or_path: str | Path) -> Path:
    if str(name_or_path).endswith(".toml"):
        return Path(name_or_path)
    if name_or_path not in _names(kind):
        raise UnknownNameError(kind, str(name_or_path), _names(kind))
    return _DATA / _KINDS[kind] / f"{name_or_path}.toml"


def _reference(value: object, scenario_path: Path, where: Where) -> str:
    if not isinstance(value, str):
        raise where.error("a name or the path of a TOML file", "no such key" if value is None else repr(value))
    return str((scenario_path.parent / value).resolve()) if value.endswith(".toml") else value


def _check_scenario(scenario: Scenario, values: dict[str, object], where: Where) -> None:
    start, end = scenario.boss_hp
    if not end < start <= scenario.boss_hp_full:
        expected = f"[start, end] with end < start <= {scenario.boss_hp_full:g}, the boss's hp_max"
        raise where.at("boss_hp").error(expected, [start, end])
    for key in ("arena", "starts"):
        if key not in values:
            raise where.at(key).error("a table", "no such key")
    if set(scenario.starts) != set(START_NAMES):
        raise where.at("starts").error(f"exactly {', '.join(START_NAMES)}", ", ".join(scenario.starts))
    if scenario.start not in START_NAMES:
        raise where.at("start").error(f"one of {', '.join(START_NAMES)}", repr(scenario.start))


def _check_fits(scenario: Scenario, contact_m: float, where: Where) -> None:
    for key, start in scenario.starts.items():
        place = where.at("starts").at(key).at("distance_m")
        _check_ordered(start.distance_m, place)
        most = 2 * (scenario.arena.radius_m - contact_m)
        if not contact_m <= start.distance_m[0] or not start.distance_m[1] <= most:
            raise place.error(f"distances from {contact_m:g} (contact) to {most:g} (arena)", list(start.distance_m))


def _check_unique(values: Sequence[object], where: Where, what: str) -> None:
    repeated = sorted({str(value) for value in values if values.count(value) > 1})
    if repeated:
        raise where.error(f"every one of the {what} once", f"{', '.join(repeated)} repeated")


def _check_ordered(pair: tuple[float, float], where: Where) -> None:
    if pair[0] > pair[1]:
        raise where.error("two numbers in rising order", list(pair))


def _check_action(action: PlayerAction, where: Where) -> None:
    for key in ("attack_s", "roll_s", "move_s", "hit_s"):
        if getattr(action, key) > action.length_s:
            raise where.at(key).error(f"at most the length, {action.length_s:g} s", getattr(action, key))


def _check_move(move: Move, where: Where) -> None:
    _check_ordered(move.distance_m, where.at("distance_m"))
    _check_ordered(move.lunge_s, where.at("lunge_s"))
    if max(move.tracks_s, move.lunge_s[1]) > move.length_s:
        raise where.error(f"tracks_s and lunge_s within the length, {move.length_s:g} s", "a later time")
    if move.leap_s > move.windows[0].time_s[0]:
        raise where.at("leap_s").error("at most the start of the first window", move.leap_s)
    earlier = 0.0
    for index, window in enumerate(move.windows):
        place = where.at("windows").at(index)
        _check_window(window, earlier, move.length_s, place.at("time_s"))
        earlier = window.time_s[1]


def _check_window(window: Window, earlier_s: float, length_s: float, where: Where) -> None:
    start, end = window.time_s
    if not earlier_s <= start < end <= length_s:
        expected = f"start < end, after the window before ({earlier_s:g} s) and within the move ({length_s:g} s)"
        raise where.error(expected, [start, end])
