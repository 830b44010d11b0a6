"""Options that several commands share, each a frozen dataclass shown as flags."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from soulsgraph.evaluation import EVALUATION_SEED
from soulsgraph.plan import Plan
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.skills import SkillOptions, load_skill_options


@dataclass(frozen=True)
class PlanOptions:
    """What a new run trains and how. A run that exists keeps its own plan."""

    scenario: str = "iudex-phase1"
    """Scenario to train on: a name or a TOML file."""
    preset: str = "fast"
    """paper: one lane, as the paper; fast: 32 lanes at the same ratio of updates to decisions; best: fast with what
    pays in the same budget; extended: best with more to observe than the paper's Table 2 has."""
    seed: int = 0
    """Seed of everything random: the same seed gives the same weights."""
    scale: float = 1.0
    """Multiplies every skill's budget (in decisions of the skill)."""
    lanes: int | None = None
    """Fights beside each other in an env runner; the preset's number if not given."""
    env_runners: int = 0
    """Remote env runners, on nodes that offer the resource game_pc; 0 samples in this process."""
    episodes: int = 400
    """Evaluation episodes for each row of the table."""
    skill_options: Path | None = None
    """TOML file of reward weights and options, one table a skill."""

    def plan(self) -> Plan:
        """Make the plan.

        Raises:
            SoulsGraphError: for an unknown name or a value out of range.
        """
        options = SkillOptions() if self.skill_options is None else load_skill_options(self.skill_options)
        return Plan(
            scenario=self.scenario,
            preset=self.preset,
            seed=self.seed,
            scale=self.scale,
            lanes=self.lanes,
            env_runners=self.env_runners,
            episodes=self.episodes,
            skill_options=options,
        )

    def check_against(self, plan: Plan, folder: Path) -> None:
        """Refuse an option that contradicts the plan of an existing run.

        Raises:
            SoulsGraphError: naming the option, the run's value and the value given.
        """
        wanted, defaults = self.plan(), Plan()
        for field in fields(Plan):
            given, kept = getattr(wanted, field.name), getattr(plan, field.name)
            if given not in (getattr(defaults, field.name), kept):
                raise SoulsGraphError(
                    f"{folder}: its plan has {field.name} = {kept}, found --{field.name.replace('_', '-')} {given}; "
                    "leave the option out or begin another run folder."
                )


@dataclass(frozen=True)
class OutputOptions:
    """How results are printed."""

    json: bool = False
    """Print results as JSON only, for machines."""


@dataclass(frozen=True)
class SessionOptions(OutputOptions):
    """Where Ray runs and how results are printed."""

    address: str | None = None
    """Ray cluster to join, as HOST:PORT or auto; a local Ray is started if not given."""
    games: Path | None = None
    """TOML file of real-time games to train in, an env runner each; the simulator if not given."""


@dataclass(frozen=True)
class JudgingOptions:
    """How long an agent is judged, and on which episodes."""

    episodes: int = 400
    """Evaluation episodes for each setting."""
    seed: int = EVALUATION_SEED
    """Seed of the evaluation episodes, the same for every setting and every run by default."""


@dataclass(frozen=True)
class TransferOptions:
    """Which scenario a run is taken to, and how it is judged there."""

    scenario: str = "iudex-phase2"
    """Scenario to transfer to: a name or a TOML file."""
    home: str | None = None
    """Scenario whose versions play; the run's own, or the last one adapted to for recovery, if not given."""
    episodes: int = 200
    """Episodes of each trial."""
    seed: int = EVALUATION_SEED
    """Seed of the evaluation episodes, the same for every trial."""


DEFAULT_PLAN, DEFAULT_JUDGING, DEFAULT_TRANSFER = PlanOptions(), JudgingOptions(), TransferOptions()
DEFAULT_OUTPUT, DEFAULT_SESSION = OutputOptions(), SessionOptions()
