"""Records of a stage in training: TensorBoard, Parquet and learning curves, over the skill's steps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray.rllib.algorithms.dqn.dqn_learner import QF_LOSS_KEY, QF_MEAN_KEY
from ray.rllib.utils.metrics import LEARNER_RESULTS

from soulsgraph.curves import CHECKPOINT_INTERVAL, EPISODES, CurveEvaluator, CurvePoint, checkpoint_weights
from soulsgraph.reports.parquet import GrowingTable
from soulsgraph.reports.tensorboard import Board
from soulsgraph.stage_setup import StageSetup
from soulsgraph_envs.episodes import Episodes
from soulsgraph_policies.algorithm import SkillDQN


class StageRecords:
    """Write a stage's metrics as they come; `reached` is the step that a resumed stage continues from.

    The learning curve is evaluated `beside` training, in parallel, or between iterations.
    """

    def __init__(self, setup: StageSetup, board: Board, reached: int, beside: bool = True) -> None:
        self._setup, self._board = setup, board
        self._offset = setup.steps_before
        self._training = GrowingTable(setup.run.results("training"))
        self._curve = GrowingTable(setup.run.results("curves"))
        for table in (self._training, self._curve):
            table.forget(setup.stage.name, reached)
        known = {int(row["step"] or 0) for row in self._curve.rows if row["stage"] == setup.stage.name}
        folder: Path = setup.run.path / "curves" / setup.stage.name
        self._evaluator = CurveEvaluator(folder, setup.agent, setup.hyperparameters.observation_clip, beside)
        self._evaluator.take_up(known, reached)
        self._last_checkpoint = reached
        self._clock = (time.monotonic(), reached)

    def add(self, algorithm: SkillDQN, result: Mapping[str, Any]) -> float | None:
        """Record one iteration, a row for each skill that learns; return the last one's mean return, if there is one.

        Steps are decisions of all skills that learn.
        """
        drained, pace, skills = algorithm.drain_episodes(), self._pace(algorithm), self._setup.stage.skills
        figures: dict[str, float] = {}
        for skill in skills:
            episodes = drained.get(skill)
            explored = {"exploration": algorithm.training[skill].exploration_rate}
            figures = explored | pace | self._learning(skill, result) | self._play(skill, episodes)
            count = 0 if episodes is None else len(episodes)
            self._write(self._training, skill, algorithm.decisions, figures, episodes=count)
        if algorithm.decisions // CHECKPOINT_INTERVAL > self._last_checkpoint // CHECKPOINT_INTERVAL:
            self._last_checkpoint = algorithm.decisions
            weights = {skill: algorithm.weights(skill) for skill in skills}
            self._evaluator.add(algorithm.decisions, checkpoint_weights(weights))
        self._draw(self._evaluator.collect())
        return figures.get("return")

    def flush(self) -> None:
        """Write everything to disk, as at each checkpoint."""
        self._training.flush()
        self._curve.flush()
        self._board.flush()

    @property
    def results(self) -> dict[str, float]:
        """Figures of the last checkpoint on the stage's learning curve; none where it was too short for one."""
        points = [row for row in self._curve.rows if row["stage"] == self._setup.stage.name]
        last = max(points, key=lambda row: int(row["step"] or 0), default=None)
        names = ("step", "return", "low", "high", "length", "seconds", "win_rate")
        return {} if last is None else {"episodes": EPISODES, **{name: float(last[name] or 0.0) for name in names}}

    def finish(self) -> None:
        """Wait for the learning curve's last points, and write everything to disk."""
        self._draw(self._evaluator.finish())
        self.flush()

    def _pace(self, algorithm: SkillDQN) -> dict[str, float]:
        since, before = self._clock
        self._clock = (time.monotonic(), algorithm.decisions)
        figures = {"steps_per_s": (algorithm.decisions - before) / max(self._clock[0] - since, 1e-9)}
        return figures | ({"env_runners": algorithm.live_runners} if algorithm.config.num_env_runners else {})

    def _learning(self, skill: str, result: Mapping[str, Any]) -> dict[str, float]:
        learner = result.get(LEARNER_RESULTS, {}).get(skill, {})
        names = {"loss": QF_LOSS_KEY, "q": QF_MEAN_KEY}
        return {name: float(learner[key]) for name, key in names.items() if key in learner}

    def _play(self, skill: str, episodes: Episodes | None) -> dict[str, float]:
        if episodes is None:
            return {}
        terms = zip(self._setup.skill(skill).reward.names, episodes.terms.mean(axis=0), strict=True)
        return {
            "return": float(episodes.returns.mean()),
            "length": float(episodes.lengths.mean()),
            "seconds": float(episodes.seconds.mean()),
            "win_rate": float(episodes.won.mean()),
            **{f"reward/{name}": float(value) for name, value in terms},
        }

    def _draw(self, points: list[CurvePoint]) -> None:
        for point in points:
            self._write(self._curve, self._setup.stage.skill, point.step, point.figures, "evaluation/")

    def _write(
        self, table: GrowingTable, skill: str, step: int, figures: dict[str, float], prefix: str = "", **counts: int
    ) -> None:
        table.add({"stage": self._setup.stage.name, "skill": skill, "step": step, **counts, **figures})
        values = {f"{prefix}{name}": value for name, value in figures.items()}
        self._board.log(skill, step + self._offset, values)
