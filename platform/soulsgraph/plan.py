"""The plan of a whole run: one frozen description, saved beside its results, run here or on a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from soulsgraph.files import slug
from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.data_files import find, read_data
from soulsgraph_envs.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.skills import END_TO_END, SkillOptions
from soulsgraph_envs.skills.registry import skill_options
from soulsgraph_envs.streams import derive_seeds
from soulsgraph_policies.graph import GRAPHS, SkillGraph
from soulsgraph_policies.presets import PRESETS, Preset, preset_with

#: Decisions each skill trains for. The paper gives their total only, about 230k.
BUDGETS = {"camera": 20_000, "lock_on": 20_000, "movement": 20_000, "dodge": 80_000, "heal_attack": 90_000}
#: Decisions of the end-to-end baseline (Appendix B: it plateaued by about 250k).
BASELINE_BUDGET = 250_000
#: Decisions each adapted skill trains for in a new scenario.
ADAPTATION_BUDGET = 40_000

_STAGE_STREAM = 10


@dataclass(frozen=True)
class Stage:
    """Train one skill for `budget` decisions with everything upstream frozen.

    A stage with a `parent` continues that version of the skill: its networks and its normaliser,
    with a fresh buffer and less exploration.
    """

    skill: str
    scenario: str
    budget: int
    seed: int
    parent: int | None = None
    #: Tells a further adaptation to a scenario apart from the first.
    suffix: str = ""

    @property
    def name(self) -> str:
        """Identify the stage within its run."""
        return self.skill if self.parent is None else f"{self.skill}@{slug(self.scenario)}{self.suffix}"


@dataclass(frozen=True)
class Plan:
    """What a run trains and how; checked on construction.

    `overrides` change single options of the preset by name; `skill_options` are as given, `options`
    as the preset observes with them. The end-to-end baseline takes nothing of a preset but its lanes.

    Raises:
        UnknownNameError: for an unknown graph, preset, scenario or option of a preset.
        SoulsGraphError: for a number out of its range.
    """

    scenario: str = "iudex-phase1"
    preset: str = "fast"
    seed: int = 0
    scale: float = 1.0
    lanes: int | None = None
    env_runners: int = 0
    episodes: int = 400
    graph: str = "paper"
    skill_options: SkillOptions = field(default_factory=SkillOptions)
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scenario", lasting_name(self.scenario))
        load_scenario(self.scenario)
        for kind, name, known in (("graph", self.graph, GRAPHS), ("preset", self.preset, PRESETS)):
            if name not in known:
                raise UnknownNameError(kind, name, known)
        check_range("seed", self.seed, 0, 2**31 - 1)
        check_range("scale", self.scale, 1e-3, 1e3)
        check_range("env-runners", self.env_runners, 0, 1000)
        check_range("episodes", self.episodes, 1, 1_000_000)
        method = self.method
        if self.lanes is not None:
            check_range("lanes", self.lanes, 1, method.decisions_per_round)

    @property
    def method(self) -> Preset:
        """Give the preset with the plan's overrides: how the run learns."""
        preset = preset_with(PRESETS[self.preset], self.overrides)
        return preset.vanilla if END_TO_END in self.skill_graph.skills else preset

    @property
    def options(self) -> SkillOptions:
        """Give the skills' options as the run observes with them."""
        return self.method.skill_options(self.skill_options)

    @property
    def skill_graph(self) -> SkillGraph:
        """Give the graph itself."""
        return GRAPHS[self.graph]

    def budget(self, skill: str) -> int:
        """Give the skill's budget in its own decisions."""
        whole = BASELINE_BUDGET if skill == END_TO_END else BUDGETS[skill]
        return max(1, round(whole * self.scale))

    def stage(self, skill: str, scenario: str | None = None, parent: int | None = None) -> Stage:
        """Give the stage that trains `skill`, from scratch or continuing version `parent`.

        Raises:
            UnknownNameError: if the skill is not of the plan's graph.
        """
        order = self.skill_graph.order
        if skill not in order:
            raise UnknownNameError("skill", skill, order)
        adapting = parent is not None
        budget = max(1, round(ADAPTATION_BUDGET * self.scale)) if adapting else self.budget(skill)
        seed = int(derive_seeds(self.seed, _STAGE_STREAM, order.index(skill), parent or 0)[0] >> 33)
        return Stage(skill, lasting_name(scenario or self.scenario), budget, seed, parent)

    def stages(self) -> tuple[Stage, ...]:
        """Give the curriculum, one stage a skill in training order."""
        return tuple(self.stage(skill) for skill in self.skill_graph.order)

    def to_dict(self) -> dict[str, Any]:
        """Give the plan as plain values for JSON."""
        values = asdict(self)
        options = values.pop("skill_options")
        return {**values, "options": options}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: object) -> Plan:
        """Read a plan back from plain values.

        Raises:
            SoulsGraphError: if a value is missing, misspelt or out of range.
        """
        try:
            given = dict(values)
            options = skill_options(given.pop("options"), source)
            return cls(**given, skill_options=options)
        except (TypeError, KeyError) as error:
            raise SoulsGraphError(
                f"{source}: expected a plan of this version of soulsgraph, found {error}; begin a new run."
            ) from error


def lasting_name(scenario: str) -> str:
    """Give a scenario's name, or the path of its file such that it holds from any working folder."""
    return str(Path(scenario).resolve()) if scenario.endswith(".toml") else scenario


def scenario_digest(name: str) -> str:
    """Return a digest of everything that the files of a fight say: its scenario, player and bosses.

    It depends on neither where the files lie nor what later versions of this package can read besides.

    Raises:
        SoulsGraphError: if a file is missing or holds something else.
    """
    scenario = load_scenario(name)
    fight = read_data("scenario", find("scenario", name))
    for owner, key in ((fight, "boss"), (fight, "player"), (fight.get("transition", {}), "boss")):
        owner.pop(key, None)
    bosses = [read_data("boss", find("boss", phase.boss)) for phase in scenario.phases()]
    said = [fight, read_data("player", find("player", scenario.player)), *bosses]
    return sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Refuse a number out of its range.

    Raises:
        SoulsGraphError: naming the option, the range and the value.
    """
    if not low <= value <= high:
        raise SoulsGraphError(f"{name}: expected a value from {low:g} to {high:g}, found {value:g}.")
