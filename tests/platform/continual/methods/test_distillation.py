"""One network that chooses as several teachers do, each on observations of its own."""

import numpy as np

from fakes.learning import q_values
from fakes.stages import assert_same, differs
from soulsgraph.continual.methods.distillation import distil
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, Weights
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

SKILL, SCENARIO = make_skill("movement"), load_scenario("iudex-phase1")
SIZE, ACTIONS = SKILL.observation.size, len(SKILL.actions)
NUMBERS = DQNHyperparameters(budget=300, capacity=100)


def teacher(seed: int, height: float) -> Weights:
    """A linear network whose values lie around a height of its own; the first inputs decide which action is best."""
    random = np.random.default_rng(seed)
    slopes = np.zeros((ACTIONS, SIZE), np.float32)
    slopes[:, :3] = random.normal(size=(ACTIONS, 3))
    return {
        MEAN: np.full(SIZE, 0.5),
        DEVIATION: np.full(SIZE, 2.0),
        "q_network.0.weight": slopes,
        "q_network.0.bias": np.full(ACTIONS, height, np.float32),
    }


def seen(count: int, seed: int, task: float) -> np.ndarray:
    """Observations whose last column differs between the tasks."""
    observed = np.random.default_rng(seed).normal(0.5, 2.0, (count, SIZE)).astype(np.float32)
    observed[:, -1] = task
    return observed


TEACHERS = [teacher(1, 8.0), teacher(2, -3.0)]


def test_a_student_chooses_as_its_teachers_where_it_was_not_taught() -> None:
    # One brings a fifth of the other's observations, and is as good a teacher.
    lessons = [(TEACHERS[0], seen(4_000, 3, 1.0)), (TEACHERS[1], seen(800, 4, -1.0))]
    student = distil(SKILL, lessons, NUMBERS, seed=0, updates=1_000)
    for place, task in enumerate((1.0, -1.0)):
        unseen = seen(2_000, 10 + place, task)
        expected, found = (q_values(one, unseen, 10.0) for one in (TEACHERS[place], student.weights))
        assert (found.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.95
        # The values lie where the teacher's do, 11 apart.
        assert np.sqrt(np.mean((found - expected) ** 2)) < 0.5
    np.testing.assert_allclose(
        student.normalizer["mean"], np.concatenate([part for _, part in lessons]).mean(axis=0), atol=1e-3
    )
    np.testing.assert_array_equal(student.weights[MEAN], student.normalizer["mean"])


def test_the_same_seed_makes_the_same_student() -> None:
    lessons = [(TEACHERS[0], seen(100, 3, 1.0)), (TEACHERS[1], seen(50, 4, 0.0))]
    first = distil(SKILL, lessons, NUMBERS, 5, 20).weights
    assert_same(first, distil(SKILL, lessons, NUMBERS, 5, 20).weights)
    assert differs(first, distil(SKILL, lessons, NUMBERS, 6, 20).weights)
