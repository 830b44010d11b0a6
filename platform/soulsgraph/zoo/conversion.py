"""Convert trained skills: to ONNX files, and from stable-baselines3.

An ONNX file is compared with our own inference before it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from soulsgraph.results.origin import describe_origin
from soulsgraph.runs.evaluate import EVALUATION_SEED, LANES, Setting, evaluation_seeds, load_artifacts, make_agent
from soulsgraph.runs.plan import Stage, scenario_digest
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.combat.loop import Actions, Combat
from soulsgraph_envs.combat.rollout import Floats, Integers
from soulsgraph_envs.core.config import Between, Where, load, to_json
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import whole_file, write_json, writing
from soulsgraph_envs.core.game import LaneIndices
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import STATE_SIZE, StateRows
from soulsgraph_envs.games.opening import make_game
from soulsgraph_policies.agents import foreign_files
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks
from soulsgraph_policies.agents.library import Artifact, NormalizerStatistics, SkillCard

#: What is written beside the models: the comparison of each, and where it was made.
CHECK = "check.json"
#: Two actions are near a tie unless their values differ by more than this share of the observation's largest one.
MARGIN = 1e-5
_AT_ONCE = 50_000


@dataclass(frozen=True)
class Agreement:
    """How a model's actions compare with ours on observations of the agent's own fights.

    `clear` counts observations whose two best values differ by more than `MARGIN` of the largest absolute value;
    `clear_differing` those of them with another action, and `near_differing` those of the others.
    `largest_difference` is that of a Q-value, as a share of the observation's largest absolute one.
    """

    skill: str
    observations: int
    clear: int
    clear_differing: int
    near_differing: int
    largest_difference: float

    @property
    def near(self) -> int:
        """The number of observations whose two best values are nearly equal."""
        return self.observations - self.clear

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return asdict(self) | {"near": self.near}


def export_onnx(
    run: RunFolder,
    folder: Path,
    setting: Setting,
    observations: int,
    on_checked: Callable[[Agreement], None] = lambda checked: None,
) -> list[Agreement]:
    """Write an ONNX file for each skill of a setting, and `check.json`, after comparing them with our inference.

    Each model is compared on `observations` of the agent's own fights.

    Raises:
        SoulsGraphError: if a skill is missing, or a model's action differs from ours where it should not; nothing is
            written then.
        WriteError: if the folder cannot be written.
    """
    agent, artifacts = make_agent(run, setting), load_artifacts(run, setting.trained_on, run.plan.skill_graph.order)
    networks = {name: network for name, network in agent.networks.items() if isinstance(network, FrozenNetwork)}
    models = {
        name: foreign_files.onnx_model(network, _facts(agent, network, artifacts[name].card, setting))
        for name, network in networks.items()
    }
    recorded, found = recorded_rows(agent, observations), []
    for name, network in networks.items():
        found.append(compare_model(network, models[name], recorded[name]))
        on_checked(found[-1])
        if found[-1].clear_differing:
            raise SoulsGraphError(
                f"{name}: expected the model to choose our action, found another one for {found[-1].clear_differing} "
                f"of {found[-1].clear} observations; this is a defect: report it with the run's library."
            )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # It says of the models beside it that they were compared.
        (folder / CHECK).unlink(missing_ok=True)
    for name, model in models.items():
        with whole_file(folder / f"{name}.onnx") as temporary:
            temporary.write_bytes(model)
    skills = [one.to_dict() for one in found]
    write_json(folder / CHECK, {**describe_origin(), **asdict(setting), "margin": MARGIN, "skills": skills})
    return found


def _facts(agent: Agent, network: FrozenNetwork, card: SkillCard, setting: Setting) -> dict[str, str]:
    """Return a model's metadata: what it is, and how its input is made of the State."""
    skill = next(skill for skill in agent.skills if skill.name == network.skill)
    return {
        "skill": card.skill,
        "skill_version": str(card.version),
        "graph": card.graph,
        "graph_digest": card.graph_digest,
        "card_digest": card.digest,
        "weights_sha256": card.sha256,
        "soulsgraph": card.training.packages.get("soulsgraph", ""),
        "scenario": setting.scenario,
        "scenario_digest": scenario_digest(setting.scenario),
        "trained_on": card.training.scenario,
        "observation": to_json(skill.observation.names),
        "observation_offset": to_json(network.observation.offset.tolist()),
        "observation_scale": to_json(network.observation.scale.tolist()),
        "actions": to_json([action.name for action in skill.actions]),
    }


class _Recorder:
    """Keep the State rows at which each skill of a combat decided, up to a number of each."""

    def __init__(self, names: tuple[str, ...], most: int) -> None:
        self.counts = dict.fromkeys(names, 0)
        self._rows = {name: np.empty((most, STATE_SIZE), np.float32) for name in names}

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Do nothing: every row is kept by itself."""

    def act(self, combat: Combat, actions: Actions) -> None:
        """Keep the rows of the lanes in which a skill decides; it decides nothing itself."""
        for index, (name, count) in enumerate(self.counts.items()):
            rows = combat.rows[combat.due[:, index]]
            kept = self._rows[name][count : count + len(rows)]
            kept[:] = rows[: len(kept)]
            self.counts[name] = count + len(kept)

    @property
    def full(self) -> Mapping[str, StateRows] | None:
        """The rows of every skill, None while one has too few."""
        return self._rows if all(len(self._rows[name]) == count for name, count in self.counts.items()) else None


def recorded_rows(agent: Agent, count: int) -> Mapping[str, StateRows]:
    """Return `count` State rows for each skill at which it decides in fights that the agent plays in the simulator."""
    recorder = _Recorder(tuple(skill.name for skill in agent.skills), count)
    rollout, seed = agent.rollout(make_game(LANES), recorder), EVALUATION_SEED
    while (rows := recorder.full) is None:
        rollout.play(evaluation_seeds(seed, LANES))
        seed += 1
    return rows


def compare_model(network: FrozenNetwork, model: bytes, rows: StateRows) -> Agreement:
    """Compare a model's actions and values with ours on State rows (n, 25)."""
    clear = clear_differing = near_differing = 0
    largest = 0.0
    for ours, theirs, actions in both_values(network, model, rows):
        highest = np.abs(ours).max(axis=1)
        second, best = np.partition(ours, -2, axis=1)[:, -2:].T if ours.shape[1] > 1 else (ours[:, 0] - 1, ours[:, 0])
        apart = best - second > MARGIN * highest
        differing = ours.argmax(axis=1) != actions
        clear += int(apart.sum())
        clear_differing += int((apart & differing).sum())
        near_differing += int((~apart & differing).sum())
        shares = np.abs(ours - theirs).max(axis=1) / np.maximum(highest, np.finfo(np.float32).tiny)
        largest = max(largest, float(shares.max()))
    return Agreement(network.skill, len(rows), clear, clear_differing, near_differing, largest)


def both_values(network: FrozenNetwork, model: bytes, rows: StateRows) -> Iterator[tuple[Floats, Floats, Integers]]:
    """Yield our Q-values (n, actions), the model's, and the model's actions (n,), part by part."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    fused = FusedNetworks([network])
    for start in range(0, len(rows), _AT_ONCE):
        part = np.ascontiguousarray(rows[start : start + _AT_ONCE])
        theirs, actions = session.run(
            [foreign_files.Q_VALUES, foreign_files.ACTION], {foreign_files.OBSERVATION: network.observation(part)}
        )
        yield fused.q_values(0, part), theirs, actions


_MOST_STATISTICS_BYTES = 2**20
#: What leaves an observation as it is: the normaliser adds 1e-8 to a variance, and a float32 is far from the clip.
_NO_VARIANCE, _NO_CLIP = 1.0 - 1e-8, 1e30


@dataclass(frozen=True)
class Statistics(NormalizerStatistics):
    """How observations were normalised: the values of VecNormalize's `obs_rms` and its `clip_obs`."""

    count: Annotated[float, Between(0.0, 1e15)] = 1.0
    clip: Annotated[float, Between(1e-6, 1e30)] = 10.0


def read_statistics(path: Path, size: int) -> Statistics:
    """Read statistics of `size` observed values from a JSON or TOML file.

    Raises:
        DataError: if it is missing or too large, or does not hold as many finite values.
        ReadError: if it cannot be read.
    """
    where = Where(path)
    if path.is_file() and path.stat().st_size > _MOST_STATISTICS_BYTES:
        raise where.error(f"at most {_MOST_STATISTICS_BYTES:,} bytes", f"{path.stat().st_size:,}")
    found = load(Statistics, where)
    for name in ("mean", "variance"):
        if len(getattr(found, name)) != size:
            raise where.at(name).error(f"{size} values", len(getattr(found, name)))
    return found


def imported_artifact(run: RunFolder, stage: Stage, file: Path, statistics: Path | None) -> Artifact:
    """Return a DQN that stable-baselines3 saved as an artifact of the stage's skill.

    Its layers must be those of the run's preset. Without `statistics` it observes raw values.

    Raises:
        LibraryError: if an upstream skill is missing or damaged.
        SoulsGraphError: if a file is missing, too large or damaged, or does not fit the skill.
    """
    # Imported here: it loads Ray and torch, which ONNX files need not wait for.
    from soulsgraph.runs.train import StageSetup, trained_artifact

    setup = StageSetup(run, stage)
    skill = setup.skills[-1]
    size = skill.observation.size
    known = Statistics((0.0,) * size, (_NO_VARIANCE,) * size, clip=_NO_CLIP)
    if statistics is not None:
        known = read_statistics(statistics, size)
    saved = foreign_files.read_saved_dqn(file, (size, *setup.hyperparameters.fcnet_hiddens, len(skill.actions)))
    artifact = trained_artifact(setup, saved.weights, known.normalizer(), saved.steps)
    card = artifact.card
    # How it learned elsewhere is not known here.
    packages = {**card.training.packages, "stable-baselines3": saved.version}
    training = replace(card.training, packages=packages, learning="")
    card = replace(card, training=training, observation_clip=known.clip)
    return replace(artifact, card=card, inputs={})


def import_stable_baselines(run: RunFolder, skill: str, file: Path, statistics: Path | None = None) -> SkillCard:
    """Save a DQN of stable-baselines3 as the next version of a run's skill; a planned run is begun with it.

    Raises:
        UnknownNameError: if the skill is not of the run's graph.
        SoulsGraphError: as `imported_artifact`, or if another process writes the run.
        WriteError: if the run folder cannot be written.
    """
    stage = run.plan.stage(skill)
    if not run.begun and (upstream := run.plan.skill_graph.upstream(skill)):
        raise SoulsGraphError(
            f"{run.path}: expected a run with {', '.join(upstream)} trained, found no run; import {skill} into one, "
            "as a copy of an agent of the zoo."
        )
    with ExitStack() as stack:
        if run.begun:
            stack.enter_context(run.locked())
        artifact = imported_artifact(run, stage, file, statistics)
        if not run.begun:
            # A file that cannot be imported begins no run.
            stack.enter_context(run.locked())
        return run.library.save(artifact)
