"""Which of RLlib's fields the learner learns by, which are used elsewhere, and that all others stay as they are.

A field is an attribute of RLlib's configuration, in most cases of the name that its methods take it by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.utils import force_list

from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

#: RLlib's field, and the hyperparameter of the same meaning.
_SAME = {
    "lr": "learning_rate",
    "gamma": "discount",
    "grad_clip": "max_gradient_norm",
    "num_steps_sampled_before_learning_starts": "learning_starts",
    "double_q": "double",
    "dueling": "dueling",
    "n_step": "n_step",
}
_BATCH, _BATCH_PER_LEARNER = "train_batch_size", "_train_batch_size_per_learner"
_TARGET, _REPLAY = ("target_network_update_freq", "tau"), "replay_buffer_config"
#: Every field that hyperparameters are read from.
LEARNING = (
    *_SAME,
    _BATCH,
    _BATCH_PER_LEARNER,
    *_TARGET,
    "epsilon",
    "explore",
    _REPLAY,
    "training_intensity",
    "num_epochs",
)
#: Fields that learning from rollouts without a replay has no use for.
_NOT_ON_POLICY = (*_TARGET, _REPLAY, "training_intensity", "num_steps_sampled_before_learning_starts")
_UNIFORM, _PRIORITIZED = "MultiAgentEpisodeReplayBuffer", "MultiAgentPrioritizedEpisodeReplayBuffer"
#: Each of RLlib's replays that is offered, and the prioritized ones' exponents where they are not named.
_REPLAYS: Mapping[str, Mapping[str, float]] = {
    "EpisodeReplayBuffer": {},
    _UNIFORM: {},
    "PrioritizedEpisodeReplayBuffer": {"alpha": 0.6, "beta": 0.4},
    _PRIORITIZED: {"alpha": 0.6, "beta": 0.4},
}
_KEYS = {"capacity": "replay_capacity", "alpha": "priority_exponent", "beta": "importance_exponent"}
#: No gradient has a greater norm: RLlib's None, which clips none.
_UNCLIPPED = 1e9

#: Fields that something else goes by: who plays, where, what is shown.
USED = frozenset(
    (
        *("policies", "policy_mapping_fn", "policies_to_train", "algorithm_config_overrides_per_module"),
        *("env_config", "env_runner_cls", "num_env_runners", "num_envs_per_env_runner", "num_cpus_per_env_runner"),
        *("num_gpus_per_env_runner", "custom_resources_per_env_runner", "validate_env_runners_after_construction"),
        *("sample_timeout_s", "restart_failed_env_runners", "max_num_env_runner_restarts"),
        *("delay_between_env_runner_restarts_s", "_learner_class", "num_gpus_per_learner", "num_cpus_per_learner"),
        *("local_gpu_idx", "num_cpus_for_main_process", "custom_resources_for_main_process", "placement_strategy"),
        *("callbacks_class", "seed", "log_level", "log_sys_usage", "stats_cls_lookup"),
        *("metrics_num_episodes_for_smoothing", "min_sample_timesteps_per_iteration"),
        *("evaluation_interval", "evaluation_duration", "evaluation_config"),
    )
)
#: What RLlib itself keeps in a configuration.
_BOOKKEEPING = frozenset(
    ("algo_class", "class", "_is_frozen", "_is_online", "_per_module_overrides", "simple_optimizer", "worker_index")
)
#: Callbacks that the algorithm calls; those that its env runners call are theirs to name.
ALGORITHM_CALLBACKS = frozenset(
    (
        *("on_algorithm_init", "on_train_result", "on_checkpoint_loaded", "on_evaluate_start", "on_evaluate_end"),
        *("on_env_runners_recreated", "on_workers_recreated"),
    )
)


def fields_of(numbers: DQNHyperparameters) -> dict[str, Any]:
    """Return RLlib's fields that say the same as hyperparameters."""
    replay: dict[str, Any] = {"type": _UNIFORM, "capacity": numbers.replay_capacity}
    if numbers.priority_exponent:
        replay |= {"type": _PRIORITIZED, "alpha": numbers.priority_exponent, "beta": numbers.importance_exponent}
    falls = round(numbers.exploration_fraction * numbers.budget)
    period = numbers.decisions_per_update if numbers.target_rate else numbers.target_period
    return {name: getattr(numbers, own) for name, own in _SAME.items()} | {
        _BATCH: numbers.batch_size,
        _BATCH_PER_LEARNER: None,
        "target_network_update_freq": period,
        "tau": numbers.target_rate or 1.0,
        "epsilon": [[0, numbers.exploration_initial], [falls, numbers.exploration_final]],
        "explore": True,
        _REPLAY: replay,
        "training_intensity": None,
        "num_epochs": numbers.epochs if numbers.rollout else 1,
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
    for name, value in fields.items():
        if numbers.rollout and name in _NOT_ON_POLICY:
            raise refused(name, "what a rollout leaves without effect as it is", value)
    changed = {_SAME[name]: _plain(value) for name, value in fields.items() if name in _SAME}
    if "grad_clip" in fields and fields["grad_clip"] is None:
        changed["max_gradient_norm"] = _UNCLIPPED
    for own in ("learning_rate", "discount", "max_gradient_norm"):
        if isinstance(changed.get(own), int) and not isinstance(changed[own], bool):
            changed[own] = float(changed[own])
    names = {own: name for name, own in _SAME.items()}
    for own, value in changed.items():
        numbers = _with(numbers, names[own], {own: value})
    for name, read in (
        (_BATCH, _batch),
        ("training_intensity", _updates),
        ("tau", _target),
        ("epsilon", _exploration),
        (_REPLAY, _replay),
        ("num_epochs", _epochs),
    ):
        numbers = _with(numbers, name, read(numbers, fields))
    if fields.get("explore") is False:
        numbers = replace(numbers, exploration_initial=0.0, exploration_final=0.0)
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
    return {"decisions_per_update": round(decisions)}


def _target(numbers: DQNHyperparameters, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the target network follows: by whole copies at times, or by a share of every update."""
    if not {*_TARGET} & fields.keys():
        return {}
    written = fields_of(numbers)
    period, tau = (_plain(fields.get(name, written[name])) for name in _TARGET)
    if isinstance(tau, bool) or not isinstance(tau, (int, float)) or not 0.0 < tau <= 1.0:
        raise refused("tau", "a share from above 0 to 1", tau)
    if tau == 1.0:
        return {"target_rate": 0.0, "target_period": period}
    if period != numbers.decisions_per_update:
        expected = (
            f"1 with copies every {shown(period)} decisions, or target_network_update_freq = "
            f"{numbers.decisions_per_update} with a share of every update"
        )
        raise refused("tau", expected, tau)
    return {"target_rate": float(tau)}


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
        return {"exploration_initial": float(last), "exploration_final": float(last)}
    if end > numbers.budget:
        end, last = numbers.budget, first + (last - first) * numbers.budget / end
    fraction = end / numbers.budget
    return {
        "exploration_initial": float(first),
        "exploration_final": float(last),
        "exploration_fraction": float(fraction),
    }


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


def _epochs(numbers: DQNHyperparameters, fields: Mapping[str, Any]) -> dict[str, Any]:
    if "num_epochs" not in fields or (not numbers.rollout and same(fields["num_epochs"], 1)):
        return {}
    if not numbers.rollout:
        raise refused("num_epochs", "1 with a replay, which is drawn from anew for every update", fields["num_epochs"])
    return {"epochs": _plain(fields["num_epochs"])}


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


def check_unused(fields: Mapping[str, Any], usual: Mapping[str, Any], own: frozenset[str]) -> None:
    """Refuse whatever nothing goes by, unless it has its usual value.

    Args:
        fields: Of a configuration.
        usual: Those of a new one.
        own: Fields that are not RLlib's.

    Raises:
        SoulsGraphError: naming a field that has another value, or that there is none of.
    """
    used = {*LEARNING, *USED, *own, *_BOOKKEEPING}
    for name, value in fields.items():
        # Tune notes its own beside the fields, as __trial_info__.
        if name in used or name.startswith(("callbacks_on_", "__")):
            continue
        if name not in usual:
            raise UnknownNameError("field of RLlib's configuration", name, [n for n in usual if n[0] != "_"])
        if not same(value, usual[name]):
            raise refused(name, shown(usual[name]), value)


def refused(field: str, expected: str, found: Any) -> SoulsGraphError:
    """Return the error of a field whose value SkillDQN does not go by."""
    return SoulsGraphError(
        f"RLlib's {field.lstrip('_')}: expected {expected}, for SkillDQN goes by no other, found {shown(found)}; "
        "leave it out, or train with one of RLlib's own algorithms on SkillGraphEnv."
    )


def check_callbacks(fields: Mapping[str, Any], runner: str, fired: frozenset[str]) -> None:
    """Refuse callbacks that would never be called: of `fired` all are.

    Raises:
        SoulsGraphError: naming one.
    """
    classes = force_list(fields["callbacks_class"])
    for name in (name for name in dir(RLlibCallback) if name.startswith("on_")):
        asked = fields.get(f"callbacks_{name}") or overridden(classes, name)
        if asked and name not in fired:
            raise SoulsGraphError(
                f"RLlib's callback {name}: expected one that is called with {runner}, found one that never is; leave "
                f"it out, or use {', '.join(sorted(fired))}."
            )


def overridden(callbacks: Iterable[Any], name: str) -> bool:
    """Return whether one of some callback classes, or objects of theirs, has a callback of its own."""
    owners = (one if isinstance(one, type) else type(one) for one in callbacks)
    usual = getattr(RLlibCallback, name)
    return any(getattr(owner, name, usual) is not usual for owner in owners)
