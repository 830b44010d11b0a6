"""The card of an agent of the zoo: what it reaches, where it comes from, and digests of what it was trained with.

As Markdown it has the header of a model hub; a table shows all agents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from soulsgraph.results.origin import describe_run
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import markdown_table
from soulsgraph.runs.evaluate import Setting, evaluate
from soulsgraph.runs.plan import Plan, scenario_digest
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.zoo import AGENTS, open_agent
from soulsgraph_envs.core.config import Between, Where, digest_of, read_file, validate
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import make_skill

#: Seed of the evaluation episodes that are used for nothing but the cards of the zoo, and their number.
ZOO_SEED, EPISODES = 7_000_000, 1_000
#: Files of an agent beside its run.
CARD, PAGE = "card.json", "README.md"
FORMAT, FORMAT_VERSION = "soulsgraph agent", 1
_Share = Annotated[float, Between(0.0, 1.0)]


@dataclass(frozen=True)
class TrainingOrigin:
    """What an agent was trained with, as `describe_run` has it, and when it was begun (UTC, ISO 8601)."""

    commit: str | None
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    vector_bits: int
    load: float
    created: str

    @classmethod
    def now(cls) -> TrainingOrigin:
        """Return the origin of what is trained here and now."""
        return cls(**describe_run(), created=datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def processor(self) -> str:
        """The kind of processor, as far as it is known."""
        return f"{self.machine.get('processor', 'unknown')}, vectors of {self.vector_bits} bits"


@dataclass(frozen=True)
class EvaluationScore:
    """Greedy play on the evaluation episodes of `seed`: `won` has one bit an episode, in hexadecimal digits.

    `low` and `high` are the ends of Wilson's 95 % interval of the rate.
    """

    seed: int
    episodes: Annotated[int, Between(1, 1_000_000)]
    wins: int
    rate: _Share
    low: _Share
    high: _Share
    won: str

    @classmethod
    def of(cls, won: npt.NDArray[np.bool_], seed: int) -> EvaluationScore:
        """Return what an agent reached, whether it won each episode, (episodes,)."""
        rate = WinRate.of(won)
        bits = np.packbits(won).tobytes().hex()
        return cls(seed, len(won), rate.wins, rate.rate, *rate.interval, bits)

    def first(self, episodes: int) -> EvaluationScore:
        """Return what it reached in the first episodes alone."""
        return EvaluationScore.of(self.outcomes[:episodes], self.seed)

    @property
    def outcomes(self) -> npt.NDArray[np.bool_]:
        """Whether each episode was won, (episodes,)."""
        bits = np.frombuffer(bytes.fromhex(self.won), np.uint8)
        return np.unpackbits(bits, count=self.episodes).astype(np.bool_)


@dataclass(frozen=True)
class Ancestor:
    """A version of a skill: what of its card says how it came about."""

    skill: str
    version: int
    digest: str
    scenario: str
    seed: int
    budget: int
    upstream: tuple[str, ...]


@dataclass(frozen=True)
class Digests:
    """SHA-256 digests of what an agent was trained with: the fight's data, the learner, each skill's inputs."""

    scenario: str
    preset: str
    skills: Mapping[str, str]

    @classmethod
    def of(cls, plan: Plan) -> Digests:
        """Return the digests as this version of the package has them."""
        numbers = [asdict(plan.hyperparameters(part)) for stage in plan.stages() for part in stage.parts]
        learner = [asdict(plan.method), *numbers]
        skills = {name: _skill_digest(name, plan) for name in plan.skill_graph.order}
        return cls(scenario_digest(plan.scenario), digest_of(learner), skills)

    def differing(self, other: Digests) -> tuple[str, ...]:
        """Return what differs between two: scenario, preset, or skills by name."""
        names = [name for name in ("scenario", "preset") if getattr(self, name) != getattr(other, name)]
        names += [name for name in {**self.skills, **other.skills} if self.skills.get(name) != other.skills.get(name)]
        return tuple(names)


def _skill_digest(name: str, plan: Plan) -> str:
    """Return a digest of what a skill observes and does in a fight."""
    skill = make_skill(name, plan.options)
    bound = skill.observation.bind(load_scenario(plan.scenario))
    observed = [skill.observation.names, bound.offset.tolist(), bound.scale.tolist()]
    return digest_of([observed, [asdict(action) for action in skill.actions]])


@dataclass(frozen=True)
class AgentCard:
    """The card of an agent: `card.json` in its folder."""

    format: str
    format_version: int
    name: str
    scenario: str
    preset: str
    graph: str
    seed: int
    #: Decisions that it was trained for in all.
    budget: int
    reached: EvaluationScore
    origin: TrainingOrigin
    digests: Digests
    lineage: tuple[Ancestor, ...]

    @property
    def win_rate(self) -> WinRate:
        """The agent's row of a table of win rates."""
        return WinRate(self.reached.wins, self.reached.episodes, self.name)


def play_again(run: RunFolder, seed: int, episodes: int) -> EvaluationScore:
    """Play the evaluation episodes of a card, greedily, and return what the agent reaches."""
    setting = Setting(run.plan.scenario, run.plan.scenario)
    return EvaluationScore.of(evaluate(run, setting, episodes, seed).episodes.won, seed)


def read_card(folder: Path) -> AgentCard:
    """Read the card of the agent in a folder.

    Raises:
        DataError: if it is missing, damaged, or of another format.
    """
    where = Where(folder / CARD, remedy="install the package again")
    values = read_file(where)
    found = (values.get("format"), values.get("format_version")) if isinstance(values, dict) else None
    where.demand(found == (FORMAT, FORMAT_VERSION), f"a card of format {FORMAT!r} {FORMAT_VERSION}", found)
    return validate(AgentCard, values, where)


#: Points that a rate may be from the card's on the same kind of processor.
MOST_POINTS = 1
VERIFIED_HEADINGS = ("agent", "card", "95 % interval", "played again", "other outcomes", "holds")


@dataclass(frozen=True)
class Verification:
    """An agent's card beside what it reaches now, in the same episodes.

    `same_processor` is whether the card comes from this kind of processor; `changed` names what the agent was
    trained with and this version of the package has otherwise.
    """

    name: str
    card: EvaluationScore
    found: EvaluationScore
    same_processor: bool
    changed: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the rate is within a point of the card's, on another kind of processor within the interval."""
        if self.same_processor:
            # In whole fights: the difference of two rates is rounded.
            return 100 * abs(self.found.wins - self.card.wins) <= MOST_POINTS * self.card.episodes
        return self.card.low <= self.found.rate <= self.card.high

    @property
    def differing(self) -> int:
        """Number of episodes that end otherwise than the card says."""
        return int((self.card.outcomes != self.found.outcomes).sum())

    @property
    def cells(self) -> tuple[str, ...]:
        """The agent's row as text, one cell a heading."""
        card, found = self.card, self.found
        rates = f"{100 * card.rate:.1f} %", f"{100 * card.low:.1f}-{100 * card.high:.1f} %", f"{100 * found.rate:.1f} %"
        verdict = "yes" if self.holds and not self.changed else "**no**"
        changed = f"; changed: {', '.join(self.changed)}" if self.changed else ""
        return (self.name, *rates, f"{self.differing} of {found.episodes}", verdict + changed)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values; rates are ratios."""
        said = {"holds": self.holds, "same_processor": self.same_processor, "changed": list(self.changed)}
        rates = {name: asdict(part) for name, part in (("card", self.card), ("found", self.found))}
        return {"agent": self.name, **said, "differing": self.differing, **rates}


def verify_agent(name: str, episodes: int | None = None) -> Verification:
    """Play the episodes of an agent's card again, by default all of them, else the first.

    Raises:
        UnknownNameError: if there is no agent of that name.
        SoulsGraphError: if it is damaged.
    """
    run = open_agent(name)
    card = read_card(AGENTS / name)
    stated = card.reached if episodes is None else card.reached.first(episodes)
    found = play_again(run, stated.seed, stated.episodes)
    same = TrainingOrigin.now().processor == card.origin.processor
    return Verification(name, stated, found, same, card.digests.differing(Digests.of(run.plan)))


HEADINGS = ("agent", "decisions", "wins", "win rate", "95 % interval")


def agent_row(card: AgentCard) -> tuple[str, ...]:
    """Return an agent's row of the table, one cell a heading."""
    _, wins, rate, interval, _ = card.win_rate.cells
    return (card.name, f"{card.budget:,}", wins, rate, interval)


def agents_table(cards: Iterable[AgentCard]) -> str:
    """Return the table of agents as Markdown."""
    return markdown_table(HEADINGS, ((f"`{first}`", *others) for first, *others in map(agent_row, cards)))
