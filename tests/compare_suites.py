"""List which tests an earlier commit had and where they are now, with the tier of each; not part of the suite.

    python tests/compare_suites.py b124e21           # names that are gone or new, and counts by tier
    python tests/compare_suites.py b124e21 --moved   # also every test that is in another file or tier now

Tests are compared by the names of their functions, for files move, and what was parametrized may be one loop now.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FLOORS = ("platform", "clusters", "policies", "envs")
_TIERS = ("chaos", "docs", "slow")
#: Run in either tree: prints the tier, the file and the name of every test, one a line, as JSON.
_COLLECT = f"""
import json, sys, pytest

class Collected:
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        for item in items:
            tier = next((mark for mark in {_TIERS} if item.get_closest_marker(mark)), "test")
            print("TEST", json.dumps([tier, item.nodeid.split("::")[0], item.originalname]))

sys.exit(pytest.main(["--collect-only", "-qq", "tests"], plugins=[Collected()]))
"""


def collect(tree: Path) -> dict[str, Counter[tuple[str, str]]]:
    """Return by the name of its function in which files and tiers a test is, and how many cases each has there."""
    path = os.pathsep.join(str(tree / floor) for floor in _FLOORS)
    command, env = [sys.executable, "-c", _COLLECT], {**os.environ, "PYTHONPATH": path}
    printed = subprocess.run(command, cwd=tree, env=env, stdout=subprocess.PIPE, text=True).stdout
    tests: dict[str, Counter[tuple[str, str]]] = {}
    for line in printed.splitlines():
        if line.startswith("TEST "):
            tier, file, name = json.loads(line.removeprefix("TEST "))
            tests.setdefault(name, Counter())[file, tier] += 1
    if not tests:
        raise SystemExit(f"expected tests in {tree}, found none: {printed[-1000:]}")
    return tests


def _count(title: str, tests: Mapping[str, Counter[tuple[str, str]]]) -> None:
    functions, cases = Counter[str](), Counter[str]()
    for places in tests.values():
        functions.update({tier for _, tier in places})
        for (_, tier), count in places.items():
            cases[tier] += count
    print(title, ", ".join(f"{tier} {functions[tier]:,} ({cases[tier]:,} cases)" for tier in ("test", *_TIERS)))


def _where(places: Counter[tuple[str, str]]) -> str:
    return "; ".join(f"{file} ({tier}, {count})" for (file, tier), count in sorted(places.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--moved", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder) / "earlier"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", earlier, options.commit], cwd=ROOT, check=True)
        try:
            before, after = collect(earlier), collect(ROOT)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", earlier], cwd=ROOT, check=True)
    _count("before:", before)
    _count("after: ", after)
    for title, names in (("gone", before.keys() - after.keys()), ("new", after.keys() - before.keys())):
        print(f"\n{title}: {len(names)}")
        for name in sorted(names):
            print(f"  {name}: {_where((before | after)[name])}")
    if options.moved:
        print("\nmoved")
        for name in sorted(name for name in before.keys() & after.keys() if before[name] != after[name]):
            print(f"  {name}: {_where(before[name])} -> {_where(after[name])}")


if __name__ == "__main__":
    main()
