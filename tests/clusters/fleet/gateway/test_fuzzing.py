"""Damaged messages and chunks: refused in one line or by a verdict, and nothing else."""

import random
from collections import Counter

from fakes.fleet_here import random_weights
from soulsgraph_clusters.fleet.gateway.admission import Admission
from soulsgraph_clusters.fleet.gateway.connections import Connection
from soulsgraph_clusters.fleet.gateway.runner import read_chunk
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import (
    CODE,
    check_chunk,
    check_hello,
    decode_weights,
    encode_columns,
    encode_weights,
    parse_message,
)
from soulsgraph_clusters.fleet.protocol.settings import PROTOCOL, FleetError, FleetSettings, play_digest
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.store import Journal
from soulsgraph_envs.games.opening import make_game
from soulsgraph_policies.learning.hyperparameters import skill_hyperparameters

STAGE, LANES, BOOT = "lock_on", 2, "00000000000000b0"
MESSAGES, GROUP = 3_000, 64


def damaged(draw, data):
    """Return a message with pieces of it replaced, cut out or put in."""
    whole = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        # Most of what is checked stands at the beginning.
        place = draw.randrange(min(len(whole), draw.choice((12, 400, 10**6))) + 1)
        whole[place : place + draw.choice((0, 1, 2, 8))] = draw.randbytes(draw.choice((0, 1, 2, 8)))
    return bytes(whole)


def outcome_of(take, *data):
    """Return whether something was taken or refused; a refusal has one line."""
    line = ""
    try:
        take(*data)
    except FleetError as refusal:
        line = str(refusal)
    assert "\n" not in line
    return "refused" if line else "taken"


def test_no_message_leads_to_anything_but_a_refusal_or_a_verdict(tmp_path):
    draw, found = random.Random(1), Counter()
    task = StageTask("iudex-phase1", {"camera": "camera", STAGE: STAGE}, {STAGE: skill_hyperparameters(4000)}, 10.0)
    hello = wire.Hello(protocol=PROTOCOL, version="0.1.0", pc="attic", game="1", boot=BOOT, driver="simulator")
    hello.lanes, hello.digests[CODE] = LANES, play_digest()
    sampler, weights = task.sampler(make_game(LANES), seed=5), random_weights(task)
    sampler.set_networks(task.networks(weights))
    played, offered = sampler.sample(8), encode_weights({STAGE: weights[STAGE]})
    decisions, columns = {name: len(part) for name, part in played.transitions.items()}, encode_columns(played)
    count = sum(decisions.values())
    journal = Journal(tmp_path, STAGE)
    admission, connection, group = Admission(journal, task, 0, FleetSettings()), Connection(hello, 0.0), []

    def take(data):
        message = parse_message(wire.FromGame, data, "PC")
        if message.HasField("hello"):
            check_hello(message.hello, "attic", FleetSettings())
        elif message.HasField("chunk"):
            check_chunk(message.chunk)
            group.append((connection, message.chunk))

    for number in range(MESSAGES):
        chunk = wire.Chunk(boot=BOOT, sequence=number, attempt=journal.attempt, decisions=decisions)
        chunk.stage = draw.choice((STAGE, STAGE, "camera"))
        chunk.columns = draw.choice((columns, damaged(draw, columns)))
        chunk.versions.extend([0] * count)
        chunk.ticks.extend(range(count))
        message = draw.choice((wire.FromGame(hello=hello), wire.FromGame(chunk=chunk))).SerializeToString()
        found[outcome_of(take, draw.choice((message, damaged(draw, message))))] += 1
        found[f"weights {outcome_of(decode_weights, damaged(draw, offered))}"] += 1
        if len(group) >= GROUP or number == MESSAGES - 1:
            answers = Counter((one.boot, place) for _, one in admission.write(group, 0.0) for place in one.sequences)
            assert answers == Counter((chunk.boot, chunk.sequence) for _, chunk in group)
            group.clear()
    for record in journal.read(0, MESSAGES):
        found[record.refused or "learned"] += 1
        read_chunk(record, task, b"")
    journal.close()
    # Both sides of every check were reached.
    for outcome in ("taken", "refused", "weights taken", "weights refused", "learned", "malformed", "other stage"):
        assert found[outcome] > MESSAGES / 200, outcome
