"""Every skill by name, with the options of its reward and of the boss HP column."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from soulsgraph_envs.core.config import Where, check_fields, load
from soulsgraph_envs.core.errors import UnknownNameError
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.skills.base import Skill
from soulsgraph_envs.skills.camera import CameraReward, camera
from soulsgraph_envs.skills.dodge import DodgeReward, dodge
from soulsgraph_envs.skills.end_to_end import end_to_end
from soulsgraph_envs.skills.heal_attack import HealAttackReward, heal_attack
from soulsgraph_envs.skills.lock_on import LockOnReward, lock_on
from soulsgraph_envs.skills.movement import MovementReward, movement

#: "scalar": an animation is observed as the number of its id (the paper); "one_hot": as indicators.
Animations = Literal["scalar", "one_hot"]
#: "paper": the columns of Table 2; "extended": further columns behind them.
Observations = Literal["paper", "extended"]

#: The five skills in the order of the paper's chain, Eq. 2.
SKILL_NAMES = ("camera", "lock_on", "movement", "dodge", "heal_attack")
END_TO_END = "end_to_end"

#: What the extended observations add to Table 2: what the outcome of a skill's action hangs on.
EXTENDED = {
    "camera": (Column.LOCKED,),
    "lock_on": (Column.DISTANCE,),
    "movement": (
        *(Column.DISTANCE, Column.DIRECTION_X, Column.DIRECTION_Y),
        *(Column.CAMERA_X, Column.CAMERA_Y, Column.LOCKED),
    ),
    "dodge": (
        *(Column.PLAYER_ANIMATION, Column.PLAYER_PROGRESS, Column.FLASKS, Column.BOSS_HP),
        *(Column.DIRECTION_X, Column.DIRECTION_Y, Column.LOCKED),
    ),
    "heal_attack": (Column.DIRECTION_X, Column.DIRECTION_Y, Column.LOCKED),
}

#: How many ids the one-hot animation columns hold: those of the skills' world, Iudex, Vordt and the
#: Knight. They are part of every trained policy's shape, so data added later never widens them: an id
#: beyond sets no indicator.
ANIMATION_COUNTS = {Column.BOSS_ANIMATION: 18, Column.PLAYER_ANIMATION: 12}


@dataclass(frozen=True)
class SkillOptions:
    """Every weight and optional term of Appendix A.3; the defaults are the `paper` preset's.

    `hp_window` rescales the boss HP column that heal-attack and the baseline observe to the
    scenario's HP window; without it (the literal HP / 1037) a later phase shows them values they
    never trained on, and zero-shot transfer collapses. `animations` and `observations` set how
    animations are observed, and whether more columns than in Table 2 are; the baseline always observes
    as in Appendix B.

    Raises:
        DataError: for a value of another type or out of its range.
    """

    camera: CameraReward = field(default_factory=CameraReward)
    lock_on: LockOnReward = field(default_factory=LockOnReward)
    movement: MovementReward = field(default_factory=MovementReward)
    dodge: DodgeReward = field(default_factory=DodgeReward)
    heal_attack: HealAttackReward = field(default_factory=HealAttackReward)
    hp_window: bool = True
    animations: Animations = "scalar"
    observations: Observations = "paper"

    def __post_init__(self) -> None:
        check_fields(self)


def make_skill(name: str, options: SkillOptions | None = None) -> Skill:
    """Make one skill, or the baseline `end_to_end`.

    Raises:
        UnknownNameError: if no skill has that name.
    """
    chosen = options or SkillOptions()
    window = chosen.hp_window
    makers = {
        "camera": lambda: camera(chosen.camera, window),
        "lock_on": lambda: lock_on(chosen.lock_on, window),
        "movement": lambda: movement(chosen.movement, window),
        "dodge": lambda: dodge(chosen.dodge, window),
        "heal_attack": lambda: heal_attack(chosen.heal_attack, window),
        END_TO_END: lambda: end_to_end(chosen.heal_attack, window),
    }
    if name not in makers:
        raise UnknownNameError("skill", name, makers)
    skill = makers[name]()
    if name == END_TO_END:
        return skill
    further = EXTENDED[name] if chosen.observations == "extended" else ()
    one_hot = ANIMATION_COUNTS if chosen.animations == "one_hot" else {}
    observation = replace(skill.observation, columns=(*skill.observation.columns, *further), one_hot=one_hot)
    return replace(skill, observation=observation)


def load_skill_options(path: Path | str) -> SkillOptions:
    """Read options from a TOML file with one table a skill.

    Raises:
        DataError: if the file cannot be read or is not TOML; for a misspelt key, or a value of another type
            or out of its range.
    """
    return load(SkillOptions, Where(path))
