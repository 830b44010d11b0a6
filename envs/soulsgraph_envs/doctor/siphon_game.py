"""A game behind a Siphon server: the way there, its fields, its keys, its picture."""

from __future__ import annotations

from soulsgraph_envs.doctor.check import Check, Checks
from soulsgraph_envs.doctor.keyboard import HARMLESS, check_bindings
from soulsgraph_envs.doctor.reading import (
    check_entry,
    check_online,
    check_read_time,
    check_resolution,
    check_skills,
    unaddressed,
)
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.games import make_link
from soulsgraph_envs.keys.held_keys import HeldKeys
from soulsgraph_envs.live.link import Link
from soulsgraph_envs.live.settings import GameSettings
from soulsgraph_envs.memory.address_map import AddressMap, load_address_map

_ATTACH_S = 3.0
_CLIENT, _WAY, _SERVER, _PICTURE = "Siphon client", "way to the server", "Siphon server", "picture"
_TUNNEL = "go through a tunnel (ssh -L 50051:localhost:50051 GAME-PC), or set token_file and certificate"


def check_siphon_game(settings: GameSettings) -> list[Check]:
    """Check the server of the settings; what hangs on something that fails is passed over."""
    checks = Checks(f"The game, by Siphon at {settings.host}")
    with checks.failing(_CLIENT, "correct the games file"):
        link = make_link(settings)
        try:
            checks.ok(_CLIENT, f"{len(link.supplies)} fields of {settings.map}")
            check_skills(checks, link.supplies)
            check_bindings(checks, link.keys, link.bindings)
            _check_way(checks, settings)
            with checks.failing(_SERVER, "start the server and the game on the game PC"):
                link.attach(_ATTACH_S)
                return checks.made + _check_served(settings, checks.topic, link)
        finally:
            link.close()
    for name in ("key round trip", "offline mode", "fields"):
        checks.skip(name, "needs the server")
    return checks.made


def _check_way(checks: Checks, settings: GameSettings) -> None:
    from soulsgraph_envs.siphon.security import is_loopback, split_address

    if is_loopback(split_address(settings.host)[0]):
        checks.ok(_WAY, "within this machine, or through a tunnel")
        return
    missing = [
        what for what, given in (("token", settings.token_file), ("certificate", settings.certificate)) if not given
    ]
    found = f"over the network without a {' and a '.join(missing)}" if missing else "encrypted, with a token"
    checks.judge(_WAY, not missing, found, _TUNNEL)


def _check_served(settings: GameSettings, topic: str, link: Link) -> list[Check]:
    from soulsgraph_envs.siphon.link import SiphonLink

    checks, entries = Checks(topic), Checks("Fields")
    checks.ok(_SERVER, f"answers, with the game's window {'' if link.focused() else 'not '}at the front")
    with checks.failing("key round trip", "run the server in the session of the game's window"):
        with HeldKeys(link.keys) as held:
            held.hold((HARMLESS,))
        checks.ok("key round trip", f"the server sent {HARMLESS} down and up; it cannot tell whether that arrived")
    if isinstance(link, SiphonLink):
        with checks.failing(_PICTURE, "show the game's window on the game PC"):
            height, width, _ = link.capture().shape
            check_resolution(checks, width, height)
    with entries.failing("fields", "load a character and stand before the boss"):
        reading = link.read()
        check_online(checks, reading)
        for entry in unaddressed(reading, _map_of(settings)):
            check_entry(entries, entry)
        check_read_time(checks, link.read)
    return checks.made + entries.made


def _map_of(settings: GameSettings) -> AddressMap | None:
    """Return the address map behind the attributes; an attribute file of one's own has none."""
    try:
        return load_address_map(settings.map)
    except SoulsGraphError:
        return None
