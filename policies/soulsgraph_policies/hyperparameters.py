"""How a skill learns: the numbers of the paper's DQN, what may be added to it, and the clocks.

Every clock counts decisions of the trained skill that the learner has received, never control
ticks. Values are the paper's (Appendix C) and, where it names none, stable-baselines3's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

from soulsgraph_envs.errors import SoulsGraphError

_SHARES = ("target_rate", "priority_exponent", "importance_exponent", "averaged_fraction")


@dataclass(frozen=True)
class DQNHyperparameters:
    """DQN for a budget of decisions: vanilla by default, each further method by itself or with the others.

    Raises:
        SoulsGraphError: if a value is out of range.
    """

    #: Decisions of the trained skill to learn from in all.
    budget: int
    #: Transitions kept, the oldest overwritten first.
    replay_capacity: int
    learning_rate: float = 3e-4
    batch_size: int = 256
    #: Discount of a decision, however many ticks it takes.
    discount: float = 0.99
    decisions_per_update: int = 4
    #: No update before this many decisions.
    learning_starts: int = 100
    #: Decisions between two copies of the network into the target network.
    target_period: int = 10_000
    exploration_initial: float = 1.0
    exploration_final: float = 0.05
    #: Part of the budget over which exploration falls.
    exploration_fraction: float = 0.1
    #: Gradients are scaled down to this global norm.
    max_gradient_norm: float = 10.0
    hidden_sizes: tuple[int, ...] = (64, 64)
    #: Normalised observations are clipped to plus and minus this.
    observation_clip: float = 10.0
    #: The network chooses the next action that the target network values (van Hasselt et al. 2016).
    double: bool = False
    #: State value and advantages from one half each of the last hidden layer (Wang et al. 2016).
    dueling: bool = False
    #: Quantiles of the return learned for every action (QR-DQN, Dabney et al. 2018); 0 learns its mean only.
    quantiles: int = 0
    #: Decisions whose rewards a return sums before it bootstraps (Sutton 1988; Hessel et al. 2018).
    n_step: int = 1
    #: Discount every control tick instead of every decision (Sutton, Precup & Singh 1999).
    semi_markov: bool = False
    #: Share of the network that the target network takes over in every update (Polyak averaging,
    #: Lillicrap et al. 2016); above 0 it replaces the copies of `target_period`.
    target_rate: float = 0.0
    #: Draw transitions in proportion to their last TD error to this power (Schaul et al. 2016); 0 draws uniformly.
    priority_exponent: float = 0.0
    #: The draws' bias is corrected by this power at first, and fully at the end of the budget.
    importance_exponent: float = 0.4
    #: Learn from half of the drawn transitions as seen in a mirror (van der Pol et al. 2020).
    mirrored: bool = False
    #: Last part of the budget over which the network is averaged for greedy play (Polyak & Juditsky 1992;
    #: Izmailov et al. 2018); 0 plays by the last network.
    averaged_fraction: float = 0.0

    def __post_init__(self) -> None:
        for name in ("budget", "replay_capacity", "batch_size", "decisions_per_update", "target_period", "n_step"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for name in ("learning_rate", "max_gradient_norm", "observation_clip"):
            self._require(name, getattr(self, name) > 0.0, "above 0")
        for name in ("discount", "exploration_initial", "exploration_final", *_SHARES):
            self._require(name, 0.0 <= getattr(self, name) <= 1.0, "between 0 and 1")
        self._require("quantiles", self.quantiles >= 0, "at least 0")
        self._require("exploration_fraction", 0.0 < self.exploration_fraction <= 1.0, "in (0, 1]")
        self._require("learning_starts", self.learning_starts >= 0, "at least 0")
        sizes = self.hidden_sizes
        self._require("hidden_sizes", bool(sizes) and min(sizes) >= 1, "one or more layers of at least 1 unit")
        halves = not self.dueling or (bool(sizes) and sizes[-1] >= 2)
        self._require("hidden_sizes", halves, "a last layer of at least 2 units to halve between dueling streams")

    def _require(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise SoulsGraphError(
                f"hyperparameter {name}: expected {expected}, found {getattr(self, name)}; correct the value."
            )

    @property
    def plain_head(self) -> bool:
        """Whether the network's last layer is trained as it plays."""
        return not self.dueling and not self.quantiles

    def correction(self, decisions: int) -> float:
        """Give the power that corrects prioritised draws after so many decisions: up to 1 along a line."""
        progress = min(decisions / self.budget, 1.0)
        return self.importance_exponent + progress * (1.0 - self.importance_exponent)

    def averages(self, decisions: int) -> bool:
        """Tell whether the network of this count of decisions goes into the average for greedy play."""
        return decisions > (1.0 - self.averaged_fraction) * self.budget

    def exploration_rate(self, decisions: int) -> float:
        """Give epsilon after so many decisions: a line over the first part of the budget, then flat."""
        progress = decisions / self.budget
        if progress > self.exploration_fraction:
            return self.exploration_final
        fall = self.exploration_final - self.exploration_initial
        return self.exploration_initial + progress * fall / self.exploration_fraction

    def updates_owed(self, decisions: int, updates: int) -> int:
        """Give how many updates are still owed when `updates` were done for `decisions` received."""
        return max(decisions - self.learning_starts, 0) // self.decisions_per_update - updates

    def target_copy(self, before: int, after: int) -> int | None:
        """Give the count of decisions in (before, after] at which the target is copied, None without one."""
        if self.target_rate:
            return None
        latest = after // self.target_period * self.target_period
        return latest if latest > before else None

    def updates_before(self, copy: int, updates: int) -> int:
        """Give how many of the updates owed since `updates` come before a target copy.

        An update belongs to the decision that made it due; the copy of that decision comes first, as
        in stable-baselines3, however many updates are taken in one round.
        """
        return max(self.updates_owed(copy - 1, updates), 0)


_BASELINE_CAPACITY = 100_000


def skill_hyperparameters(budget: int) -> DQNHyperparameters:
    """Give a skill's hyperparameters: the replay holds a third of the budget (paper, Appendix C)."""
    return DQNHyperparameters(budget=budget, replay_capacity=max(budget // 3, 1))


def baseline_hyperparameters(budget: int) -> DQNHyperparameters:
    """Give the end-to-end baseline's: the replay holds 100,000 transitions (paper, Appendix C)."""
    return DQNHyperparameters(budget=budget, replay_capacity=_BASELINE_CAPACITY)
