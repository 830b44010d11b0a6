"""What a fleet costs, each part beside the bare work in the same time.

python benchmarks/fleet.py --rounds 3 --seconds 20 --parts streams

`paced`: games in real time, beside a loop that only keeps the time. `streams`: the gateway, and it and its driver,
beside a bare server. `disturbed`: games that play while one of them resets or is frozen. Journals lie in --out
meanwhile: it names the disk that is measured.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import common
from fleet_driver import DriverServer
from fleet_games import FLEETS, GAMES, bench_disturbed, bench_paced
from fleet_streams import bench_streams

PARTS = ("paced", "streams", "disturbed")
MOST_STREAMS = 10_000


def bench_fleet(
    rounds: int, folder: Path, parts: Sequence[str] = PARTS, seconds: float = 30.0, streams: int = 1000
) -> Iterator[dict[str, Any]]:
    """Measure parts of a fleet for some seconds each; the gateway has `streams` of one chunk a second."""
    if "paced" in parts:
        yield from (bench_paced(games, speed, seconds, rounds, folder) for games, speed in FLEETS)
    if "streams" in parts:
        yield from bench_streams(streams, seconds, rounds, folder, DriverServer)
    if "disturbed" in parts:
        yield from bench_disturbed(GAMES, rounds, folder)


def describe(result: dict[str, Any]) -> str:
    """Return one result as a line: medians, the lowest and highest round."""
    rounds = f"{result['rounds']} rounds; load {result['load']:.1f}"
    if "share_of_bare_ticks" in result:
        share, late, cpu = (
            result[name] for name in ("share_of_bare_ticks", "lateness_p99_beyond_bare_ms", "cpu_ms_a_tick")
        )
        return (
            f"{result['name']}: {share['median']:.1%} of a bare loop's ticks ({share['lowest']:.1%} to "
            f"{share['highest']:.1%}), p99 {late['median']:+.2f} ms beside it, {cpu['median']:.2f} ms CPU a tick "
            f"({cpu['lowest']:.2f} to {cpu['highest']:.2f}); {rounds}"
        )
    if "others_ticks" in result:
        ticks, learned = result["others_ticks"], result["learned_a_game"]
        line = (
            f"{result['name']}: the others' ticks {ticks['median']:.1%} of before ({ticks['lowest']:.1%} to "
            f"{ticks['highest']:.1%}), learned of each that plays {learned['median']:.1%} ({learned['lowest']:.1%} to "
            f"{learned['highest']:.1%})"
        )
        if "reported_after_s" in result:
            line += f", reported after {result['reported_after_s']['highest']:.1f} s at most"
        return f"{line}; {rounds}"
    cores = result["cores"]
    line = (
        f"{result['name']}, {result['streams']:,} streams: {cores['median']:.2f} of a core ({cores['lowest']:.2f} to "
    )
    line += f"{cores['highest']:.2f})"
    if "to_bare" in result:
        beyond = result["beyond_bare_ms_a_chunk"]["median"]
        line += f", {result['to_bare']['median']:.2f} times the bare server's, {beyond:.2f} ms a chunk beyond it"
    if "queue_age_p99_ms" in result["measured"][0]:
        age = median(one["queue_age_p99_ms"] for one in result["measured"])
        refused = sum(one["refused_decisions"] for one in result["measured"])
        line += f"; queue age p99 {age:,.0f} ms, {refused:,.0f} decisions refused"
    return f"{line}; {rounds}"


def make_parser() -> ArgumentParser:
    """Return the parser of this benchmark's options."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each is measured")
    parser.add_argument("--streams", type=int, default=1000, help="streams of the gateway")
    parser.add_argument("--out", type=Path, default=Path("runs/fleet-bench"), help="folder of the journals")
    return parser


def main() -> None:
    """Measure, print."""
    parser = make_parser()
    asked = parser.parse_args()
    if not 1 <= asked.streams <= MOST_STREAMS:
        parser.error(f"--streams: expected 1 to {MOST_STREAMS}, found {asked.streams}")
    common.report(bench_fleet(asked.rounds, asked.out, asked.parts, asked.seconds, asked.streams), describe, asked)


if __name__ == "__main__":
    main()
