"""Do a unit of a continual study: go through the tasks by one method and one seed, and evaluate after each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from soulsgraph.continual.choosing import KNOWN_FIGHTS, Fingerprint, choose, fingerprint
from soulsgraph.continual.files import CHOOSING, TABLES
from soulsgraph.continual.methods import METHODS
from soulsgraph.continual.methods.importance import dormant_share
from soulsgraph.continual.methods.learning import EndedStage, PlayedFights, TaskWorld, Versions, learn, versions_digest
from soulsgraph.continual.methods.method import Method, plain, whole
from soulsgraph.continual.selecting import MOST_DECISIONS, MOST_HOMES, SELECTED_PART, Home, Selection, select
from soulsgraph.continual.study import FIRST, HELD_OUT_AFTER, ContinualFolder, ContinualUnit, shares
from soulsgraph.runs.evaluate import EVALUATION_SEED, evaluation_seeds, play, play_variants, with_variants
from soulsgraph.runs.progress import Interruption, Supervisor
from soulsgraph.runs.study_folder import Tables
from soulsgraph_envs.continual.sequences import held_out
from soulsgraph_envs.core.files import remove_folder, whole_folder
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_policies.learning.checkpoint import read_training_state, write_training_state
from soulsgraph_policies.learning.sampler import Transitions

#: Fights of a point of a learning curve, and their seed.
POINT_FIGHTS, POINT_SEED = 20, 3_000_000
#: Rows of the first task's replay that methods may keep some of.
_FIRST_ROWS = 10_000
_STREAM = 60
#: Decisions on a held-out boss.
HELD_OUT_DECISIONS = 10_000
#: The last of the states, and the one before it: where the last is damaged the unit goes on from that.
_KEPT = 2
#: The attributes of a unit that a state holds, beside its method.
_STATE = ("done", "rows", "own", "known", "learned_at", "progress")
Rows = list[dict[str, Any]]


def do_unit(folder: ContinualFolder, unit: ContinualUnit, supervisor: Supervisor) -> Tables:
    """Do a unit, and return its tables; that of a first task leaves the state that it led to, and no rows."""
    run = UnitRun(folder, unit, supervisor)
    return run.learn_first() if unit.method == FIRST else run.run()


def stage_seed(seed: int, position: int, skill: int) -> int:
    """Return the seed of a skill's stage in a task, the same for every method."""
    return int(derive_seeds(seed, _STREAM, position, skill)[0] >> 33)


@dataclass
class FirstTask(Method):
    """Learn the first task for all methods that learn it alike, and keep decisions of which they may keep some."""

    name, source, shares_first = FIRST, "", False

    rows: dict[str, Transitions] = field(default_factory=dict)

    def end_stage(self, skill: str, ended: EndedStage) -> None:
        """Keep decisions."""
        self.rows[skill] = ended.rows(_FIRST_ROWS, np.random.default_rng((self.seed, _STREAM, *skill.encode())))


def wins_of(world: TaskWorld, versions: Versions, seed: int, fights: int) -> int:
    """Return how many fights of a task versions win."""
    return int(play(world.agent(versions), evaluation_seeds(seed, fights)).won.sum())


@dataclass
class TaskProgress:
    """How far a task has come: its selection, and the stages that are `left`, as decisions by skill.

    `points` are the rows of its curve so far, `cpu_s` the CPU seconds that all of it took.
    """

    points: Rows
    adapted: Sequence[str]
    selection_decisions: int
    left: dict[str, int]
    cpu_s: float = 0.0


class UnitRun:
    """One method and seed on its way through the tasks; a state is saved after every stage, selection and task.

    `rows` has the records by table so far, `done` the number of tasks that have ended, `progress` the one that has not.
    """

    def __init__(self, folder: ContinualFolder, unit: ContinualUnit, supervisor: Supervisor) -> None:
        self.folder, self.unit, self.supervisor = folder, unit, supervisor
        self.study, kind = folder.plan, FirstTask if unit.method == FIRST else METHODS[unit.method]
        self.method = kind(self.study.options, len(self.study.tasks.tasks), unit.seed)
        self.worlds = self.study.worlds(self.method.planned(self.study.plan(unit.seed)))
        self.done, self._counted_from_s = 0, time.process_time()
        self.progress: TaskProgress | None = None
        #: The position of the task that each skill's newest version learned in.
        self.learned_at: dict[str, int] = {}
        self.rows: dict[str, Rows] = {name: [] for name in TABLES}
        #: By what the tasks so far were played when each ended: to put single skills back, nothing that methods keep.
        self.own: list[Versions] = []
        #: How the boss of each task so far moved when the task ended.
        self.known: list[Fingerprint] = []
        self._fights, self._homes_played = PlayedFights(), PlayedFights(MOST_HOMES)

    def learn_first(self) -> Tables:
        """Learn the first task, if that is not done; there are no rows of it alone."""
        self._take_up()
        for world in self.worlds[self.done : 1]:
            self._learn(world)
            self._save()
        return {}

    def run(self) -> Tables:
        """Go through the tasks that are left, and return the tables.

        Raises:
            Interruption: if a stop was asked for; the state after the last stage is saved.
        """
        if not self._take_up():
            # The agent that learned nothing: in every task, and how well it learns held-out bosses.
            self.rows["evaluations"] += [self._row(world, self._won_by(world, {})) for world in self.worlds]
            self.rows["plasticity"] += self._plasticity()
        for world in self.worlds[self.done :]:
            self._learn(world)
            self._evaluate()
            self._save()
            if self.done < len(self.worlds):
                self._stop_if_requested(f"task {self.done} of {len(self.worlds)}")
        of: dict[str, Any] = {"method": self.unit.method, "seed": self.unit.seed}
        return {name: [of | row for row in rows] for name, rows in self.rows.items()}

    def _take_up(self) -> bool:
        """Go on from the newest state; return whether there is one."""
        if not (saved := self.folder.states(self.unit)):
            return False
        state = whole(read_training_state(saved[-1]))
        method = state.pop("method")
        vars(self).update(state)
        if state["progress"]:
            self.progress = TaskProgress(**state["progress"])
            self.method.before_task(self.worlds[self.done])
        self.method.restore(method)
        return True

    def _save(self) -> None:
        progress, name = self.progress, f"task-{self.done:04d}"
        state = {"method": self.method.state(), **{one: getattr(self, one) for one in _STATE}}
        if progress:
            name += f"-{len(progress.adapted) - len(progress.left):02d}"
            state["progress"] = vars(progress)
        with whole_folder(self.folder.unit_path(self.unit) / name, replace=True) as temporary:
            write_training_state(temporary, plain(state))
        for path in self.folder.states(self.unit)[:-_KEPT]:
            remove_folder(path)

    @property
    def _cpu_s(self) -> float:
        """CPU seconds of the task so far: what is played to be shown is no part of what a method takes."""
        return time.process_time() - self._counted_from_s

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        since_s = time.process_time()
        try:
            yield
        finally:
            self._counted_from_s += time.process_time() - since_s

    def _save_within(self, world: TaskWorld, progress: TaskProgress) -> None:
        """Save how far a task has come."""
        progress.cpu_s = self._cpu_s
        with self._uncounted():
            self._save()
        self._stop_if_requested(f"a stage of task {world.position + 1} of {len(self.worlds)}")

    def _stop_if_requested(self, ended: str) -> None:
        if self.supervisor.stop_requested():
            raise Interruption(f"stopped after {ended}")

    def _learn(self, world: TaskWorld) -> None:
        method = self.method
        self._counted_from_s = time.process_time() - (self.progress.cpu_s if self.progress else 0.0)
        if self.progress is None:
            method.before_task(world)
        shared = world.position == 0 and method.shares_first
        costs = self._take_first(world) if shared else self._learn_task(world)
        method.after_task(world)
        costs["cpu_s"] = costs.get("cpu_s", 0.0) + self._cpu_s
        self.rows["costs"].append({"task": world.position + 1, **costs, "bytes": method.size_bytes})
        self.own.append(dict(method.playing(world.position)))
        if self._chooses:
            # Whoever learned in a task has seen its boss: this is charged to nobody.
            self.known.append(fingerprint(world, self.own[-1], KNOWN_FIGHTS)[0])
        self.done, self.progress = world.position + 1, None

    def _take_first(self, world: TaskWorld) -> dict[str, Any]:
        state = whole(read_training_state(self.folder.first(self.unit.seed)))
        for skill, version in state["method"]["newest"].items():
            numbers = world.plan.hyperparameters(world.plan.stage(skill))
            rows = partial(_sampled, state["method"]["rows"][skill])
            self.method.end_stage(skill, EndedStage(skill, version, numbers, rows))
            self.method.take(skill, version)
            self.learned_at[skill] = world.position
        self.rows["evaluations"] += state["rows"]["evaluations"]
        (costs,) = state["rows"]["costs"]
        return {name: costs[name] for name in ("decisions", "selection_decisions", "ticks", "cpu_s")}

    def _learn_task(self, world: TaskWorld) -> dict[str, Any]:
        method, order = self.method, world.plan.skill_graph.order
        progress = self.progress or self._begin_task(world)
        for skill, share in [*progress.left.items()]:
            seed, before = stage_seed(self.unit.seed, world.position, order.index(skill)), dict(method.newest)
            learned = learn(self.supervisor, world, skill, before, method.start(skill), share, seed, method)
            with self._uncounted():
                variants = [{skill: weights} for *_, weights in learned.points]
                agent = with_variants(world.agent(before), world.clips[skill], variants)
                seeds = evaluation_seeds(POINT_SEED, POINT_FIGHTS)
                won = play_variants(agent, seeds, len(variants)).won.reshape(len(variants), -1)
            last = progress.points[-1]
            for (step, ticks, _), wins in zip(learned.points, won.sum(axis=1).tolist(), strict=True):
                spent = {"decisions": last["decisions"] + step, "ticks": last["ticks"] + ticks}
                progress.points.append(self._row(world, {"wins": wins, "episodes": POINT_FIGHTS}, **spent))
            method.take(skill, learned.version)
            self.learned_at[skill] = world.position
            del progress.left[skill]
            self._save_within(world, progress)
        # A row of 0 decisions is one between tasks; the agent before any decision is there as one of the curve as well.
        self.rows["evaluations"] += [point | {"decisions": max(point["decisions"], 1)} for point in progress.points]
        return {
            "decisions": progress.points[-1]["decisions"],
            "selection_decisions": progress.selection_decisions,
            "ticks": progress.points[-1]["ticks"],
            "adapted": "+".join(progress.adapted),
        }

    def _begin_task(self, world: TaskWorld) -> TaskProgress:
        """Select the skills of a task, and share out what that left of its budget."""
        counts, versions = {"wins": 0, "episodes": POINT_FIGHTS}, self.method.beginning()
        # An agent without versions wins nothing.
        if versions:
            with self._uncounted():
                counts = self._won_by(world, versions, POINT_SEED, POINT_FIGHTS)
        selection = self._selected(world)
        skills, decisions, begin = selection.skills, selection.decisions, self._row(world, counts, ticks=0)
        whole, points = any(self.method.start(skill) is None for skill in skills), [begin]
        if decisions:
            points.append({**begin, "decisions": decisions, "ticks": selection.ticks})
        left = shares(skills, max(self.study.budget(world.position) - decisions, 1), whole)
        progress = self.progress = TaskProgress(points, skills, decisions, left)
        if decisions:
            self._save_within(world, progress)
        return progress

    def _selected(self, world: TaskWorld) -> Selection:
        order, method = world.plan.skill_graph.order, self.method
        if not method.newest or not method.selects:
            return Selection(order)
        if not self.study.selects:
            return Selection(self.study.named(order))
        most = min(MOST_DECISIONS, self.study.budget(world.position) // SELECTED_PART)
        homes = {skill: self._homes(skill) for skill in order}
        selection = select(homes, world, method.newest, self._homes_played, most)
        for skill, home in selection.starts.items():
            method.take(skill, home.versions[skill])
            self.learned_at[skill] = home.world.position
        return selection

    def _homes(self, skill: str) -> list[Home]:
        """Return where a skill's newest version learned and, where they are kept, its others, the latest first."""
        method = self.method
        newest = Home(self.worlds[method.home(skill, self.learned_at[skill])], method.newest)
        if not method.keeps_versions:
            return [newest]
        others = dict[bytes, Home]()
        for world, own in zip(self.worlds, self.own, strict=False):
            others.setdefault(versions_digest({skill: own[skill]}), Home(world, own))
        others.pop(versions_digest({skill: method.newest[skill]}), None)
        return [newest, *reversed(others.values())]

    def _evaluate(self) -> None:
        """Evaluate the last task and the next, now and then and at the end all tasks so far."""
        last, count = self.done == len(self.worlds), len(self.worlds)
        whole = last or self.done % self.study.rows_every == 0
        positions = {*range(0 if whole else self.done - 1, min(self.done + 1, count))}
        if self.method.isolated:
            positions = {self.done - 1}
        for position in sorted(positions):
            world = self.worlds[position]
            versions, chosen = self._playing(world)
            self.rows["evaluations"].append(self._row(world, self._won_by(world, versions), **{CHOOSING: chosen}))
        self.rows["dormant"] += self._dormant()
        self.rows["plasticity"] += self._plasticity()
        if last and not self.method.isolated:
            self._put_back()

    def _row(self, world: TaskWorld, counts: dict[str, int], **more: int) -> dict[str, Any]:
        """Return a row of evaluations: fights of a task that were won now."""
        task = {"task": world.position + 1, "task_name": world.name}
        return {"after": self.done, "decisions": 0, **task, **counts, **more}

    @property
    def _chooses(self) -> bool:
        """Whether the versions that play a task are chosen: there are several, and nobody says which task it is."""
        return self.method.has_versions and not self.method.isolated

    def _playing(self, world: TaskWorld) -> tuple[Versions, int]:
        if not self._chooses:
            return self.method.playing(world.position), 0
        by_task = [self.method.playing(position) for position in range(self.done)]
        task, decisions = choose(world, by_task, self.known, self._fights)
        return by_task[task], decisions

    def _won_by(
        self, world: TaskWorld, versions: Versions, seed: int = EVALUATION_SEED, fights: int = 0
    ) -> dict[str, int]:
        """Return how many fights of a task versions win, of how many: those of an evaluation if not said."""
        fights = fights or self.study.episodes
        return {"wins": self._fights.of(wins_of, world, versions, seed, fights), "episodes": fights}

    def _put_back(self) -> None:
        """Play every task with one skill's version of then put back, all else as it plays at the end."""
        for world, then in zip(self.worlds, self.own, strict=True):
            now, _ = self._playing(world)
            for skill in then:
                if versions_digest({skill: then[skill]}) == versions_digest({skill: now[skill]}):
                    continue
                counts = self._won_by(world, {**now, skill: then[skill]})
                self.rows["skills"].append({"task": world.position + 1, "skill": skill, **counts})

    def _plasticity(self) -> Rows:
        """Return what is won on held-out bosses after `HELD_OUT_DECISIONS`, from where a new task would begin.

        It is plain fine-tuning of the method's weights: how well these still learn, without its own constraints. Before
        the first task every skill learns from nothing. Nothing is returned between the moments when it is measured.
        """
        begin, family, found = self.method.beginning(), self.study.tasks.family, []
        asked = self.study.held_out and family and self.done in HELD_OUT_AFTER and (begin or not self.done)
        for boss in held_out(family, self.study.held_out) if asked else ():
            world = replace(self.worlds[max(self.done - 1, 0)], name=boss.scenario)
            versions, order = dict(begin), world.plan.skill_graph.order
            skills = order if self.study.selects or not begin else self.study.named(order)
            budget = max(round(HELD_OUT_DECISIONS * self.study.scale), 1)
            for skill, share in shares(skills, budget, not begin).items():
                seed = stage_seed(self.unit.seed, len(self.worlds), order.index(skill))
                learned = learn(self.supervisor, world, skill, versions, versions.get(skill), share, seed)
                versions[skill] = learned.version
            found.append({"after": self.done, "boss": boss.scenario, **self._won_by(world, versions)})
        return found

    def _dormant(self) -> Rows:
        """Return the share of dormant units of each skill, in fights of the task that has just ended."""
        world, versions = self.worlds[self.done - 1], self.own[-1]
        played = play(world.agent(versions), evaluation_seeds(POINT_SEED, POINT_FIGHTS), keep_decisions=True)
        rows = played.taken.rows
        found = []
        for skill in world.skills:
            observed = skill.observation(rows, world.scenario)
            layers = dormant_share(versions[skill.name].weights, observed, clip=world.clips[skill.name])
            found.append({"after": self.done, "skill": skill.name, "share": float(np.mean(layers))})
        return found


def _sampled(kept: Transitions, count: int, random: np.random.Generator) -> Transitions:
    """Return some of kept decisions."""
    if count >= len(kept):
        return kept
    rows = np.sort(random.choice(len(kept), count, replace=False))
    return Transitions(**{name: values[rows] for name, values in vars(kept).items()})
