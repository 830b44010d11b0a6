"""The bounds of every field that games and heads send each other, and what is beyond them."""

import math

import pytest

from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import BOUNDS, bounded_chunk, check_hello, parse_message
from soulsgraph_clusters.fleet.protocol.settings import PC, PROTOCOL, FleetError, FleetSettings, digests

_BOOT = "0123456789abcdef"
_HELLO = wire.Hello(protocol=PROTOCOL, game="1", boot=_BOOT, driver="simulator", lanes=1, digests=digests())


def test_every_field_of_what_games_and_heads_say_has_its_bounds():
    kinds = {
        getattr(wire, field.message_type.name)
        for kind in (wire.FromGame, wire.ToGame)
        for field in kind.DESCRIPTOR.fields
    }
    fields = {f"{kind.DESCRIPTOR.name}.{field.name}" for kind in kinds for field in kind.DESCRIPTOR.fields}
    assert {*BOUNDS} == fields | {"ToGame.acknowledged"}


# What a game says of itself.


def _hello(**changes):
    values = {field.name: value for field, value in _HELLO.ListFields()}
    return wire.Hello(**values | changes)


def _check(hello, name="attic", **pcs):
    check_hello(hello, name, FleetSettings(pcs=pcs), "10.0.0.7")


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("pc", "cellar", "cellar"),
        ("pc", "x\ny" * 1000, "attic"),
        ("protocol", PROTOCOL - 1, "protocol"),
        ("protocol", PROTOCOL + 1, "protocol"),
        ("digests", {}, "data"),
        ("digests", digests() | {"data": "0\n" * 64}, "data"),
        ("digests", digests() | {"code": "0" * 64}, r"attic \(10.0.0.7\): .*code"),
        ("lanes", 0, "lanes"),
        ("lanes", 257, "lanes"),
        ("lanes", 2**64 - 1, "lanes"),
        ("game", "", "game"),
        ("game", "a/b", "game"),
        ("game", "a\nb", "game"),
        ("game", "a" * 61, "game"),
        ("driver", "a\nb", "driver"),
        ("driver", "a" * 61, "driver"),
        ("boot", "", "boot"),
        ("boot", "not a number", "boot"),
        ("boot", "0" * 7, "boot"),
        ("boot", "0" * 33, "boot"),
        ("boot", "0" * 10**6, "boot"),
        ("machine", "my PC", "machine"),
        ("machine", "0" * 33, "machine"),
        ("version", "9" * 201, "version"),
        ("digests", digests() | {"x" * 201: ""}, "digests"),
        ("digests", digests() | dict.fromkeys(map(str, range(1000)), ""), "digests"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused_in_one_short_line(field, value, named):
    with pytest.raises(FleetError, match=named) as refused:
        _check(_hello(**{field: value}))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


def test_a_hello_within_its_bounds_is_taken_from_the_pcs_that_the_fleets_file_names():
    longest = {"game": "a" * 60, "driver": "a" * 60, "boot": "0" * 32, "machine": "0" * 32, "version": "9" * 200}
    for changes in ({}, longest, {"boot": "0" * 8, "lanes": 256, "pc": "attic"}, {"boot": "", "only_asks": True}):
        _check(_hello(**changes))
    _check(_hello(), attic=PC())
    for name, pcs in (("attic", {"cellar": PC()}), ("metrics", {})):
        with pytest.raises(FleetError, match=name):
            _check(_hello(), name, **pcs)


# Chunks.


def _chunk(**changes):
    return wire.Chunk(**{"boot": _BOOT, "stage": "camera", "decisions": {"camera": 3}, "columns": b"1"} | changes)


@pytest.mark.parametrize(
    ("field", "value"), [("boot", ""), ("boot", "zz"), ("boot", "a" * 33), ("sequence", 2**53 + 1)]
)
def test_a_chunk_of_which_nobody_could_say_which_it_is_is_refused(field, value):
    with pytest.raises(FleetError, match=field):
        bounded_chunk(_chunk(**{field: value}))


@pytest.mark.parametrize(
    ("field", "most", "beyond"),
    [
        ("stage", "a" * 200, "a" * 201),
        ("attempt", "a" * 200, "a" * 201),
        ("weights_version", 2**31 - 1, 2**31),
        ("lane_ticks", 2**31 - 1, 2**31),
        ("decisions", {"camera": 8192}, {"camera": 8193}),
        ("decisions", {str(number): 1 for number in range(64)}, {str(number): 1 for number in range(65)}),
        ("columns", bytes(4 * 2**20), bytes(4 * 2**20 + 1)),
        ("versions", [1, 2**31 - 1], [1, 2**31]),
        ("versions", [1] * 64 * 8192, [1] * (64 * 8192 + 1)),
        ("ticks", [1, 2**53], [1, 2**53 + 1]),
        ("frozen", bytes(200), bytes(201)),
    ],
)
def test_a_chunk_that_says_more_than_any_can_keeps_its_number_and_its_count_of_decisions(field, most, beyond):
    unknown = b"\xfa\x7f" + b"\xff\xff\x03" + bytes(2**16 - 1)
    kept = _chunk(sequence=2**53, **{field: most})
    assert bounded_chunk(wire.Chunk.FromString(kept.SerializeToString() + unknown)) == kept
    found = bounded_chunk(_chunk(sequence=7, **{field: beyond}))
    assert (found.boot, found.sequence, found.columns) == (_BOOT, 7, b"")
    said = _chunk(**{field: beyond}).decisions
    assert dict(found.decisions) == {"?": sum(said.values())}
    assert found.ByteSize() < 1000


# What a head says.


@pytest.mark.parametrize(
    ("kind", "field", "most", "beyond"),
    [
        ("task", "stage", "a" * 200, "a" * 201),
        ("task", "attempt", "a" * 200, "a" * 201),
        ("task", "description", "a" * 2**20, "a" * (2**20 + 1)),
        ("task", "first_lane", 2**31 - 1, 2**31),
        ("task", "seed", 2**63 - 1, 2**63),
        ("task", "speed", 100.0, 100.1),
        ("task", "speed", 0.0, -0.1),
        ("task", "speed", 1.0, math.nan),
        ("weights", "version", 2**31 - 1, 2**31),
        ("weights", "arrays", bytes(4 * 2**20), bytes(4 * 2**20 + 1)),
        ("weights", "decisions", {"a" * 200: 2**53}, {"a" * 201: 1}),
        ("weights", "decisions", {"a": 2**53}, {"a": 2**53 + 1}),
        ("weights", "decisions", dict.fromkeys(map(str, range(64)), 1), dict.fromkeys(map(str, range(65)), 1)),
        ("acknowledged", "boot", "a" * 64, "a" * 65),
        ("acknowledged", "sequences", [0, 2**53], [0, 2**53 + 1]),
        ("acknowledged", "sequences", [1] * 2**18, [1] * (2**18 + 1)),
        ("acknowledged", "refused", {"a": 2**53}, {"a": 2**53 + 1}),
    ],
)
def test_a_pc_refuses_what_a_head_cannot_mean(kind, field, most, beyond):
    def parsed(value):
        message = {field: value}
        sent = wire.ToGame(**{kind: [message] if kind == "acknowledged" else message})
        assert parse_message(wire.ToGame, sent.SerializeToString(), "head") == sent

    parsed(most)
    with pytest.raises(FleetError, match=field):
        parsed(beyond)


def test_no_more_acknowledgements_ride_on_a_message_than_a_game_may_leave_unread():
    answers = [wire.Acknowledgement(boot=_BOOT)] * (2**16 + 1)
    parse_message(wire.ToGame, wire.ToGame(acknowledged=answers[1:]).SerializeToString(), "head")
    with pytest.raises(FleetError, match="acknowledged"):
        parse_message(wire.ToGame, wire.ToGame(acknowledged=answers).SerializeToString(), "head")


@pytest.mark.parametrize("data", [b"\x00garbage", b"\x12\xff\xff\xff\xff\x7f"])
def test_bytes_that_are_no_message_are_refused(data):
    with pytest.raises(FleetError):
        parse_message(wire.FromGame, data, "PC")


# What only describes.


def test_what_describes_is_clamped_and_what_is_no_number_is_left_out():
    metrics = {"speed": math.nan, "cpu_s": -5.0, "reset_s/x": 1.7e308, "lateness_p99_ms": 3.0}
    health = wire.Health(state="playing\nnow", ticks=2**64 - 1, metrics=metrics, lost_decisions={"x": 2**64 - 1})
    found = parse_message(wire.FromGame, wire.FromGame(health=health).SerializeToString(), "PC").health
    assert found.state == "playing now"
    assert found.ticks == found.lost_decisions["x"] == 2**53
    assert dict(found.metrics) == {"cpu_s": 0.0, "reset_s/x": 1e12, "lateness_p99_ms": 3.0}
    metrics = {f"{number:05d}": 1.0 for number in range(5000)}
    health = wire.Health(note="y" * 600, weights_version=2**63, lost_decisions={"z" * 300: 1}, metrics=metrics)
    found = parse_message(wire.FromGame, wire.FromGame(health=health).SerializeToString(), "PC").health
    assert (found.note, found.weights_version) == ("y" * 500, 2**31 - 1)
    assert dict(found.lost_decisions) == {"z" * 200: 1}
    assert len(found.metrics) == 256


def test_the_reason_of_a_stop_is_cut():
    sent = wire.ToGame(stop=wire.Stop(reason="x" * 3000)).SerializeToString()
    assert parse_message(wire.ToGame, sent, "head").stop.reason == "x" * 2000
