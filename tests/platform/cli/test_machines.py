"""Every command on the machines that people have: it works, or says in one line why not; never a traceback."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.waiting import until
from soulsgraph.cli.commands import COMMANDS, named

SOULSGRAPH = str(Path(sys.executable).with_name("soulsgraph"))
#: A cheap call of each command, one after the other in an empty folder, and how it ends on a machine without a display
#: and without a head.
CALLS = {
    "watch iudex-phase1-best-0 --file watched.gif --seconds 1": 0,
    "play --scenario nowhere": 2,
    "watch nothing.parquet --file page.html": 2,
    "zoo iudex-phase1-best-0 --run agent": 0,
    "data record agent --out fights --episodes 2": 0,
    "curriculum --run first --scale 0.01 --episodes 4": 0,
    "train camera --run second --scale 0.01": 0,
    "train --graph end-to-end --run third --scale 0.01 --episodes 4": 0,
    "supervise -- train camera --run fourth --scale 0.01": 0,
    "data clone fights --run clones --skills camera": 0,
    "evaluate agent --episodes 2": 0,
    "evaluate agent --episodes 2 --what table": 0,
    "check agent": 0,
    "adapt agent --skills heal_attack --budget 1000": 0,
    "evaluate agent --episodes 2 --what ablations": 0,
    "evaluate nowhere --what ablations": 2,
    "report nowhere.parquet": 2,
    "init duel": 0,
    "check duel": 0,
    "check nowhere --learn": 2,
    "study compare nowhere": 2,
    "list presets": 0,
    "report nowhere --scenario iudex-phase1": 2,
    "data export agent --out files --onnx": 0,
    "data import nothing.zip --run imported --skill camera": 2,
    "data calibrate nowhere --boss iudex-phase1 --out mine.toml": 2,
    "study reproduce --run study --seeds 0": 2,
    "study sweep nothing.toml": 2,
    "report agent --out agent.html": 0,
    "doctor": 0,
    "game saves copy nowhere": 2,
    "game standin --speed 9": 2,
    "fleet host --head 127.0.0.1:1 --token-file none --games none.toml": 2,
    "fleet pause": 2,
    "fleet pause --undo": 2,
    "fleet certificates head.lan": 0,
    "fleet status agent": 2,
    "fleet token attic": 2,
    "study continual S9": 2,
}


def test_the_calls_are_of_all_commands():
    assert {named(line.split()) for line in CALLS} == {*COMMANDS}


#: Calls commands one after the other in this process; prints the code and the output of each.
_EACH = """
import io, json, sys, traceback
from contextlib import redirect_stderr, redirect_stdout
from soulsgraph.cli import main

for line in sys.argv[1:]:
    sys.argv[1:], code, output = line.split(), 0, io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            code = 1
            traceback.print_exc()
    print("ended", json.dumps([line, code, output.getvalue()]), flush=True)
"""


@pytest.fixture
def folder(tmp_path):
    """Return a folder that every user can write, and reach."""
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    return tmp_path


#: A user that the system does not know. It reads everything, as an installation in another's home, and writes nothing.
_STRANGER = (
    *("setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"),
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"),
)
_NAMES = ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "NUMBA_CACHE_DIR")


def _become_stranger():
    """Return the words by which a command runs as that user; skip where that is not possible."""
    if not sys.platform.startswith("linux") or os.geteuid():
        pytest.skip("only root of a Linux can run commands as another user")
    if shutil.which("setpriv") is None or subprocess.run([*_STRANGER, "true"]).returncode:
        pytest.skip("setpriv (util-linux) can't make another user here")
    return _STRANGER


@pytest.mark.slow
def test_a_user_without_home_name_or_right_to_write_the_installation_can_use_every_command(folder):
    """`fleet pause` has no folder to look in; everything else does what it does elsewhere."""
    temporary = folder / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    environment = {name: value for name, value in os.environ.items() if name not in _NAMES}
    environment |= {"TMPDIR": str(temporary), "OMP_NUM_THREADS": "1", "FORCE_COLOR": "1"}
    # Nor is there a proxy or a repository where the environment says.
    environment |= dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "grpc_proxy"), "http://127.0.0.1:9")
    environment |= {"GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere/index"}
    command = [*_become_stranger(), sys.executable, "-P", "-c", _EACH, *CALLS]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1_800)
    ended = [json.loads(line[6:]) for line in ran.stdout.splitlines() if line.startswith("ended ")]
    assert [line for line, *_ in ended] == [*CALLS], ran.stderr[-3_000:]
    wrong = {line: (code, text[-1500:]) for line, code, text in ended if code != CALLS[line] or "Traceback" in text}
    assert wrong == {}
    assert not [line for line, _, text in ended if "\x1b" in text], "what is no terminal gets no colours"
    # What was compiled lasts for the next command, and nobody else can write it.
    assert len([*temporary.glob("soulsgraph-home-12345/.cache/soulsgraph/compiled-*")]) == 1
    assert (temporary / "soulsgraph-home-12345").stat().st_mode & 0o777 == 0o700
    # No folder of Ray's or anybody's lies where a home is missing.
    assert not [path.name for path in folder.iterdir() if path.name.startswith("~")]
    assert not list((temporary / "soulsgraph-home-12345").rglob("*ray*"))


@pytest.fixture
def train(tmp_path):
    """Start a short training as a program, with its errors in a file; return it, its run folder and that file."""
    started = []

    def start(scale="0.01", environment=None, **streams):
        words = ("train", "camera", "--run", str(tmp_path / "run"), "--scale", scale)
        with (tmp_path / "errors").open("w") as errors:
            streams = {"stderr": errors, "stdin": subprocess.DEVNULL} | streams
            program = subprocess.Popen([SOULSGRAPH, *words], env=os.environ | (environment or {}), **streams)
        started.append(program)
        return program, tmp_path / "run", tmp_path / "errors"

    yield start
    for program in started:
        program.kill()
        program.wait()


@pytest.mark.slow
def test_a_training_whose_output_nobody_reads_goes_on_to_its_end(train):
    unread, written = os.pipe()
    os.close(unread)
    program, run, errors = train(stdout=written)
    os.close(written)
    assert program.wait(600) == 0
    assert errors.read_text().count("\n") == 1
    assert list((run / "library").rglob("*.safetensors"))


@pytest.mark.slow
def test_a_training_whose_terminal_is_closed_leaves_a_checkpoint(train):
    """The terminal is gone as well: writing to it is an input/output error."""
    ours, theirs = pty.openpty()
    program, run, _ = train("1", stdout=theirs, stderr=theirs)
    os.close(theirs)
    until(lambda: list((run / "results").glob("*")) or program.poll() is not None, "the training")
    os.close(ours)
    program.send_signal(signal.SIGHUP)
    assert program.wait(600) == 130
    assert list((run / "checkpoints").glob("camera-*/step-*"))


@pytest.mark.slow
def test_no_command_minds_closed_streams_and_no_error_is_printed_as_a_result(tmp_path):
    shell = ("sh", "-c", 'exec <&- 2>&-; exec "$@"', "sh", SOULSGRAPH, "evaluate", "nowhere")
    done = subprocess.run(shell, cwd=tmp_path, stdout=subprocess.PIPE, timeout=600)
    assert (done.returncode, done.stdout) == (2, b"")
