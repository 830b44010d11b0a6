"""What the Python interface returns: policies that act, results of evaluations, fights as films and pages.

Each prints what a person reads, in a terminal as text and in a notebook as HTML.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.console import Console, RenderableType

from soulsgraph.pages import data_uri
from soulsgraph.pages import table as html_table
from soulsgraph.results.statistics import Interval
from soulsgraph.results.tables import WinRateTable, episode_rows
from soulsgraph.runs.evaluate import Evaluation
from soulsgraph_envs.core.config import AnyPath, check_arguments
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import check_writable, temporary_folder
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.state import STATE_SIZE
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork

if TYPE_CHECKING:
    from soulsgraph.watch.watching import Fight

#: A skill's choice: one action, or one a row.
Chosen = int | npt.NDArray[np.int64]
_TEXT_WIDTH, _PAGE_HEIGHT = 120, 760


def frame_of(rows: Any) -> Any:
    """Return rows, or a table of Arrow's, as a data frame of pandas.

    Raises:
        SoulsGraphError: if pandas is not installed.
    """
    check_extra("a data frame", "train")
    import pandas as pd

    return pd.DataFrame(rows) if isinstance(rows, list) else rows.to_pandas(use_threads=False)


def as_text(*parts: RenderableType) -> str:
    """Return tables and lines as a terminal shows them."""
    console = Console(file=io.StringIO(), width=_TEXT_WIDTH, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part, soft_wrap=isinstance(part, str))
    return "\n".join(line.rstrip() for line in capture.get().strip("\n").splitlines())


def _rows(values: npt.ArrayLike, size: int, expected: str, remedy: str) -> npt.NDArray[np.float32]:
    """Return an observation (size,) or several (n, size); raises SoulsGraphError for anything else."""
    try:
        with np.errstate(over="ignore"):
            rows = np.asarray(values, np.float32)
    except (TypeError, ValueError):
        raise SoulsGraphError(f"{expected}, found {shown(values)}", remedy) from None
    if rows.ndim not in (1, 2) or rows.shape[-1] != size:
        raise SoulsGraphError(f"{expected}, found an array of shape {rows.shape}", remedy)
    if not np.isfinite(rows).all():
        raise SoulsGraphError(f"{expected}, found {shown(float(rows[~np.isfinite(rows)][0]))}", remedy)
    return rows


@dataclass(frozen=True)
class SkillPolicy:
    """One trained skill as it plays: Q-values and the greedy action of what it observes.

    Example:
        policy = soulsgraph.load("iudex-phase1-best-0").skills["dodge"]
        policy.q(observation)  # an array with a value for each of policy.actions
    """

    skill: Skill
    network: FrozenNetwork
    version: int

    @property
    def name(self) -> str:
        """The skill's name."""
        return self.skill.name

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions, in the order of the Q-values."""
        return tuple(action.name for action in self.skill.actions)

    @property
    def observed(self) -> tuple[str, ...]:
        """The names of the values of an observation, in their order."""
        return self.skill.observation.names

    def q(self, observation: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return a Q-value for each action of an observation as the skill's environment has it; of several a row each.

        Raises:
            SoulsGraphError: for an observation of another size.
        """
        rows = _rows(
            observation,
            len(self.observed),
            f"skill {self.name}: expected an observation of {len(self.observed)} finite values, or several as rows",
            "make the environment by the run's `make`",
        )
        values = self.network.values_of(np.atleast_2d(rows))
        return values if rows.ndim == 2 else values[0]

    def act(self, observation: npt.ArrayLike) -> Chosen:
        """Return the action of the greatest Q-value by its number, of several observations one each; raises as `q`."""
        values = self.q(observation)
        return values.argmax(axis=-1) if values.ndim == 2 else int(values.argmax())

    def __repr__(self) -> str:
        return f"{self.name} v{self.version}: {len(self.observed)} observed values -> {', '.join(self.actions)}"


class TrainedAgent:
    """The skills of a run as they play in a scenario.

    Example:
        agent = soulsgraph.load("iudex-phase1-best-0").agent()
        agent.act(state)  # {"camera": 2, "lock_on": 0, "movement": 4, ...}
    """

    def __init__(self, name: str, agent: Agent, versions: Mapping[str, int]) -> None:
        self.name, self.agent = name, agent
        found = {skill.name: agent.networks.get(skill.name) for skill in agent.skills}
        self.skills = {
            skill.name: SkillPolicy(skill, network, versions[skill.name])
            for skill in agent.skills
            if isinstance(network := found[skill.name], FrozenNetwork)
        }

    @property
    def scenario(self) -> Scenario:
        """The fight that it plays in."""
        return self.agent.scenario

    def observe(self, state: npt.ArrayLike) -> dict[str, npt.NDArray[np.float32]]:
        """Return what each skill observes of a State row, of 25 values, or of several rows.

        Raises:
            SoulsGraphError: for an array of another shape.
        """
        rows = _rows(
            state,
            STATE_SIZE,
            f"{self.name}: expected observations by skill, or a State row of {STATE_SIZE} values, all finite",
            "what one skill observes goes to `skills[NAME].act`",
        )
        seen = {name: one.skill.observation(np.atleast_2d(rows), self.scenario) for name, one in self.skills.items()}
        return {name: values if rows.ndim == 2 else values[0] for name, values in seen.items()}

    def act(self, observation: npt.ArrayLike | Mapping[str, npt.ArrayLike]) -> dict[str, Chosen]:
        """Return the greedy action of each skill by its number: of all in a State row, or of those that observed.

        `observation` is a State row of 25 values, several rows, or what some skills observe by their names, as RLlib's
        environment returns it.

        Raises:
            UnknownNameError: for an observation of a skill that it has not.
            SoulsGraphError: for an array of another shape.
        """
        seen = observation if isinstance(observation, Mapping) else self.observe(observation)
        for name in seen:
            if name not in self.skills:
                raise UnknownNameError(f"skill of {self.name}", name, self.skills)
        return {name: self.skills[name].act(values) for name, values in seen.items()}

    def __repr__(self) -> str:
        lines = [f"{self.name} in {self.scenario.name}, start {self.scenario.start}"]
        return "\n  ".join([*lines, *map(repr, self.skills.values())])


class FightResults:
    """The fights of an evaluation: how many were won, and every one as a row.

    Example:
        results = soulsgraph.load("iudex-phase1-best-0").evaluate(episodes=400)
        results.win_rate, results.interval  # shares, with Wilson's 95 % interval
    """

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation

    @property
    def win_rate(self) -> float:
        """Share of the fights won."""
        return self.evaluation.win_rate.rate

    @property
    def interval(self) -> Interval:
        """Wilson's 95 % interval of the win rate, as shares."""
        return self.evaluation.win_rate.interval

    @cached_property
    def frame(self) -> Any:
        """A data frame with a row a fight: seed, won, died, length in decisions, seconds, HP left, return, terms."""
        one = self.evaluation
        return frame_of(episode_rows(one.win_rate.setting, one.episodes, one.terms, one.origins))

    @check_arguments
    def save(self, folder: AnyPath) -> Path:
        """Write `evaluation.json`, `evaluation.parquet`, `episodes.parquet`; return the folder; raises WriteError."""
        check_extra("results in files", "data")
        check_writable(path := Path(folder))
        self.evaluation.save(path)
        return path

    @property
    def _means(self) -> str:
        means = self.evaluation.means
        return (
            f"mean return {means['mean_return']:.2f}, mean length {means['mean_length']:.0f} decisions, "
            f"{means['mean_seconds']:.1f} s"
        )

    def __repr__(self) -> str:
        table = WinRateTable("", (self.evaluation.win_rate,)).to_rich()
        return as_text(*self.evaluation.lines(), table, self._means)

    def _repr_html_(self) -> str:
        setting, wins, rate, interval, _ = self.evaluation.win_rate.cells
        shown_table = html_table(("setting", "wins", "win rate", "95 % interval"), [(setting, wins, rate, interval)])
        return "".join(
            [shown_table, *(f"<div>{escape(line)}</div>" for line in (*self.evaluation.lines(), self._means))]
        )


class FightFilm:
    """A fight of an agent, tick by tick, with what each skill observed, valued and chose.

    A notebook shows it as a moving picture; `save` writes it, `show` opens a window.
    """

    def __init__(self, fight: Fight, only_fight: bool = False) -> None:
        self.fight, self._only_fight = fight, only_fight

    @property
    def outcome(self) -> str:
        """How it ended: won, died, time over, or cut."""
        return self.fight.outcome

    @property
    def seconds(self) -> float:
        """How long it took, in seconds of the game."""
        return self.fight.seconds

    @check_arguments
    def save(self, file: AnyPath) -> Path:
        """Write a GIF, MP4 or PNG (of the last moment) by the file's ending, and return its path.

        Raises:
            UnknownNameError: for another ending.
            SoulsGraphError: if an MP4 needs what is not installed.
            WriteError: if it cannot be written.
        """
        from soulsgraph.watch.watching import WRITERS, frames

        path = Path(file)
        if (kind := path.suffix[1:].lower()) not in WRITERS:
            raise UnknownNameError(f"ending of {path}", kind, WRITERS)
        check_writable(path.parent)
        WRITERS[kind](path, frames((self.fight,), self._only_fight))
        return path

    def show(self) -> None:
        """Show it in a window at the speed of the game.

        Raises:
            GameError: if pygame is not installed, or there is no display.
        """
        from soulsgraph.watch.watching import FIGHT_SIZE, SIZE, FightWindow

        window = FightWindow(FIGHT_SIZE if self._only_fight else SIZE)
        try:
            window.play((self.fight,), self._only_fight)
        finally:
            window.close()

    @cached_property
    def _gif(self) -> bytes:
        with temporary_folder("soulsgraph-film-") as folder:
            return self.save(folder / "fight.gif").read_bytes()

    def __repr__(self) -> str:
        return str(self.fight)

    def _repr_html_(self) -> str:
        return f'<div>{escape(str(self))}</div><img src="{data_uri("image/gif", self._gif)}" alt="a fight">'


class FightPage:
    """The page of a fight, tick by tick: one HTML file that needs no network; a notebook shows it inside."""

    def __init__(self, file: Path, title: str) -> None:
        self.file, self.title = file, title

    def __repr__(self) -> str:
        return f"{self.title}: {self.file}"

    def _repr_html_(self) -> str:
        text = escape(self.file.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{text}" style="width: 100%; height: {_PAGE_HEIGHT}px; border: 0"></iframe>'
