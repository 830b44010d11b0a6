from __future__ import annotations

from collections.abc import Mapping

import pytest

from fakes.realtime import FakeLink, FakeTime
from soulsgraph_envs.core.config import shipped_names
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.scenario import load_player
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.doctor import Check
from soulsgraph_envs.games.keys import load_bindings
from soulsgraph_envs.games.link import GameSettings, Reading
from soulsgraph_envs.games.setup import EFFECTS, ExpectedEffect, answered, questions, try_keys
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

#: No key shows what they do: one needs something to interact with, the other is none of the games' keys.
WITHOUT_EFFECT = {Control.INTERACT, Control.JUMP}


class SwappedLink(FakeLink):
    """A game whose user bound some keys otherwise: those on the left do what those on the right should."""

    swapped: Mapping[str, str] = {}

    def play(self) -> None:
        down = self.keys.down
        self.keys.down = {self.swapped.get(key, key) for key in down}
        super().play()
        self.keys.down = down


def press_all(link: FakeLink, time: FakeTime) -> dict[str, Check]:
    link.attach(1.0)
    return {check.name: check for check in try_keys(link, GameSettings(), time.clock)}


def test_each_control_of_shipped_bindings_has_an_effect_to_look_for() -> None:
    for name in ("dark-souls-3", "elden-ring"):
        bound = load_bindings(name).controls
        assert {control for control in Control if control in bound} - WITHOUT_EFFECT <= set(EFFECTS), name


def test_the_animations_to_look_for_are_those_of_the_players_data() -> None:
    known = {key for name in shipped_names("player") for key in load_player(name).animations.known()}
    for control, effect in EFFECTS.items():
        assert set(effect.animations) <= known, control


def test_each_control_of_a_skill_is_needed() -> None:
    actions = [action for name in SKILL_NAMES for action in make_skill(name).actions]
    played = {control for action in actions for control in Control if control in action.holds | action.presses}
    assert played <= {control for control, effect in EFFECTS.items() if effect.needed}


def test_at_a_bonfire_every_key_does_what_it_should_and_nothing_is_written() -> None:
    time = FakeTime()
    link = FakeLink(time, at_bonfire=True)
    checks = press_all(link, time)
    # This world knows no move of the controls that no skill presses.
    expected = {str(control.name).lower(): "ok" if effect.needed else "warn" for control, effect in EFFECTS.items()}
    assert {name: check.status for name, check in checks.items()} == expected
    assert link.writes_log == []
    assert not link.keys.down
    assert "moved" in checks["forward"].found
    assert "RollingMedium" in checks["roll"].found or "BackStep" in checks["roll"].found


def test_keys_that_do_not_arrive_fail_with_the_control_to_bind_and_those_of_no_skill_warn() -> None:
    time = FakeTime()
    link = FakeLink(time, at_bonfire=True)
    link.dropping = True
    checks = press_all(link, time)
    for control, effect in EFFECTS.items():
        check = checks[str(control.name).lower()]
        assert check.status == ("fail" if effect.needed and effect.shows != "locks" else "warn"), check
        assert "nothing" in check.found
        assert f"bind {check.name.replace('_', ' ')} to the key" in check.remedy


def test_exchanged_steps_are_seen_by_the_way_that_the_player_goes() -> None:
    time = FakeTime()
    link = SwappedLink(time, at_bonfire=True)
    link.swapped = {"w": "s", "s": "w"}
    checks = press_all(link, time)
    assert {name for name, check in checks.items() if check.status == "fail"} == {"forward", "back"}
    assert "the other way" in checks["forward"].found


def test_a_key_of_another_act_is_seen_by_the_animation() -> None:
    class Odd(FakeLink):
        def read(self) -> Reading:
            shown = dict(super().read())
            if shown["player_animation"] == "Estus":
                shown["player_animation"] = "AttackRightLight1"
            return shown

    time = FakeTime()
    check = press_all(Odd(time, at_bonfire=True), time)["use_item"]
    assert check.status == "fail"
    assert "AttackRightLight1, which is none of estus, estus_empty" in check.found


def test_a_window_that_loses_the_keyboard_ends_the_trial_with_every_key_up() -> None:
    time = FakeTime()
    link = FakeLink(time, at_bonfire=True)
    link.attach(1.0)
    trial = try_keys(link, GameSettings(), time.clock)
    next(trial)
    link.unfocused = True
    with pytest.raises(GameError, match="window in front"):
        list(trial)
    assert not link.keys.down


def test_what_is_asked_depends_on_the_game_and_the_system() -> None:
    games = {name: load_address_map(name).game for name in ("dark-souls-3-1.15.2", "elden-ring-1.16.1")}
    asked = {game: {one.name for one in questions(game, "linux")} for game in games.values()}
    assert "anti-cheat" in asked["Elden Ring"] - asked["Dark Souls III"]
    assert "offline" in asked["Dark Souls III"] - asked["Elden Ring"]
    assert {one.name for one in questions("Elden Ring", "win32")} - asked["Elden Ring"] == {"antivirus"}


def test_a_no_is_a_failure_with_its_remedy() -> None:
    first, second = questions("Dark Souls III", "linux")[:2]
    yes, no = answered([(first, True), (second, False)])
    assert (yes.status, yes.remedy) == ("ok", "")
    assert (no.status, no.remedy) == ("fail", second.remedy)
    assert no.found == f"no: {second.text}"


def test_effects_are_checked_when_they_are_loaded() -> None:
    assert ExpectedEffect("moves").way == 0
    assert all(effect.animations == () for effect in EFFECTS.values() if effect.shows != "acts")
