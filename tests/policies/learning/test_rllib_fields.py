"""What RLlib's configuration says is what is done: a field is learned by, used, or refused by its name."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.dqn.dqn import DQNConfig
from ray.rllib.callbacks.callbacks import RLlibCallback

from fakes import stages
from fakes.stages import assert_same, built
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.learning.algorithm import WIN_RATE, SkillDQN
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.learner import SkillDQNLearner
from soulsgraph_policies.learning.stage_config import SkillDQNConfig

SKILLS = [make_skill(name) for name in ("movement", "dodge", "heal_attack")]
NUMBERS = DQNHyperparameters(budget=3_000, capacity=1_000, target_network_update_freq=500)
PRIORITIZED = {"type": "MultiAgentPrioritizedEpisodeReplayBuffer", "capacity": 700, "alpha": 0.5, "beta": 0.3}


@pytest.fixture(scope="module", autouse=True)
def _no_ray() -> Iterator[None]:
    """Training in one process neither needs a Ray nor starts one, whatever is configured, saved or restored."""
    yield
    assert not ray.is_initialized()


def configured(numbers: Any = NUMBERS) -> SkillDQNConfig:
    return stages.configured(SKILLS, numbers).reporting(min_sample_timesteps_per_iteration=300)


def in_the_simulator(**env_config: Any) -> SkillDQNConfig:
    config = SkillDQN.get_default_config().stage([make_skill("camera")], replace(NUMBERS, budget=2_000), 128, seed=1)
    return config.environment(env_config=env_config)


#: What is set of `training`, and the hyperparameters that are learned by then, where they are called otherwise.
LEARNED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"lr": 0.01, "double_q": True, "n_step": 3}, {}),
    ({"gamma": np.float32(0.5)}, {"gamma": 0.5}),
    ({"train_batch_size_per_learner": 32, "training_intensity": 5, "target_network_update_freq": 123}, {}),
    ({"num_steps_sampled_before_learning_starts": 700, "semi_markov": True, "averaged_fraction": 0.5}, {}),
    ({"grad_clip": None}, {"grad_clip": 1e9}),
    ({"epsilon": 0.2}, {"epsilon": ((0.0, 0.2),)}),
    ({"epsilon": [[0, 0.8], [1_500, 0.1], [6_000, 0.0]]}, {"epsilon": ((0.0, 0.8), (1_500.0, 0.1), (6_000.0, 0.0))}),
    ({"replay_buffer_config": {"capacity": 70}}, {"capacity": 70}),
    ({"replay_buffer_config": PRIORITIZED}, {"capacity": 700, "alpha": 0.5, "beta": 0.3}),
    (
        {"replay_buffer_config": {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 9}},
        {"capacity": 9, "alpha": 0.6},
    ),
    ({"replay_buffer_config": {"type": "MultiAgentEpisodeReplayBuffer", "capacity": 9}}, {"capacity": 9}),
]


@pytest.mark.parametrize(("fields", "expected"), LEARNED)
def test_a_parameter_of_training_changes_what_is_learned_by(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    config = configured().training(**fields)
    config.validate()
    assert config.hyperparameters_of("heal_attack") == replace(NUMBERS, **(expected or fields))


@pytest.mark.parametrize("numbers", [NUMBERS, replace(NUMBERS, alpha=0.6, double_q=True, fcnet_hiddens=(8,))])
def test_what_a_stage_is_given_is_what_rllibs_fields_say(numbers: DQNHyperparameters) -> None:
    config = configured(numbers)
    assert config.hyperparameters_of("heal_attack") == numbers
    assert (config.lr, config.double_q, config.model_config["fcnet_hiddens"]) == (
        numbers.lr,
        numbers.double_q,
        numbers.fcnet_hiddens,
    )
    # As `get_config_for_module` merges a field, which keeps what it made: only of a frozen configuration.
    config.freeze()
    assert config.get_config_for_module("heal_attack").replay_buffer_config["alpha"] == numbers.alpha


def test_what_a_model_config_leaves_out_stays() -> None:
    config = configured(replace(NUMBERS, observation_clip=5.0)).rl_module(model_config={"fcnet_hiddens": [16, 16]})
    config.validate()
    assert config.hyperparameters_of("heal_attack") == replace(NUMBERS, observation_clip=5.0, fcnet_hiddens=(16, 16))


def test_what_is_configured_is_what_learns_and_what_the_result_shows() -> None:
    stage = built(configured().training(lr=0.01, train_batch_size_per_learner=64, epsilon=0.2))
    assert stage.learner.learning["heal_attack"].optimizer.param_groups[0]["lr"] == 0.01
    learned = stage.training["heal_attack"]
    assert learned.hyperparameters == stage.config.hyperparameters_of("heal_attack")
    assert learned.epsilon == 0.2
    shown = stage.train()
    assert 300 <= shown["num_env_steps_sampled_lifetime"] < 428
    again = stage.train()
    assert 600 <= again["num_env_steps_sampled_lifetime"] < 728
    assert shown["config"] is again["config"], "a copy takes longer than a round"
    assert (shown["config"]["lr"], shown["config"]["budget"]) == (0.01, 3_000)
    with pytest.raises(AttributeError, match="frozen"):
        stage.config.gamma = 0.5


def test_a_parameter_holds_for_every_module_and_an_override_for_one() -> None:
    own = {"dodge": replace(NUMBERS, lr=1e-3, double_q=True, capacity=70), "heal_attack": NUMBERS}
    config = configured(own)
    assert [config.hyperparameters_of(name) for name in own] == list(own.values())
    config.training(gamma=0.9, double_q=False, lr=3e-5)
    assert [config.hyperparameters_of(name).gamma for name in own] == [0.9, 0.9]
    assert [config.hyperparameters_of(name).double_q for name in own] == [True, False]
    config.rl_module(algorithm_config_overrides_per_module={"dodge": DQNConfig.overrides(lr=0.05, gamma=0.5)})
    stage = built(config)
    rates = {name: one.optimizer.param_groups[0]["lr"] for name, one in stage.learner.learning.items()}
    assert rates == {"dodge": 0.05, "heal_attack": 3e-5}
    assert stage.training["dodge"].hyperparameters.gamma == 0.5


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        # What the learner cannot learn by.
        ("training", {"lr": -1.0}),
        ("training", {"tau": 0.01}),
        ("training", {"replay_buffer_config": {"type": "ReplayBuffer"}}),
        ("training", {"replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 9, "alpha": 0.5}}),
        ("training", {"replay_buffer_config": {"seed": 3}}),
        ("training", {"training_intensity": None}),
        ("rl_module", {"model_config": {"fcnet_activation": "tanh"}}),
        ("rl_module", {"model_config": None}),
        ("rl_module", {"algorithm_config_overrides_per_module": {"nobody": {"lr": 1.0}}}),
        # What nothing goes by.
        ("learners", {"num_learners": 2}),
        ("learners", {"learner_class": str}),
        ("evaluation", {"evaluation_interval": 1}),
        ("evaluation", {"evaluation_config": {"lr": 1.0}}),
        ("reporting", {"min_sample_timesteps_per_iteration": 0}),
        ("callbacks", {"on_episode_step": print}),
    ],
)
def test_a_value_that_nothing_can_go_by_is_refused_by_its_field(method: str, fields: dict[str, Any]) -> None:
    with pytest.raises(SoulsGraphError, match=next(iter(fields))):
        getattr(configured(), method)(**fields).validate()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: configured().callbacks(type("Own", (RLlibCallback,), {"on_episode_step": print})), "on_episode_step"),
        (lambda: configured().update_from_dict({"learning_rate": 0.1}), "learning_rate"),
        (lambda: configured().rl_module(algorithm_config_overrides_per_module={"dodge": {"seed": 2}}), "seed"),
        (SkillDQNConfig, "stage"),
        # What the simulator cannot play.
        (lambda: in_the_simulator(scenari="iudex-phase1"), "scenari"),
        (lambda: in_the_simulator(scenario=3), "scenario"),
        *(
            (lambda n=n: in_the_simulator().env_runners(num_envs_per_env_runner=n), "num_envs_per_env_runner")
            for n in (129, True, 2.0)
        ),
    ],
)
def test_a_configuration_that_does_not_hold_is_refused_before_anything_is_built(
    make: Callable[[], SkillDQNConfig], name: str
) -> None:
    with pytest.raises(SoulsGraphError, match=name):
        make().validate()


class OwnLearner(SkillDQNLearner):
    """A learner of somebody's own."""


def test_a_dictionary_or_a_general_configuration_is_as_good_as_ours() -> None:
    config = configured().training(lr=0.01).learners(learner_class=OwnLearner)
    for settings in (config.to_dict(), DQNConfig.from_dict(config.to_dict())):
        stage = SkillDQN(config=settings)
        assert stage.training["heal_attack"].hyperparameters == replace(NUMBERS, lr=0.01)
        assert isinstance(stage.learner, OwnLearner)


def test_exploring_can_be_turned_off_and_what_tune_puts_in_is_read_when_it_is_there() -> None:
    greedy = configured().env_runners(explore=False).hyperparameters_of("heal_attack")
    assert {greedy.exploration(decisions) for decisions in (0, 3_000)} == {0.0}
    config = configured().training(lr={"grid_search": [1e-4, 1e-3]})
    with pytest.raises(SoulsGraphError, match="lr"):
        config.hyperparameters_of("heal_attack")
    assert config.update_from_dict({"lr": 1e-3}).hyperparameters_of("heal_attack") == replace(NUMBERS, lr=1e-3)


class Recording(RLlibCallback):
    """Note every callback that is called, and log a figure of your own."""

    seen: list[str] = []  # noqa: RUF012 - RLlib makes the object itself

    def on_algorithm_init(self, *, algorithm: Any, **_: Any) -> None:
        self.seen.append(f"init {[*algorithm.training]} {algorithm.env_runner.samples}")

    def on_environment_created(self, *, env_context: Any, **_: Any) -> None:
        self.seen.append(f"environment {env_context.worker_index}")

    def on_sample_end(self, **_: Any) -> None:
        self.seen.append("sample")

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **_: Any) -> None:
        self.seen.append("episode")
        metrics_logger.log_value("own_return", episode.get_return(), window=1_000)

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
    stage.save_checkpoint(str(tmp_path))
    stage.load_checkpoint(str(tmp_path))
    assert Recording.seen[-1] == "loaded"


def test_evaluating_plays_the_same_greedy_fights_and_changes_no_training() -> None:
    plain = built(in_the_simulator())
    watched = built(in_the_simulator().evaluation(evaluation_interval=1, evaluation_duration=6))
    calls: list[str] = []
    first = watched.evaluate()
    result = watched.train()
    plain.train()
    found = result["evaluation"]["env_runners"]
    assert found["num_episodes"] == 6
    assert found == watched.evaluate()["env_runners"] != first["env_runners"]
    assert first["env_runners"]["episode_len_mean"] > 1.0
    assert_same(plain.weights("camera"), watched.weights("camera"))
    watching = in_the_simulator().callbacks(
        on_evaluate_start=lambda **_: calls.append("start"), on_evaluate_end=lambda **_: calls.append("end")
    )
    watching.evaluation(evaluation_duration=1, evaluation_config={"env_config": {"scenario": "iudex-phase2"}})
    assert built(watching).evaluate()["env_runners"]["num_episodes"] == 1
    assert calls == ["start", "end"]


def test_every_way_to_restore_continues_bit_for_bit_by_a_relative_path_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole, new, other = (built(configured().training(lr=1e-3)) for _ in range(3))
    whole.train()
    whole.save_to_path("kept/one")
    whole.save(str(tmp_path / "kept" / "two"))
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"one", "two"}
    new.restore(str(tmp_path / "kept" / "one"))
    other.restore_from_path("kept/two")
    restored = (
        SkillDQN.from_checkpoint("kept/one"),
        Algorithm.from_checkpoint(str(Path("kept/two").absolute())),
        new,
        other,
    )
    expected = whole.train()
    for stage in restored:
        result = stage.train()
        for name in ("env_runners", "learners", "training_iteration", "num_env_steps_sampled_lifetime"):
            np.testing.assert_equal(result[name], expected[name])
        assert stage.updates == whole.updates > 100
        assert_same(stage.weights("heal_attack"), whole.weights("heal_attack"))


def test_what_would_restore_a_part_in_silence_or_elsewhere_than_here_is_refused() -> None:
    stage = built(configured())
    before = stage.weights("heal_attack")
    for call, name in (
        (lambda: stage.set_weights({}), "load_weights"),
        (lambda: stage.restore_from_path("checkpoint", component="learner_group"), "learner_group"),
        (lambda: stage.save_to_path("s3://somewhere"), "s3"),
        (lambda: stage.restore_from_path("s3://somewhere"), "s3"),
    ):
        with pytest.raises(SoulsGraphError, match=name):
            call()
    assert_same(stage.weights("heal_attack"), before)
