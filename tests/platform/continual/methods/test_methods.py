"""Each continual method on a case worked by hand: networks whose every parameter has one value."""

from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest

from fakes.learners import SHAPES, SKILL, StageInProgress, decisions_of, ended, version_of, weights_of
from soulsgraph.continual.methods import METHODS
from soulsgraph.continual.methods.method import MethodOptions
from soulsgraph.runs.plan import Plan
from soulsgraph_policies.learning.checkpoint import read_training_state, write_training_state

TASKS = 4


def world(position):
    return SimpleNamespace(position=position, skill=str.upper)


def method_of(name, **options):
    return METHODS[name](MethodOptions(**options), TASKS, seed=0)


def learn(method, position, value, observations=(1.0, 2.0)):
    """Let a method learn a task that leads to weights of one value; return the stage as it was asked."""
    method.before_task(world(position))
    stage = StageInProgress(newest=value)
    method.begin_stage(stage, SKILL)
    stage.training[SKILL].decisions = 100
    method.during_stage(stage, SKILL)
    result = ended(value, observations)
    method.end_stage(SKILL, result)
    method.take(SKILL, result.version)
    method.after_task(world(position))
    return stage


def values_of(versions):
    return {name: versions[SKILL].weights[name] for name in SHAPES}


def plays(versions, value):
    return all((one == np.float32(value)).all() for one in values_of(versions).values())


@pytest.mark.parametrize(
    ("name", "played"),
    [
        *((name, (3.0, 3.0, 3.0)) for name in ("newest", "all-skills", "ewc", "online-ewc", "mas", "replay")),
        *((name, (3.0, 3.0, 3.0)) for name in ("clonex", "joint")),
        *((name, (1.0, 2.0, 3.0)) for name in ("kept", "scratch")),
        ("base", (2.0, 2.0, 3.0)),
    ],
)
def test_a_task_is_played_by_the_newest_versions_or_by_those_that_are_kept_for_it(name, played):
    method = method_of(name, base_tasks=2)
    for position, value in enumerate((1.0, 2.0, 3.0)):
        learn(method, position, value)
    assert [plays(method.playing(position), value) for position, value in enumerate(played)] == [True] * 3
    method.before_task(world(3))
    begins = {SKILL: method.start(SKILL)} if name != "scratch" else method.playing(2)
    assert plays(begins, 2.0 if name == "base" else 3.0)
    assert name != "base" or not method.reserve


def test_from_scratch_begins_every_task_at_nothing():
    method = method_of("scratch")
    learn(method, 0, 1.0)
    method.before_task(world(1))
    assert method.start(SKILL) is None
    assert method.beginning() == {}


def test_ewc_pulls_to_the_mean_of_earlier_places_by_their_importance():
    method = method_of("ewc", ewc=5.0)
    first = learn(method, 0, 1.0, [2.0, 2.0])
    assert not first.constraints
    assert not first.frozen
    one = method.importance[SKILL]
    # Each of two outputs is w3 * w2 * w1 * x + ...: with every weight 1 its slope in the first weight is x = 2, and the
    # squares of both outputs are summed.
    assert one["q_network.0.weight"].item() == pytest.approx(8.0)
    assert one["q_network.4.bias"].tolist() == pytest.approx([1.0, 1.0])
    second = learn(method, 1, 3.0, [0.0])
    assert second.frozen == [SKILL]
    (pull,) = second.constraints
    assert pull.strength == 5.0
    assert (pull.anchor["q_network.0.weight"] == 1.0).all()
    # The second task says nothing of the first weight: its input was 0. The output's biases count alike in both.
    assert method.importance[SKILL]["q_network.0.weight"].item() == pytest.approx(8.0)
    assert method.anchor[SKILL]["q_network.0.weight"].item() == pytest.approx(1.0)
    assert method.importance[SKILL]["q_network.4.bias"].tolist() == pytest.approx([2.0, 2.0])
    assert method.anchor[SKILL]["q_network.4.bias"].tolist() == pytest.approx([2.0, 2.0])


def test_online_ewc_pulls_to_the_last_place_and_lets_earlier_importance_fade():
    method = method_of("online-ewc", ewc_decay=0.5)
    learn(method, 0, 1.0, [2.0])
    learn(method, 1, 3.0, [0.0])
    assert method.importance[SKILL]["q_network.0.weight"].item() == pytest.approx(4.0)
    assert method.importance[SKILL]["q_network.4.bias"].tolist() == pytest.approx([1.5, 1.5])
    assert method.anchor[SKILL]["q_network.4.bias"].tolist() == pytest.approx([3.0, 3.0])


def test_mas_sums_importances_and_pulls_to_the_last_place():
    method = method_of("mas", mas=2.0)
    learn(method, 0, 1.0, [2.0])
    # Outputs are 1 * (1 * (1 * 2 + 1) + 1) + 1 = 5 each, and the squared norm's slope in an output's bias is 2 * 5.
    assert method.importance[SKILL]["q_network.4.bias"].tolist() == pytest.approx([10.0, 10.0])
    stage = learn(method, 1, 3.0, [2.0])
    assert stage.constraints[0].strength == 2.0
    # Then 3 * (3 * (3 * 2 + 3) + 3) + 3 = 93 each.
    assert method.importance[SKILL]["q_network.4.bias"].tolist() == pytest.approx([196.0, 196.0])
    assert (method.anchor[SKILL]["q_network.4.bias"] == 3.0).all()


def test_packnet_keeps_a_share_and_plays_a_task_by_what_it_and_earlier_ones_kept():
    method = method_of("packnet")
    first = learn(method, 0, 1.0)
    assert not first.frozen
    (kept,) = first.constraints
    # A quarter for each of four tasks, at least one: of two weights the first. Biases are the first task's.
    assert kept.mask["q_network.4.weight"].ravel().tolist() == [1.0, 0.0]
    assert kept.mask["q_network.4.bias"].tolist() == [1.0, 1.0]
    assert first.loaded[0]["q_network.4.weight"].ravel().tolist() == [1.0, 0.0]
    second = learn(method, 1, 2.0)
    free, kept = second.constraints
    assert free.mask["q_network.4.weight"].ravel().tolist() == [0.0, 1.0]
    assert free.mask["q_network.4.bias"].tolist() == [0.0, 0.0]
    assert kept.mask["q_network.4.weight"].ravel().tolist() == [0.0, 1.0]
    assert method.playing(0)[SKILL].weights["q_network.4.weight"].ravel().tolist() == [2.0, 0.0]
    assert method.playing(1)[SKILL].weights["q_network.4.weight"].ravel().tolist() == [2.0, 2.0]


def test_only_networks_of_packnet_have_the_size_that_is_asked_for():
    plan = Plan()
    for name in METHODS:
        planned = method_of(name, packnet_units=192).planned(plan)
        assert planned.hyperparameters(planned.stage("dodge")).fcnet_hiddens == (
            (192, 192) if name == "packnet" else (64, 64)
        )
    assert method_of("packnet").planned(plan).hyperparameters(plan.stage("dodge")) == plan.hyperparameters(
        plan.stage("dodge")
    )


def drawn(stage, count=400):
    """Return a large batch of a stage's replay, beside one decision of its own."""
    from soulsgraph_policies.agents.inference import RunningNormalizer

    stage.replay.add(decisions_of([9.0], action=1))
    return stage.replay.sample(count, np.random.default_rng(0), RunningNormalizer(1, np.ones(1, np.bool_)))


def test_replay_draws_a_share_of_each_batch_from_decisions_of_earlier_tasks():
    method = method_of("replay", reserve_share=0.75, reserve=1)
    learn(method, 0, 1.0, [5.0, 6.0])
    batch = drawn(learn(method, 1, 2.0, [7.0]))
    share = float((batch.observations == 5.0).mean())
    # 400 draws at 0.75: five standard deviations are 0.11, a false alarm in two million.
    assert abs(share - 0.75) < 0.11
    assert set(batch.observations.ravel().tolist()) == {5.0, 9.0}
    assert (batch.weights == 1.0).all()


def test_joint_training_draws_all_tasks_alike():
    method = method_of("joint")
    for position in range(2):
        learn(method, position, 1.0, [float(position)])
    batch = drawn(learn(method, 2, 1.0))
    shares = [float((batch.observations == seen).mean()) for seen in (0.0, 1.0, 9.0)]
    # 400 draws at a third: five standard deviations are 0.12.
    assert all(abs(share - 1.0 / 3.0) < 0.12 for share in shares)


def test_clonex_raises_what_was_chosen_and_learns_no_values_from_it():
    method = method_of("clonex", cloning_margin=0.3)
    method.before_task(world(0))
    best = version_of(0.0)
    best.weights["q_network.4.bias"][:] = (1.0, 2.0)
    stage = ended(0.0, [5.0, 6.0], action=0)
    method.end_stage(SKILL, type(stage)(SKILL, best, stage.hyperparameters, stage.rows))
    assert method.reserve[SKILL][0].actions.tolist() == [1, 1]
    batch = drawn(learn(method, 1, 2.0))
    old = (batch.observations == 5.0).ravel() | (batch.observations == 6.0).ravel()
    assert old.any()
    assert not old.all()
    assert (batch.weights[old] == 0.0).all()
    assert (batch.margins[old] > 0.0).all()
    assert (batch.margins[~old] == 0.0).all()


def test_distil_teaches_one_network_the_new_task_and_what_played_on_kept_observations(monkeypatch):
    taught = []

    def fit(skill, teachers, numbers, seed, updates):
        taught.append((skill, [(one["q_network.0.bias"][0], seen.ravel().tolist()) for one, seen in teachers], updates))
        return SimpleNamespace(weights=weights_of(10.0 * len(taught)), normalizer=SimpleNamespace(get_state=dict))

    monkeypatch.setattr("soulsgraph.continual.methods.distillation.distil", fit)
    method = method_of("distil", distilled_updates=7)
    for position, value in enumerate((1.0, 2.0, 3.0)):
        assert method.start(SKILL) is None
        learn(method, position, value, [float(position), position + 0.5])
    # The first task has one teacher and is played by its own network.
    new_and_old = [
        [(2.0, [1.0, 1.5]), (1.0, [0.0, 0.5])],
        # What was distilled then, 10, plays both earlier tasks.
        [(3.0, [2.0, 2.5]), (10.0, [0.0, 0.5]), (10.0, [1.0, 1.5])],
    ]
    assert taught == [(SKILL.upper(), lessons, 7) for lessons in new_and_old]
    assert plays(method.playing(0), 20.0)


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"distil"}))
def test_a_method_goes_on_from_its_state_as_if_it_had_not_stopped(name, tmp_path):
    method, again = method_of(name), method_of(name)
    for position, value in enumerate((1.0, 2.0)):
        learn(method, position, value)
    write_training_state(tmp_path, method.state())
    again.restore(read_training_state(tmp_path))
    assert again.size_bytes == method.size_bytes
    for each in (method, again):
        learn(each, 2, 3.0)
    write_training_state(tmp_path / "one", method.state())
    write_training_state(tmp_path / "other", again.state())
    np.testing.assert_equal(*(read_training_state(tmp_path / part) for part in ("one", "other")))
    for position in range(3):
        assert plays_alike(method.playing(position), again.playing(position))


def plays_alike(first, second):
    return all((values_of(first)[name] == values_of(second)[name]).all() for name in SHAPES)


def test_what_tasks_share_is_counted_once():
    method = method_of("kept")
    learn(method, 0, 1.0)
    once = method.size_bytes
    method.before_task(world(1))
    method.after_task(world(1))
    assert method.size_bytes == once
    learn(method, 2, 2.0)
    layers = sum(values.nbytes for name, values in weights_of(0.0).items() if name in SHAPES)
    assert once < method.size_bytes <= once + layers


def test_every_coefficient_is_that_of_a_method():
    used = {name for method in METHODS.values() for name in method.coefficients}
    assert used == {field.name for field in fields(MethodOptions)}
