"""What the Python interface returns: policies that act, results of evaluations, fights as films and pages.

Each prints what a person reads, in a terminal as text and in a notebook as HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.console import RenderableType

from soulsgraph.pages import data_uri
from soulsgraph.results.tables import Printed
from soulsgraph_envs.core.config import AnyPath, check_arguments
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.files import check_writable, temporary_folder
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.state import STATE_SIZE
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork

if TYPE_CHECKING:
    from soulsgraph.pages.fight_page import Search
    from soulsgraph.recordings.files import Recording
    from soulsgraph.watch.watching import Fight

#: A skill's choice: one action, or one a row.
Chosen = int | npt.NDArray[np.int64]
_PAGE_HEIGHT = 760


def _rows(values: npt.ArrayLike, size: int, expected: str, remedy: str) -> npt.NDArray[np.float32]:
    """Return an observation (size,) or several (n, size); raises SoulsGraphError for anything else."""
    with suppress(TypeError, ValueError), np.errstate(over="ignore"):
        rows = np.asarray(values, np.float32)
        if rows.ndim in (1, 2) and rows.shape[-1] == size and np.isfinite(rows).all():
            return rows
    raise SoulsGraphError(f"{expected}, found {shown(values)}", remedy)


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


def check_film(path: Path) -> None:
    """Check that a film can be written to a path; raises as `FightFilm.save`."""
    from soulsgraph.watch.watching import WRITERS, import_ffmpeg

    if (kind := path.suffix[1:].lower()) not in WRITERS:
        raise UnknownNameError(f"ending of {path}", kind, WRITERS)
    check_writable(path.parent)
    if kind == "mp4":
        import_ffmpeg()


def show_fights(shown: Iterable[tuple[Fight, ...]], beside: int, only_fight: bool) -> None:
    """Show fights, `beside` of them side by side, in a window until it is closed; raises as `FightFilm.show`."""
    from soulsgraph.watch.watching import FIGHT_SIZE, SIZE, FightWindow

    height, width = FIGHT_SIZE if only_fight else SIZE
    with closing(FightWindow((height, width * beside))) as window:
        window.say("making the first fight ready")
        for fights in shown:
            if not window.play(fights, only_fight):
                return


class FightFilm:
    """Fights of an agent, or of several beside each other, tick by tick, with what each skill observed and chose.

    A notebook shows it as a moving picture; `save` writes it, `show` opens a window.
    """

    def __init__(self, fights: list[tuple[Fight, ...]], only_fight: bool = False) -> None:
        self.fights, self._only_fight = fights, only_fight

    @property
    def fight(self) -> Fight:
        """The first fight."""
        return self.fights[0][0]

    @property
    def outcome(self) -> str:
        """How the first fight ended: won, died, time over, or cut."""
        return self.fight.outcome

    @property
    def seconds(self) -> float:
        """How long the first fight took, in seconds of the game."""
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

        check_film(path := Path(file))
        pictures = (picture for fights in self.fights for picture in frames(fights, self._only_fight))
        WRITERS[path.suffix[1:].lower()](path, pictures)
        return path

    def show(self) -> None:
        """Show it in a window at the speed of the game.

        Raises:
            GameError: if pygame is not installed, or there is no display.
        """
        show_fights(self.fights, len(self.fights[0]), self._only_fight)

    def to_dict(self) -> dict[str, Any]:
        """Return each fight's seed, players, end and length as plain values."""
        return {"fights": [fight.summary() for fights in self.fights for fight in fights]}

    @cached_property
    def _gif(self) -> bytes:
        with temporary_folder("soulsgraph-film-") as folder:
            return self.save(folder / "fight.gif").read_bytes()

    def __repr__(self) -> str:
        return "\n".join(str(fight) for fights in self.fights for fight in fights)

    def _repr_html_(self) -> str:
        return f'<div>{escape(repr(self))}</div><img src="{data_uri("image/gif", self._gif)}" alt="a fight">'


class FightPage(Printed):
    """The page of a fight, tick by tick: one HTML file that needs no network; a notebook shows it inside."""

    def __init__(self, file: Path, recording: Recording, search: Search) -> None:
        self.file, self._recording, self._search = file, recording, search

    def to_dict(self) -> dict[str, Any]:
        """Return the file, its size, the fight's length, and the last decision that mattered, as plain values."""
        found, plain = self._search.found, {"page": str(self.file), "bytes": self.file.stat().st_size}
        plain |= {"ticks": len(self._recording), "last_decision": None if found is None else found._asdict()}
        return plain | {"note": self._search.note}

    def to_rich(self) -> list[RenderableType]:
        """Return how the fight ended, and where its page is."""
        result, size = self._recording.header.result, self.file.stat().st_size
        return [f"{result.outcome} after {result.seconds:.1f} s; written: {self.file}, {size / 1e6:.2f} MB"]

    def _repr_html_(self) -> str:
        text = escape(self.file.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{text}" style="width: 100%; height: {_PAGE_HEIGHT}px; border: 0"></iframe>'
