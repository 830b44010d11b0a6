"""The Gymnasium faces: one skill as the agent, frozen or scripted upstream skills inside.

One `step` is one decision of the skill; the world moves on by as many control ticks as the action
takes. A seed is a non-negative integer of any size; without one the episodes go on, from entropy at first.
docs/environments.md says how lanes of the vector face begin their next episodes, and what the pictures show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from soulsgraph_envs.combat.loop import Combat, Controller, Horizon
from soulsgraph_envs.combat.rollout import FinishedDecisions, Rollout
from soulsgraph_envs.combat.scripted import ScriptedPlay, references
from soulsgraph_envs.core.config import EACH_ONCE, Between, check_arguments
from soulsgraph_envs.core.errors import ResetNeededError, SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.game import Picture, RenderableGame
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.seeds import EpisodeSeeds, checked_options, checked_seed
from soulsgraph_envs.core.state import StateRows
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.render.pixels import SIZE, PixelTables, Shades
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, Skill, SkillOptions, make_skill, training_scenario
from soulsgraph_envs.skills.action_masks import ActionMasks
from soulsgraph_envs.skills.columns import observation_limits

Floats = npt.NDArray[np.float32]
#: Raw values (n, size) float32, or pictures (n, 84, 84, channels) uint8.
Observed = npt.NDArray[Any]
#: What an agent is shown: its skill's values, or pictures of `render.pixels`, grey or in colour.
ObservationKind = Literal["values", "pixels", "pixels-rgb"]
#: The channels of each kind of picture, and what `render.pixels` names it.
_SHADES: Mapping[ObservationKind, tuple[int, Shades]] = {"pixels": (1, "grey"), "pixels-rgb": (3, "rgb")}

#: Height and width of a rendered picture, and of those of many lanes.
PICTURE_SIZE, LANE_PICTURE_SIZE = (360, 640), (180, 320)
#: Pictures a second: a control tick takes 0.1 s.
PICTURES_PER_S = 10
#: Environments of a vector environment, steps of an episode, and how lanes begin their next one.
Lanes = Annotated[int, Between(1, 100_000)]
Steps = Annotated[int, Between(1, 10**9)]
Autoreset = AutoresetMode | Literal["NextStep", "SameStep", "Disabled"]


def upstream_of(skill: str) -> tuple[str, ...]:
    """Return the skills before `skill` in the paper's chain; none for the end-to-end baseline.

    Raises:
        UnknownNameError: for a skill of a project: what is upstream of it, only its graph says.
    """
    if skill not in (*SKILL_NAMES, END_TO_END):
        raise UnknownNameError("skill of the paper's chain, or `upstream`", skill, (*SKILL_NAMES, END_TO_END))
    return () if skill == END_TO_END else SKILL_NAMES[: SKILL_NAMES.index(skill)]


def make_rollout(
    skill: str,
    scenario: str | Path | Scenario,
    lanes: int,
    controller: Controller | None = None,
    options: SkillOptions | None = None,
    upstream: Sequence[str] | None = None,
    boss_animations: Sequence[int] = (),
    max_episode_steps: int | None = None,
) -> Rollout:
    """Make a rollout of a skill's practice in the simulator; without a controller the upstream skills are scripted.

    `upstream` are the skills before it, by default those of the paper's chain; `boss_animations` is that of
    `make_skill`. An episode has `max_episode_steps` decisions of the skill at most, or its horizon if that is shorter.

    Raises:
        UnknownNameError: for an unknown skill or scenario, or a skill upstream that has no script.
        SoulsGraphError: for a skill that is named twice, or fewer than 1 step.
    """
    before = upstream_of(skill) if upstream is None else tuple(upstream)
    if len({*before, skill}) <= len(before):
        raise SoulsGraphError(f"upstream: expected skills other than {skill}, each once, found {shown(before)}.")
    skills = [make_skill(name, options, boss_animations) for name in (*before, skill)]
    combat = make_combat(skills, scenario, lanes, max_episode_steps)
    if controller is None and before:
        controller = ScriptedPlay(references(before, combat.scenario))
    return Rollout(combat, *([] if controller is None else [controller]))


def make_combat(
    skills: Sequence[Skill], scenario: str | Path | Scenario, lanes: int = 1, max_episode_steps: int | None = None
) -> Combat:
    """Make a combat in the simulator; the last skill's training scenario and horizon are the episode's.

    Raises:
        UnknownNameError: for an unknown scenario.
        SoulsGraphError: as `make_rollout`.
    """
    trained = skills[-1]
    loaded = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    horizon = Horizon(trained.name, min(trained.horizon, max_episode_steps or trained.horizon))
    return Combat(make_game(lanes), tuple(skills), training_scenario(loaded, trained), horizon)


def observation_space(skill: Skill, *scenarios: Scenario, kind: ObservationKind = "values") -> gymnasium.spaces.Box:
    """Return the space of what a skill's agent is shown in fights of the scenarios, which bound raw values."""
    if kind in _SHADES:
        return gymnasium.spaces.Box(0, 255, (SIZE, SIZE, _SHADES[kind][0]), np.uint8)
    return gymnasium.spaces.Box(*observation_limits(skill.observation, scenarios), dtype=np.float32)


def observer(skill: Skill, scenario: Scenario, kind: ObservationKind) -> Callable[[StateRows], Observed]:
    """Return what makes observations of one kind of States (n, 25)."""
    if kind in _SHADES:
        return PixelTables.of(scenario, _SHADES[kind][1]).draw
    return skill.observation.bind(scenario)


def action_space(skill: Skill) -> gymnasium.spaces.Discrete[np.int64]:
    """Return the skill's action space."""
    return gymnasium.spaces.Discrete(len(skill.actions))


class _Limited:
    """Names in an environment's spec the steps that its episodes have at most."""

    rollout: Rollout
    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """What Gymnasium makes the environment of; None where it was made without."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            spec.max_episode_steps = self.rollout.combat.horizon.decisions
        self._spec = spec


class SkillEnv(_Limited, gymnasium.Env[Observed, np.int64]):
    """One skill of the graph as a Gymnasium environment, in one lane.

    `observation` "pixels" shows a picture (84, 84, 1) uint8, "pixels-rgb" one (84, 84, 3), in place of values.
    Scripts play the skills `upstream`, by default those before it in the paper's chain, unless a `controller` does.
    `render_mode` "rgb_array" draws the fight as it is after a decision. `boss_animations` is that of `make_skill`.

    `info` has at every reset and step: `reward/NAME`, each term of the decision that ended; `won` and `died`, whether
    the episode ended so; `seconds` of game time in the episode; `action_mask` (actions,) int8, as `action_masks`.

    Raises:
        UnknownNameError: for an unknown skill, scenario, render mode or observation.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": PICTURES_PER_S}  # noqa: RUF012 - Gymnasium's own

    @check_arguments
    def __init__(
        self,
        skill: str = "dodge",
        scenario: str | Path | Scenario = "iudex-phase1",
        controller: Controller | None = None,
        options: SkillOptions | None = None,
        render_mode: Literal["rgb_array"] | None = None,
        upstream: Annotated[Sequence[str], EACH_ONCE] | None = None,
        observation: ObservationKind = "values",
        boss_animations: Annotated[Sequence[Annotated[int, Between(0, 1_000_000)]], EACH_ONCE] = (),
    ) -> None:
        # Gymnasium's vectorizers write into it.
        self.metadata = dict(self.metadata)
        self.render_mode = render_mode
        rollout = make_rollout(skill, scenario, 1, controller, options, upstream, boss_animations)
        self._kind = observation
        self.observation_space = observation_space(rollout.skill, rollout.combat.scenario, kind=observation)
        self.play(rollout)
        self.action_space = action_space(self.rollout.skill)
        self._lane = np.zeros(1, np.int64)
        self._seeds = EpisodeSeeds(1)
        self._under_way = False

    def play(self, rollout: Rollout) -> None:
        """Play this rollout from the next episode on."""
        skill, scenario = rollout.skill, rollout.combat.scenario
        self.rollout, self._masks = rollout, ActionMasks(skill, scenario)
        self._observer = observer(skill, scenario, self._kind)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """Begin an episode; after `reset(seed=s)` the sequence of episodes is the same every time.

        Raises:
            SeedError: for anything but a non-negative integer or None; the episode goes on.
            SoulsGraphError: for options that are no dict; none is known, and any name is taken.
        """
        seed = checked_seed(seed)
        super().reset(seed=seed)
        self._seeds.restart(seed, self.np_random)
        self._begin()
        self._under_way = True
        return self._observe()[0], self._info()

    def _begin(self) -> None:
        self.rollout.begin_deciding(self._lane, self._seeds.next(self._lane))

    def _observe(self) -> Observed:
        """Return the agent's present observation, as the only one of an array."""
        return self._observer(self.rollout.combat.rows)

    def _cut_off(self) -> bool:
        """Return whether the episode is truncated by the decision just made, whatever the fight says."""
        return False

    def step(self, action: np.int64) -> tuple[Observed, float, bool, bool, dict[str, Any]]:
        """Carry out one decision.

        Raises:
            ActionError: for an action outside the action space; the episode goes on.
            ResetNeededError: if no episode is under way.
        """
        if not self._under_way:
            raise ResetNeededError
        finished = self.rollout.decide(self.rollout.skill.checked(action))
        terminated = bool(finished.terminated[0])
        truncated = (self._cut_off() and not terminated) or bool(finished.truncated[0])
        self._under_way = not (terminated or truncated)
        info = self._info(finished)
        return self._observe()[0], float(finished.rewards[0]), terminated, truncated, info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return whether each action would do something now, (actions,), as `ActionMasks`.

        Raises:
            ResetNeededError: before the first reset.
        """
        if not self._seeds.begun:
            raise ResetNeededError
        masks: npt.NDArray[np.bool_] = self._masks(self.rollout.combat.rows)[0]
        return masks

    def _info(self, finished: FinishedDecisions | None = None) -> dict[str, Any]:
        names = self.rollout.skill.reward.names
        terms = np.zeros(len(names)) if finished is None else finished.terms[0]
        info: dict[str, Any] = {f"reward/{name}": np.float64(value) for name, value in zip(names, terms, strict=True)}
        # Of numpy, as some libraries read their type; Gymnasium's vectorizers would make objects of single flags.
        info["won"] = np.array(finished is not None and finished.decisions.won[0])
        info["died"] = np.array(finished is not None and finished.decisions.died[0])
        info["seconds"] = np.float64(self.rollout.combat.seconds[0])
        return info | {"action_mask": self.action_masks().astype(np.int8)}

    def render(self) -> Picture | None:  # type: ignore[override]
        """Return a picture (360, 640, 3) in mode "rgb_array", else None.

        Raises:
            ResetNeededError: before the first reset.
        """
        return _picture(self.rollout, 0, PICTURE_SIZE) if _drawable(self, self._seeds) else None

    def close(self) -> None:
        """Close the game."""
        self._under_way = False
        self.rollout.combat.game.close()


class SkillVectorEnv(_Limited, VectorEnv[Observed, npt.NDArray[np.int64], npt.NDArray[np.generic]]):
    """Many lanes of one skill's task, stepped together by one simulator; raises as `SkillEnv` does.

    `autoreset_mode` is Gymnasium's: a lane whose episode ended begins its next one with the next step, which ignores
    its action and pays it nothing (the default); within the same step, which returns the last observation as
    `final_obs`; or, disabled, when `reset` is called with a `reset_mask`.

    An episode has `max_episode_steps` decisions at most, or the skill's horizon if that is shorter.

    Raises:
        UnknownNameError: for an unknown mode, too.
        SoulsGraphError: for fewer than 1 step.
    """

    metadata = {  # noqa: RUF012 - Gymnasium's own attribute
        "autoreset_mode": AutoresetMode.NEXT_STEP,
        "render_modes": ["rgb_array"],
        "render_fps": PICTURES_PER_S,
    }
    #: What `reset` can be asked for.
    reset_options: ClassVar[tuple[str, ...]] = ("reset_mask",)
    #: The base class closes what is not closed when it is deleted, even if it was never made.
    closed = True

    @check_arguments
    def __init__(
        self,
        num_envs: Lanes = 32,
        skill: str = "dodge",
        scenario: str | Path | Scenario = "iudex-phase1",
        controller: Controller | None = None,
        options: SkillOptions | None = None,
        render_mode: Literal["rgb_array"] | None = None,
        autoreset_mode: Autoreset = AutoresetMode.NEXT_STEP,
        upstream: Annotated[Sequence[str], EACH_ONCE] | None = None,
        observation: ObservationKind = "values",
        boss_animations: Annotated[Sequence[Annotated[int, Between(0, 1_000_000)]], EACH_ONCE] = (),
        max_episode_steps: Steps | None = None,
    ) -> None:
        self.render_mode = render_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = self.metadata | {"autoreset_mode": self.autoreset_mode}
        self.num_envs = num_envs
        rollout = make_rollout(
            skill, scenario, num_envs, controller, options, upstream, boss_animations, max_episode_steps
        )
        self._kind = observation
        self.single_observation_space = observation_space(rollout.skill, rollout.combat.scenario, kind=observation)
        self.play(rollout)
        self.closed = False
        self.single_action_space = action_space(self.rollout.skill)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seeds = EpisodeSeeds(num_envs)
        self._under_way = False
        #: Lanes whose episode ended and whose next one has not begun, (num_envs,).
        self._ended = np.zeros(num_envs, np.bool_)
        #: The reward terms of each lane's last decision, (num_envs, terms), and whether it won or died by it.
        self._terms = np.zeros((num_envs, len(self.rollout.skill.reward.terms)), np.float32)
        self._won, self._died = np.zeros((2, num_envs), np.bool_)

    def play(self, rollout: Rollout) -> None:
        """Play this rollout from the next episode on."""
        skill, scenario = rollout.skill, rollout.combat.scenario
        self.rollout, self._masks = rollout, ActionMasks(skill, scenario)
        self._observer = observer(skill, scenario, self._kind)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """Begin an episode in every lane, or in those of `options["reset_mask"]`, (num_envs,) of bools.

        One seed serves them all, each lane having its own stream. In a list of one seed a lane, each
        begins the episodes that `SkillEnv` has after it.

        Raises:
            SeedError: for anything else but None; the episodes go on.
            ResetNeededError: for a mask without every lane before all have begun.
            SoulsGraphError: for a mask of another kind, or another option.
        """
        checked, mask = self._seeds.checked(seed), self._mask(options)
        lanes = np.flatnonzero(mask)
        super().reset(seed=checked if isinstance(checked, int) else None)
        self._seeds.restart(checked, self.np_random, lanes)
        self._begin(lanes)
        self._under_way = True
        return self._observe(), self._info(mask)

    def _mask(self, options: dict[str, Any] | None) -> npt.NDArray[np.bool_]:
        mask = checked_options(options, self.reset_options).get("reset_mask")
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        found = np.asarray(mask)
        if found.shape != (self.num_envs,) or found.dtype != np.bool_ or not found.any():
            raise SoulsGraphError(
                f"reset_mask: expected {self.num_envs} bools, one of them true, found {shown(mask)}; name the lanes "
                "that begin anew, or leave it out for all."
            )
        if not self._under_way and not found.all():
            raise ResetNeededError
        return found

    def _begin(self, lanes: npt.NDArray[np.int64]) -> None:
        self.rollout.begin_deciding(lanes, self._seeds.next(lanes))
        self._ended[lanes] = self._won[lanes] = self._died[lanes] = False
        self._terms[lanes] = 0.0

    def _observe(self) -> Observed:
        """Return the agent's present observations, one for each lane."""
        return self._observer(self.rollout.combat.rows)

    def _cut_off(self, decided: int) -> bool:
        """Return whether every episode is truncated, by the `decided` decisions just made, whatever the fights say."""
        return False

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[Observed, Floats, npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        """Carry out one decision in every lane under way, `actions` (num_envs,).

        `info` has the keys of `SkillEnv`'s, (num_envs,) or (num_envs, actions), with a mask `_KEY` of the lanes that
        each is of, and all terms together as `terms` (num_envs, terms). With same-step autoreset what ended is in
        `final_info`, and the rest is of the next episode.

        Raises:
            ActionError: as `SkillEnv.step`.
            ResetNeededError: before the first reset; without autoreset also if a lane's episode ended.
        """
        if not self._under_way or (self.autoreset_mode == AutoresetMode.DISABLED and self._ended.any()):
            raise ResetNeededError
        checked, playing = self.rollout.skill.checked(actions, self.num_envs), ~self._ended
        finished = self.rollout.decide(checked, playing)
        self._begin(np.flatnonzero(~playing))
        rewards = self._in_lanes(finished.rewards, playing)
        terminated, truncated = (self._in_lanes(one, playing) for one in (finished.terminated, finished.truncated))
        if self._cut_off(int(playing.sum())):
            truncated = truncated | ~terminated
        self._ended, self._terms = terminated | truncated, self._in_lanes(finished.terms, playing)
        self._won, self._died = (
            self._in_lanes(one, playing) for one in (finished.decisions.won, finished.decisions.died)
        )
        everyone = np.ones(self.num_envs, np.bool_)
        observations, info = self._observe(), self._info(everyone)
        if self.autoreset_mode == AutoresetMode.SAME_STEP and self._ended.any():
            final = self._final(observations, info)
            self._begin(np.flatnonzero(self._ended))
            observations, info = self._observe(), self._info(everyone) | final
        return observations, rewards, terminated, truncated, info

    def _in_lanes(self, values: npt.NDArray[Any], playing: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        """Return values of the lanes that played, (n, ...), in their places, (num_envs, ...); 0 in the others."""
        placed = np.zeros((self.num_envs, *values.shape[1:]), values.dtype)
        placed[playing] = values
        return placed

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return whether each action would do something now, (num_envs, actions), as `ActionMasks`.

        Raises:
            ResetNeededError: before the first reset.
        """
        if not self._seeds.begun:
            raise ResetNeededError
        return self._masks(self.rollout.combat.rows)

    def _info(self, lanes: npt.NDArray[np.bool_]) -> dict[str, Any]:
        """Return an info of `lanes` (num_envs,)."""
        terms = zip(self.rollout.skill.reward.names, self._terms.T.astype(np.float64), strict=True)
        info: dict[str, Any] = {f"reward/{name}": column for name, column in terms}
        info |= {"terms": self._terms.copy(), "won": self._won.copy(), "died": self._died.copy()}
        info |= {"seconds": self.rollout.combat.seconds, "action_mask": self.action_masks().astype(np.int8)}
        return info | {f"_{name}": lanes.copy() for name in info}

    def _final(self, observations: Observed, info: dict[str, Any]) -> dict[str, Any]:
        """Return what Gymnasium calls the last observations and infos of the lanes whose episodes ended."""
        ended, last = self._ended.copy(), np.full(self.num_envs, None, dtype=object)
        for lane in np.flatnonzero(ended):
            last[lane] = observations[lane]
        of_ended = {name: ended if name.startswith("_") else value for name, value in info.items()}
        return {"final_obs": last, "_final_obs": ended, "final_info": of_ended, "_final_info": ended}

    def render(self) -> tuple[Picture, ...] | None:  # type: ignore[override]
        """Return a picture (180, 320, 3) of every lane; with same-step autoreset, of the next episode where one ended.

        Raises:
            ResetNeededError: before the first reset.
        """
        if not _drawable(self, self._seeds):
            return None
        return tuple(_picture(self.rollout, lane, LANE_PICTURE_SIZE) for lane in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Close the game."""
        self._under_way = False
        self.rollout.combat.game.close()


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number, Python's or numpy's."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _drawable(env: SkillEnv | SkillVectorEnv, seeds: EpisodeSeeds) -> bool:
    if env.render_mode is None:
        modes = " or ".join(f'"{mode}"' for mode in env.metadata["render_modes"])
        gymnasium.logger.warn(f"render draws nothing: make the environment with render_mode={modes}.")
    elif not seeds.begun:
        raise ResetNeededError
    return env.render_mode is not None


def _picture(rollout: Rollout, lane: int, size: tuple[int, int]) -> Picture:
    return cast(RenderableGame, rollout.combat.game).render(lane, size)
