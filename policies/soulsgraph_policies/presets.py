"""Presets: how a run's stages are stepped, what is added to the paper's learner, and what skills observe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

from soulsgraph_envs.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.schema import Between, check_fields, read_option
from soulsgraph_envs.skills import SkillOptions
from soulsgraph_policies.hyperparameters import DQNHyperparameters

_STEPPING = ("lanes", "decisions_per_round")
_OBSERVING = ("animations", "observations")
_Lanes = Annotated[int, Between(1, 65_536)]
#: A stage's own: its budget, and the replay that goes with it.
_OF_THE_STAGE = ("budget", "replay_capacity")
_LEARNING = tuple(f.name for f in fields(DQNHyperparameters) if f.name not in _OF_THE_STAGE)

#: Every option that a preset may set and `preset_with` may change, by name.
OPTION_NAMES = (*_STEPPING, *_LEARNING, *_OBSERVING)


@dataclass(frozen=True)
class Preset:
    """Lanes beside each other, the most decisions between two rounds of updates, and options by name.

    `learning` holds fields of `DQNHyperparameters`, `observing` fields of `SkillOptions`; what they
    leave out stays as the paper has it.

    Raises:
        UnknownNameError: for an option there is none of.
        SoulsGraphError: for a value of another type or out of its range.
    """

    name: str
    lanes: _Lanes
    decisions_per_round: _Lanes
    learning: Mapping[str, Any] = field(default_factory=dict)
    observing: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for given, known in ((self.learning, _LEARNING), (self.observing, _OBSERVING)):
            for name in given:
                if name not in known:
                    raise UnknownNameError("option", name, known)
        check_fields(self)
        if self.lanes > self.decisions_per_round:
            raise SoulsGraphError(
                f"preset {self.name}: expected 1 to {self.decisions_per_round} lanes, as many as decisions in a "
                f"round at most, found {self.lanes}; correct lanes or decisions_per_round."
            )
        self.hyperparameters(DQNHyperparameters(budget=1, replay_capacity=1))
        self.skill_options(SkillOptions())

    @property
    def vanilla(self) -> Preset:
        """The preset's way of stepping with the paper's learner and observations."""
        return replace(self, learning={}, observing={})

    def hyperparameters(self, paper: DQNHyperparameters) -> DQNHyperparameters:
        """Return a stage's hyperparameters: the paper's with the preset's options."""
        return replace(
            paper, **{name: read_option(DQNHyperparameters, name, value) for name, value in self.learning.items()}
        )

    def skill_options(self, options: SkillOptions) -> SkillOptions:
        """Return a plan's skill options with the preset's way of observing."""
        changes = {name: read_option(SkillOptions, name, value) for name, value in self.observing.items()}
        return replace(options, **changes)


#: What paid on this fight, chosen by the ablation of docs/results/seeds-400-409 (seeds 200 to 202).
_BEST: dict[str, Any] = {"double": True, "target_period": 1_000, "semi_markov": True, "averaged_fraction": 0.2}

PRESETS = {
    preset.name: preset
    for preset in (
        Preset("paper", lanes=1, decisions_per_round=4),
        Preset("fast", lanes=32, decisions_per_round=128),
        Preset("best", lanes=32, decisions_per_round=128, learning=_BEST, observing={"animations": "one_hot"}),
        Preset(
            "extended",
            lanes=32,
            decisions_per_round=128,
            learning=_BEST,
            observing={"animations": "one_hot", "observations": "extended"},
        ),
    )
}


def find_preset(name: str) -> Preset:
    """Return a preset by its name.

    Raises:
        UnknownNameError: if there is none of that name.
    """
    if name not in PRESETS:
        raise UnknownNameError("preset", name, PRESETS)
    return PRESETS[name]


def preset_with(preset: Preset, options: Mapping[str, Any]) -> Preset:
    """Change single options of a preset by their names, as an ablation does.

    Raises:
        UnknownNameError: for an option there is none of.
        SoulsGraphError: for a value of another type or out of its range.
    """
    for name in options:
        if name not in OPTION_NAMES:
            raise UnknownNameError("option", name, OPTION_NAMES)
    stepping = {name: options[name] for name in _STEPPING if name in options}
    learning = {name: options[name] for name in _LEARNING if name in options}
    observing = {name: options[name] for name in _OBSERVING if name in options}
    return replace(
        preset, **stepping, learning={**preset.learning, **learning}, observing={**preset.observing, **observing}
    )
