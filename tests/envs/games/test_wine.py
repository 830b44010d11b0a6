"""A game under Wine, as a Proton user meets it: a Windows program of our own, read, written, keyed and examined."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fakes.keys import virtual_screen
from fakes.programs import PATIENCE_S, missing_for_wine, wine
from fakes.waiting import until
from fakes.wine_game import MAP, WineGame, running_wine_game, world_in
from soulsgraph_envs.games.doctor import examine
from soulsgraph_envs.games.guarded_device import HeldKeys
from soulsgraph_envs.games.keys import load_bindings
from soulsgraph_envs.games.memory_link import MemoryLink
from soulsgraph_envs.games.setup import EFFECTS, try_keys

MISSING = missing_for_wine()

pytestmark = [pytest.mark.release, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WineGame]:
    folder = tmp_path_factory.mktemp("wine")
    with (
        virtual_screen() as display,
        wine(folder, display) as environment,
        running_wine_game(folder, environment) as running,
    ):
        yield running


@pytest.fixture
def link(game: WineGame) -> Iterator[MemoryLink]:
    link = MemoryLink(game.settings)
    link.attach(PATIENCE_S)
    yield link
    link.close()


def test_every_field_is_read_and_what_is_written_reaches_the_program(game: WineGame, link: MemoryLink) -> None:
    assert link.game.version == MAP.version
    assert {base.found_by for name, base in link.game.memory.bases.items() if MAP.bases[name].pattern} == {"pattern"}
    reading = link.read()
    assert reading.keys() == MAP.readable()
    assert reading == {name: pytest.approx(game.values[name]) for name in reading}
    until(lambda: f"value {reading['player_hp']:.0f}" in game.said(), "the value as it was")
    link.write({"player_hp": 321, "no_death": 1})
    assert (link.read()["player_hp"], link.read()["no_death"]) == (321, 1)
    until(lambda: "value 321" in game.said(), "the value as it was written")
    link.write({name: float(game.values[name]) for name in ("player_hp", "no_death")})


def test_every_key_of_the_bindings_reaches_the_program_in_each_way_that_games_ask_for_keys(
    game: WineGame, link: MemoryLink
) -> None:
    link.focus()
    until(link.focused, "the keyboard")
    with HeldKeys(link.keys) as held:
        for key in load_bindings(MAP.bindings).keys:
            # The codes of winuser.h for letters and the blank are theirs in ASCII.
            code = f"{ord(' ' if key == 'space' else key.upper()):02X}"
            held.hold((key,))
            heard = {f"{way} {code}" for way in ("message", "raw", "state")}
            until(lambda heard=heard: heard <= game.said(), str(heard))


def test_doctor_finds_everything_that_playing_needs(game: WineGame, link: MemoryLink) -> None:
    link.focus()
    until(link.focused, "the keyboard")
    checks = {check.name: check for check in examine([game.settings])}
    failed = {name: check.found for name, check in checks.items() if not check.passed}
    assert not failed
    assert {checks[name].status for name in ("game", "version", "window", "key round trip")} == {"ok"}
    doubted = {name for name in MAP.readable() if checks[name].status != "ok"}
    assert doubted == {name for name in MAP.readable() if not MAP.entry(name).verified}


def test_the_setup_sees_what_each_key_does(game: WineGame, link: MemoryLink) -> None:
    link.focus()
    until(link.focused, "the keyboard")
    with world_in(game, at_bonfire=True):
        checks = {check.name: check for check in try_keys(link, game.settings)}
    assert {name: check.status for name, check in checks.items()} == {
        str(control.name).lower(): "ok" for control in EFFECTS
    }
