"""As many games as a large fleet has, all of which dial in one moment: every one is served."""

import resource
import subprocess
import sys
import time

import pytest

from fakes.fleet_here import CAMERA, GatewayHere

pytestmark = pytest.mark.chaos
GAMES, PCS = 1_500, 10
#: Dials all at once, prints how many got their task and the first other answers, and stays until it is asked to end.
CLIENTS = """
import asyncio, sys, time
import grpc
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.tokens import token_metadata
from soulsgraph_clusters.fleet.protocol.settings import METHOD, SERVICE
from soulsgraph_clusters.fleet.protocol.task import make_hello
from soulsgraph_envs.core.machine import raise_open_files

address, games, *tokens = sys.argv[1:]

async def dial(number):
    channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
    metadata = token_metadata(tokens[number % len(tokens)])
    call = channel.stream_stream(f"/{SERVICE}/{METHOD}")(metadata=metadata)
    game, boot = f"{number:04d}", f"{number:016x}"
    hello = make_hello(game, "test", 1, boot=boot)
    try:
        await call.write(wire.FromGame(hello=hello).SerializeToString())
        answer = wire.ToGame.FromString(await call.read())
    except grpc.RpcError as error:
        return error.details(), call
    return "" if answer.HasField("task") else answer.stop.reason, call

async def main():
    raise_open_files()
    make_hello("0", "test", 1)  # computes the digest once
    began_s = time.monotonic()
    answers = await asyncio.gather(*map(dial, range(int(games))))
    others = [answer for answer, _ in answers if answer]
    print(len(answers) - len(others), round(time.monotonic() - began_s, 2), *others[:3], sep="; ", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


def test_a_whole_fleet_that_dials_at_once_is_served_though_the_shells_limit_is_1024(tmp_path, keep_result):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 2 * GAMES:
        pytest.skip(f"the system allows {limits[1]} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
    try:
        with GatewayHere(tmp_path, CAMERA) as here:
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1], limits[1])
            tokens = [here.tokens.issue(f"pc-{number}") for number in range(PCS)]
            command = [sys.executable, "-c", CLIENTS, here.address, str(GAMES), *tokens]
            began_s = time.process_time()
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as clients:
                served, seconds, *others = clients.stdout.readline().strip().split("; ")
                cpu_s = time.process_time() - began_s
                clients.stdin.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    print(f"{served} of {GAMES} served within {seconds} s; CPU time of the gateway {cpu_s:.1f} s", *others)
    measured = {"games": GAMES, "pcs": PCS, "served": int(served), "seconds": float(seconds), "gateway_cpu_s": cpu_s}
    keep_result("fleet/connects.json", measured)
    assert int(served) == GAMES, others
