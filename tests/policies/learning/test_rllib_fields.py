"""What RLlib's configuration says is what is done: every parameter of its methods is taken, or refused by its name."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn.dqn import DQNConfig
from ray.rllib.callbacks.callbacks import RLlibCallback

from fakes.learning import LinearRunner
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.learning.algorithm import WIN_RATE, SkillDQN
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.learner import SkillDQNLearner
from soulsgraph_policies.learning.stage_config import SkillDQNConfig, fields_of, learned_by

SKILLS = [make_skill(name) for name in ("movement", "dodge", "heal_attack")]
NUMBERS = DQNHyperparameters(budget=3_000, buffer_size=1_000, target_update_interval=500)
ROLLOUT = replace(NUMBERS, num_steps=512, batch_size=128)
PRIORITIZED = {"type": "MultiAgentPrioritizedEpisodeReplayBuffer", "capacity": 700, "alpha": 0.5, "beta": 0.3}


@pytest.fixture(scope="module", autouse=True)
def _no_ray() -> Iterator[None]:
    """Training in one process neither needs a Ray nor starts one, whatever is configured, saved or restored."""
    yield
    assert not ray.is_initialized()


def configured(numbers: Any = NUMBERS, **stage: Any) -> SkillDQNConfig:
    config = SkillDQN.get_default_config().stage(SKILLS, numbers, 128, **({"seed": 1} | stage))
    config.env_runners(env_runner_cls=LinearRunner).environment(env_config={"lanes": 32})
    return config


def built(config: SkillDQNConfig) -> SkillDQN:
    stage = config.build_algo()
    assert isinstance(stage, SkillDQN)
    return stage


#: What each parameter of `training` is set to, and the hyperparameters that are learned by then.
LEARNED: dict[str, tuple[Any, dict[str, Any]]] = {
    "lr": (0.01, {"learning_rate": 0.01}),
    "gamma": (0.9, {"gamma": 0.9}),
    "grad_clip": (0.5, {"max_grad_norm": 0.5}),
    "train_batch_size": (64, {"batch_size": 64}),
    "train_batch_size_per_learner": (32, {"batch_size": 32}),
    "num_steps_sampled_before_learning_starts": (700, {"learning_starts": 700}),
    "target_network_update_freq": (123, {"target_update_interval": 123}),
    "double_q": (True, {"double": True}),
    "dueling": (True, {"dueling": True}),
    "n_step": (3, {"n_step": 3}),
    "epsilon": ([(0, 0.8), (1_500, 0.1)], {"epsilon_initial": 0.8, "epsilon_final": 0.1, "epsilon_fraction": 0.5}),
    "replay_buffer_config": (PRIORITIZED, {"buffer_size": 700, "priority_exponent": 0.5, "importance_exponent": 0.3}),
    "training_intensity": (32, {"train_freq": 8}),
    "tau": (0.01, {"tau": 0.01}),
    "num_epochs": (2, {"update_epochs": 2}),
}
#: What goes with it: a share of every update asks for as many copies as updates, epochs for a rollout.
BESIDE: dict[str, dict[str, Any]] = {"tau": {"target_network_update_freq": 4}}
#: Every other parameter that something goes by, by RLlib's method; tests below and beside this one show it.
USED: dict[str, set[str]] = {
    "environment": {"env_config"},
    "env_runners": {
        *("env_runner_cls", "num_env_runners", "num_envs_per_env_runner", "num_cpus_per_env_runner", "explore"),
        *("num_gpus_per_env_runner", "custom_resources_per_env_runner", "validate_env_runners_after_construction"),
        *("sample_timeout_s", "enable_connectors"),  # The last one RLlib itself ignores.
    },
    "learners": {"learner_class", "num_gpus_per_learner", "num_cpus_per_learner", "local_gpu_idx"},
    "training": {"num_sgd_iter", "learner_class"},
    "multi_agent": {"policies", "policy_mapping_fn", "policies_to_train", "algorithm_config_overrides_per_module"},
    "rl_module": {"algorithm_config_overrides_per_module"},
    "callbacks": {
        *("callbacks_class", "on_algorithm_init", "on_train_result", "on_evaluate_start", "on_evaluate_end"),
        *("on_env_runners_recreated", "on_checkpoint_loaded", "on_environment_created", "on_episode_end"),
        "on_sample_end",
    },
    "evaluation": {"evaluation_interval", "evaluation_duration", "evaluation_config"},
    "reporting": {
        *("metrics_num_episodes_for_smoothing", "min_sample_timesteps_per_iteration", "custom_stats_cls_lookup")
    },
    "debugging": {"seed", "log_level", "log_sys_usage"},
    "fault_tolerance": {
        *("restart_failed_env_runners", "max_num_env_runner_restarts", "delay_between_env_runner_restarts_s")
    },
    "resources": {
        *("num_cpus_for_main_process", "custom_resources_for_main_process", "placement_strategy", "local_gpu_idx"),
        # Old names of what is used.
        *("num_cpus_per_worker", "num_gpus_per_worker", "custom_resources_per_worker", "num_cpus_for_local_worker"),
        *("num_cpus_per_learner_worker", "num_gpus_per_learner_worker"),
    },
}
#: Values that RLlib's own methods accept, where any value is not accepted.
ACCEPTED: dict[str, Any] = {
    "batch_mode": "complete_episodes",
    "count_steps_by": "agent_steps",
    "grad_clip_by": "norm",
    "framework": "tf2",
    "adam_epsilon": 1e-5,
}


def methods() -> Iterator[tuple[str, list[str]]]:
    """Yield RLlib's methods that change a configuration, with their parameters."""
    for name, method in inspect.getmembers(DQNConfig, inspect.isfunction):
        signature = inspect.signature(method)
        if name.startswith("_") or "Self" not in str(signature.return_annotation):
            continue
        both = {**signature.parameters, **inspect.signature(getattr(AlgorithmConfig, name)).parameters}
        found = [one.name for one in both.values() if one.kind is one.KEYWORD_ONLY or one.default is not one.empty]
        if name not in ("copy", "get_config_for_module", "update_from_dict"):
            yield name, found


def test_every_parameter_of_every_method_is_taken_or_refused_by_its_name() -> None:
    seen: dict[str, set[str]] = {}
    for method, parameters in methods():
        taken = USED.get(method, set()) | (set(LEARNED) if method == "training" else set())
        seen[method] = {*parameters}
        for name in (name for name in parameters if name not in taken):
            config = configured()
            before = dict(vars(config))
            refusal, fields = "", {name}
            for value in [ACCEPTED[name]] if name in ACCEPTED else ["other", {"x": 1}, 7, True]:
                try:
                    getattr(config, method)(**{name: value})
                except Exception as error:  # RLlib refuses it itself, or takes other values.
                    refusal = str(error)
                    continue
                fields |= {key.strip("_") for key, now in vars(config).items() if now is not before.get(key)}
                with pytest.raises(SoulsGraphError) as caught:
                    config.validate()
                refusal = str(caught.value)
                break
            assert any(field in refusal for field in fields) or "callable" in refusal, f"{method}({name}=): {refusal}"
    missing = {f"{method}({name}=)" for method, names in USED.items() for name in names - seen[method]}
    assert not missing | (set(LEARNED) - seen["training"]), "RLlib has these no more"


@pytest.mark.parametrize("order", ["before", "after", "attribute", "dictionary", "copy", "from_dict"])
def test_every_parameter_of_training_changes_what_is_learned_by(order: str) -> None:
    for name, (value, expected) in LEARNED.items():
        base = ROLLOUT if name == "num_epochs" else NUMBERS
        settings = {name: value, **BESIDE.get(name, {})}
        config = SkillDQN.get_default_config()
        if order == "before":
            config.training(**settings)
        config.stage(SKILLS, base, 128, seed=1)
        config.env_runners(env_runner_cls=LinearRunner).environment(env_config={"lanes": 32})
        if order == "after":
            config.training(**settings)
        elif order == "attribute":
            for field, one in settings.items():
                setattr(config, field, one)
        elif order == "dictionary":
            config.update_from_dict(settings)
        elif order == "copy":
            config = config.training(**settings).copy()
        elif order == "from_dict":
            config = SkillDQNConfig.from_dict(config.training(**settings).to_dict())
        config.validate()
        assert config.hyperparameters_of("heal_attack") == replace(base, **expected), name
        assert config.algo_class is SkillDQN


def test_the_values_that_stage_writes_say_what_its_hyperparameters_say() -> None:
    for numbers in (NUMBERS, ROLLOUT, replace(NUMBERS, tau=0.01, priority_exponent=0.6, double=True)):
        fields = fields_of(numbers)
        config = configured(numbers)
        assert {name: getattr(config, name) for name in fields} == fields
        assert config.hyperparameters_of("heal_attack") == numbers
        assert learned_by(numbers, {} if numbers.num_steps else fields) == replace(
            numbers, target_update_interval=numbers.target_update_interval
        )


def test_what_is_configured_is_what_learns_and_what_the_result_shows() -> None:
    config = configured().training(lr=0.01, train_batch_size=64, dueling=True, epsilon=0.2)
    stage = built(config)
    assert stage.learner.learning["heal_attack"].optimizer.param_groups[0]["lr"] == 0.01
    learned = stage.training["heal_attack"]
    assert learned.hyperparameters == config.hyperparameters_of("heal_attack")
    assert learned.epsilon == 0.2
    result = stage.train()
    assert result["config"]["hyperparameters"] == result["config"]["own_hyperparameters"]["heal_attack"]
    assert result["config"]["hyperparameters"].batch_size == result["config"]["train_batch_size"] == 64
    assert stage.head_weights("heal_attack"), "dueling streams were made"


def test_four_learning_rates_learn_four_ways() -> None:
    losses = [
        built(configured().training(lr=rate)).train()["learners"]["heal_attack"]["qf_loss"]
        for rate in (1e-5, 1e-4, 1e-3, 1e-2)
    ]
    assert len({*losses}) == 4


def test_a_parameter_holds_for_every_module_and_an_override_for_one() -> None:
    own = {"dodge": replace(NUMBERS, learning_rate=1e-3, double=True), "heal_attack": NUMBERS}
    config = configured(own)
    assert [config.hyperparameters_of(name) for name in own] == list(own.values())
    # The value that the last one has already, so that only the call shows that it was asked for.
    config.training(lr=3e-4)
    assert [config.hyperparameters_of(name).learning_rate for name in own] == [3e-4, 3e-4]
    assert [config.hyperparameters_of(name).double for name in own] == [True, False]
    config.rl_module(algorithm_config_overrides_per_module={"dodge": DQNConfig.overrides(lr=0.05, gamma=0.5)})
    stage = built(config)
    rates = {name: one.optimizer.param_groups[0]["lr"] for name, one in stage.learner.learning.items()}
    assert rates == {"dodge": 0.05, "heal_attack": 3e-4}
    assert stage.training["dodge"].hyperparameters.gamma == 0.5
    for overrides, message in (({"nobody": {"lr": 1.0}}, "nobody"), ({"dodge": {"num_learners": 2}}, "num_learners")):
        refusing = configured(own).rl_module(algorithm_config_overrides_per_module=overrides)
        with pytest.raises(SoulsGraphError, match=message):
            refusing.build_algo()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": -1.0}, "RLlib's lr"),
        ({"lr": [[0, 0.1], [100, 0.01]]}, "RLlib's lr"),
        ({"n_step": (1, 3)}, "RLlib's n_step"),
        ({"epsilon": [(0, 1.0), (10, 0.5), (20, 0.1)]}, "epsilon"),
        ({"tau": 0.01}, "tau: expected 1 with copies every 500 decisions, or target_network_update_freq = 4"),
        ({"replay_buffer_config": {"type": "ReplayBuffer"}}, "type of replay_buffer_config"),
        ({"replay_buffer_config": {"storage_unit": 1}}, "key of replay_buffer_config"),
        ({"replay_buffer_config": {"alpha": 0.5}}, "alpha and beta"),
        ({"training_intensity": 1_000}, "training_intensity"),
        ({"train_batch_size": 64, "train_batch_size_per_learner": 32}, "one size of a batch"),
        ({"num_epochs": 3}, "num_epochs"),
    ],
)
def test_a_value_that_cannot_be_learned_by_is_refused_by_the_field(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SoulsGraphError, match=message):
        configured().training(**settings).build_algo()


def test_without_a_replay_its_parameters_are_refused() -> None:
    for name in ("tau", "target_network_update_freq", "replay_buffer_config", "n_step"):
        value = {"capacity": 5} if name == "replay_buffer_config" else LEARNED[name][0]
        with pytest.raises(SoulsGraphError, match=name):
            configured(ROLLOUT).training(**{name: value}).build_algo()


def test_a_field_that_there_is_none_of_is_refused_by_name() -> None:
    with pytest.raises(SoulsGraphError, match=r"unknown field of RLlib's configuration.*'learning_rate'"):
        configured().update_from_dict({"learning_rate": 0.1}).build_algo()
    with pytest.raises(SoulsGraphError, match="found no skill; call the configuration's `stage`"):
        SkillDQNConfig().build_algo()


def test_a_dictionary_or_a_general_configuration_is_as_good_as_ours() -> None:
    config = configured().training(lr=0.01)
    for settings in (config.to_dict(), DQNConfig.from_dict(config.to_dict())):
        stage = SkillDQN(config=settings)
        assert stage.training["heal_attack"].hyperparameters == replace(NUMBERS, learning_rate=0.01)


def test_a_later_seed_is_another_training_and_exploring_can_be_turned_off() -> None:
    first, other = built(configured()), built(configured().debugging(seed=5))
    assert other.config.stage_seed == 5
    assert any((values != other.weights("dodge")[name]).any() for name, values in first.weights("dodge").items())
    greedy = built(configured().env_runners(explore=False))
    assert greedy.training["heal_attack"].epsilon == 0.0


def test_a_grid_of_tunes_may_come_before_a_stage() -> None:
    grid = {"grid_search": [1e-4, 1e-3]}
    config = SkillDQN.get_default_config().training(lr=grid, replay_buffer_config={"capacity": 70})
    config.stage(SKILLS, NUMBERS, 128).multi_agent(policies_to_train=["dodge"])
    assert (config.lr, config.replay_buffer_config["capacity"]) == (grid, 70)
    assert config.training(lr=1e-3).hyperparameters_of("dodge") == replace(NUMBERS, learning_rate=1e-3, buffer_size=70)


def test_what_was_said_of_modules_before_a_stage_holds() -> None:
    config = SkillDQN.get_default_config().multi_agent(policies_to_train=["dodge"])
    config.stage(SKILLS, {"dodge": NUMBERS, "heal_attack": NUMBERS}, 128)
    assert config.trained_modules == ("dodge",)


class OwnLearner(SkillDQNLearner):
    """A learner of somebody's own."""


def test_a_learner_of_ones_own_has_to_be_one_of_ours() -> None:
    assert isinstance(built(configured().learners(learner_class=OwnLearner)).learner, OwnLearner)
    with pytest.raises(SoulsGraphError, match="learner_class: expected a subclass of SkillDQNLearner"):
        configured().learners(learner_class=str).build_algo()


def test_no_folder_for_logs_that_nobody_writes_is_left_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.tune.trainable.trainable.DEFAULT_STORAGE_PATH", str(tmp_path / "ray_results"))
    built(configured()).stop()
    assert not list(tmp_path.iterdir())


def test_iterations_are_as_long_as_rllib_was_told() -> None:
    stage = built(configured().reporting(min_sample_timesteps_per_iteration=500))
    assert 500 <= stage.train()["num_env_steps_sampled_lifetime"] < 628
    assert 1_000 <= stage.train()["num_env_steps_sampled_lifetime"] < 1_128


class Recording(RLlibCallback):
    """Note every callback that is called, and log a figure of your own."""

    seen: list[str] = []  # noqa: RUF012 - RLlib makes the object itself

    def on_algorithm_init(self, *, algorithm: Any, **_: Any) -> None:
        self.seen.append(f"init {[*algorithm.training]} {algorithm.env_runner.samples}")

    def on_environment_created(self, *, env_runner: Any, env_context: Any, **_: Any) -> None:
        self.seen.append(f"environment {env_context.worker_index}")

    def on_sample_end(self, *, samples: Any, **_: Any) -> None:
        self.seen.append("sample")

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **_: Any) -> None:
        self.seen.append("episode")
        metrics_logger.log_value("own_return", episode.get_return(), window=1_000)

    def on_train_result(self, *, result: Any, **_: Any) -> None:
        self.seen.append("result")

    def on_checkpoint_loaded(self, **_: Any) -> None:
        self.seen.append("loaded")


def test_results_hold_rllibs_figures_of_episodes_and_callbacks_are_called(tmp_path: Path) -> None:
    Recording.seen.clear()
    stage = built(configured().callbacks(Recording).reporting(metrics_num_episodes_for_smoothing=10_000))
    assert Recording.seen == ["environment 0", "init ['heal_attack'] True"]
    results = [stage.train(), stage.train()]
    episodes = stage.drain_episodes()["heal_attack"]
    shown = results[-1]["env_runners"]
    assert shown["episode_return_mean"] == pytest.approx(episodes.returns.mean(), rel=1e-6)
    assert results[0]["env_runners"]["own_return"] == pytest.approx(results[0]["env_runners"]["episode_return_mean"])
    assert shown["episode_len_mean"] == pytest.approx(episodes.lengths.mean())
    assert shown[WIN_RATE] == 0.0
    assert sum(result["env_runners"]["num_episodes"] for result in results) == len(episodes)
    assert shown["num_episodes_lifetime"] == len(episodes) == Recording.seen.count("episode")
    assert shown["module_episode_returns_mean"] == {"heal_attack": shown["episode_return_mean"]}
    assert results[-1]["num_env_steps_sampled_lifetime"] == stage.decisions
    assert Recording.seen.count("sample") >= stage.decisions // 128
    assert Recording.seen.count("result") == 2
    stage.save_checkpoint(str(tmp_path))
    stage.load_checkpoint(str(tmp_path))
    assert Recording.seen[-1] == "loaded"


def test_before_an_episode_ended_a_schedulers_figure_is_there_and_no_number() -> None:
    shown = built(in_the_simulator().reporting(min_sample_timesteps_per_iteration=1)).train()["env_runners"]
    assert np.isnan(shown["episode_return_mean"])
    assert shown["num_episodes"] == 0


@pytest.mark.parametrize(
    "name", ["on_episode_step", "on_episode_start", "on_episode_created", "on_evaluate_offline_start"]
)
def test_a_callback_that_would_never_be_called_is_refused(name: str) -> None:
    own = type("Own", (RLlibCallback,), {name: lambda self, **_: None})
    for config in (configured().callbacks(own), configured().callbacks(**{name: lambda **_: None})):
        with pytest.raises(SoulsGraphError, match=f"callback {name}.*never is"):
            config.build_algo()


def evaluated(config: SkillDQNConfig) -> SkillDQN:
    config.evaluation(evaluation_interval=1, evaluation_duration=6)
    return built(config)


def in_the_simulator(**env_config: Any) -> SkillDQNConfig:
    numbers = replace(NUMBERS, budget=2_000)
    config = SkillDQN.get_default_config().stage([make_skill("camera")], numbers, 128, seed=1)
    return config.environment(env_config=env_config)


def test_evaluating_plays_the_same_greedy_fights_and_changes_no_training() -> None:
    plain, watched = built(in_the_simulator()), evaluated(in_the_simulator())
    calls: list[str] = []
    first = watched.evaluate()
    result = watched.train()
    plain.train()
    found = result["evaluation"]["env_runners"]
    assert found["num_episodes"] == 6
    assert found == watched.evaluate()["env_runners"] != first["env_runners"]
    assert first["env_runners"]["episode_len_mean"] > 1.0
    for name, values in plain.weights("camera").items():
        np.testing.assert_array_equal(values, watched.weights("camera")[name])
    watching = in_the_simulator().callbacks(
        on_evaluate_start=lambda **_: calls.append("start"), on_evaluate_end=lambda **_: calls.append("end")
    )
    watching.evaluation(evaluation_duration=1, evaluation_config={"env_config": {"scenario": "iudex-phase2"}})
    assert built(watching).evaluate()["env_runners"]["num_episodes"] == 1
    assert calls == ["start", "end"]


@pytest.mark.parametrize(
    ("env_config", "message"),
    [
        ({"scenari": "iudex-phase1"}, "key of env_config.*'scenari'"),
        ({"scenario": "iudex-phase9"}, "iudex-phase9"),
        ({"scenario": 3}, "expected a name, a path or a Scenario"),
        ({"lanes": 129}, "lanes: expected 1 to 128"),
        ({"lanes": 0}, "lanes: expected 1 to 128"),
    ],
)
def test_what_is_wrong_with_an_env_config_is_said_before_anything_is_built(
    env_config: dict[str, Any], message: str
) -> None:
    with pytest.raises(SoulsGraphError, match=message):
        in_the_simulator(**env_config).build_algo()


def test_lanes_are_rllibs_environments_of_a_runner() -> None:
    for config, lanes in (
        (in_the_simulator(), 32),
        (in_the_simulator(lanes=8), 8),
        (in_the_simulator().env_runners(num_envs_per_env_runner=16), 16),
    ):
        assert built(config).config.env_config["lanes"] == lanes
    with pytest.raises(SoulsGraphError, match="num_envs_per_env_runner: expected 8, the lanes of env_config"):
        in_the_simulator(lanes=8).env_runners(num_envs_per_env_runner=16).build_algo()


Saver = Callable[[SkillDQN, str], Any]


@pytest.mark.parametrize(
    ("save", "restored"),
    [
        (SkillDQN.save_to_path, SkillDQN.from_checkpoint),
        (SkillDQN.save, lambda path: Algorithm.from_checkpoint(str(Path(path).absolute()))),
        (SkillDQN.save_to_path, lambda path: restoring(lambda stage: stage.restore(path))),
        (SkillDQN.save, lambda path: restoring(lambda stage: stage.restore_from_path(path))),
    ],
    ids=["SkillDQN.from_checkpoint", "Algorithm.from_checkpoint", "restore", "restore_from_path"],
)
def test_every_way_to_restore_continues_bit_for_bit_by_a_relative_path_too(
    save: Saver, restored: Callable[[str], SkillDQN], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = built(configured().training(lr=1e-3))
    whole.train()
    save(whole, "kept/checkpoint")
    assert (tmp_path / "kept" / "checkpoint").is_dir()
    resumed = restored("kept/checkpoint")
    assert (resumed.decisions, resumed.updates) == (whole.decisions, whole.updates) > (1_000, 200)
    results = [stage.train() for stage in (whole, resumed)]
    for name in ("env_runners", "learners", "training_iteration", "num_env_steps_sampled_lifetime"):
        np.testing.assert_equal(results[0][name], results[1][name])
    for name, values in whole.weights("heal_attack").items():
        np.testing.assert_array_equal(values, resumed.weights("heal_attack")[name])


def restoring(restore: Callable[[SkillDQN], None]) -> SkillDQN:
    stage = built(configured().training(lr=1e-3))
    restore(stage)
    return stage


def test_what_would_restore_a_part_in_silence_is_refused_with_what_restores_all() -> None:
    stage = built(configured())
    for call, instead in ((stage.set_state, "restore_from_path"), (stage.set_weights, "load_weights")):
        with pytest.raises(SoulsGraphError, match=f"expected a call of {instead}"):
            call({})
    before = stage.weights("heal_attack")
    with pytest.raises(SoulsGraphError, match="a call of restore_from_path without a component, found one of it for"):
        stage.restore_from_path("checkpoint", component="learner_group")
    for name, values in stage.weights("heal_attack").items():
        np.testing.assert_array_equal(values, before[name])


def test_a_checkpoint_elsewhere_than_on_this_machine_is_refused() -> None:
    stage = built(configured())
    for call in (stage.save_to_path, stage.restore_from_path):
        with pytest.raises(SoulsGraphError, match="expected a folder of this machine"):
            call("s3://somewhere/checkpoint")
