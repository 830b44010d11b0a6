"""Compare the bits of what two commits train, evaluate and play, both on this machine; not part of the suite.

    python tests/compare_commits.py COMMIT                # the working tree beside that commit
    python tests/compare_commits.py COMMIT --only fights  # or training, resume

`training`: each preset that both have, on two seeds: its weights and the rows of its table. `resume`: a stage killed
after its first checkpoint, then resumed. `fights`: every scenario by every Gymnasium id, actions drawn. Both sides are
driven by the command line and by Gymnasium alone. Weights are compared without their names.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[1]
FLOORS = ("platform", "clusters", "policies", "envs")
SEEDS = (300, 301)
SMALL = ("--scale", "0.05", "--episodes", "50", "--json")
PATIENCE_S = 1_200.0

#: Run in either tree: prints one digest for each scenario and environment.
_FIGHTS = """
import hashlib, json, sys, warnings
from pathlib import Path
import gymnasium, numpy as np
import soulsgraph_envs
warnings.simplefilter("ignore")
scenarios = sorted(path.stem for path in Path(soulsgraph_envs.__file__).parent.glob("data/scenarios/*.toml"))
skills = ("camera", "lock_on", "movement", "dodge", "heal_attack")
cases = [("soulsgraph/Skill-v0", {"skill": s, "scenario": name}) for name in scenarios for s in skills]
cases += [("soulsgraph/EndToEnd-v0", {"scenario": name}) for name in scenarios]
cases += [(f"soulsgraph/{name}-v0", {}) for name in ("SoulsGymIudex", "SoulsGymVordt", "EldenGym")]


def values(found):
    if isinstance(found, dict):
        return b"".join(values(found[key]) for key in sorted(found))
    return np.asarray(found).tobytes()


for id, keywords in cases:
    env = gymnasium.make(id, **keywords)
    digest, drawn = hashlib.sha256(), np.random.default_rng(7)
    env.action_space.seed(7)
    observation, _ = env.reset(seed=7)
    for step in range(400):
        digest.update(values(observation))
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        digest.update(values([reward, terminated, truncated]))
        if terminated or truncated:
            observation, _ = env.reset()
    env.close()
    print(json.dumps([" ".join([id, *map(str, keywords.values())]), digest.hexdigest()]), flush=True)
for name in scenarios:
    for skill in skills:
        envs = gymnasium.make_vec("soulsgraph/Skill-v0", 8, vectorization_mode="vector_entry_point",
                                  skill=skill, scenario=name, autoreset_mode="SameStep")
        digest = hashlib.sha256()
        envs.action_space.seed(7)
        digest.update(values(envs.reset(seed=7)[0]))
        for step in range(100):
            digest.update(values(list(envs.step(envs.action_space.sample())[:4])[0]))
        envs.close()
        print(json.dumps([f"vector {skill} {name}", digest.hexdigest()]), flush=True)
"""

#: One comparison: what was compared, and its digest or rows.
Finding = tuple[str, Any]


class Tree:
    """A checkout whose packages a command uses, whatever is installed."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self._environment = dict(os.environ, PYTHONPATH=os.pathsep.join(str(root / floor) for floor in FLOORS))
        self._root, self._scratch = root, scratch
        scratch.mkdir()

    def presets(self) -> list[str]:
        """Return the names of its presets, as the command line lists them."""
        return [row["name"] for row in json.loads(self._finish(self._soulsgraph("list", "presets", "--json")))]

    def findings(self, parts: list[str], presets: Collection[str]) -> Iterator[Finding]:
        """Run the named parts; of `training` these presets."""
        for part in parts:
            print(f"{self._root}: {part}", file=sys.stderr, flush=True)
            if part == "training":
                yield from self._training([name for name in self.presets() if name in presets])
            else:
                yield from {"resume": self._resume, "fights": self._fights}[part]()

    def _training(self, presets: Collection[str]) -> Iterator[Finding]:
        for preset in presets:
            for seed in SEEDS:
                print(f"{self._root}: preset {preset}, seed {seed}", file=sys.stderr, flush=True)
                run = self._scratch / f"{preset}-{seed}"
                printed = self._finish(self._train_all(run, preset, seed))
                yield f"table of {preset}, seed {seed}", _plain_numbers(json.loads(printed)["rows"])
                yield f"weights of {preset}, seed {seed}", _weights(run)

    def _resume(self) -> Iterator[Finding]:
        run = self._scratch / "resumed"
        process = self._train_all(run, "fast", SEEDS[0])
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None and not any(
            name.startswith("step-") for folder, names, _ in os.walk(run) if "dodge" in folder for name in names
        ):
            assert time.monotonic() < deadline, "no checkpoint of dodge"
            time.sleep(0.02)
        interrupted = process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self._finish(self._train_all(run, "fast", SEEDS[0]))
        yield f"weights after a resume (killed beforehand: {interrupted})", _weights(run)

    def _fights(self) -> Iterator[Finding]:
        for line in self._finish(self._python(["-c", _FIGHTS])).splitlines():
            name, digest = json.loads(line)
            yield name, digest

    def _train_all(self, run: Path, preset: str, seed: int) -> "subprocess.Popen[str]":
        return self._soulsgraph("curriculum", "--run", str(run), "--preset", preset, "--seed", str(seed), *SMALL)

    def _soulsgraph(self, *words: str) -> "subprocess.Popen[str]":
        return self._python(["-m", "soulsgraph", *words])

    def _python(self, arguments: list[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=self._environment,
            cwd=self._scratch,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    @staticmethod
    def _finish(process: "subprocess.Popen[str]") -> str:
        printed, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, f"{process.args!r} ended with {process.returncode}"
        return printed


def _plain_numbers(found: Any) -> list[float]:
    """Return every number of a JSON value in order, without the names beside them."""
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list):
        return [number for part in found for number in _plain_numbers(part)]
    return [found] if isinstance(found, int | float) else []


def _weights(run: Path) -> dict[str, list[str]]:
    """Return the digests of each skill's arrays, independent of their names."""
    files = sorted(run.glob("library/*/v1/weights.safetensors"))
    assert files, f"{run}: no skill was trained"
    return {path.parts[-3]: sorted(_digest(array) for array in load_file(path).values()) for path in files}


def _digest(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _findings_of(commit: str, folder: Path, parts: list[str], presets: Collection[str]) -> dict[str, Any]:
    checkout = folder / "earlier"
    subprocess.run(["git", "worktree", "add", "--detach", checkout, commit], cwd=ROOT, check=True)
    try:
        return dict(Tree(checkout, folder / "scratch-earlier").findings(parts, presets))
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=ROOT, check=True)


def main() -> int:
    """Print every difference, and return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("--only", nargs="+", choices=("training", "resume", "fights"), help="parts to compare")
    parser.add_argument("--kept", type=Path, help="file of the earlier commit's findings: written once, then read")
    asked = parser.parse_args()
    parts = asked.only or ["training", "resume", "fights"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(ROOT, Path(folder, "scratch-now"))
        presets: Collection[str] = tree.presets() if "training" in parts else ()
        if asked.kept and asked.kept.exists():
            before = json.loads(asked.kept.read_text())
        else:
            before = _findings_of(asked.commit, Path(folder), parts, presets)
            if asked.kept:
                asked.kept.write_text(json.dumps(before))
        shared = [name for name in presets if f"weights of {name}, seed {SEEDS[0]}" in before]
        now = json.loads(json.dumps(dict(tree.findings(parts, shared))))
    different = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
    for name in sorted(different):
        print(f"DIFFERENT: {name}")
    print(f"{len(before.keys() | now.keys()) - len(different)} equal, {len(different)} different")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
