"""The setup of a game PC: what only its user knows, what each control's keys do in the game, and which game runs.

`soulsgraph doctor --setup` asks, presses and writes the games file; questions and effects are data/setup.toml.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import acos, cos, degrees, dist, hypot, pi, radians
from pathlib import Path
from typing import Annotated, Literal

from soulsgraph_envs.core.config import Between, Where, load, shipped_names
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.scenario import load_player
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.cycle_timer import Clock
from soulsgraph_envs.games.doctor import Check, Checks
from soulsgraph_envs.games.keys import load_bindings
from soulsgraph_envs.games.link import GameSettings, Link, Pad, Reading
from soulsgraph_envs.games.memory_reader import ProcessNotFoundError, open_process
from soulsgraph_envs.games.readings import player_table, position
from soulsgraph_envs.games.siphon_attributes import load_attributes

TOPIC = "Keys in the game"
_QUESTIONS = "Only you know"
#: How long a held key stays down, how long an effect may take to show, and how long a move to end, game time.
_HELD_S, _ANSWER_S, _REST_S = 0.4, 1.0, 6.0
_POLL_S = 0.02
#: Less is no step, and no turn.
_STEP_M, _TURN_RAD = 0.1, radians(1.0)
#: A step goes the camera's way within this angle of it.
_SAME_WAY = cos(pi / 4)


@dataclass(frozen=True)
class SetupQuestion:
    """What no reading shows: a question that is good if it is answered by yes, and the remedy if not."""

    name: str
    text: str
    remedy: str
    #: Names of their programs; everywhere if there are none, as with systems.
    games: tuple[str, ...] = ()
    #: As `sys.platform` has them.
    systems: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExpectedEffect:
    """What a press of a control's keys shows: a step, a turn of the camera, an animation, or a lock-on.

    A step goes the camera's way (1), against it (-1), or anywhere (0); an animation is one of the keys of the
    players' data, or any. A control that is not `needed` is none of the skills'.
    """

    shows: Literal["moves", "looks", "acts", "locks"]
    way: Annotated[int, Between(-1, 1)] = 0
    animations: tuple[str, ...] = ()
    needed: bool = True


@dataclass(frozen=True)
class _Setup:
    questions: tuple[SetupQuestion, ...]
    effects: dict[str, ExpectedEffect]


_FILE = Where(Path(__file__).parents[1] / "data" / "setup.toml")
_SETUP = load(_Setup, _FILE)
EFFECTS = {Control[name.upper()]: effect for name, effect in _SETUP.effects.items()}


def questions(program: str, system: str = sys.platform) -> list[SetupQuestion]:
    """Return what to ask the user of a game, by the name of its program, on a system."""
    return [
        question
        for question in _SETUP.questions
        if program in (question.games or (program,)) and system in (question.systems or (system,))
    ]


def program_of(settings: GameSettings) -> str:
    """Return the name of a game's program; raises as its map is loaded."""
    if settings.driver == "siphon":
        return load_attributes(settings.map).process_info.name
    return load_address_map(settings.map).process


def answered(answers: Sequence[tuple[SetupQuestion, bool]]) -> list[Check]:
    """Return the user's answers as checks; a no is a failure with its remedy."""
    checks = Checks(_QUESTIONS)
    for question, yes in answers:
        checks.expect(question.name, yes, "yes" if yes else f"no: {question.text}", question.remedy, "fail")
    return checks.made


def running_game() -> GameSettings:
    """Return the settings of the game that runs here, by the process names of the shipped maps.

    Raises:
        GameError: if there is none, or its process may not be read.
    """
    processes: dict[str, str] = {}
    for name in shipped_names("address map"):
        processes.setdefault(load_address_map(name).process, name)
    for process, name in processes.items():
        try:
            open_process(process).close()
        except ProcessNotFoundError:
            continue
        return GameSettings(map=name)
    raise GameError(
        f"expected a game that runs, one of {', '.join(processes)}, found none; start it and load a character, or name "
        "its games file by `games`."
    )


def try_keys(link: Link, settings: GameSettings, clock: Clock | None = None) -> Iterator[Check]:
    """Press the keys of each bound control once, and report what the game showed; write nothing into it.

    The character stands free, where nothing attacks it; with the boss in sight, lock-on can be seen too.

    Raises:
        GameError: if the game's window is no longer in front, or the game cannot be reached; no key stays down.
    """
    trial = _KeyTrial(link, settings, clock or Clock())
    with closing(trial):
        for control in trial.controls:
            yield trial.check(control)


class _KeyTrial:
    def __init__(self, link: Link, settings: GameSettings, clock: Clock) -> None:
        self._link, self._clock, self._speed = link, clock, settings.speed
        self._bindings = load_bindings(link.bindings)
        self._pad = Pad(self._bindings, link.keys, clock, settings.speed)
        self._pad.check()
        self._tables = [player_table(load_player(name)) for name in shipped_names("player")]
        self._rest = link.read()

    @property
    def controls(self) -> list[Control]:
        """The bound controls whose effect can be seen, those of the skills first, in the order of the data."""
        return [control for control in EFFECTS if control in self._bindings.controls]

    def close(self) -> None:
        self._pad.release()

    def check(self, control: Control) -> Check:
        effect, name = EFFECTS[control], str(control.name).lower()
        before = self._settle()
        if not self._link.focused():
            raise GameError("expected the game's window in front, found another; leave it there until all is pressed.")
        self._pad.play(control)
        after = self._watch(lambda reading: bool(self._seen(effect, before, reading)))
        self._pad.release()
        seen = self._seen(effect, before, after)
        if effect.shows == "locks" and after.get("locked"):
            # Leave the view as it was.
            self._pad.play(control)
        checks = Checks(TOPIC)
        keys = "+".join(self._bindings.hold.get(name) or self._bindings.tap[name])
        bind = f"bind {name.replace('_', ' ')} to the key {keys} in the game, or name other bindings in the games file"
        wrong = self._wrong(effect, before, after) if seen else f"nothing {_LACKS[effect.shows]}"
        found = f"{keys}: {wrong or seen}"
        if not effect.needed:
            bind = f"no skill needs it; {bind}"
        elif effect.shows == "locks":
            bind = f"stand before an enemy and try again, or {bind}"
        status: Literal["fail", "warn"] = "fail" if effect.needed and effect.shows != "locks" else "warn"
        checks.expect(name, not wrong, found, bind, status)
        return checks.made[0]

    def _settle(self) -> Reading:
        """Wait until the player stands as at the beginning; whoever is still moving then is taken as they are."""
        rest, was = self._rest.get("player_animation"), self._link.read()

        def still(reading: Reading) -> bool:
            nonlocal was
            was, before = reading, was
            return reading.get("player_animation") == rest and position(reading, "player") == position(before, "player")

        return self._watch(still, _REST_S)

    def _watch(self, met: Callable[[Reading], bool], limit_s: float = _ANSWER_S) -> Reading:
        """Return the first reading that meets a condition after keys were held a while, or the last one."""
        began_s = self._clock.now()
        while True:
            self._clock.sleep(_POLL_S)
            reading = self._link.read()
            played_s = (self._clock.now() - began_s) * self._speed
            if played_s > limit_s or (played_s > _HELD_S and met(reading)):
                return reading

    def _seen(self, effect: ExpectedEffect, before: Reading, after: Reading) -> str:
        """Return what happened between two readings, empty if nothing of the effect's kind did."""
        if effect.shows == "moves":
            moved_m = dist(position(before, "player"), position(after, "player"))
            return f"moved {moved_m:.1f} m" if moved_m > _STEP_M else ""
        if effect.shows == "acts":
            shown = str(after.get("player_animation", after.get("player_animation_id")))
            same = shown == str(before.get("player_animation", before.get("player_animation_id")))
            return "" if same else f"animation {shown}"
        if effect.shows == "locks" and after.get("locked") != before.get("locked"):
            return "locked on" if after.get("locked") else "let the boss go"
        turned_rad = _angle(before, after)
        return f"the camera turned by {degrees(turned_rad):.0f} degrees" if turned_rad > _TURN_RAD else ""

    def _wrong(self, effect: ExpectedEffect, before: Reading, after: Reading) -> str:
        """Return what is wrong with an effect that was seen, empty if nothing is."""
        if effect.shows == "moves" and effect.way and "camera_x" in before:
            share = _way(before, after) * effect.way
            return "" if share > _SAME_WAY else f"the player moved {'the other' if share < 0 else 'another'} way"
        if effect.animations and not any(table.among(after, effect.animations) for table in self._tables):
            return f"{self._seen(effect, before, after)}, which is none of {', '.join(effect.animations)} in the data"
        return ""


_LACKS = {"moves": "moved", "looks": "turned", "acts": "happened", "locks": "was locked on"}


def _angle(before: Reading, after: Reading) -> float:
    """Return the angle between two directions of the camera, radians."""
    if "camera_x" not in before:
        return 0.0
    one, other = position(before, "camera"), position(after, "camera")
    lengths = hypot(*one) * hypot(*other)
    return acos(max(-1.0, min(1.0, sum(a * b for a, b in zip(one, other, strict=True)) / lengths))) if lengths else 0.0


def _way(before: Reading, after: Reading) -> float:
    """Return the cosine of the angle between a step and the camera's direction, seen from above."""
    (x, y, _), (from_x, from_y, _), (to_x, to_y, _) = (
        position(before, "camera"),
        position(before, "player"),
        position(after, "player"),
    )
    step_x, step_y = to_x - from_x, to_y - from_y
    lengths = hypot(x, y) * hypot(step_x, step_y)
    return (x * step_x + y * step_y) / lengths if lengths else 0.0
