"""The learner's hyperparameters, presets, and RLlib's fields of the same meaning.

Every schedule counts decisions of the trained skill that the learner has received, never control
ticks. Values are the paper's (Appendix C) and, where it names none, stable-baselines3's defaults.
A preset says how stages are stepped, and what is added to the paper's learner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from soulsgraph_envs.core.config import Between, NonEmpty, Where, check_fields, with_options
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.machine import usable_memory
from soulsgraph_envs.skills import SkillOptions

_Count = Annotated[int, Between(1, 10**9)]
_Share = Annotated[float, Between(0.0, 1.0)]
_Units = Annotated[int, Between(1, 4_096)]
_MOST_LAYERS = 16
#: Bytes of a replay's row beside its float32 values: the link of n-step returns, the tree of priorities at most.
_LINK_BYTES, _PRIORITY_BYTES = 8, 32
_BASELINE_CAPACITY = 100_000
#: Weight of the large-margin loss beside that of the temporal difference.
MARGIN_WEIGHT = 0.3
_STEPPING = ("lanes", "steps_per_round")
_OBSERVING = ("animations", "observations")
_Lanes = Annotated[int, Between(1, 65_536)]
#: A stage's own: its budget, the replay that goes with it, and whether it continues a clone.
_OF_THE_STAGE = ("budget", "buffer_size", "margin")
#: What paid on this fight, chosen by the ablation of docs/results/seeds-400-409 (seeds 200 to 202); half the updates
#: by that of docs/results/updates (seeds 200 to 204).
_BEST: dict[str, Any] = {
    "double": True,
    "target_update_interval": 1_000,
    "semi_markov": True,
    "averaged_fraction": 0.2,
    "train_freq": 8,
}
#: For fights of a minute, chosen on seeds 960 and 961: what is ten seconds away counts, but for the dodge, which is
#: about the next blow. Dodge and heal-attack learn in the same fights, for only who strikes meets what a boss does with
#: little HP left.
_WHOLE = _BEST | {"gamma": 0.995}
_WHOLE_OWN = {"dodge": {"gamma": 0.98}}
_WHOLE_BUDGETS = {"camera": 5.0, "lock_on": 5.0, "movement": 10.0, "dodge": 18.0, "heal_attack": 18.0}
#: Own HP count for more than in the paper's short fights: else it trades blows, and dies before the boss does.
_WHOLE_REWARDS = {"heal_attack": {"damage": 15.0, "dead": 15.0}}


@dataclass(frozen=True)
class DQNHyperparameters:
    """DQN for a budget of decisions: vanilla by default; the further methods can be combined freely.

    Raises:
        DataError: if a value is of another type or out of its range.
    """

    #: Decisions of the trained skill to learn from in all.
    budget: _Count
    #: Transitions kept, the oldest overwritten first.
    buffer_size: Annotated[int, Between(1, 10**8)]
    learning_rate: Annotated[float, Between(1e-12, 10.0)] = 3e-4
    batch_size: Annotated[int, Between(1, 65_536)] = 256
    #: Discount of a decision, however many ticks it takes.
    gamma: _Share = 0.99
    train_freq: _Count = 4
    #: No update before this many decisions.
    learning_starts: Annotated[int, Between(0, 10**9)] = 100
    #: Decisions between two copies of the network into the target network.
    target_update_interval: _Count = 10_000
    epsilon_initial: _Share = 1.0
    epsilon_final: _Share = 0.05
    #: Part of the budget over which exploration falls.
    epsilon_fraction: Annotated[float, Between(1e-9, 1.0)] = 0.1
    #: Gradients are scaled down to this global norm.
    max_grad_norm: Annotated[float, Between(1e-9, 1e9)] = 10.0
    hidden_sizes: NonEmpty[_Units] = (64, 64)
    #: Normalised observations are clipped to plus and minus this.
    observation_clip: Annotated[float, Between(1e-6, 1e30)] = 10.0
    #: The network chooses the next action that the target network values (van Hasselt et al. 2016).
    double: bool = False
    #: Decisions whose rewards a return sums before it bootstraps (Sutton 1988; Hessel et al. 2018).
    n_step: Annotated[int, Between(1, 1_000)] = 1
    #: Discount every control tick instead of every decision (Sutton, Precup & Singh 1999).
    semi_markov: bool = False
    #: Draw transitions in proportion to their last TD error to this power (Schaul et al. 2016); 0 draws uniformly.
    priority_exponent: _Share = 0.0
    #: The draws' bias is corrected by this power at first, and fully at the end of the budget.
    importance_exponent: _Share = 0.4
    #: Last part of the budget over which the network is averaged for greedy play (Polyak & Juditsky 1992;
    #: Izmailov et al. 2018); 0 plays by the last network.
    averaged_fraction: _Share = 0.0
    #: By how many standard deviations of their rewards actions that were shown are to be worth more than any other
    #: (DQfD, Hester et al. 2018); 0 where none are.
    margin: Annotated[float, Between(0.0, 100.0)] = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        if not 1 <= len(self.hidden_sizes) <= _MOST_LAYERS:
            where = Where(None, "hidden_sizes", "correct the value")
            raise where.error(f"1 to {_MOST_LAYERS} layers", list(self.hidden_sizes))

    def replay_bytes(self, observation_size: int) -> int:
        """Return the memory that a replay of full capacity takes."""
        # Two observations, reward, discount and action.
        row = 4 * (2 * observation_size + 3)
        row += (_LINK_BYTES if self.n_step > 1 else 0) + (_PRIORITY_BYTES if self.priority_exponent else 0)
        return self.buffer_size * row

    def version_bytes(self, observation_size: int, actions: int) -> int:
        """Return the memory of a version, at most: network and statistics."""
        sizes = (observation_size, *self.hidden_sizes, actions)
        parameters = sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(sizes))
        # Mean and deviation beside the weights, mean and variance as they go on running.
        return 4 * parameters + 4 * 8 * observation_size

    @property
    def compiles(self) -> bool:
        """Whether the compiled CPU path can take the updates: two hidden layers."""
        return len(self.hidden_sizes) == 2

    def correction(self, decisions: int) -> float:
        """Return the importance-sampling exponent after a number of decisions: a line up to 1."""
        progress = min(decisions / self.budget, 1.0)
        return self.importance_exponent + progress * (1.0 - self.importance_exponent)

    def averages(self, decisions: int) -> bool:
        """Return whether the network at this count of decisions enters the average for greedy play."""
        return decisions > (1.0 - self.averaged_fraction) * self.budget

    def epsilon(self, decisions: int) -> float:
        """Return epsilon after a number of decisions: a line over the first part of the budget, then flat."""
        progress = decisions / self.budget
        if progress > self.epsilon_fraction:
            return self.epsilon_final
        fall = self.epsilon_final - self.epsilon_initial
        return self.epsilon_initial + progress * fall / self.epsilon_fraction

    def updates_owed(self, decisions: int, updates: int) -> int:
        """Return the number of updates due for `decisions` received, of which `updates` are done."""
        return max(decisions - self.learning_starts, 0) // self.train_freq - updates

    @property
    def least_budget(self) -> int:
        """Decisions after which the first update is due: fewer teach nothing."""
        return self.learning_starts + self.train_freq

    def target_copy(self, before: int, after: int) -> int | None:
        """Return the count of decisions in (before, after] at which the target is copied, None for no copy."""
        latest = after // self.target_update_interval * self.target_update_interval
        return latest if latest > before else None

    def updates_before(self, copy: int, updates: int) -> int:
        """Return how many of the updates due after `updates` come before a target copy.

        An update belongs to the decision that made it due; the copy of that decision comes first, as
        in stable-baselines3, however many updates are taken in one round.
        """
        return max(self.updates_owed(copy - 1, updates), 0)


def skill_hyperparameters(budget: int) -> DQNHyperparameters:
    """Return a skill's hyperparameters: the replay holds a third of the budget (paper, Appendix C)."""
    return DQNHyperparameters(budget=budget, buffer_size=max(budget // 3, 1))


def baseline_hyperparameters(budget: int) -> DQNHyperparameters:
    """Return the end-to-end baseline's hyperparameters: the replay holds 100,000 transitions (paper, Appendix C)."""
    return DQNHyperparameters(budget=budget, buffer_size=_BASELINE_CAPACITY)


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


_LEARNING = tuple(f.name for f in fields(DQNHyperparameters) if f.name not in _OF_THE_STAGE)

#: Those that may be another for one skill alone: skills downstream take its network to be of their own size.
SKILL_OPTION_NAMES = tuple(name for name in _LEARNING if name != "hidden_sizes")
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
        self.hyperparameters(DQNHyperparameters(budget=1, buffer_size=1))
        self.skill_options(SkillOptions())

    @property
    def vanilla(self) -> Preset:
        """The preset's lanes and rounds with the paper's learner, observations, rewards, budgets and stages."""
        return replace(self, learning={}, observing={}, own={}, rewards={}, budgets={}, jointly=())

    def hyperparameters(self, paper: DQNHyperparameters, skill: str = "") -> DQNHyperparameters:
        """Return a stage's hyperparameters: the paper's with the preset's options, then those of the skill alone."""
        return with_options(with_options(paper, self.learning), self.own.get(skill, {}))

    def skill_options(self, options: SkillOptions) -> SkillOptions:
        """Return a plan's skill options with the preset's way of observing, and its rewards where they name none."""
        usual = SkillOptions()
        left = {name: getattr(options, name) for name in self.rewards if getattr(options, name) == getattr(usual, name)}
        rewards = {name: replace(reward, **self.rewards[name]) for name, reward in left.items()}
        return replace(with_options(options, self.observing), **rewards)


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("paper", lanes=1, steps_per_round=4),
        Preset("fast", lanes=32, steps_per_round=128),
        Preset("best", lanes=32, steps_per_round=128, learning=_BEST, observing={"animations": "one_hot"}),
        Preset(
            "whole",
            lanes=32,
            steps_per_round=128,
            learning=_WHOLE,
            observing={"animations": "one_hot"},
            own=_WHOLE_OWN,
            rewards=_WHOLE_REWARDS,
            budgets=_WHOLE_BUDGETS,
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


def changed(numbers: DQNHyperparameters, options: Mapping[str, Any]) -> DQNHyperparameters:
    """Change single options of one skill's hyperparameters by their names.

    Raises:
        UnknownNameError: for an unknown option, and for one that all skills have in common.
        SoulsGraphError: for a value of another type or out of its range.
    """
    for name in options:
        if name not in SKILL_OPTION_NAMES:
            raise UnknownNameError("option of a skill", name, SKILL_OPTION_NAMES)
    return with_options(numbers, options)


#: RLlib's field, and the hyperparameter of the same meaning.
_SAME = {
    "lr": "learning_rate",
    "gamma": "gamma",
    "grad_clip": "max_grad_norm",
    "num_steps_sampled_before_learning_starts": "learning_starts",
    "double_q": "double",
    "n_step": "n_step",
    "target_network_update_freq": "target_update_interval",
}
_BATCH, _BATCH_PER_LEARNER = "train_batch_size", "_train_batch_size_per_learner"
_REPLAY = "replay_buffer_config"
#: Every field that hyperparameters are read from.
LEARNING = (*_SAME, _BATCH, _BATCH_PER_LEARNER, "epsilon", "explore", _REPLAY, "training_intensity")
_UNIFORM, _PRIORITIZED = "MultiAgentEpisodeReplayBuffer", "MultiAgentPrioritizedEpisodeReplayBuffer"
#: Each of RLlib's replays that is offered, and the prioritized ones' exponents where they are not named.
_REPLAYS: Mapping[str, Mapping[str, float]] = {
    "EpisodeReplayBuffer": {},
    _UNIFORM: {},
    "PrioritizedEpisodeReplayBuffer": {"alpha": 0.6, "beta": 0.4},
    _PRIORITIZED: {"alpha": 0.6, "beta": 0.4},
}
_KEYS = {"capacity": "buffer_size", "alpha": "priority_exponent", "beta": "importance_exponent"}
#: No gradient has a greater norm: RLlib's None, which clips none.
_UNCLIPPED = 1e9


def fields_of(numbers: DQNHyperparameters) -> dict[str, Any]:
    """Return RLlib's fields that say the same as hyperparameters."""
    replay: dict[str, Any] = {"type": _UNIFORM, "capacity": numbers.buffer_size}
    if numbers.priority_exponent:
        replay |= {"type": _PRIORITIZED, "alpha": numbers.priority_exponent, "beta": numbers.importance_exponent}
    falls = round(numbers.epsilon_fraction * numbers.budget)
    return {name: getattr(numbers, own) for name, own in _SAME.items()} | {
        _BATCH: numbers.batch_size,
        _BATCH_PER_LEARNER: None,
        "epsilon": [[0, numbers.epsilon_initial], [falls, numbers.epsilon_final]],
        "explore": True,
        _REPLAY: replay,
        "training_intensity": None,
    }


def same(one: Any, other: Any) -> bool:
    """Return whether two values of a field are equal, whether in lists or tuples, numpy's or Python's."""
    return bool(_plain(one) == _plain(other))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    if isinstance(value, Mapping):
        return {key: _replay_name(part) if key == "type" else _plain(part) for key, part in value.items()}
    return value


def _replay_name(replay: Any) -> Any:
    """Return a replay's name: Tune puts its class in the place of it."""
    return replay.rpartition(".")[2] if isinstance(replay, str) else getattr(replay, "__name__", replay)


def changes(fields: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that differ from before; of a replay of the same type the keys that do."""
    found = {name: value for name, value in fields.items() if not same(value, before[name])}
    if _REPLAY in found and isinstance(found[_REPLAY], Mapping):
        now, was = dict(found[_REPLAY]), before[_REPLAY]
        if same(now.get("type"), was["type"]):
            now = {key: value for key, value in now.items() if key not in was or not same(value, was[key])}
        found[_REPLAY] = now
    return found


def learned_by(numbers: DQNHyperparameters, fields: Mapping[str, Any]) -> DQNHyperparameters:
    """Return hyperparameters with the values of some of RLlib's fields in their place.

    Raises:
        SoulsGraphError: naming the field whose value the learner cannot learn by.
    """
    changed = {_SAME[name]: _plain(value) for name, value in fields.items() if name in _SAME}
    if "grad_clip" in fields and fields["grad_clip"] is None:
        changed["max_grad_norm"] = _UNCLIPPED
    for own in ("learning_rate", "gamma", "max_grad_norm"):
        if isinstance(changed.get(own), int) and not isinstance(changed[own], bool):
            changed[own] = float(changed[own])
    names = {own: name for name, own in _SAME.items()}
    for own, value in changed.items():
        numbers = _with(numbers, names[own], {own: value})
    for name, read in (
        (_BATCH, _batch),
        ("training_intensity", _updates),
        ("epsilon", _exploration),
        (_REPLAY, _replay),
    ):
        numbers = _with(numbers, name, read(numbers, fields))
    if fields.get("explore") is False:
        numbers = replace(numbers, epsilon_initial=0.0, epsilon_final=0.0)
    return numbers


def _with(numbers: DQNHyperparameters, field: str, changed: Mapping[str, Any]) -> DQNHyperparameters:
    try:
        return replace(numbers, **changed) if changed else numbers
    except SoulsGraphError as error:
        raise SoulsGraphError(f"RLlib's {field}, {error}") from error


def _batch(numbers: DQNHyperparameters, fields: Mapping[str, Any]) -> dict[str, Any]:
    asked = [_plain(fields[name]) for name in (_BATCH, _BATCH_PER_LEARNER) if fields.get(name) is not None]
    if len({*asked}) > 1:
        raise refused(_BATCH, f"one size of a batch, as train_batch_size_per_learner {asked[1]}", asked[0])
    return {"batch_size": asked[0]} if asked else {}


def _updates(numbers: DQNHyperparameters, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many decisions an update comes after, by how often each is to be learned from."""
    intensity = fields.get("training_intensity")
    if intensity is None:
        return {}
    number = isinstance(intensity, (int, float, np.number)) and not isinstance(intensity, bool)
    decisions = numbers.batch_size / intensity if number and intensity > 0 else 0.0
    if decisions < 1 or decisions != round(decisions):
        expected = f"{numbers.batch_size}, a batch, divided by the whole number of decisions before an update"
        raise refused("training_intensity", expected, intensity)
    return {"train_freq": round(decisions)}


def _exploration(numbers: DQNHyperparameters, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return exploration by a constant, or by a line [[0, first], [decisions, last]], that may end after the budget."""
    if "epsilon" not in fields:
        return {}
    value = _plain(fields["epsilon"])
    points = value if isinstance(value, tuple) else ((0, value),)
    good = 1 <= len(points) <= 2 and all(isinstance(p, tuple) and len(p) == 2 and not _wrong(*p) for p in points)
    if not good or points[0][0] != 0:
        raise refused("epsilon", "a number, or two points [[0, first], [decisions, last]]", fields["epsilon"])
    (_, first), (end, last) = points[0], points[-1]
    if end <= 0 or first == last:
        return {"epsilon_initial": float(last), "epsilon_final": float(last)}
    if end > numbers.budget:
        end, last = numbers.budget, first + (last - first) * numbers.budget / end
    fraction = end / numbers.budget
    return {"epsilon_initial": float(first), "epsilon_final": float(last), "epsilon_fraction": float(fraction)}


def _wrong(*numbers: Any) -> bool:
    return any(isinstance(number, bool) or not isinstance(number, (int, float)) for number in numbers)


def _replay(numbers: DQNHyperparameters, fields: Mapping[str, Any]) -> dict[str, Any]:
    if _REPLAY not in fields:
        return {}
    found = fields[_REPLAY]
    if not isinstance(found, Mapping):
        raise refused(_REPLAY, f"a dictionary with {', '.join(('type', *_KEYS))}", found)
    keys = {key: _plain(value) for key, value in found.items() if key != "type"}
    for key in keys:
        if key not in _KEYS:
            raise UnknownNameError(f"key of {_REPLAY}", key, ("type", *_KEYS))
    prioritized = numbers.priority_exponent > 0
    if "type" in found:
        if (name := _replay_name(found["type"])) not in _REPLAYS:
            raise UnknownNameError(f"type of {_REPLAY}", name, _REPLAYS)
        keys = {**_REPLAYS[name], **keys}
        prioritized = bool(_REPLAYS[name])
    if not prioritized and {"alpha", "beta"} & keys.keys():
        raise refused(_REPLAY, f"alpha and beta with type {_PRIORITIZED!r} only", found)
    changed = {
        _KEYS[key]: float(value) if isinstance(value, int) and key != "capacity" else value
        for key, value in keys.items()
    }
    return changed if prioritized else {"priority_exponent": 0.0} | changed


def overrides_of(module: str, overrides: Mapping[str, Any] | Any) -> dict[str, Any]:
    """Return the fields of RLlib's overrides of a module.

    Raises:
        UnknownNameError: for a field that no module has of its own.
    """
    public = "train_batch_size_per_learner"
    own = {_BATCH_PER_LEARNER if name == public else name: value for name, value in dict(overrides).items()}
    known = [name for name in LEARNING if name != "explore"]
    for name in own:
        if name not in known:
            raise UnknownNameError(f"field that module {module} may have of its own", name, known)
    return own


def refused(field: str, expected: str, found: Any) -> SoulsGraphError:
    """Return the error of a field whose value SkillDQN does not go by."""
    return SoulsGraphError(
        f"RLlib's {field.lstrip('_')}: expected {expected}, for SkillDQN goes by no other, found {shown(found)}; "
        "leave it out, or train with one of RLlib's own algorithms on SkillGraphEnv."
    )
