"""Counter-based random streams, and what every random stream of the four packages is drawn from."""

import ast
from pathlib import Path

import numpy as np

from soulsgraph_envs.core.seeds import derive_seeds, episode_seeds, mix, uniforms


def test_splitmix64_gives_the_published_first_outputs_for_seed_1234567():
    # Reference outputs of splitmix64 for the seed 1234567 (the generator's usual test vector).
    golden = 0x9E3779B97F4A7C15
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(mix(np.uint64((1234567 + golden * (i + 1)) % 2**64))) for i in range(3)] == expected


def test_streams_advance_only_where_drawn():
    streams = derive_seeds(np.arange(4, dtype=np.uint64), 1)
    before = streams.copy()
    uniforms(streams, np.array([1, 3]))
    assert (streams != before).tolist() == [False, True, False, True]


def test_uniforms_fill_the_unit_interval_evenly():
    # One stream, 100,000 draws in 10 bins: chi-square with 9 degrees of freedom, 27.9 at a false-alarm
    # rate of 0.1 %.
    streams = derive_seeds(7)
    draws = np.concatenate([uniforms(streams, np.zeros(1000, np.int64)) for _ in range(100)])
    assert 0.0 <= draws.min() <= draws.max() < 1.0
    counts = np.histogram(draws, bins=10, range=(0, 1))[0]
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 27.9


def test_paths_and_seeds_give_different_streams_and_equal_ones_the_same():
    seeds = {int(derive_seeds(seed, *path)[0]) for seed in range(20) for path in ((), (0,), (1,), (0, 1), (1, 0))}
    assert len(seeds) == 100
    assert derive_seeds(3, 4, 5) == derive_seeds(3, 4, 5)


def test_episode_seeds_depend_on_seed_lane_and_episode_only():
    several = episode_seeds(9, np.arange(8), np.full(8, 2))
    assert several[5] == episode_seeds(9, 5, 2)[0]
    assert len(set(several.tolist())) == 8


def test_episode_seeds_are_the_streams_derived_along_lane_and_episode():
    assert episode_seeds(9, 3, 2) == derive_seeds(9, 3, 2)


ROOT = Path(__file__).parents[3]
#: What makes a random stream.
_MAKING = {"default_rng", "SeedSequence", "PCG64", "RandomState", "Random", "manual_seed", "derive_seeds"}
_MAKING |= {"episode_seeds", "EpisodeSeeds"}
#: Every place where a stream begins, by what its owner's incarnation is: what a process in its place would draw from.
#: A counter goes into what is drawn anew by an owner that lost its state; 0 stands for the first, as ever.
_COUNTED = {
    "sampler.py _RunningDraw.__init__": "the decisions that the learner had received, as the runner says",
    "sampler.py Sampler._begin": "the same, in the numbers of the episodes",
    "admission.py Admission.task_for": "the number of a game's boot, which the head counts beside the journal",
    "own_learner.py OwnTraining._begin": "the decisions that the learner had received",
    "client.py GameClient._start": "the plays of this boot",
    "games.py LocalGamesRunner._game.order": "a number drawn for each process of a game",
    "rollout.py _retry_seeds": "the retries of a lane's start",
    "world.py StandInWorld._reset": "the loads of this process, whose seed is an option of its command",
}
#: Its owner is saved with its streams, or begins as a whole from what names it: there is nothing that a second one
#: would repeat.
_WHOLE = {
    "learner.py ModuleTraining.__init__": "in every checkpoint; a stage without one begins anew",
    "module.py QNetworkModule.setup": "a network's first weights, which a stage begins with",
    "stage_config.py SkillDQNConfig._network_config": "the same",
    "cloning.py clone": "a cloning begins as a whole",
    "distillation.py distil": "the same",
    "plan.py Plan.stage": "a stage's seed",
    "env_runners.py SkillGraphEnvRunner.make_env": "a runner's seed; the sampler has the number",
    "graph_fight.py GraphFight.__init__": "an environment's, from the caller's seed",
    "pettingzoo.py SkillGraphParallelEnv.reset": "the same",
    "rllib.py SkillGraphEnv._own": "the same",
    "skill_env.py SkillEnv.__init__": "the same",
    "skill_env.py SkillVectorEnv.__init__": "the same",
    "world.py SimulatedFight.begin": "the same",
    "worlds.py SimulatedWorld.begin": "the same",
    "worlds.py LiveWorld.begin": "the same",
}
#: A fight, batch or figure is asked for by its seed: played or computed again it has to be the same one.
_NAMED = {
    "evaluate.py evaluation_seeds": "held-out fights",
    "evaluation.py play_in_fleet": "the evaluation's seed",
    "env_runners.py SkillGraphEnvRunner.evaluate": "the evaluation's seed",
    "loop.py Combat.begin": "within one fight",
    "scripted.py Uniform.begin": "within one fight",
    "loop.py SeededDraw.begin": "within one fight",
    "probe.py Probe.begin": "within one fight",
    "method.py Method.drawn": "decisions that a continual method keeps of a stage, by seed, task and skill",
    "distil.py ResetAndDistil.take": "the network that a task is distilled into, by the same",
    "unit.py stage_seed": "a stage of a continual study, by seed, task and skill",
    "unit.py train_first.Keeping.end_stage": "decisions of a first task, which is trained as a whole",
    "generator.py Draws.__init__": "the numbers of a generated boss, which is named by its seed",
    "generator.py Draws.uniform": "a number of a generated boss, which is named by its seed",
    "draws.py draw_alterations": "a boss that is altered, which is named by its seed",
    "floor.py UnevenSimulator.reset": "within one fight",
    "comparison.py _seeds": "rows of recorded fights that are replayed, by the seed of the measurement",
    "joint.py MoveSpans.__init__": "spans of recorded fights that are replayed, the same each time",
    "joint.py _search": "the search of a joint fit, by its seed",
    "population.py Population.begin": "the members of a population, by its seed",
    "population.py Population.compared": "who goes on from whom, by the population's seed and round",
    "boss_filter.py _played": "the fights by which a scenario is checked, the same each time",
    "checking.py _Ground._play": "fights by which a project is checked",
    "doctor.py _examine_simulator": "one fight of the doctor",
    "statistics.py interquartile_mean_interval": "resamples of a figure",
    "conversion.py drawn_rows": "rows that an exported network is checked by",
    "necessity.py _untrained": "a network that never learns, the same for a run each time",
    "workers.py _learn": "nothing is kept",
    "memory.py _code": "bytes of a fake program",
}
#: Benchmarks and contract checks; and the streams themselves.
_NO_PRODUCT = {"bench", "testing.py", "seeds.py"}


class _Making(ast.NodeVisitor):
    """Collect where streams are made, by module and function."""

    def __init__(self, file):
        self._file, self._inside, self.found = file, [], set()
        self.visit(ast.parse(file.read_text(encoding="utf-8")))

    def visit_ClassDef(self, node):
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()

    visit_FunctionDef = visit_ClassDef  # noqa: N815 - ast's own name

    def visit_Call(self, node):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _MAKING:
            self.found.add(f"{self._file.name} {'.'.join(self._inside)}")
        self.generic_visit(node)


def test_every_random_stream_is_counted_saved_or_named_by_its_seed():
    """A new one needs a line above that says what keeps a restart from drawing it a second time."""
    roots = ("platform/soulsgraph", "clusters", "policies", "envs")
    files = [file for root in roots for file in sorted((ROOT / root).rglob("*.py")) if not _NO_PRODUCT & {*file.parts}]
    assert {place for file in files for place in _Making(file).found} == {*_COUNTED, *_WHOLE, *_NAMED}
