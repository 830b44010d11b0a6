"""What the doctor finds on a fleet's head, before any PC dials it."""

from datetime import timedelta

import pytest

from soulsgraph.cli.fleet import check_fleet
from soulsgraph_clusters.fleet.protocol.certificates import make_certificate
from soulsgraph_clusters.fleet.protocol.tokens import Tokens
from soulsgraph_clusters.sessions.local_ray import free_port

_TLS = 'certificate = "head.pem"\nkey = "head.key"\n'


@pytest.fixture
def examine(tmp_path):
    """Write a fleet's file, examine it, and return the checks by name; each that fails has a remedy."""

    def check(text=""):
        file = tmp_path / "fleet.toml"
        file.write_text(f'listen = "127.0.0.1:{free_port()}"\n{text}')
        checks = check_fleet(file)
        assert all(one.remedy for one in checks if one.status in ("fail", "warn"))
        found = {one.name: one for one in checks}
        assert found["the PCs themselves"].status == "skip"
        return found

    return check


def _failing(found):
    return sorted(name for name, one in found.items() if one.status == "fail")


def test_a_head_that_is_ready_fails_nothing(examine, tmp_path):
    make_certificate(tmp_path, ["head.lan", "10.1.2.3"])
    Tokens(tmp_path / "tokens.json").issue("attic")
    found = examine(f'{_TLS}metrics = "127.0.0.1:{free_port()}"\npcs = ["attic"]\n')
    assert {one.status for name, one in found.items() if name != "the PCs themselves"} == {"ok"}
    assert {"file", "certificate", "attic"} <= found.keys()
    assert "head.lan, localhost, 10.1.2.3" in found["certificate"].found


def test_a_file_that_does_not_hold_is_all_that_is_checked(tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text("lisen = 3\n")
    checks = check_fleet(file)
    assert [one.name for one in checks if one.status == "fail"] == ["file"]
    assert "lisen" in checks[0].found
    assert check_fleet(tmp_path / "none.toml")[0].status == "fail"


@pytest.mark.parametrize(("days", "status"), [(29, "warn"), (31, "ok")])
def test_a_certificate_that_ends_within_30_days_is_warned_of(examine, tmp_path, days, status):
    make_certificate(tmp_path, ["head.lan"], timedelta(days))
    found = examine(_TLS)["certificate"]
    assert found.status == status
    assert bool(found.remedy) == (status == "warn")


def test_a_certificate_or_key_that_cannot_be_used_fails(examine, tmp_path):
    assert "certificate" in _failing(examine(_TLS))
    make_certificate(tmp_path, ["head.lan"])
    (tmp_path / "head.key").chmod(0o640)
    assert "certificate" in _failing(examine(_TLS))


def test_every_named_pc_needs_a_token_and_a_drained_one_is_warned_of(examine, tmp_path):
    tokens = Tokens(tmp_path / "tokens.json")
    for pc in ("attic", "cellar", "stranger"):
        tokens.issue(pc)
    tokens.drain("cellar", True)
    found = examine('pcs = ["attic", "cellar", "den"]\n')
    status = {name: one.status for name, one in found.items() if name in ("attic", "cellar", "den", "stranger")}
    assert status == {"attic": "ok", "cellar": "warn", "den": "fail", "stranger": "warn"}
    assert "fleet token den" in found["den"].remedy
    assert "fleet pause cellar --undo" in found["cellar"].remedy


def test_a_fleet_without_named_pcs_needs_a_token_of_any_pc(examine, tmp_path):
    assert _failing(examine()) == ["tokens"]
    Tokens(tmp_path / "tokens.json").issue("attic")
    found = examine()
    assert _failing(found) == []
    assert found["attic"].status == "ok"
