"""Count the product files and functions that four walks through the code touch; not part of the suite.

    python tests/count_walks.py                     # the working tree
    python tests/count_walks.py 90ac6a7 --json      # that commit

The commands of a small curriculum, and of one skill trained in the stand-in game, run with numba's compiler off. A
function counts, and its file, where its body ran beneath one of the walk's functions, whoever called it, in any of
the commands' processes; lambdas, comprehensions and what runs while a module is imported do not count, nor do
stand-ins and benchmarks.
Linux only: the stand-in game wants Xvfb.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLOORS = ("platform", "clusters", "policies", "envs")
PATIENCE_S = 3_000.0
_SOULSGRAPH = ("-m", "soulsgraph")


@dataclass(frozen=True)
class Walk:
    """The functions that a walk begins in (none: the whole command), those left out, and the floors that count."""

    title: str
    command: str
    begins: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    floors: tuple[str, ...] = FLOORS


#: Functions by their qualified names. A beginning that never runs is an error: a walk must not shrink unnoticed.
WALKS = (
    Walk("a simulator tick to the gradient", "curriculum", ("SkillDQN.training_step",), ("Sampler._begin",)),
    Walk(
        "a skill's weights to the composed agent",
        "curriculum",
        (
            "SkillDQN.weights",
            "trained_artifact",
            "SkillLibrary.save",
            "SkillLibrary.load",
            "SkillDQN.load_weights",
            "FrozenNetwork.of",
            "FusedNetworks.__init__",
            "FusedNetworks.act",
        ),
    ),
    Walk(
        "a memory reading to a transition",
        "training in a game",
        ("Sampler.sample",),
        ("Sampler._begin", "RealTimeSampling._open_game"),
    ),
    Walk("curriculum, upper two floors", "curriculum", (), (), ("platform", "clusters")),
)

#: Begins every Python process of a command: appends a line to the file of walks for each function that it newly finds.
_TRACER = """
import collections, inspect, json, os, sys, threading

floors, walks = tuple(json.loads(os.environ["WALKED_FLOORS"])), json.loads(os.environ["WALKS"])
watched = {"<module>"}.union(*(names for _, *sets in walks for names in sets))
found, here = set(), threading.local()


def note(*line):
    if line not in found:
        found.add(line)
        with open(os.environ["WALKED"], "a") as file:
            file.write(json.dumps(line) + "\\n")


def trace(frame, event, _):
    code = frame.f_code
    # What a command runs, it runs beneath the module __main__, which is no import.
    if not code.co_filename.startswith(floors) or code.co_filename.endswith("__main__.py"):
        return None
    running = here.__dict__.setdefault("running", collections.Counter())
    name, leave = code.co_qualname, None
    # The module that is the program itself runs all along.
    if name in watched and frame.f_globals["__name__"] != "__main__":
        frame.f_trace_lines = False
        running[name] += 1

        def leave(frame, event, _):
            running[name] -= event == "return"
            return leave

    if code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<") and not running["<module>"]:
        for title, begins, left_out in walks:
            if name in begins:
                note(title, "begun", "", name)
            if (not begins or any(map(running.get, begins))) and not any(map(running.get, left_out)):
                note(title, "ran", code.co_filename, name)
    return leave


threading.settrace(trace)
sys.settrace(trace)
"""


class Tree:
    """A checkout, and a folder for what its commands write."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self._root, self._scratch, self._walked = root, scratch, scratch / "walked.jsonl"
        (scratch / "tracing").mkdir(parents=True)
        (scratch / "tracing" / "sitecustomize.py").write_text(_TRACER)
        self._walked.touch()

    def count(self) -> dict[str, dict[str, list[str]]]:
        """Return the functions of every walk, by file."""
        self._run("curriculum", "curriculum", "--scale", "0.006", "--episodes", "1")
        with self._stand_in() as games:
            self._run("training in a game", "train", "camera", "--scale", "0.006", "--games", str(games))
        lines = {tuple(json.loads(line)) for line in self._walked.read_text().splitlines()}
        return {walk.title: self._functions(walk, lines) for walk in WALKS}

    def _functions(self, walk: Walk, lines: set[tuple[str, ...]]) -> dict[str, list[str]]:
        missing = set(walk.begins) - {name for title, kind, _, name in lines if (title, kind) == (walk.title, "begun")}
        assert not missing, f"{walk.title}: expected to run, never did: {', '.join(missing)}"
        functions: dict[str, list[str]] = {}
        for title, kind, path, name in sorted(lines):
            file = os.path.relpath(path, self._root) if kind == "ran" else ""
            if title == walk.title and file.startswith(walk.floors) and not _apart(file):
                functions.setdefault(file, []).append(name)
        return functions

    def _run(self, name: str, *words: str) -> None:
        walks = [(walk.title, walk.begins, walk.left_out) for walk in WALKS if walk.command == name]
        tracing = {
            "WALKS": json.dumps(walks),
            "WALKED": str(self._walked),
            "WALKED_FLOORS": json.dumps([f"{self._root / floor}{os.sep}" for floor in FLOORS]),
        }
        arguments = [
            sys.executable,
            *_SOULSGRAPH,
            *words,
            "--run",
            str(self._scratch / name.replace(" ", "-")),
            "--json",
        ]
        environment = self._environment(self._scratch / "tracing") | tracing
        done = subprocess.run(
            arguments, env=environment, cwd=self._scratch, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, f"{name} ended with {done.returncode}: {done.stderr[-2000:]}"

    @contextmanager
    def _stand_in(self) -> Iterator[Path]:
        """Run the stand-in game on a screen of its own, and return its games file."""
        games, (reading, writing) = self._scratch / "games.toml", os.pipe()
        screen = subprocess.Popen(
            ["Xvfb", "-displayfd", str(writing), "-nolisten", "tcp"], pass_fds=[writing], stderr=subprocess.DEVNULL
        )
        os.close(writing)
        with os.fdopen(reading) as numbers:
            display = f":{numbers.readline().strip()}"
        words = ["game", "standin", "--display", display, "--settings", str(games), "--speed", "0.3", "--until-eof"]
        game = subprocess.Popen(
            [sys.executable, *_SOULSGRAPH, *words],
            env=self._environment(),
            cwd=self._scratch,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert game.stdout is not None
            assert game.stdout.readline().startswith("ready"), "the stand-in game did not start"
            yield games
        finally:
            game.communicate("quit\n")
            screen.terminate()
            screen.wait()

    def _environment(self, *first: Path) -> dict[str, str]:
        path = os.pathsep.join(map(str, [*first, *(self._root / floor for floor in FLOORS)]))
        return dict(os.environ, PYTHONPATH=path, NUMBA_DISABLE_JIT="1", PYTHONWARNINGS="ignore")


def _apart(file: str) -> bool:
    """Return whether a file is a stand-in or a benchmark."""
    return any(part in ("standin", "testing.py", "bench") for part in Path(file).parts)


@contextmanager
def _checkout(commit: str, folder: Path) -> Iterator[Path]:
    """Check a commit out beside the working tree."""
    checkout = folder / "earlier"
    subprocess.run(["git", "worktree", "add", "--detach", checkout, commit], cwd=ROOT, check=True, capture_output=True)
    try:
        yield checkout
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=ROOT, check=True)


def main() -> None:
    """Print the numbers of files and functions of every walk, as a table or with their names as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", help="commit to count in; the working tree if not given")
    parser.add_argument("--json", action="store_true", help="list the functions too, by file, as JSON")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        if asked.commit:
            with _checkout(asked.commit, folder) as root:
                counted = Tree(root, folder / "scratch").count()
        else:
            counted = Tree(ROOT, folder / "scratch").count()
    numbers = {title: (len(names), sum(map(len, names.values()))) for title, names in counted.items()}
    if asked.json:
        listed = {t: {"files": n[0], "functions": n[1], "names": counted[t]} for t, n in numbers.items()}
        print(json.dumps(listed, indent=2))
    else:
        print("\n".join(f"{title:45}{n[0]:4} files{n[1]:5} functions" for title, n in numbers.items()))


if __name__ == "__main__":
    main()
