"""`soulsgraph fleet host` as a Windows PC installs and runs it: Windows' Python under Wine, for a real head by TLS."""

import time

import pytest

from fakes.fleet_in_folder import FleetInFolder, require_once, require_replay, settle
from fakes.programs import missing_for_wine
from fakes.stored import spooled
from fakes.waiting import until
from fakes.windows import windows_pc
from soulsgraph_clusters.fleet.actor import process as game_process

MISSING = missing_for_wine()
pytestmark = [pytest.mark.release, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

TLS = 'certificate = "head.pem"\nkey = "head.key"\n'
#: Slow, so that a stage lasts as long as anybody likes, and fast, to end it.
SLOW = '[[games]]\ndriver = "simulator"\n'
FAST = '[[games]]\ndriver = "simulator"\nspeed = 20.0\nlanes = 8\n'
#: A word of the command line of a game's process.
GAME = game_process.__name__


def _host_words(pc, port):
    files = (("--token-file", "token"), ("--ca", "head.pem"), ("--games", "games.toml"), ("--spool", "spool"))
    return (
        "fleet",
        "host",
        "--head",
        f"127.0.0.1:{port}",
        *(word for one, file in files for word in (one, pc.path(file))),
    )


def _host(pc, port):
    """Start the host in a console: closing its standard input presses Ctrl-C."""
    return pc.console(*_host_words(pc, port))


@pytest.fixture(scope="module")
def pc(tmp_path_factory):
    with windows_pc(tmp_path_factory.mktemp("windows")) as pc:
        yield pc


@pytest.fixture
def fleet(pc, tmp_path):
    """A head that listens by TLS, and on the PC what a user copies there."""
    fleet = FleetInFolder(tmp_path, {"attic": SLOW}, TLS)
    code, logs = fleet.call("fleet", "certificates", "127.0.0.1", "--fleet", fleet.file)
    assert code == 0, logs
    (pc.folder / "token").write_bytes((tmp_path / "attic.token").read_bytes())
    (pc.folder / "head.pem").write_bytes((tmp_path / "head.pem").read_bytes())
    (pc.folder / "games.toml").write_text(SLOW)
    yield fleet
    pc.kill("soulsgraph")
    fleet.close()


def _joined(fleet, host, times=1):
    until(lambda: fleet.logs("train").count("attic/1 joined") >= times or host.process.poll() is not None, "a game")
    assert host.process.poll() is None, host.lines


def test_the_clock_of_a_game_goes_in_fine_steps(pc):
    module = "soulsgraph_envs.games.cycle_timer"
    code = f"from {module} import Clock; print(len({{Clock().now() for _ in range(100_000)}}))"
    # One or two of 16 ms each would be seen.
    assert int(pc.done(pc.path("venv\\Scripts\\python.exe"), "-c", code)) > 1000


def test_what_a_windows_pc_played_is_learned_whatever_is_killed(pc, fleet):
    training, host = fleet.train(scale=0.3), _host(pc, fleet.port)
    _joined(fleet, host)
    until(lambda: fleet.chunks > 2 or not training.running, "chunks")
    pause = pc.program, "fleet", "pause", "--spool", pc.path("spool")
    pc.done(*pause)
    until(lambda: "attic/1 is paused" in fleet.logs("train"), "the pause")
    pc.done(*pause, "--undo")
    until(lambda: "attic/1 plays again" in fleet.logs("train"), "the game after the pause")
    assert pc.kill(GAME)
    _joined(fleet, host, times=2)

    assert training.running, training.logs()
    training.kill()
    # Chunks that wait for a head, one a second.
    time.sleep(6.0)
    assert host.process.poll() is None, host.lines
    # The host alone: its game ends by itself, as its standard input closes.
    assert pc.kill("soulsgraph.exe")
    host.wait()
    until(lambda: not pc.processes(GAME), "the end of the game's process")
    waiting = spooled(pc.folder / "spool")
    assert len(waiting) > 2

    (pc.folder / "games.toml").write_text(FAST)
    host, training = _host(pc, fleet.port), fleet.train(scale=0.3)
    assert training.wait() == 0, training.logs()
    account = settle(fleet, ["attic/1"])
    account.require()
    for boot, sequence in waiting:
        arrived = {*account.rest.get(f"attic/1 {boot}", {}), *account.journal.get(f"attic/1 {boot}", {})}
        assert sequence in arrived, (boot, sequence)
    require_once(fleet.records())
    require_replay(fleet)

    code, text = host.wait()
    assert code == 0, text
    assert not spooled(pc.folder / "spool")
    until(lambda: not pc.processes("soulsgraph"), "the end of every process")
