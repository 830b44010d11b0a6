from __future__ import annotations

import pytest

from fakes.realtime import FakeLink, FakeTime
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.games.doctor import Check
from soulsgraph_envs.games.link import GameSettings, Reading
from soulsgraph_envs.games.setup import EFFECTS, answered, program_of, questions, try_keys
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

NEEDED = {str(control.name).lower() for control, effect in EFFECTS.items() if effect.needed}


class DeafLink(FakeLink):
    """A game that no key reaches."""

    def play(self) -> None:
        self.dropping = True
        super().play()


class SwappedLink(FakeLink):
    """A game whose user bound the keys of two steps the other way round."""

    def play(self) -> None:
        down = self.keys.down
        self.keys.down = {{"w": "s", "s": "w"}.get(key, key) for key in down}
        super().play()
        self.keys.down = down


class StrikingLink(FakeLink):
    """A game whose user bound an attack to the key of the flask."""

    def read(self) -> Reading:
        shown = dict(super().read())
        if shown["player_animation"] == "Estus":
            shown["player_animation"] = "AttackRightLight1"
        return shown


def press_all(link: FakeLink, time: FakeTime) -> dict[str, Check]:
    link.attach(1.0)
    return {check.name: check for check in try_keys(link, GameSettings(), time.clock)}


def test_each_control_of_a_skill_is_needed() -> None:
    actions = [action for name in SKILL_NAMES for action in make_skill(name).actions]
    played = {control for action in actions for control in Control if control in action.holds | action.presses}
    assert {str(control.name).lower() for control in played} <= NEEDED


def test_at_a_bonfire_every_key_does_what_it_should_and_nothing_is_written() -> None:
    time = FakeTime()
    link = FakeLink(time, at_bonfire=True)
    checks = press_all(link, time)
    # This world knows no move of the controls that no skill presses.
    expected = {str(control.name).lower(): "ok" if effect.needed else "warn" for control, effect in EFFECTS.items()}
    assert {name: check.status for name, check in checks.items()} == expected
    assert link.writes_log == []
    assert not link.keys.down


@pytest.mark.parametrize(
    ("kind", "failed"),
    [
        # Lock-on needs a boss in sight.
        (DeafLink, NEEDED - {"lock_on"}),
        (SwappedLink, {"forward", "back"}),
        (StrikingLink, {"use_item"}),
    ],
)
def test_keys_that_do_nothing_or_something_else_fail_by_their_control(kind: type[FakeLink], failed: set[str]) -> None:
    time = FakeTime()
    checks = press_all(kind(time, at_bonfire=True), time)
    assert {name for name, check in checks.items() if check.status == "fail"} == failed
    assert all(check.remedy for check in checks.values() if check.status != "ok")


def test_a_window_that_loses_the_keyboard_ends_the_trial_with_every_key_up() -> None:
    time = FakeTime()
    link = FakeLink(time, at_bonfire=True)
    link.attach(1.0)
    trial = try_keys(link, GameSettings(), time.clock)
    next(trial)
    link.unfocused = True
    with pytest.raises(GameError, match="window"):
        list(trial)
    assert not link.keys.down


def test_what_is_asked_depends_on_the_game_and_the_system() -> None:
    games = GameSettings(), GameSettings(driver="siphon", map="elden-ring-1.16.1")
    dark_souls, elden_ring = ({one.name for one in questions(program_of(game), "linux")} for game in games)
    assert "anti-cheat" in elden_ring - dark_souls
    assert "offline" in dark_souls - elden_ring
    assert {one.name for one in questions("eldenring.exe", "win32")} - elden_ring == {"antivirus"}


def test_a_no_is_a_failure_with_its_remedy() -> None:
    first, second = questions("DarkSoulsIII.exe", "linux")[:2]
    yes, no = answered([(first, True), (second, False)])
    assert (yes.status, yes.remedy) == ("ok", "")
    assert (no.status, no.remedy) == ("fail", second.remedy)
