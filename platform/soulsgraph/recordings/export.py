"""Recordings for other libraries, one skill at a time: RLlib's columns of offline data, and a Minari dataset."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

import gymnasium
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from gymnasium.envs.registration import EnvSpec

from soulsgraph.recordings.files import Recording, RecordingError, read_recording, recording_files
from soulsgraph.recordings.format import PlayedSkill
from soulsgraph.recordings.recording import fixed_lists
from soulsgraph_envs import id_of
from soulsgraph_envs.combat.rollout import Flags, Floats, Integers
from soulsgraph_envs.core.config import shipped_names
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import whole_file, whole_folder
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.gym.skill_env import observation_space
from soulsgraph_envs.skills import Skill, SkillOptions, make_skill
from soulsgraph_envs.skills.paper_skills import Animations, Observations

_DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,100}-v[0-9]{1,6}")


@dataclass(frozen=True)
class SkillEpisode:
    """The finished decisions of a skill in one fight, (n,) or (n, size) each.

    `terminated` is a death or a win, `truncated` the horizon or a cut; both only in the last decision.
    """

    fight: str
    observations: Floats
    next_observations: Floats
    actions: Integers
    rewards: Floats
    terminated: Flags
    truncated: Flags

    def __len__(self) -> int:
        return len(self.actions)


def skill_episode(recording: Recording, skill: str) -> SkillEpisode:
    """Return the finished decisions of a skill in a fight.

    Raises:
        RecordingError: if the skill took no part.
    """
    header = recording.header
    if skill not in (known := [one.name for one in header.skills]):
        found = ", ".join(known) or "none: a person played"
        raise RecordingError(recording.path, f"a fight with the skill {skill}", found, "choose another skill or folder")
    begins, ends = recording.decisions(skill)
    observed, last = recording.column(f"{skill}/observation"), np.zeros(len(begins), np.bool_)
    last[-1:] = True
    over = header.result.outcome in ("won", "died")
    return SkillEpisode(
        fight=header.fight,
        observations=observed[begins],
        next_observations=observed[ends],
        actions=recording.column(f"{skill}/action")[begins].astype(np.int64),
        rewards=recording.column(f"{skill}/reward")[begins],
        terminated=last & over,
        truncated=last & (not over),
    )


def read_episodes(folder: Path, skill: str) -> tuple[PlayedSkill, list[SkillEpisode]]:
    """Read the decisions of a skill in every fight of a folder, and what the skill is.

    Raises:
        RecordingError: if a file is damaged or no recording, a fight lacks the skill, or two fights have it otherwise.
    """
    episodes: list[SkillEpisode] = []
    first: PlayedSkill | None = None
    for path in recording_files(folder):
        recording = read_recording(path)
        episode = skill_episode(recording, skill)
        played = next(one for one in recording.header.skills if one.name == skill)
        first = first or played
        if (played.observation, played.actions) != (first.observation, first.actions):
            expected = f"{skill} to observe and do the same in every fight"
            raise RecordingError(
                path, expected, "another observation or action", "keep each kind in a folder of its own"
            )
        if len(episode):
            episodes.append(episode)
    if first is None or not episodes:
        raise RecordingError(folder, f"a finished decision of {skill}", "none", "record longer fights")
    return first, episodes


def export_rllib(folder: Path, skill: str, path: Path) -> int:
    """Write the decisions of a skill as one Parquet file with RLlib's columns; return how many those are.

    The columns are `eps_id`, `t`, `obs`, `new_obs`, `actions`, `rewards`, `terminateds` and `truncateds`, which RLlib's
    offline algorithms read as they are.

    Raises:
        RecordingError: as `read_episodes`; also if the file is there already.
        WriteError: if the place cannot be written.
    """
    if path.exists():
        raise RecordingError(path, "no file of that name", "one, which is never overwritten", "choose another name")
    _, episodes = read_episodes(folder, skill)
    table = pa.table(
        {
            "eps_id": [episode.fight for episode in episodes for _ in range(len(episode))],
            "t": pa.array(np.concatenate([np.arange(len(episode)) for episode in episodes]), pa.int32()),
            "obs": fixed_lists(_joined(episodes, "observations")),
            "new_obs": fixed_lists(_joined(episodes, "next_observations")),
            "actions": _joined(episodes, "actions"),
            "rewards": _joined(episodes, "rewards"),
            "terminateds": _joined(episodes, "terminated"),
            "truncateds": _joined(episodes, "truncated"),
        }
    )
    with whole_file(path) as temporary, temporary.open("wb") as file:
        pq.write_table(table, file, compression="zstd")
    return len(table)


def _joined(episodes: Sequence[SkillEpisode], name: str) -> Any:
    return np.concatenate([getattr(episode, name) for episode in episodes])


def export_minari(folder: Path, skill: str, datasets: Path, name: str) -> int:
    """Write the decisions of a skill as a Minari dataset into a folder of datasets; return the number of episodes.

    `name` is Minari's identity of the dataset: a name and a version, such as `dodge-v0`.

    Raises:
        RecordingError: as `read_episodes`.
        SoulsGraphError: if Minari does not take the name.
        WriteError: if the place cannot be written; also if a dataset of that name is there.
    """
    # Imported here: it takes a second, and is for this alone.
    import minari
    import minari.data_collector
    import minari.dataset.minari_storage

    if not _DATASET.fullmatch(name):
        raise SoulsGraphError(f"name: expected letters, digits and dashes with a version, as dodge-v0, found {name!r}.")
    played, episodes = read_episodes(folder, skill)
    said = f"Decisions of {skill}: observes {', '.join(played.observation)}; does {', '.join(played.actions)}."
    scenarios = {read_recording(path).header.scenario for path in recording_files(folder)}
    task = _skill_of(played) if scenarios <= {*shipped_names("scenario")} else None
    spec = _environment_of(played, scenarios) if task else None
    known = {} if spec is None else {"env_spec": spec.to_json()}
    space = gymnasium.spaces.Box(-np.inf, np.inf, (len(played.observation),), np.float32)
    if task is not None:
        bounds = observation_space(task, *map(load_scenario, sorted(scenarios)))
        # A real game may leave the simulator's bounds.
        seen = np.vstack([part for one in episodes for part in (one.observations, one.next_observations)])
        low, high = np.minimum(bounds.low, seen.min(axis=0)), np.maximum(bounds.high, seen.max(axis=0))
        space = gymnasium.spaces.Box(low, high, dtype=np.float32)
    with whole_folder(datasets / name) as temporary:
        # Its function for this takes the place from the environment alone, and warns of every author who is not named.
        storage = minari.dataset.minari_storage.MinariStorage.new(
            temporary.absolute() / "data", space, gymnasium.spaces.Discrete(len(played.actions))
        )
        described = {"dataset_id": name, "minari_version": minari.__version__, "description": said}
        storage.update_metadata(described | known)
        storage.update_episodes([_buffer(minari, number, one) for number, one in enumerate(episodes)])
    return len(episodes)


def _skill_of(played: PlayedSkill) -> Skill | None:
    """Return the shipped skill that observes and does what a recorded one did, by a preset's options; None if none."""
    if gymnasium.registry.get(id_of(played.name)) is None:
        return None
    for animations, observations in product(get_args(Animations), get_args(Observations)):
        skill = make_skill(played.name, SkillOptions(animations=animations, observations=observations))
        if _names(skill) == ([*played.observation], [*played.actions]):
            return skill
    return None


def _environment_of(played: PlayedSkill, scenarios: set[str]) -> EnvSpec | None:
    """Return the environment of a skill's id, by scripts upstream, in the scenario of a folder's fights.

    None where the skill observes otherwise by default, and where the fights are of several scenarios.
    """
    spec = gymnasium.registry[id_of(played.name)]
    if len(scenarios) > 1 or _names(make_skill(played.name)) != ([*played.observation], [*played.actions]):
        return None
    keywords = {**spec.kwargs, "scenario": next(iter(scenarios))}
    return EnvSpec(spec.id, spec.entry_point, max_episode_steps=make_skill(played.name).horizon, kwargs=keywords)


def _names(skill: Skill) -> tuple[list[str], list[str]]:
    return [*skill.observation.names], [action.name for action in skill.actions]


def _buffer(minari: Any, number: int, episode: SkillEpisode) -> Any:
    return minari.data_collector.EpisodeBuffer(
        id=number,
        observations=np.vstack([episode.observations, episode.next_observations[-1:]]),
        actions=episode.actions,
        rewards=list(episode.rewards),
        terminations=list(episode.terminated),
        truncations=list(episode.truncated),
        infos={},
    )
