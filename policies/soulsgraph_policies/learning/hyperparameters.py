"""How a module learns: fields of RLlib's configuration for a budget, and the presets that choose them.

A field that RLlib has is called as RLlib calls it. Every number of steps counts decisions of the module that the
learner has received, never control ticks. Values are the paper's (Appendix C) and, where it names none,
stable-baselines3's defaults. Nothing here needs RLlib: plans, game PCs and pages read these, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from math import ceil
from typing import Annotated, Any

from soulsgraph_envs.core.config import Between, NonEmpty, Where, check_fields, with_options
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.machine import usable_memory
from soulsgraph_envs.skills import SkillOptions

_Count = Annotated[int, Between(1, 10**9)]
_Share = Annotated[float, Between(0.0, 1.0)]
_Units = Annotated[int, Between(1, 4_096)]
_Lanes = Annotated[int, Between(1, 65_536)]
#: Bytes of a replay's row beside its float32 values: the link of n-step returns, the tree of priorities at most.
_LINK_BYTES, _PRIORITY_BYTES = 8, 32
#: Of the end-to-end baseline (paper, Appendix C).
BASELINE_CAPACITY = 100_000
#: Weight of the large-margin loss beside that of the temporal difference.
MARGIN_WEIGHT = 0.3
_CORRECT = Where(None, remedy="correct the value")


@dataclass(frozen=True)
class DQNHyperparameters:
    """DQN for a budget of decisions: vanilla by default; the further methods can be combined freely.

    `replay_buffer_config` and `model_config` hold some of these fields in RLlib's configuration.

    Raises:
        DataError: if a value is of another type or out of its range.
    """

    #: Decisions of the trained skill to learn from in all.
    budget: _Count
    #: The replay's: transitions kept, the oldest overwritten first.
    capacity: Annotated[int, Between(1, 10**8)]
    #: Share of random actions, a line through points [decisions, share], the first at 0; flat behind the last.
    epsilon: NonEmpty[tuple[float, float]] = ((0.0, 1.0), (10_000.0, 0.05))
    lr: Annotated[float, Between(1e-12, 10.0)] = 3e-4
    train_batch_size_per_learner: Annotated[int, Between(1, 65_536)] = 256
    #: Discount of a decision, however many ticks it takes.
    gamma: _Share = 0.99
    #: How many rows are learned from for every decision: 64 is a batch of 256 every 4 decisions.
    training_intensity: Annotated[float, Between(1e-9, 65_536)] = 64.0
    #: No update before this many decisions.
    num_steps_sampled_before_learning_starts: Annotated[int, Between(0, 10**9)] = 100
    #: Decisions between two copies of the network into the target network.
    target_network_update_freq: _Count = 10_000
    #: Gradients are scaled down to this global norm.
    grad_clip: Annotated[float, Between(1e-9, 1e9)] = 10.0
    #: The model's: units of the hidden layers.
    fcnet_hiddens: NonEmpty[_Units] = (64, 64)
    #: The model's: normalised observations are clipped to plus and minus this.
    observation_clip: Annotated[float, Between(1e-6, 1e30)] = 10.0
    #: The network chooses the next action that the target network values (van Hasselt et al. 2016).
    double_q: bool = False
    #: Decisions whose rewards a return sums before it bootstraps (Sutton 1988; Hessel et al. 2018).
    n_step: Annotated[int, Between(1, 1_000)] = 1
    #: The replay's: draw in proportion to the last TD error to this power (Schaul et al. 2016); 0 draws uniformly.
    alpha: _Share = 0.0
    #: The replay's: the draws' bias is corrected by this power at first, and fully at the end of the budget.
    beta: _Share = 0.4
    #: Discount every control tick instead of every decision (Sutton, Precup & Singh 1999).
    semi_markov: bool = False
    #: Last part of the budget over which the network is averaged for greedy play (Polyak & Juditsky 1992;
    #: Izmailov et al. 2018); 0 plays by the last network.
    averaged_fraction: _Share = 0.0
    #: By how many standard deviations of their rewards actions that were shown are to be worth more than any other
    #: (DQfD, Hester et al. 2018); 0 where none are.
    margin: Annotated[float, Between(0.0, 100.0)] = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        starts, shares = zip(*self.epsilon, strict=True)
        rises = all(first < then for first, then in pairwise(starts))
        if starts[0] != 0.0 or not rises or not all(0.0 <= share <= 1.0 for share in shares):
            expected = "a share, or points [decisions, share] from 0 decisions on, as [[0, 1.0], [2000, 0.05]]"
            raise _CORRECT.at("epsilon").error(expected, list(self.epsilon))

    def training(self) -> dict[str, Any]:
        """Return the keyword arguments of `SkillDQNConfig.training`."""
        values = {name: value for name, value in vars(self).items() if name not in (*REPLAY, *MODEL)}
        kind = f"MultiAgent{'Prioritized' if self.alpha else ''}EpisodeReplayBuffer"
        replay = {"type": kind, **{name: getattr(self, name) for name in REPLAY}}
        return values | {"replay_buffer_config": replay}

    def model_config(self) -> dict[str, Any]:
        """Return the `model_config` of `SkillDQNConfig.rl_module`."""
        return {name: getattr(self, name) for name in MODEL}

    def replay_bytes(self, observation_size: int) -> int:
        """Return the memory that a replay of full capacity takes."""
        # Two observations, reward, discount and action.
        row = 4 * (2 * observation_size + 3)
        row += (_LINK_BYTES if self.n_step > 1 else 0) + (_PRIORITY_BYTES if self.alpha else 0)
        return self.capacity * row

    @property
    def compiles(self) -> bool:
        """Whether the compiled CPU path can take the updates: two hidden layers."""
        return len(self.fcnet_hiddens) == 2

    def correction(self, decisions: int) -> float:
        """Return the importance-sampling exponent after a number of decisions: a line up to 1."""
        progress = min(decisions / self.budget, 1.0)
        return self.beta + progress * (1.0 - self.beta)

    def averages(self, decisions: int) -> bool:
        """Return whether the network at this count of decisions enters the average for greedy play."""
        return decisions > (1.0 - self.averaged_fraction) * self.budget

    def exploration(self, decisions: int) -> float:
        """Return the share of random actions after a number of decisions."""
        end, share = self.epsilon[-1]
        # Every tick asks, in most of the budget behind the last point.
        if decisions < end:
            (start, first), (end, last) = next(pair for pair in pairwise(self.epsilon) if decisions <= pair[1][0])
            share = first + (decisions - start) / (end - start) * (last - first)
        return share

    def exploring_at_most(self, share: float) -> DQNHyperparameters:
        """Return the same that begin to explore by this share, if by more before."""
        (start, first), *later = self.epsilon
        return replace(self, epsilon=((start, min(first, share)), *later))

    def updates_owed(self, decisions: int, updates: int) -> int:
        """Return the number of updates due for `decisions` received, of which `updates` are done."""
        learned_from = max(decisions - self.num_steps_sampled_before_learning_starts, 0) * self.training_intensity
        return int(learned_from / self.train_batch_size_per_learner) - updates

    @property
    def least_budget(self) -> int:
        """Decisions after which the first update is due: fewer teach nothing."""
        first = ceil(self.train_batch_size_per_learner / self.training_intensity)
        return self.num_steps_sampled_before_learning_starts + first

    def target_copy(self, before: int, after: int) -> int | None:
        """Return the count of decisions in (before, after] at which the target is copied, None for no copy."""
        latest = after // self.target_network_update_freq * self.target_network_update_freq
        return latest if latest > before else None

    def updates_before(self, copy: int, updates: int) -> int:
        """Return how many of the updates due after `updates` come before a target copy.

        An update belongs to the decision that made it due; the copy of that decision comes first, as
        in stable-baselines3, however many updates are taken in one round.
        """
        return max(self.updates_owed(copy - 1, updates), 0)


#: Fields that RLlib's configuration holds in its `replay_buffer_config`, and those in its `model_config`.
REPLAY, MODEL = ("capacity", "alpha", "beta"), ("fcnet_hiddens", "observation_clip")


def line(value: Any) -> Any:
    """Return an epsilon as points: RLlib and options take a constant share as a number."""
    return ((0.0, value),) if isinstance(value, int | float) else value


def skill_hyperparameters(budget: int, **options: Any) -> DQNHyperparameters:
    """Return how a skill learns in the paper (Appendix C), with single options changed.

    The replay holds a third of the budget, and exploration falls from 1 to 0.05 over its first tenth.

    Raises:
        SoulsGraphError: for a value of another type or out of its range.
    """
    paper = DQNHyperparameters(budget, max(budget // 3, 1), epsilon=((0.0, 1.0), (0.1 * budget, 0.05)))
    return changed(paper, options)


def changed(numbers: DQNHyperparameters, options: Mapping[str, Any]) -> DQNHyperparameters:
    """Change single options by their names; raises SoulsGraphError for a value of another type or out of its range."""
    return with_options(numbers, {name: line(value) if name == "epsilon" else value for name, value in options.items()})


def check_memory(
    replays: Mapping[str, int],
    remedy: str = "train for a smaller budget (`scale`, `budget`)",
    what: str = "transitions",
) -> None:
    """Refuse replays, bytes by skill, that together would fill more than half of the memory of this process.

    A checkpoint of them is written and read without a copy. `what` says what else is counted.

    Raises:
        DataError: naming both sizes.
    """
    memory, needed = usable_memory(), sum(replays.values())
    most = min(memory.limit // 2, memory.available)
    if needed > most:
        which = "half of the memory" if most == memory.limit // 2 else "what is free of the memory"
        expected = f"at most {which} that this process may use, {most / 2**30:.1f} GiB"
        found = f"{needed / 2**30:.1f} GiB of {what} of {', '.join(replays)}"
        raise Where(None, "replay", remedy).error(expected, found)


#: A stage's own: its budget, the replay that goes with it, and whether it continues a clone.
_OF_THE_STAGE = ("budget", "capacity", "margin")
_STEPPING = ("lanes", "steps_per_round")
_OBSERVING = ("animations", "observations")
_LEARNING = tuple(f.name for f in fields(DQNHyperparameters) if f.name not in _OF_THE_STAGE)

#: Those that may be another for one skill alone: skills downstream take its network to be of their own size.
SKILL_OPTION_NAMES = tuple(name for name in _LEARNING if name != "fcnet_hiddens")
#: Every option that a preset may set and `preset_with` may change, by name.
OPTION_NAMES = (*_STEPPING, *_LEARNING, *_OBSERVING)


@dataclass(frozen=True)
class Preset:
    """A number of lanes, the most decisions between two rounds of updates, and options by name.

    `learning` holds fields of `DQNHyperparameters`, `observing` fields of `SkillOptions`; what they
    leave out stays as in the paper. `own` holds what some skills learn by alone, `rewards` weights of skills whose
    reward a plan leaves as the paper's. `budgets` multiplies the budgets of some skills, and those in `jointly` that
    follow each other in a graph learn in the same fights, in one stage.

    Raises:
        UnknownNameError: for an unknown option.
        SoulsGraphError: for a value of another type or out of its range.
    """

    name: str
    lanes: _Lanes
    steps_per_round: _Lanes
    learning: Mapping[str, Any] = field(default_factory=dict)
    observing: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rewards: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    budgets: Mapping[str, float] = field(default_factory=dict)
    jointly: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for given, known in ((self.learning, _LEARNING), (self.observing, _OBSERVING)):
            for name in given:
                if name not in known:
                    raise UnknownNameError("option", name, known)
        check_fields(self)
        if self.lanes > self.steps_per_round:
            raise SoulsGraphError(
                f"preset {self.name}: expected 1 to {self.steps_per_round} lanes, as many as decisions in a "
                f"round at most, found {self.lanes}; correct lanes or steps_per_round."
            )
        self.hyperparameters(1)
        self.skill_options(SkillOptions())

    @property
    def vanilla(self) -> Preset:
        """The preset's lanes and rounds with the paper's learner, observations, rewards, budgets and stages."""
        return replace(self, learning={}, observing={}, own={}, rewards={}, budgets={}, jointly=())

    def hyperparameters(self, budget: int, skill: str = "") -> DQNHyperparameters:
        """Return how a skill learns in a budget: as the paper with the preset's options, then those of the skill."""
        return skill_hyperparameters(budget, **{**self.learning, **self.own.get(skill, {})})

    def skill_options(self, options: SkillOptions) -> SkillOptions:
        """Return a plan's skill options with the preset's way of observing, and its rewards where they name none."""
        usual = SkillOptions()
        left = {name: getattr(options, name) for name in self.rewards if getattr(options, name) == getattr(usual, name)}
        rewards = {name: replace(reward, **self.rewards[name]) for name, reward in left.items()}
        return replace(with_options(options, self.observing), **rewards)


#: What paid on this fight, chosen by the ablation of docs/results/seeds-400-409 (seeds 200 to 202); half the updates
#: by that of docs/results/updates (seeds 200 to 204).
_BEST: dict[str, Any] = {
    "double_q": True,
    "target_network_update_freq": 1_000,
    "semi_markov": True,
    "averaged_fraction": 0.2,
    "training_intensity": 32.0,
}

PRESETS = {
    preset.name: preset
    for preset in (
        Preset("paper", lanes=1, steps_per_round=4),
        Preset("fast", lanes=32, steps_per_round=128),
        Preset("best", lanes=32, steps_per_round=128, learning=_BEST, observing={"animations": "one_hot"}),
        # Where every skill counts, chosen on seeds 900 to 909 of five-skills. Wider layers win 28 points more there by
        # the paper's decisions, by these one; twice as many for camera, lock-on and movement win less.
        Preset(
            "wide",
            lanes=32,
            steps_per_round=128,
            learning=_BEST | {"fcnet_hiddens": (128, 128)},
            observing={"animations": "one_hot"},
            budgets={"camera": 2.0, "lock_on": 2.0, "movement": 2.0, "dodge": 3.0, "heal_attack": 3.0},
        ),
        # For fights of a minute, chosen on seeds 960 and 961: what is ten seconds away counts, but for the dodge, which
        # is about the next blow. Dodge and heal-attack learn in the same fights, for only who strikes meets what a boss
        # does with little HP left. Own HP count for more than in the paper's short fights: else heal-attack trades
        # blows, and dies before the boss does.
        Preset(
            "whole",
            lanes=32,
            steps_per_round=128,
            learning=_BEST | {"gamma": 0.995},
            observing={"animations": "one_hot"},
            own={"dodge": {"gamma": 0.98}},
            rewards={"heal_attack": {"damage": 15.0, "dead": 15.0}},
            budgets={"camera": 5.0, "lock_on": 5.0, "movement": 10.0, "dodge": 18.0, "heal_attack": 18.0},
            jointly=("dodge", "heal_attack"),
        ),
    )
}


def preset_with(preset: Preset, options: Mapping[str, Any]) -> Preset:
    """Change single options of a preset as an ablation does.

    Raises:
        UnknownNameError: for an unknown option.
        SoulsGraphError: for a value of another type or out of its range.
    """
    for name in options:
        if name not in OPTION_NAMES:
            raise UnknownNameError("option", name, OPTION_NAMES)
    stepping, learning, observing = (
        {name: options[name] for name in known if name in options} for known in (_STEPPING, _LEARNING, _OBSERVING)
    )
    # What is asked for is for every skill.
    own = {
        skill: {name: value for name, value in numbers.items() if name not in learning}
        for skill, numbers in preset.own.items()
    }
    changed_learning, changed_observing = {**preset.learning, **learning}, {**preset.observing, **observing}
    return replace(preset, **stepping, learning=changed_learning, observing=changed_observing, own=own)
