"""The generated messages, with the oldest allowed releases of protobuf and grpcio and with the installed ones."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from soulsgraph_clusters.fleet.protocol import fleet_pb2

ROOT = Path(__file__).parents[4]
ROUND_TRIP = """
import grpc
import fleet_pb2 as wire
chunk = wire.Chunk(boot="0a", sequence=2**63, decisions={"camera": 2}, columns=bytes(range(256)))
message = wire.FromGame(chunk=chunk)
assert wire.FromGame.FromString(message.SerializeToString()) == message
assert message.WhichOneof("message") == "chunk"
"""


def _oldest(name):
    return re.search(rf'"{name}>=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))[1]


def _round_trip(python):
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "clusters/soulsgraph_clusters/fleet/protocol")}
    done = subprocess.run([python, "-W", "error", "-c", ROUND_TRIP], env=environment, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.release
def test_messages_with_the_oldest_releases_allowed(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True)
    oldest = [f"{name}=={_oldest(name)}.0" for name in ("protobuf", "grpcio")]
    pip = tmp_path / "bin" / "python", "-m", "pip", "install", "--quiet", *oldest
    subprocess.run(pip, check=True)
    _round_trip(tmp_path / "bin" / "python")


def _without_json_names(messages):
    """Take the names of fields in JSON away: the compiler writes them into sets of descriptors alone."""
    for message in messages:
        for field in message.field:
            field.ClearField("json_name")
        _without_json_names(message.nested_type)


def test_the_generated_messages_are_those_of_the_file_that_describes_them(tmp_path):
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed here")
    name, out = "soulsgraph_clusters/fleet/protocol/fleet.proto", tmp_path / "set"
    words = f"--proto_path={ROOT / 'clusters'}", f"--descriptor_set_out={out}", name
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], check=True)
    (compiled,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    kept = descriptor_pb2.FileDescriptorProto.FromString(fleet_pb2.DESCRIPTOR.serialized_pb)
    _without_json_names(compiled.message_type)
    # The file has moved since it was compiled.
    compiled.name = kept.name
    assert len(compiled.message_type) > 5
    assert kept == compiled
