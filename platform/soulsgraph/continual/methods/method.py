"""What a continual method is, and those that add nothing to learning: the newest versions, of some skills or all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from zlib import crc32

import numpy as np

from soulsgraph.continual.methods.learning import EndedStage, SkillVersion, StageHooks, TaskWorld, Versions
from soulsgraph.runs.plan import Plan
from soulsgraph_envs.core.config import Between
from soulsgraph_policies.learning.sampler import Transitions

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN


@dataclass(frozen=True)
class MethodOptions:
    """The coefficients of the methods; each was chosen on sequences of its own, by as many tries as the others'."""

    ewc: Annotated[float, Between(0.0, 1e9)] = 1.0
    """Strength of the pull of EWC, and of online EWC."""
    ewc_decay: Annotated[float, Between(0.0, 1.0)] = 0.9
    """What remains of the earlier importance after a task of online EWC."""
    mas: Annotated[float, Between(0.0, 1e9)] = 0.1
    """Strength of the pull of MAS."""
    importance_rows: Annotated[int, Between(1, 1_000_000)] = 2_000
    """Decisions by which importance is measured after a task."""
    reserve: Annotated[int, Between(1, 1_000_000)] = 3_000
    """Decisions that replay, ClonEx, distillation and the base keep of a task and skill."""
    reserve_share: Annotated[float, Between(0.01, 0.99)] = 0.3
    """Share of a batch that is drawn from them."""
    cloning_margin: Annotated[float, Between(0.0, 1e3)] = 0.3
    """By how much ClonEx values the old action higher than others, in standard deviations of rewards."""
    pruned_after: Annotated[float, Between(0.1, 0.95)] = 0.5
    """Part of a task after which PackNet prunes; it learns on with what is kept."""
    packnet_units: Annotated[int, Between(1, 4_096)] = 64
    """Units of each hidden layer of PackNet's networks, of which every task gets an equal share of the weights."""
    distilled_updates: Annotated[int, Between(1, 1_000_000)] = 3_000
    """Updates of a distillation."""
    base_tasks: Annotated[int, Between(1, 1_000)] = 5
    """Tasks that the base is trained on."""


#: The attributes of a method that no task changes, or every task sets.
_GIVEN = ("options", "tasks", "seed", "world")


@dataclass
class Method(StageHooks):
    """Keep the newest versions and nothing else; the methods differ from this.

    The protocol: `before_task`, then for every skill that learns `start`, the hooks of its stage and `take`, then
    `after_task`; `playing` any time.
    """

    name: ClassVar[str]
    #: Where the method comes from.
    source: ClassVar[str]
    #: The coefficients that it learns by, as `MethodOptions` names them.
    coefficients: ClassVar[tuple[str, ...]] = ()
    #: Whether it adapts the skills that were selected; all of them if not.
    selects: ClassVar[bool] = True
    #: Whether running statistics stay as the first task left them: weights shared by tasks would forget through them.
    fixes_statistics: ClassVar[bool] = False
    #: Whether it has versions for each task, of which the right ones must be known or chosen.
    has_versions: ClassVar[bool] = False
    #: Whether it keeps every version of a skill whole, so that a task can start from any of them.
    keeps_versions: ClassVar[bool] = False
    #: Whether no task depends on another: only its own then says something.
    isolated: ClassVar[bool] = False
    #: Whether it learns the first task as most methods do, so that they share it.
    shares_first: ClassVar[bool] = True

    options: MethodOptions
    tasks: int
    seed: int
    newest: dict[str, SkillVersion] = field(default_factory=dict)
    world: TaskWorld = field(init=False, repr=False)
    """The task that has begun."""

    def planned(self, plan: Plan) -> Plan:
        """Return by what plan skills learn, made of the study's."""
        return plan

    def before_task(self, world: TaskWorld) -> None:
        """Begin a task."""
        self.world = world

    def start(self, skill: str) -> SkillVersion | None:
        """Return the version that a skill learns on from in this task; None for nothing."""
        return self.newest.get(skill)

    def beginning(self) -> Versions:
        """Return the versions that a task which is not in the sequence would begin with; none where it is nothing."""
        return self.newest

    def home(self, skill: str, learned_at: int) -> int:
        """Return the position of the task that a skill's newest version learned in; it learned last at `learned_at`."""
        return learned_at

    def begin_stage(self, algorithm: SkillDQN, skill: str) -> None:
        """Prepare what learns."""
        if self.fixes_statistics and self.world.position:
            algorithm.freeze_normalizer(skill)

    def take(self, skill: str, version: SkillVersion) -> None:
        """Take the version that a stage led to."""
        self.newest[skill] = version

    def drawn(self, ended: EndedStage, count: int) -> Transitions:
        """Return `count` of the decisions of a stage that ended, all if there are fewer."""
        return ended.rows(count, np.random.default_rng((self.seed, self.world.position, crc32(ended.skill.encode()))))

    def after_task(self, world: TaskWorld) -> None:
        """End a task."""

    def playing(self, position: int) -> Versions:
        """Return the versions that play a task, by its position."""
        return self.newest

    @property
    def size_bytes(self) -> int:
        """Bytes that the method has to keep, to play every task so far and to learn the next one."""
        return _bytes_of(self.state(), set())

    def state(self) -> dict[str, Any]:
        """Return everything that later tasks depend on, the public attributes, as nested arrays and plain values."""
        return {
            name: plain(value) for name, value in vars(self).items() if not name.startswith("_") and name not in _GIVEN
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        vars(self).update(whole(state))


class Newest(Method):
    """Adapt the selected skills, and play every task by the newest versions: fine-tuning."""

    name, source = "newest", "fine-tuning: the usual lower bound (Wolczyk et al. 2021)"


class AllSkills(Method):
    """Adapt all skills, and play every task by the newest versions."""

    name, source, selects = "all-skills", "fine-tuning of every skill", False


def plain(value: Any) -> Any:
    """Return nested values of arrays and plain values alone: versions and decisions as dictionaries."""
    if isinstance(value, SkillVersion | Transitions):
        value = vars(value)
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def whole(value: Any) -> Any:
    """Return what `plain` was made of."""
    if isinstance(value, Mapping):
        found = {name: whole(part) for name, part in value.items()}
        kinds = (kind for kind in (SkillVersion, Transitions) if found.keys() == {one.name for one in fields(kind)})
        return next(kinds, dict)(**found)
    if isinstance(value, list):
        return [whole(part) for part in value]
    # What is read from a file is mapped memory, which nothing may write to.
    return np.array(value) if isinstance(value, np.ndarray) else value


def _bytes_of(value: Any, counted: set[tuple[Any, ...]]) -> int:
    """Return the bytes of all arrays in nested values, equal ones once: several tasks share what was not adapted."""
    if isinstance(value, np.ndarray):
        key = (value.dtype.str, value.shape, sha256(np.ascontiguousarray(value).data).digest())
        known = key in counted
        counted.add(key)
        return 0 if known else int(value.nbytes)
    if isinstance(value, Mapping):
        return sum(_bytes_of(part, counted) for part in value.values())
    return sum(_bytes_of(part, counted) for part in value) if isinstance(value, list) else 0
