"""The paper's own win rates, with the intervals that their few episodes allow."""

from __future__ import annotations

from dataclasses import dataclass

from soulsgraph.intervals import Interval, clopper_pearson_interval, wilson_interval
from soulsgraph_envs.errors import SoulsGraphError

#: Episodes a setting, by the caption of Table 1.
PAPER_EPISODES = 25

REMARK = (
    "The paper states 25 episodes a setting, but 33.3 % and 12.5 % are no multiples of 1/25: they fit 8/24 and 3/24. "
    "Their intervals are those of 24 episodes; every other row's are those of 25."
)


@dataclass(frozen=True)
class PaperRate:
    """A win rate of the paper as the count that its percentage fits."""

    percent: float
    wins: int
    episodes: int

    @property
    def wilson(self) -> Interval:
        """Wilson 95 % interval in percent."""
        return wilson_interval(self.wins, self.episodes).scaled(100.0)

    @property
    def clopper_pearson(self) -> Interval:
        """Exact 95 % interval in percent."""
        return clopper_pearson_interval(self.wins, self.episodes).scaled(100.0)


def paper_rate(percent: float) -> PaperRate:
    """Return the count of at most 25 episodes, as many as possible, whose share rounds to `percent` at one decimal.

    Raises:
        SoulsGraphError: if no count fits.
    """
    for episodes in range(PAPER_EPISODES, 0, -1):
        wins = round(percent * episodes / 100.0)
        # Half a unit of the printed decimal, and a little for the float that holds it.
        if abs(100.0 * wins / episodes - percent) <= 0.05 + 1e-9:
            return PaperRate(percent, wins, episodes)
    raise SoulsGraphError(
        f"win rate {percent}: expected the share of a count of at most {PAPER_EPISODES} episodes in percent, "
        "found none that fits; correct paper_percent of the row."
    )
