"""Fights of the simulator by a scenario, by the players of recorded fights, with ticks as uneven and read as they are.

What is measured on them is the floor of an error: there the data are the true ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from soulsgraph.calibrate.replay import HELD, RowReplay
from soulsgraph.calibrate.rows import ReadFight
from soulsgraph.recordings.files import read_recording, recording_files
from soulsgraph.recordings.format import Header
from soulsgraph.recordings.recording import ORACLE, SCRIPTED, Fighter, FightRecorder
from soulsgraph.runs.evaluate import Setting, evaluation_seeds, source_of
from soulsgraph.zoo import agent_names, open_agent
from soulsgraph_envs.combat.rollout import Integers
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import temporary_folder
from soulsgraph_envs.core.game import ActiveLanes, LaneIndices
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import Controls, Raw, RawValues
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import FRAME_S

#: Fights that the floor is measured on, at most.
MOST_FLOOR_FIGHTS = 20
_STREAM = 71


class UnevenSimulator(Simulator):
    """A simulator of one lane whose ticks last as long, and whose controls arrive as late, as a running game's did.

    Both are drawn from `lengths` (ticks,) and `delays` (presses,), in frames, from the fight's seed. By that seed
    `clocks` has the frame of every row, and `changes` by how much the player's HP changed in the tick before it.
    """

    def __init__(self, tick_s: float, lengths: Integers, delays: Integers) -> None:
        super().__init__(1, FRAME_S)
        # Players go by its nominal time.
        self.tick_s = tick_s
        self._lengths, self._delays = np.maximum(lengths, 1), delays if len(delays) else np.zeros(1, np.int64)
        self.clocks: dict[int, list[int]] = {}
        self.changes: dict[int, list[float]] = {}

    def reset(self, lanes: LaneIndices, scenario: Scenario, seeds: Seeds) -> RawValues:
        """Begin a fight from a seed (1,); as `Simulator.reset`."""
        seed = int(seeds[0])
        self._draw, self._held = np.random.default_rng((seed, _STREAM)), np.zeros(1, np.uint32)
        self._clock, self._changes = self.clocks.setdefault(seed, []), self.changes.setdefault(seed, [])
        # A fight that is begun again has one clock.
        self._clock[:], self._changes[:] = [0], [0.0]
        return super().reset(lanes, scenario, seeds)

    def step(self, controls: Controls, active: ActiveLanes | None = None) -> RawValues:
        """Apply one tick's controls (1,), a little late, and return the raw values (1, 25) at its end."""
        length, delay = int(self._draw.choice(self._lengths)), int(self._draw.choice(self._delays))
        delay, change = min(delay, length - 1), 0.0
        for frame in range(length):
            bits = self._held if frame != delay else controls
            raw = super().step(bits, active)
            self._held = controls & HELD if frame == delay else self._held
            # Where HP are filled up after every frame, nothing else shows a blow of the frames before the last.
            lane = self.values(0)
            change += lane["player_change"] if lane["player_change_frames"] == 0 else 0.0
        self._clock.append(self._clock[-1] + length)
        self._changes.append(change)
        return raw


def fighter_of(header: Header, scenario: str) -> Fighter | str:
    """Return who fought a recorded fight, to fight in a scenario; else why that cannot be.

    Agents of the zoo and scripts alone can be loaded by what a recording says.
    """
    try:
        if header.player in SCRIPTED:
            script = Fighter.oracle if header.player == ORACLE else Fighter.probe
            return script(scenario, header.start)
        if header.player not in agent_names():
            return "no agent of the zoo"
        run = open_agent(header.player)
        random = tuple(skill.name for skill in header.skills if skill.player == "random")
        fighter = Fighter.of_run(run, Setting(scenario, source_of(run, header.scenario), header.start, random))
    except SoulsGraphError as error:
        return str(error)
    played = [(skill.name, skill.player, skill.digest) for skill in header.skills]
    own = [(skill.name, skill.player, skill.digest) for skill in fighter.played]
    return fighter if played == own else "other versions of its skills played"


def floor_fights(
    fighters: Sequence[Fighter | str], scenario: Scenario, name: str, fights: Sequence[ReadFight], seed: int
) -> tuple[list[ReadFight], str]:
    """Return fights of the same players in the simulator, read as a game's are, and who fought.

    The oracle fights where none of the players can. Ticks are as uneven, and controls as late, as in the recorded
    `fights`.
    """
    able = [fighter for fighter in fighters if isinstance(fighter, Fighter)] or [Fighter.oracle(name)]
    each = -(-min(len(fights), MOST_FLOOR_FIGHTS) // len(able))
    lengths = np.concatenate([np.diff(fight.frames) for fight in fights])
    game = UnevenSimulator(fights[0].header.tick_s, lengths, RowReplay(fights, scenario).delays)
    found: list[ReadFight] = []
    with temporary_folder("soulsgraph-fidelity") as folder:
        for number, fighter in enumerate(able):
            # Two may have one name.
            place = folder / str(number)
            recorder = FightRecorder(fighter, place, fighter.header("simulator"))
            recorder.rollout(game).play(evaluation_seeds(seed, each))
            for path in recording_files(place):
                fight = ReadFight.of(read_recording(path))
                # With the clock of the ticks that were played, and HP before they were refilled.
                own, hp = int(fight.header.seed), fight.raw[:, Raw.PLAYER_HP]
                if fight.header.ground.refill:
                    hp = hp + np.array(game.changes[own])
                found.append(replace(fight, clock_s=np.array(game.clocks[own]) * FRAME_S, hp=hp))
    return found, ", ".join(fighter.name for fighter in able)
