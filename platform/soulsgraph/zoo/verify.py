"""Play the episodes of agents' cards again, and hold what they reach beside what the cards say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from soulsgraph.files import write_json, write_text
from soulsgraph.tables import markdown_table
from soulsgraph.zoo import AGENTS, open_agent
from soulsgraph.zoo.card import AgentCard, Digests, Origin, Reached, play_again, read_card
from soulsgraph_envs.core.config import to_table

#: Points that a rate may be from the card's on the same kind of processor.
MOST_POINTS = 1
HEADINGS = ("agent", "card", "95 % interval", "played again", "other outcomes", "holds")


@dataclass(frozen=True)
class Verified:
    """An agent's card beside what it reaches now, in the same episodes.

    `same_processor` is whether the card comes from this kind of processor; `changed` names what the agent was
    trained with and this version of the package has otherwise.
    """

    name: str
    card: Reached
    found: Reached
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


def verify_agent(name: str, episodes: int | None = None) -> Verified:
    """Play the episodes of an agent's card again, by default all of them, else the first.

    Raises:
        UnknownNameError: if there is no agent of that name.
        SoulsGraphError: if it is damaged.
    """
    run = open_agent(name)
    card: AgentCard = read_card(AGENTS / name)
    stated = card.reached if episodes is None else card.reached.first(episodes)
    found = play_again(run, stated.seed, stated.episodes)
    same = Origin.now().processor == card.origin.processor
    return Verified(name, stated, found, same, card.digests.differing(Digests.of(run.plan)))


def save_verified(folder: Path, verified: Sequence[Verified]) -> None:
    """Write `verify.json` and the page `verify.md`.

    Raises:
        WriteError: if the place cannot be written.
    """
    origin = Origin.now()
    write_json(folder / "verify.json", {**to_table(origin), "agents": [one.to_dict() for one in verified]})
    failed = [one.name for one in verified if not one.holds or one.changed]
    summary = f"{len(verified) - len(failed)} of {len(verified)} agents hold what their cards say."
    text = f"""# The zoo, played again

{summary} Every agent played the evaluation episodes of its card again.
A rate holds within 1 point of the card's on the kind of processor that the card comes from, elsewhere inside the
card's interval.

Commit `{origin.commit}`; processor: {origin.processor}.

{markdown_table(HEADINGS, [one.cells for one in verified])}
"""
    write_text(folder / "verify.md", text)
