"""The boss and the scenario that a calibration writes, as TOML files that `curriculum` takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from soulsgraph.calibrate.calibration import Calibration
from soulsgraph.calibrate.values import ValueFit
from soulsgraph_envs.core.config import find, read_data, to_json
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import temporary_folder, write_text
from soulsgraph_envs.core.scenario import BossData, load_boss, load_player, load_scenario

#: The shortest window that is written, a frame.
_SHORTEST_S = 0.017

#: Comments of values by their keys from the file's root.
Comments = Mapping[tuple[str | int, ...], str]


def write_tables(path: Path, tables: Mapping[str, Any], head: str = "", comments: Comments | None = None) -> None:
    """Write plain values as a TOML file, whole or not at all; `head` becomes comments at its top.

    Raises:
        WriteError: if the place cannot be written.
    """
    lines = [f"# {line}".rstrip() for line in head.splitlines()] + ([""] if head else [])
    lines += _lines(tables, (), comments or {})
    write_text(path, "\n".join(lines) + "\n")


def _lines(table: Mapping[str, Any], place: tuple[str | int, ...], comments: Comments) -> Iterator[str]:
    """Yield the lines of a table: its values, then the tables and lists of tables in it."""
    sections = {
        key: value
        for key, value in table.items()
        if isinstance(value[0] if isinstance(value, list) and value else value, Mapping)
    }
    for key, value in table.items():
        if key not in sections:
            note = comments.get((*place, key))
            yield f"{key} = {_text(value)}" + (f"  # {note}" if note else "")
    for key, value in sections.items():
        name = ".".join([*(one for one in place if isinstance(one, str)), key])
        entries = {(*place, key, at): one for at, one in enumerate(value)} if isinstance(value, list) else None
        for inside, entry in (entries or {(*place, key): value}).items():
            note = comments.get(inside)
            yield from ("", *([f"# {note}"] if note else []), f"[[{name}]]" if entries else f"[{name}]")
            yield from _lines(entry, inside, comments)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_text(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    return to_json(value, ensure_ascii=False)


def write_fitted(
    out: Path, calibration: Calibration, base: str | Path, scenario: str | Path, shipped: BossData
) -> tuple[Path, Path]:
    """Write the fitted boss, and beside it the scenario it is fought in; return both paths.

    Beside them appears a player too where the recorded one is not as shipped. None appears unless all can be loaded;
    the scenario, which names the others, comes last.

    Raises:
        SoulsGraphError: if one of the files is there, or the fitted values make no boss.
        WriteError: if the place cannot be written.
    """
    check_free(out)
    scenario_path, player_path = scenario_path_of(out), _player_path_of(out)
    tables = read_data("boss", find("boss", base))
    fitted, comments = _fitted_tables(tables, calibration, shipped)
    differing = {key: value for key, value in fitted.items() if value != tables.get(key) and key != "name"}
    own = {"based_on": _reference(base), "name": f"{shipped.name}, fitted", **differing}
    fought = {"based_on": _reference(scenario), "name": scenario_path.stem, "boss": out.name}
    # The player's values that are determined and are not the shipped ones.
    player: dict[str, Any] = {}
    for value in calibration.player:
        if value.estimate is not None and value.differs:
            group, _, name = value.key.partition(".")
            player.setdefault(group, {})[name] = round(value.estimate, 5)
    with temporary_folder("soulsgraph-fitted-") as folder:
        if player:
            name = load_scenario(scenario).player
            based = {"based_on": _reference(name), "name": f"{load_player(name).name}, fitted"}
            write_tables(folder / player_path.name, {**based, **player})
            fought["player"] = player_path.name
        write_tables(folder / out.name, own, _head_of(calibration), comments)
        write_tables(folder / scenario_path.name, fought)
        loaded = load_scenario(folder / scenario_path.name)
        load_boss(loaded.boss)
        load_player(loaded.player)
        for path in (*([player_path] if player else []), out, scenario_path):
            write_text(path, (folder / path.name).read_text(encoding="utf-8"))
    return out, scenario_path


def _player_path_of(out: Path) -> Path:
    return out.with_name(f"{out.stem}-player.toml")


def scenario_path_of(out: Path) -> Path:
    """Return the path of the scenario that is written beside a boss."""
    return out.with_name(f"{out.stem}-scenario.toml")


def check_free(out: Path) -> None:
    """Refuse a boss's file where it, or what is written beside it, is there.

    Raises:
        SoulsGraphError: naming it.
    """
    for path in (out, scenario_path_of(out), _player_path_of(out)):
        if path.exists():
            raise SoulsGraphError(
                f"{path}: expected no such file yet, found one, which is never overwritten", "name another"
            )


def _reference(name: str | Path) -> str:
    text = str(name)
    return str(Path(text).resolve()) if text.endswith(".toml") else text


def _head_of(calibration: Calibration) -> str:
    """Return what a fitted boss's file says at its top: how it was made, and what stays as shipped."""
    minutes, counts = calibration.seconds / 60.0, calibration.counts
    lines = [
        f"Fitted to {calibration.fights} fights, {minutes:.0f} minutes of game time.",
        ", ".join(f"{count} values {verdict}" for verdict, count in counts.items() if count) + ".",
        "Behind a value that was found: its 95 % interval as the game shows it, the boss's factors in it, and how",
        "often it was seen.",
    ]
    for verdict in ("not determined", "unlike the model"):
        if keys := [value.key for value in calibration.boss if value.verdict == verdict]:
            lines += ["", f"As shipped, since {verdict}:", *(f"  {key}" for key in keys)]
    return "\n".join(lines)


#: Kinds that are times of a move.
_TIMES = ("length", "tracking", "lunge times", "leap", "start", "end")
#: Kinds of which a bounded estimate is nearer to the truth than the shipped value.
_ESTIMATED = ("weights", "chains", "wait low", "wait high", "start", "end", "reach", "arc", "damage")


def _fitted_tables(
    tables: Mapping[str, Any], calibration: Calibration, shipped: BossData
) -> tuple[dict[str, Any], dict[tuple[str | int, ...], str]]:
    """Return a boss's tables with what a calibration found, and comments on it by the keys from the root."""
    fitted: dict[str, Any] = deepcopy(dict(tables))
    _add_moves(fitted, calibration, shipped)
    titles = {str(move["title"]): number for number, move in enumerate(fitted["moves"])}
    comments: dict[tuple[str | int, ...], str] = {}
    for value in calibration.boss:
        keys = _keys(value.key, titles)
        if keys is None or not value.known:
            continue
        owner: Any = fitted
        for key in keys[:-1]:
            owner = owner[key] if isinstance(key, int) else owner.setdefault(key, {})
        if isinstance(owner, list) or not isinstance(keys[-1], int):
            owner[keys[-1]] = _number_in_file(value, shipped)
        place = keys[:-1] if isinstance(keys[-1], int) else keys
        low, high = (("?" if end is None else f"{end:.4g}") for end in (value.low, value.high))
        found = "" if value.verdict == "determined" else f"{value.verdict}, {value.estimate:.4g}, "
        note = f"{found}{low} to {high}, {value.count} seen"
        comments[place] = f"{comments[place]}; {note}" if place in comments else note
    for move in fitted["moves"]:
        _repair(move)
    waits = fitted["aggression"]
    waits |= {name: sorted(waits[name]) for name in ("wait_s", "near_wait_s")}
    return fitted, comments


def _keys(key: str, titles: Mapping[str, int]) -> tuple[str | int, ...] | None:
    """Return the keys from the root of a value; None for a move that the file lacks."""
    own: tuple[str | int, ...] = ()
    if key.startswith("moves."):
        title = max((one for one in titles if key.startswith(f"moves.{one}.")), key=len, default=None)
        if title is None:
            return None
        own, key = ("moves", titles[title]), key.removeprefix(f"moves.{title}.")
    return (*own, *(int(part) if part.isdigit() else part for part in key.split(".")))


def _number_in_file(value: ValueFit, shipped: BossData) -> float:
    """Return the number of a value in the file, without the boss's factors: as shipped where that may be."""
    # What may be as shipped stays so: a frame is no change of a boss.
    stays = value.holds_shipped and not (value.verdict == "bounded" and value.kind in _ESTIMATED)
    number = float((value.shipped if stays else value.estimate) or 0.0)
    if value.key == "aggression.chain_most":
        return int(number)
    times = value.kind in _TIMES and value.key.startswith("moves.")
    factor = shipped.time_factor if times else shipped.damage_factor if value.kind == "damage" else 1.0
    return round(number / (factor or 1.0), 5)


def _add_moves(tables: dict[str, Any], calibration: Calibration, shipped: BossData) -> None:
    """Add the moves that the data lack, with an id that nothing has; what is known of them is set like all else."""
    used = {move.id for move in shipped.moves} | {one.id for one in shipped.animations.known().values()}
    free = (number for number in range(1000) if number not in used)
    found = {value.key: value.estimate for value in calibration.boss}
    for key, name in calibration.new_moves.items():
        length = found.get(f"{key}.length_s")
        if length is None:
            continue
        length_s = round(length / shipped.time_factor, 5)
        # One at the move's end that reaches nobody stands for a blow that was not seen.
        window = {"time_s": [round(0.98 * length_s, 5), length_s], "reach_m": 0.0, "half_arc_rad": 3.2, "damage": 0.0}
        windows = sum(one.startswith(f"{key}.windows.") and one.endswith(".damage") for one in found)
        tables["moves"].append({
            "id": next(free), "name": name, "title": key.removeprefix("moves."), "raw_id": -1, "length_s": length_s,
            "tracks_s": 0.0, "lunge_m_s": 0.0, "lunge_s": [0.0, 0.0], "distance_m": [0.0, 100.0], "weight": 0.0,
            "windows": [deepcopy(window) for _ in range(max(windows, 1))],
        })  # fmt: skip


def _repair(move: dict[str, Any]) -> None:
    """Put a move's times in the order that its checks ask for, where one that was found meets one that was not."""
    latest, last = move["length_s"], 0.0
    starts = [window["time_s"][0] for window in move["windows"]]
    for window, behind in zip(move["windows"], [*starts[1:], latest], strict=True):
        start, end = window["time_s"]
        start = min(max(start, last), latest - _SHORTEST_S)
        last = min(max(end, start + _SHORTEST_S), max(min(behind, latest), start + _SHORTEST_S))
        window["time_s"] = [round(start, 5), round(last, 5)]
    move["tracks_s"] = min(move["tracks_s"], latest)
    if "lunge_s" in move:
        begin, end = (min(moment, latest) for moment in move["lunge_s"])
        move["lunge_s"] = [begin, max(begin, end)]
        if move.get("runs_through"):
            move["tracks_s"] = min(move["tracks_s"], begin)
    if move.get("leap_s"):
        move["leap_s"] = min(move["leap_s"], move["windows"][0]["time_s"][0])
    move["distance_m"] = sorted(move["distance_m"])
