"""What a fleet's file may say, and what decides how a game's process plays."""

import subprocess
import sys

import pytest

from soulsgraph_clusters.fleet.protocol import settings as settings_module
from soulsgraph_clusters.fleet.protocol.certificates import CERTIFICATE, KEY, make_certificate, read_identity
from soulsgraph_clusters.fleet.protocol.settings import (
    FleetError,
    FleetSettings,
    deciding_files,
    load_fleet,
    play_digest,
)
from soulsgraph_envs.core.errors import SoulsGraphError


def test_an_address_by_ipv6_is_a_setting_like_others(tmp_path):
    make_certificate(tmp_path, ["fd00::5"])
    files = {"certificate": CERTIFICATE, "key": KEY}
    settings = FleetSettings("[fd00:0::5]:7443", metrics="[::1]:0", **files)
    assert read_identity(settings, tmp_path) is not None
    assert FleetSettings("[::1]:7443").listen == "[::1]:7443"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        *(({"listen": address}, "listen") for address in ("fd00::5", "[::1]", "[::1:7443", "[head.lan]:7443", ":7443")),
        ({"listen": "0.0.0.0:7443"}, "certificate"),
        ({"listen": "[fd00::5]:7443"}, "certificate"),
        ({"metrics": "0.0.0.0:9443"}, "certificate"),
        ({"certificate": "head.pem"}, "key"),
        ({"key": "head.key"}, "certificate"),
        ({"metrics": "127.0.0.1:http"}, "metrics"),
        ({"pcs": ("a b",)}, "PC"),
    ],
)
def test_settings_that_no_fleet_can_have_are_refused(values, named):
    with pytest.raises(FleetError, match=named):
        FleetSettings(**values)


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ("[pcs.attic]\n", "pcs"),
        ("most_stale_ticks = 0\n", "most_stale_ticks"),
        ("journal_mb = 255.9\n", "journal_mb"),
        ("alone_for_s = 0.9\n", "alone_for_s"),
    ],
)
def test_what_a_fleets_file_may_not_say_is_refused_with_its_name(tmp_path, table, named):
    file = tmp_path / "fleet.toml"
    file.write_text(table)
    with pytest.raises(SoulsGraphError, match=named) as refused:
        load_fleet(file)
    assert str(file) in str(refused.value)


def test_what_a_fleets_file_may_just_say_is_read(tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text('most_stale_ticks = 1\njournal_mb = 256.0\nalone_for_s = 1.0\npcs = ["attic", "cellar"]\n')
    settings = load_fleet(file).settings
    assert settings.pcs == ("attic", "cellar")
    assert (settings.journal_bytes, settings.most_stale_ticks, settings.alone_for_s) == (256_000_000, 1, 1.0)


#: What a game's process loads that decides no transition: the wire, its secrets, and packages without code.
_DECIDES_NOTHING = {
    *("soulsgraph_clusters", "soulsgraph_clusters.fleet", "soulsgraph_envs.compat"),
    *("soulsgraph_policies", "soulsgraph_policies.agents", "soulsgraph_policies.learning"),
    *(f"soulsgraph_clusters.fleet.{name}" for name in ("actor", "actor.process", "protocol", "store")),
    *(f"soulsgraph_clusters.fleet.protocol.{name}" for name in ("fleet_pb2", "settings")),
}


def test_all_that_a_games_process_plays_by_is_part_of_the_digest():
    code = (
        "import sys, pkgutil, soulsgraph_clusters.fleet.actor.process\n"
        "from soulsgraph_envs.games.opening import make_game\n"
        "make_game(1)\n"
        "assert not {'grpc', 'torch', 'ray'} & sys.modules.keys()\n"
        "print(*(m.__name__ for m in sys.modules.values() if getattr(m, '__name__', '').startswith('soulsgraph')))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    playing = {*loaded} - _DECIDES_NOTHING
    covered = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in deciding_files()}
    assert playing <= covered
    assert {"soulsgraph_envs.combat.rollout", "soulsgraph_policies.agents.inference"} <= playing


def test_the_digest_of_code_is_of_its_meaning_and_of_the_data(tmp_path, monkeypatch):
    files = {name: tmp_path / name for name in ("boss.toml", "reward.py")}
    monkeypatch.setattr(settings_module, "deciding_files", lambda: files)
    files["boss.toml"].write_bytes(b"hp = 1\nname = 2\n")

    def digest(text):
        files["reward.py"].write_bytes(text.encode())
        return play_digest.__wrapped__()

    plain = digest("class Reward:\n    scale: float = 1.0\n    def of(self, hit):\n        return -hit\n")
    other_looks = (
        '"""A module."""\nclass Reward:\n    """A reward."""\n    scale: float = 1.0\n    """A field."""\n\n'
        '    # Why.\n    def of(self, hit):\n        """Return it."""\n        return (-hit)\n'
    )
    assert digest(other_looks) == digest(other_looks.replace("\n", "\r\n")) == plain
    assert digest("class Reward:\n    scale: float = 1.0\n    def of(self, hit):\n        return hit\n") != plain
    before = digest("")
    files["boss.toml"].write_bytes(b"hp = 1\r\nname = 2\r\n")
    assert digest("") == before
    files["boss.toml"].write_bytes(b"hp = 2\nname = 2\n")
    assert digest("") != before
    files["another.toml"] = files.pop("boss.toml")
    files["another.toml"].write_bytes(b"hp = 1\nname = 2\n")
    assert digest("") != before
