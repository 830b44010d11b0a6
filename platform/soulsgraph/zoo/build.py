"""Train every agent of the zoo anew, evaluate it, and put it into the package."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from soulsgraph.results.files import source_commit
from soulsgraph.runs.lineage import branch, finished_versions
from soulsgraph.runs.progress import Board, Display
from soulsgraph.runs.run_folder import RunFolder, RunFolderError
from soulsgraph.runs.train import Workplace, train_stages
from soulsgraph.runs.worker_process import WorkerProcess
from soulsgraph.zoo import plan_of
from soulsgraph.zoo.card import CARD, EPISODES, PAGE, AgentCard, TrainingOrigin, card_page, make_card
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.config import Where, load, to_table
from soulsgraph_envs.core.files import whole_folder, write_json, write_text

_ORIGIN = "origin.json"


@dataclass(frozen=True)
class Workshop:
    """Where agents are made: each is trained in a run folder below `runs`, and put into a folder below `agents`."""

    runs: Path
    agents: Path
    session: Session
    worker: WorkerProcess
    console: Console
    display: Display
    episodes: int = EPISODES
    #: Of every stage's budget; agents of the package are trained with the whole of it.
    scale: float = 1.0

    def build(self, name: str) -> AgentCard:
        """Train an agent, from where an earlier call stopped, evaluate it, and put it in the place of an older one.

        Raises:
            RunFolderError: if an unfinished run was begun with another commit, or the folder holds another run.
            Interruption: if a stop was asked for; the next call goes on.
            WriteError: if a folder cannot be written.
        """
        run = self._run(name)
        with run.locked():
            origin = _origin(run)
            with Board(run.tensorboard, run.plan.skill_graph.order) as board:
                place = Workplace(run, self.session, board, self.display, worker=self.worker)
                train_stages(place, run.plan.stages(), self.console)
            card = make_card(name, run, origin, self.episodes)
            self._publish(run, card)
        return card

    def _run(self, name: str) -> RunFolder:
        path, plan = self.runs / name, replace(plan_of(name), scale=self.scale)
        if not (path / RunFolder.plan_file).exists():
            return RunFolder.create(path, plan)
        run = RunFolder.open(path)
        if run.plan != plan:
            raise RunFolderError(path, f"a run by the plan of {name}", "one by another plan", "remove the folder")
        return run

    def _publish(self, run: RunFolder, card: AgentCard) -> None:
        with whole_folder(self.agents / card.name, replace=True) as temporary:
            temporary.rmdir()
            branch(run, temporary, run.plan.scenario)
            write_json(temporary / CARD, to_table(card))
            write_text(temporary / PAGE, card_page(card))


def _origin(run: RunFolder) -> TrainingOrigin:
    """Return what the run is trained with, noted when it was begun."""
    file = run.path / _ORIGIN
    if not file.exists():
        origin = TrainingOrigin.now()
        write_json(file, to_table(origin))
        return origin
    origin = load(TrainingOrigin, Where(file, remedy="remove the folder and build the agent again", saved=True))
    finished = all(finished_versions(run, stage) for stage in run.plan.stages())
    if not finished and origin.commit != source_commit():
        remedy = "go on with that commit, or remove the folder"
        raise RunFolderError(run.path, f"commit {origin.commit}, by which it was begun", str(source_commit()), remedy)
    return origin
