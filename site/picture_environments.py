"""Record a few seconds of a fight in each registered environment: python site/picture_environments.py FOLDER.

The skills and the end-to-end agent are played by agents of the zoo, a sequence of bosses by scripted play that
sees ahead, SoulsGym's and EldenGym's environments by simple rules.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from math import hypot
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from soulsgraph.runs.evaluate import Setting, make_agent
from soulsgraph.watch.watching import write_gif
from soulsgraph.zoo import open_agent
from soulsgraph_envs import id_of
from soulsgraph_envs.combat.scripted import OracleEndToEnd
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.render.pictures import scaled
from soulsgraph_envs.simulator.scene import Scene
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks

_SIZE = (180, 320)
#: Seconds of a film, and between its pictures.
_FILM_S, _BOTH_PHASES_S, _SEQUENCE_S, _PICTURE_S = 6.0, 10.0, 9.0, 0.25
#: A blow comes soon; there is time to strike; the boss is within reach; a film begins once he is as near as this.
_SOON_S, _TIME_S, _REACH_M, _NEAR_M = 0.25, 0.8, 2.4, 4.0
_TICK_S = 0.1
#: Actions of SoulsGym's environments.
_FORWARD, _ROLL, _STRIKE, _WAIT = 0, 14, 16, 19
#: EldenGym's keys, of which several may be down; a step holds them 0.1 s, and waits for two frames.
_KEYS, _EVERY = (
    ("W", "LEFT_SHIFT", "LEFT"),
    ("W", "A", "S", "D", "SPACE", "LEFT_SHIFT", "E", "LEFT_ALT", "R", "F", "LEFT"),
)
_ELDEN_STEP_S, _ELDEN_WAIT = 0.1 + 2 / 60, 2


def of_skill(id: str, agent: str, skill: str) -> Iterator[Picture]:
    """Yield every control tick of an environment in which an agent of the zoo plays a skill."""
    run = open_agent(agent)
    network = make_agent(run, Setting(run.plan.scenario, run.plan.scenario)).networks[skill]
    assert isinstance(network, FrozenNetwork)
    env: Any = gymnasium.make(id, skill=skill, scenario=run.plan.scenario, options=run.plan.options).unwrapped
    mind, combat, pictures = FusedNetworks([network]), env.rollout.combat, list[Picture]()
    env.rollout.after_tick = lambda: pictures.append(combat.game.render(0, _SIZE))
    env.reset(seed=0)
    while True:
        pictures.clear()
        env.step(int(mind.q_values(0, np.ascontiguousarray(combat.rows))[0].argmax()))
        yield from pictures


def of_sequence(sequence: str, decisions: int) -> Iterator[Picture]:
    """Yield every control tick of a sequence that changes the boss after some decisions; looking ahead wins."""
    env: Any = gymnasium.make("soulsgraph/Continual-v0", sequence=sequence, steps_per_task=decisions).unwrapped
    pictures, over, seed = list[Picture](), True, 0
    while True:
        if over:
            env.reset(seed=seed)
            combat = env.rollout.combat
            script, seed = OracleEndToEnd(combat.scenario), seed + 1
            env.rollout.after_tick = lambda game=combat.game: pictures.append(game.render(0, _SIZE))
        pictures.clear()
        _, _, terminated, truncated, _ = env.step(script.choose(combat)[0])
        over = terminated or truncated
        yield from pictures


def of_soulsgym(name: str, seed: int, boss_hp: float = 1.0, *, observed: bool = False) -> Iterator[Picture]:
    """Yield what is seen, or with `observed` what is observed, every step of a fight from the first approach on.

    The boss begins with a share of his HP.
    """
    env: Any = gymnasium.make(f"soulsgraph/SoulsGym{name}-v0").unwrapped
    env.reset(seed=seed)
    game = env.world.game
    game.override(0, boss_hp=boss_hp * game.scene().raw[Raw.BOSS_HP_MAX])
    near = False
    while True:
        scene = game.scene()
        observation = env.step(_by_rule(scene))[0]
        near |= _distance_m(scene) < _NEAR_M
        if near:
            yield scaled(observation, _SIZE) if observed else game.render(0, _SIZE)


def _distance_m(scene: Scene) -> float:
    raw = scene.raw
    return hypot(raw[Raw.BOSS_X] - raw[Raw.PLAYER_X], raw[Raw.BOSS_Y] - raw[Raw.PLAYER_Y])


def _by_rule(scene: Scene) -> int:
    if scene.until_hit_s < _SOON_S:
        return _ROLL
    if _distance_m(scene) > _REACH_M:
        return _FORWARD
    return _STRIKE if scene.until_hit_s > _TIME_S else _WAIT


def of_eldengym(seed: int) -> Iterator[Picture]:
    """Yield the picture of every step: forward to Margit, a blow where he is in reach, a roll as he begins a move."""
    options = {"driver": "simulator", "frame_size": _SIZE, "frame_skip": _ELDEN_WAIT, "action_mode": "multi_binary"}
    env = gymnasium.make("soulsgraph/EldenGym-v0", scenario_name="margit", render_mode="rgb_array", **options)
    _, info = env.reset(seed=seed)
    near, moving = False, 0
    while True:
        begins = info["target_animation_id"] != moving and info["distance"] < _NEAR_M
        moving = info["target_animation_id"]
        key = "LEFT_SHIFT" if begins else "W" if info["distance"] > _REACH_M else "LEFT"
        down = {"W", key} if begins else {key}
        _, _, _, _, info = env.step(np.array([name in down for name in _EVERY], np.int8))
        near |= info["distance"] < _NEAR_M
        if near:
            yield env.render()  # type: ignore[misc]


#: What films an environment, the seconds of a step, and those of the film.
FILMS: dict[str, tuple[Callable[[], Iterator[Picture]], float, float]] = {
    **{
        id_of(skill).removeprefix("soulsgraph/").removesuffix("-v0").lower(): (
            lambda skill=skill: of_skill(id_of(skill), "iudex-phase1-best-0", skill),
            _TICK_S,
            _FILM_S,
        )
        for skill in SKILL_NAMES
    },
    "skill": (lambda: of_skill("soulsgraph/Skill-v0", "iudex-phase2-best-0", "dodge"), _TICK_S, _FILM_S),
    "endtoend": (lambda: of_skill("soulsgraph/EndToEnd-v0", "iudex-phase1-end-to-end-0", END_TO_END), _TICK_S, _FILM_S),
    "continual": (lambda: of_sequence("S20", 20), _TICK_S, _SEQUENCE_S),
    "soulsgymiudex": (lambda: of_soulsgym("Iudex", 0), _TICK_S, _FILM_S),
    "soulsgymiudeximg": (lambda: of_soulsgym("IudexImg", 1, observed=True), _TICK_S, _FILM_S),
    # He changes his phase below 55 % of his HP.
    "soulsgymiudexdemo": (lambda: of_soulsgym("IudexDemo", 2, 0.56), _TICK_S, _BOTH_PHASES_S),
    "soulsgymvordt": (lambda: of_soulsgym("Vordt", 0), _TICK_S, _FILM_S),
    "eldengym": (lambda: of_eldengym(0), _ELDEN_STEP_S, _FILM_S),
}


def film(pictures: Iterator[Picture], step_s: float, seconds: float) -> list[Picture]:
    """Return the pictures of a film, at equal intervals, from what yields one every step."""
    wanted = [round(number * _PICTURE_S / step_s) for number in range(round(seconds / _PICTURE_S))]
    steps = [picture for _, picture in zip(range(wanted[-1] + 1), pictures, strict=False)]
    return [steps[number] for number in wanted]


def main() -> None:
    """Write `FOLDER/<id>.gif` for each environment."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (make, step_s, seconds) in FILMS.items():
        file = folder / f"{name}.gif"
        write_gif(file, iter(film(make(), step_s, seconds)), 1.0 / _PICTURE_S)
        print(f"{file}: {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
