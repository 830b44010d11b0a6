"""What every benchmark here shares: where the tests' fakes are, its options, and how results are printed.

Import it before `fakes`: programs that a benchmark starts find fakes and benchmarks by the environment that it sets.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from soulsgraph.results.origin import describe_run
from soulsgraph.runs.workers import precompile
from soulsgraph_envs.core.files import write_json

_HERE = Path(__file__).parent
_PATHS = [str(_HERE), str(_HERE.with_name("tests"))]
sys.path[:0] = [path for path in _PATHS if path not in sys.path]
os.environ["PYTHONPATH"] = os.pathsep.join([*_PATHS, *filter(None, [os.environ.get("PYTHONPATH")])])


def make_parser(doc: str | None) -> ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    parser = ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds, or training seeds")
    parser.add_argument("--json", type=Path, help="a file for the results, with commit and machine")
    return parser


def report(results: Iterable[dict[str, Any]], describe: Callable[[dict[str, Any]], str], asked: Namespace) -> None:
    """Print each result as it comes; write all of them where that is asked for."""
    from rich.console import Console

    console, origin, kept = Console(), describe_run(), []
    precompile(console)
    for result in results:
        console.print(describe(result), soft_wrap=True)
        kept.append(result)
    if asked.json:
        write_json(asked.json, {**origin, "results": kept})
