"""How well a boss's data come back from recordings: hidden draws, whose truth the scorer alone opens.

python benchmarks/calibration.py --kept runs/calibration --out docs/results/calibration

Each draw alters 25 numbers of a shipped boss by 8 to 40 % from a seed. Agents of the zoo and the probe, which knows the
shipped data alone, fight it in the simulator; `calibrate` gets of that what a running game supplies. Then values,
intervals and weights are compared with the truth, and win rates in the fitted fight with those in the true one. A
measurement goes on with draws that are there. With `--stand-in` they fight a stand-in of the altered boss in real time,
as one would a game, on a virtual screen of its own; the fights are kept:

python benchmarks/calibration.py --stand-in --seeds 141 142 143 144 --minutes 20 --kept runs/stand-ins --out stand-in
"""

from __future__ import annotations

import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import common
from calibration_draws import ALTERATIONS, KindScore, ScoredValue, draw_alterations, score_kinds, score_values, truth_of
from fakes.keys import virtual_screen
from fakes.stand_in import StandInProcess
from soulsgraph.calibrate.boss_file import scenario_path_of, write_fitted, write_tables
from soulsgraph.calibrate.calibration import calibrate
from soulsgraph.calibrate.rows import FightRows, FightSet, read_fights
from soulsgraph.recordings.recording import Fighter, record_in_games
from soulsgraph.results.origin import describe_run
from soulsgraph.runs.evaluate import Setting, evaluation_seeds, make_agent, play
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.workers import precompile
from soulsgraph.zoo import open_agent
from soulsgraph_envs.combat.loop import Actions, Combat
from soulsgraph_envs.combat.rollout import Doubles
from soulsgraph_envs.core.config import Where, read_file
from soulsgraph_envs.core.files import check_writable, write_json, write_text
from soulsgraph_envs.core.game import LaneIndices
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.games.link import GameSettings, load_games
from soulsgraph_envs.games.standin.launch import StandInOptions
from soulsgraph_envs.simulator import Simulator
from soulsgraph_policies.agents.agent import Agent

BOSS = SCENARIO = "iudex-phase1"
#: Estimators were developed on seeds below 100; on 100 to 115 they were measured once, and then repaired.
SEEDS = range(116, 132)
#: The number of draws with an agent trained in the fight that was fitted to the longest game time, and its seed.
TRAINED, TRAINING_SEED = 4, 7
#: Who fights for the recordings: two agents, and the probe for the rest of the time.
RECORDED = ("iudex-phase1-best-0", "iudex-phase1-paper-0")
AGENT_SHARE = 0.3
PLAYED = tuple(f"iudex-phase1-{preset}-{seed}" for preset in ("best", "paper") for seed in range(3))
MINUTES = (20.0, 60.0)
#: Fights of each agent for a win rate, whose standard error is then at most 1.6 points.
FIGHTS = 1000
_BATCH, LANES, TICK_S = 24, 24, 0.1
#: Fights that are recorded in a stand-in before it is asked how long they were.
_GAME_BATCH = 3


@dataclass(frozen=True)
class Draw:
    """The files of one draw: the altered boss, and the scenario in which it is fought."""

    seed: int
    folder: Path
    boss: Path
    scenario: Path

    @classmethod
    def make(cls, seed: int, folder: Path) -> Draw:
        """Draw a boss from a seed into a folder."""
        boss, _ = draw_alterations(BOSS, seed, folder)
        scenario = folder / f"draw-{seed}-fight.toml"
        write_tables(scenario, {"based_on": SCENARIO, "name": f"draw-{seed}", "boss": boss.name})
        return cls(seed, folder, boss, scenario)

    def fitted(self, minutes: float) -> Path:
        """Return the path of the scenario that is fitted to so much game time."""
        return scenario_path_of(self.folder / f"fitted-{minutes:g}.toml")


def fighters(scenario: str) -> Iterator[tuple[Fighter, float]]:
    """Yield who fights in a scenario, and each one's share of the game time."""
    for name in RECORDED:
        yield Fighter.of_run(open_agent(name), Setting(scenario, SCENARIO)), AGENT_SHARE / len(RECORDED)
    # It aims by the data that everybody has.
    probe = Fighter.probe(SCENARIO)
    agent = replace(probe.agent, scenario=load_scenario(scenario))
    yield replace(probe, scenario=scenario, agent=agent), 1.0 - AGENT_SHARE


class LaneRows:
    """A controller that chooses nothing: it keeps what a recording of each fight would hold of a running game's.

    `record` writes the same rows, one lane at a time with pictures of them, in ten times as long.
    """

    def __init__(self, agent: Agent, seeds: Seeds) -> None:
        self._rows: dict[int, tuple[str, list[Doubles], list[int]]] = {}
        self.fights: dict[str, FightRows] = {}
        rollout = agent.rollout(Simulator(min(LANES, len(seeds))), self)
        self._combat, rollout.after_tick = rollout.combat, self._after_tick
        rollout.play(seeds)

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin fights in `lanes` (n,), each named by its seed (n,)."""
        for lane, seed in zip(lanes.tolist(), seeds.tolist(), strict=True):
            self._rows[lane] = (f"{seed:016x}", [], [])

    def act(self, combat: Combat, actions: Actions) -> None:
        """Keep what is read as a tick begins."""
        for lane, (_, raws, _) in self._rows.items():
            raws.append(combat.raw[lane].copy())

    def _after_tick(self) -> None:
        combat = self._combat
        for lane, (name, raws, controls) in list(self._rows.items()):
            controls.append(int(combat.controls[lane]))
            if combat.ended[lane]:
                raw = np.array([*raws, combat.raw[lane]])
                self.fights[name] = _fight_rows(raw, [*controls, 0])
                del self._rows[lane]


def _fight_rows(raw: Doubles, controls: list[int]) -> FightRows:
    clock = np.round(np.arange(len(raw)) * TICK_S, 6)
    numbers = raw[:, Raw.BOSS_ANIMATION].astype(np.int64)
    return FightRows(clock, raw, np.array(controls, np.uint32), numbers, raw[:, Raw.PLAYER_HP].copy())


def record_draw(draw: Draw, minutes: float) -> list[FightSet]:
    """Fight so much game time with each fighter, and return what a recording of each one's fights supplies."""
    return [record_fighter(fighter, draw.seed, minutes * share) for fighter, share in fighters(str(draw.scenario))]


def record_fighter(fighter: Fighter, seed: int, minutes: float) -> FightSet:
    """Fight so much game time in the simulator, and return what a recording of it supplies."""
    fights = list[FightRows]()
    while sum(map(len, fights)) * TICK_S < 60.0 * minutes:
        seeds = evaluation_seeds(seed, _BATCH)
        kept = LaneRows(fighter.agent, seeds).fights
        fights += [kept[f"{one:016x}"] for one in seeds.tolist()]
        seed += 1_000
    return FightSet(tuple(fights), {}, fighter.scenario)


def record_stand_in(draw: Draw, minutes: float, speed: float, folder: Path) -> list[FightSet]:
    """Fight so much game time with each fighter in a stand-in of the altered boss, and return what was recorded.

    Everybody takes it for the shipped boss. Fights that are in `folder` already count.
    """
    file, seconds = draw.folder / "games.toml", 60.0 * minutes
    with virtual_screen() as display:
        options = StandInOptions(
            scenario=str(draw.scenario), speed=speed, seed=draw.seed, display=display, settings=file
        )
        with StandInProcess(options):
            games = load_games(file)
            return [
                _record_share(fighter, draw.seed, seconds * share, games, folder / fighter.name)
                for fighter, share in fighters(SCENARIO)
            ]


def _record_share(fighter: Fighter, seed: int, seconds: float, games: Sequence[GameSettings], folder: Path) -> FightSet:
    """Return a fighter's fights in games, of `seconds` or more in all."""
    while True:
        record_in_games(fighter, evaluation_seeds(seed, _GAME_BATCH), folder, games)
        found = read_fights(folder, load_boss(BOSS))
        if found.seconds >= seconds:
            return found
        seed += 1_000


def shortened(found: Sequence[FightSet], minutes: float) -> FightSet:
    """Return the first fights of each fighter, together about so much game time."""
    shares = [AGENT_SHARE / len(RECORDED)] * len(RECORDED) + [1.0 - AGENT_SHARE]
    kept = [first_fights(fights, minutes * share) for fights, share in zip(found, shares, strict=True)]
    return replace(found[0], fights=tuple(fight for fights in kept for fight in fights.fights))


def first_fights(found: FightSet, minutes: float) -> FightSet:
    """Return the first fights, of about so much game time."""
    lengths = np.cumsum([one.clock_s[-1] - one.clock_s[0] for one in found.fights])
    return replace(found, fights=found.fights[: int(np.searchsorted(lengths, 60.0 * minutes)) + 1])


def win_rates(scenario: Path | str) -> list[float]:
    """Return the share of fights that each of the six agents wins in a scenario."""
    seeds, rates = evaluation_seeds(31, FIGHTS), []
    for name in PLAYED:
        run = open_agent(name)
        rates.append(float(play(make_agent(run, Setting(str(scenario), SCENARIO)), seeds).won.mean()))
    return rates


def trained_rates(fitted: Path, true: Path, folder: Path) -> dict[str, float]:
    """Train `best` in the fitted fight, and return the shares of fights that it wins there and in the true one."""
    words = ("curriculum", "--run", str(folder), "--scenario", str(fitted), "--preset", "best")
    command = [sys.executable, "-P", "-c", "from soulsgraph.cli import main; main()", *words]
    subprocess.run([*command, "--seed", str(TRAINING_SEED)], check=True, stdout=subprocess.DEVNULL)
    agents = {
        name: make_agent(RunFolder.open(folder), Setting(str(scenario), str(fitted)))
        for name, scenario in (("fitted", fitted), ("true", true))
    }
    seeds = evaluation_seeds(31, FIGHTS)
    return {name: float(play(agent, seeds).won.mean()) for name, agent in agents.items()}


def measure(asked: Namespace, seed: int, trains: bool = False) -> dict[str, Any]:
    """Return all that is measured of one draw."""
    with TemporaryDirectory() as place:
        draw, most = Draw.make(seed, Path(place)), max(asked.minutes)
        if asked.stand_in:
            found = record_stand_in(draw, most, asked.speed, asked.kept / f"fights-{seed}")
        else:
            found = record_draw(draw, most)
        lengths = [measure_length(draw, found, minutes) for minutes in sorted(asked.minutes)]
        result = {"seed": seed, "true": win_rates(draw.scenario), "lengths": lengths}
        if trains:
            result["trained"] = trained_rates(draw.fitted(most), draw.scenario, draw.folder / "run")
        return result


def measure_length(draw: Draw, found: Sequence[FightSet], minutes: float) -> dict[str, Any]:
    """Return how well the data come back from so much game time, and what is won in the fitted fight."""
    shipped, player = load_boss(BOSS), load_player(load_scenario(SCENARIO).player)
    fights, begun = shortened(found, minutes), time.process_time()
    fitted = calibrate(fights, shipped, player)
    cpu_s = time.process_time() - begun
    write_fitted(draw.folder / f"fitted-{minutes:g}.toml", fitted, BOSS, SCENARIO, shipped)
    truth = truth_of(load_boss(draw.boss), shipped)
    return {
        "minutes": minutes, "game_minutes": fights.seconds / 60.0, "fights": len(fights.fights), "cpu_s": cpu_s,
        "values": [asdict(value) for value in score_values(fitted.boss, truth, shipped)],
        "player": [vars(value) for value in fitted.player],
        "won": win_rates(draw.fitted(minutes)),
    }  # fmt: skip


def summary(draws: Sequence[dict[str, Any]], place: int, shipped_rates: Sequence[float]) -> dict[str, Any]:
    """Return what all draws say together of one length of game time, the `place`th."""
    lengths = [draw["lengths"][place] for draw in draws]
    scored = [ScoredValue(**value) for one in lengths for value in one["values"]]
    weights = [value for value in scored if value.kind == "weights" and value.covered is not None]
    off = np.array([np.subtract(one["won"], draw["true"]) for draw, one in zip(draws, lengths, strict=True)]) * 100.0
    before = np.array([np.subtract(shipped_rates, draw["true"]) for draw in draws]) * 100.0
    sure = [value for value in scored if value.verdict == "determined" and value.error is not None]
    worst = max(sure, key=lambda value: value.error or 0.0)
    return {
        "minutes": lengths[0]["minutes"],
        "draws": len(draws),
        "seeds": [draw["seed"] for draw in draws],
        "kinds": [asdict(kind) for kind in score_kinds(scored)],
        "altered": [asdict(kind) for kind in score_kinds([value for value in scored if value.altered])],
        "covered_determined": float(np.mean([value.covered for value in sure])),
        "worst": {"key": worst.key, "error": worst.error},
        "weights_within": float(np.mean([value.covered for value in weights])),
        "won_within_5": float((np.abs(off) <= 5.0).mean()),
        "won_median_miss": float(np.median(np.abs(off))),
        "shipped_within_5": float((np.abs(before) <= 5.0).mean()),
        "shipped_median_miss": float(np.median(np.abs(before))),
        "cpu_s": float(np.median([one["cpu_s"] for one in lengths])),
        "trained": [draw["trained"] for draw in draws if "trained" in draw],
    }


_HEADINGS = (
    "| kind | values | determined | bounded | median error | largest | covered |",
    "|---|--:|--:|--:|--:|--:|--:|",
)


def text_of(summaries: Sequence[dict[str, Any]], what: str) -> str:
    """Return the summaries of hidden draws as Markdown."""
    lines = [
        f"# Hidden draws of {what}",
        "",
        f"{ALTERATIONS} numbers of the boss's data altered by 8 to 40 % a draw.",
        "",
    ]
    lines += ["Errors are those of determined values, as shares of the truth; coverage that of all intervals.", ""]
    for one in summaries:
        lines += [f"## {one['minutes']:g} minutes, {one['draws']} draws", ""]
        lines += _HEADINGS
        lines += [_line(KindScore(**kind)) for kind in one["kinds"]]
        lines += ["", f"- Determined values covered: {100 * one['covered_determined']:.1f} %; the worst of them, "]
        lines[-1] += f"{one['worst']['key']}, is off by {100 * one['worst']['error']:.1f} %."
        lines += [f"- Weights within two standard errors: {100 * one['weights_within']:.1f} %."]
        lines += [f"- Win rates of six agents within 5 points: {100 * one['won_within_5']:.1f} %, median miss "]
        lines[-1] += f"{one['won_median_miss']:.1f}; by the shipped data {100 * one['shipped_within_5']:.1f} %, "
        lines[-1] += f"{one['shipped_median_miss']:.1f}."
        lines += [f"- CPU seconds of a calibration: {one['cpu_s']:.1f}.", ""]
    trained = summaries[-1]["trained"]
    wins = [f"{100 * rates['fitted']:.1f} % there and {100 * rates['true']:.1f} % in the true one" for rates in trained]
    if wins:
        lines += [
            f"Agents trained in the fitted fight ({summaries[-1]['minutes']:g} minutes) won {'; '.join(wins)}.",
            "",
        ]
    return "\n".join(lines)


def page_rows(summaries: Sequence[dict[str, Any]]) -> list[str]:
    """Return the rows of the table of docs/fitting.md, a column for each length of game time."""
    rows: dict[str, list[str]] = {}
    for one in summaries:
        whole = KindScore(**one["kinds"][-1])
        cells = {
            "values that are determined": whole.determined / whole.values,
            "their median error": whole.median_error,
            "the largest": whole.largest_error,
            "determined values whose 95 % interval holds the truth": one["covered_determined"],
            "all intervals that hold it": whole.covered,
            "move weights within two standard errors": one["weights_within"],
            "win rates of six agents within 5 points of those in the true fight": one["won_within_5"],
            "the same in the shipped fight": one["shipped_within_5"],
        }
        for name, share in cells.items():
            rows.setdefault(name, []).append("" if share is None else f"{100 * share:.1f} %")
        rows.setdefault("CPU seconds of a calibration", []).append(f"{one['cpu_s']:.1f}")
    if trained := summaries[-1].get("trained", []):
        lost = f"{100 * np.mean([rates['fitted'] - rates['true'] for rates in trained]):z.1f}"
        name = f"points that an agent trained in the fitted fight loses in the true one, mean of {len(trained)}"
        rows[name] = [*[""] * (len(summaries) - 1), lost]
    return [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]


def _line(kind: KindScore) -> str:
    shares = (kind.median_error, kind.largest_error, kind.covered)
    cells = ["" if share is None else f"{100 * share:.1f} %" for share in shares]
    return f"| {kind.kind} | {kind.values} | {kind.determined} | {kind.bounded} | {' | '.join(cells)} |"


def main() -> None:
    """Measure the draws that are not there yet, and write what they say together."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="a draw each")
    parser.add_argument("--minutes", type=float, nargs="+", default=list(MINUTES), help="game time to record")
    parser.add_argument("--train", type=int, default=TRAINED, help="draws in whose fitted fight an agent is trained")
    parser.add_argument("--stand-in", action="store_true", help="fight stand-ins in real time, not the simulator")
    parser.add_argument("--speed", type=float, default=3.0, help="factor of a stand-in's clock")
    parser.add_argument("--kept", type=Path, default=Path("draws"), help="folder with a file for each draw")
    parser.add_argument("--out", type=Path, help="folder for the summary")
    asked = parser.parse_args()
    check_writable(asked.kept)
    run(asked)


def run(asked: Namespace) -> None:
    """Do what `main` was asked for."""
    from rich.console import Console

    precompile(Console())
    draws = []
    for seed in asked.seeds:
        path = asked.kept / f"draw-{seed}.json"
        if not path.exists():
            drawn = measure(asked, seed, seed in asked.seeds[: asked.train])
            write_json(path, {**describe_run(), "draw": drawn})
        draws.append(read_file(Where(path))["draw"])
        print(f"draw {seed} measured", flush=True)
    shipped_rates = win_rates(SCENARIO)
    summaries = [summary(draws, place, shipped_rates) for place in range(len(asked.minutes))]
    text = text_of(summaries, f"stand-ins of {BOSS} at speed {asked.speed:g}" if asked.stand_in else BOSS)
    print(text)
    if asked.out is not None:
        write_text(asked.out / "calibration.md", text)
        write_json(asked.out / "calibration.json", {**describe_run(), "results": summaries})


if __name__ == "__main__":
    main()
