"""Who a gateway lets in, and messages that say nothing."""

import pytest

from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import CODE, check_chunk, check_hello
from soulsgraph_clusters.fleet.protocol.settings import PROTOCOL, FleetError, FleetSettings, play_digest

_BOOT = "0123456789abcdef"
_HELLO = wire.Hello(protocol=PROTOCOL, game="1", boot=_BOOT, driver="simulator", lanes=1, digests={CODE: play_digest()})


# What a game says of itself.


def _hello(**changes):
    values = {field.name: value for field, value in _HELLO.ListFields()}
    return wire.Hello(**values | changes)


def _check(hello, *pcs):
    check_hello(hello, "attic", FleetSettings(pcs=pcs), "10.0.0.7")


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("pc", "cellar", "cellar"),
        ("pc", "x\ny" * 1000, "attic"),
        ("protocol", PROTOCOL + 1, "protocol"),
        ("digests", {}, "code"),
        ("digests", {CODE: "0" * 64}, r"attic \(10.0.0.7\): .*code"),
        ("lanes", 0, "lanes"),
        ("lanes", 257, "lanes"),
        ("game", "", "game"),
        ("game", "a\nb", "game"),
        ("game", "a" * 61, "game"),
        ("boot", "not a number", "boot"),
        ("boot", "0" * 7, "boot"),
        ("boot", "0" * 33, "boot"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused_in_one_short_line(field, value, named):
    with pytest.raises(FleetError, match=named) as refused:
        _check(_hello(**{field: value}))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


def test_a_hello_within_its_bounds_is_taken_from_the_pcs_that_the_fleets_file_names():
    longest = {"game": "a" * 60, "boot": "0" * 32}
    for changes in ({}, longest, {"boot": "0" * 8, "lanes": 256, "pc": "attic"}, {"boot": "", "only_asks": True}):
        _check(_hello(**changes))
    _check(_hello(), "attic")
    with pytest.raises(FleetError, match="attic"):
        _check(_hello(), "cellar")


# Chunks.


@pytest.mark.parametrize("changes", [{"boot": ""}, {"boot": "zz"}, {"boot": "a" * 33}, {"sequence": 2**63}])
def test_a_chunk_of_which_nobody_could_say_which_it_is_is_refused(changes):
    check_chunk(wire.Chunk(boot=_BOOT, sequence=2**63 - 1))
    with pytest.raises(FleetError, match="boot"):
        check_chunk(wire.Chunk(**{"boot": _BOOT} | changes))
