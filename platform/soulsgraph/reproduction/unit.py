"""One unit of a reproduction: train what it trains, evaluate it, and record each piece once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rich.console import Console

from soulsgraph.curriculum import train_stages
from soulsgraph.domains import adaptation_stages, check_target, finished_versions
from soulsgraph.evaluation import OnFinished
from soulsgraph.plan import Stage
from soulsgraph.progress import Interrupted
from soulsgraph.reports.tensorboard import Board
from soulsgraph.reproduction.folder import ReproductionFolder
from soulsgraph.reproduction.learning import curve_rows, training_rows
from soulsgraph.reproduction.measures import measure_baseline, measure_skills
from soulsgraph.reproduction.protocol import ADAPTED, SHIFTED, Unit
from soulsgraph.reproduction.rows import evaluate_settings, evaluated_settings
from soulsgraph.run_folder import RunFolder
from soulsgraph.training import Supervisor, Workplace
from soulsgraph_clusters.session import Session

#: Episodes of the measures over the plan's: three policies in four tasks, one in one.
_SKILL_MEASURES, _BASELINE_MEASURES = 12, 1


@dataclass(frozen=True)
class UnitJob:
    """A unit with its run, its records' folder and its supervisor."""

    folder: ReproductionFolder
    unit: Unit
    run: RunFolder
    supervisor: Supervisor

    def do(self) -> None:
        """Do the rest of the unit.

        Raises:
            Interrupted: if a stop was asked for; what was done so far is saved.
            SoulsGraphError: if a file of the run is damaged, or cannot be written.
        """
        with self.run.locked():
            stages = self._train(self.run.plan.stages())
            if self.unit.part == "skills":
                stages += self._adapt()
        self._record(stages)

    def _adapt(self) -> tuple[Stage, ...]:
        source = check_target(self.run, SHIFTED)
        planned = adaptation_stages(self.run, SHIFTED, ADAPTED, after=source)
        # A unit adapts once: what was adapted before an interruption is not another stage.
        return self._train(tuple(replace(stage, suffix="") for stage in planned))

    def _train(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        if self.folder.study.learner != "soulsgraph":
            self._train_with_stable_baselines(stages)
            return stages
        with Board(self.run.tensorboard, self.run.plan.skill_graph.order) as board:
            place = Workplace(self.run, Session(local=False), board, "silent", self.supervisor)
            train_stages(place, stages, Console(quiet=True))
        return stages

    def _train_with_stable_baselines(self, stages: tuple[Stage, ...]) -> None:
        # Imported here: it takes seconds, and only a comparison needs it.
        from soulsgraph.reproduction.stable_baselines import train_with_stable_baselines

        for stage in stages:
            if finished_versions(self.run, stage):
                continue
            progress = self.supervisor.follow(stage.name, stage.budget)

            def go_on(steps: int) -> bool:
                progress.update(steps)  # noqa: B023 - called within this round of the loop only
                return not self.supervisor.stop_requested()

            train_with_stable_baselines(self.run, stage, go_on)

    def _record(self, stages: tuple[Stage, ...]) -> None:
        run, unit, folder, episodes = self.run, self.unit, self.folder, self.run.plan.episodes
        skills = unit.part == "skills"
        folder.record(
            unit,
            "learning",
            lambda: {"curves": curve_rows(run, unit, stages), "training": training_rows(run, unit, stages)},
        )
        rows = len(evaluated_settings(run, unit))
        folder.record(
            unit, "rows", lambda: {"rows": evaluate_settings(run, unit, self._following("table", rows * episodes))}
        )
        if unit.part == "end_to_end_long":
            return
        measure, tasks = (measure_skills, _SKILL_MEASURES) if skills else (measure_baseline, _BASELINE_MEASURES)
        folder.record(
            unit,
            "measures",
            lambda: {
                "measures": [
                    {"seed": unit.seed, **row} for row in measure(run, self._following("measures", tasks * episodes))
                ]
            },
        )

    def _following(self, name: str, total: int) -> OnFinished:
        return follow_episodes(self.supervisor, name, total)


def follow_episodes(supervisor: Supervisor, name: str, total: int) -> OnFinished:
    """Return a callback that reports episodes to the supervisor and raises `Interrupted` once a stop is requested."""
    progress, done = supervisor.follow(name, total), 0

    def on_finished(count: int) -> None:
        nonlocal done
        done += count
        progress.update(done)
        if supervisor.stop_requested():
            raise Interrupted("stopped during the evaluation; it is done anew.")

    return on_finished
