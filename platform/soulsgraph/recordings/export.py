"""Recordings for other libraries, one skill at a time: RLlib's columns of offline data, and a Minari dataset."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from gymnasium.envs.registration import EnvSpec

from soulsgraph.recordings.files import Recording, RecordingError, read_recording, recording_files
from soulsgraph.recordings.format import Header, PlayedSkill
from soulsgraph.recordings.recording import fixed_lists
from soulsgraph_envs import id_of
from soulsgraph_envs.core.config import shipped_names
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import whole_file, whole_folder
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.gym.skill_env import observation_space
from soulsgraph_envs.skills import make_skill

_DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,100}-v[0-9]{1,6}")


@dataclass(frozen=True)
class SkillEpisode:
    """The finished decisions of a skill in one fight by RLlib's columns, (n,) or (n, size) each, and its header.

    `terminateds` is a death or a win, `truncateds` the horizon or a cut; both only in the last decision.
    """

    header: Header
    skill: PlayedSkill
    columns: Mapping[str, npt.NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["actions"])

    @classmethod
    def of(cls, recording: Recording, skill: str) -> SkillEpisode:
        """Return the finished decisions of a skill in a fight.

        Raises:
            RecordingError: if the skill took no part.
        """
        header = recording.header
        played = {one.name: one for one in header.skills}
        if skill not in played:
            known, remedy = ", ".join(played) or "none: a person played", "choose another skill or folder"
            raise RecordingError(recording.path, f"a fight with the skill {skill}", known, remedy)
        begins, ends = recording.decisions(skill)
        observed, last = recording.column(f"{skill}/observation"), np.zeros(len(begins), np.bool_)
        last[-1:] = True
        over = header.result.outcome in ("won", "died")
        columns = {
            "obs": observed[begins],
            "new_obs": observed[ends],
            "actions": recording.column(f"{skill}/action")[begins].astype(np.int64),
            "rewards": recording.column(f"{skill}/reward")[begins],
            "terminateds": last & over,
            "truncateds": last & (not over),
        }
        return cls(header, played[skill], columns)


def read_episodes(folder: Path, skill: str) -> list[SkillEpisode]:
    """Read the decisions of a skill in every fight of a folder.

    Raises:
        RecordingError: if a file is damaged or no recording, a fight lacks the skill, or two fights have it otherwise.
    """
    episodes = [SkillEpisode.of(read_recording(path), skill) for path in recording_files(folder)]
    for one in episodes:
        if _names(one.skill) != _names(episodes[0].skill):
            expected, found = f"{skill} to observe and do the same in every fight", "another observation or action in"
            raise RecordingError(
                folder, expected, f"{found} {one.header.fight}", "keep each kind in a folder of its own"
            )
    if not (finished := [one for one in episodes if len(one)]):
        raise RecordingError(folder, f"a finished decision of {skill}", "none", "record longer fights")
    return finished


def _names(played: PlayedSkill) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return played.observation, played.actions


def export_rllib(folder: Path, skill: str, path: Path) -> int:
    """Write the decisions of a skill as a Parquet file that RLlib's offline algorithms read; return how many those are.

    The columns are `eps_id`, `t`, `obs`, `new_obs`, `actions`, `rewards`, `terminateds` and `truncateds`.

    Raises:
        RecordingError: as `read_episodes`; also if the file is there already.
        WriteError: if the place cannot be written.
    """
    if path.exists():
        raise RecordingError(path, "no file of that name", "one, which is never overwritten", "choose another name")
    episodes = read_episodes(folder, skill)
    parts = [one.columns for one in episodes]
    columns: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns |= {name: fixed_lists(columns[name]) for name in ("obs", "new_obs")}
    steps = np.concatenate([np.arange(len(one)) for one in episodes])
    fights = [one.header.fight for one in episodes for _ in range(len(one))]
    table = pa.table({"eps_id": fights, "t": pa.array(steps, pa.int32()), **columns})
    with whole_file(path) as temporary, temporary.open("wb") as file:
        pq.write_table(table, file, compression="zstd")
    return len(table)


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
    episodes = read_episodes(folder, skill)
    header, played = episodes[0].header, episodes[0].skill
    said = f"Decisions of {skill}: observes {', '.join(played.observation)}; does {', '.join(played.actions)}."
    described = {"dataset_id": name, "minari_version": minari.__version__, "description": said}
    space = gymnasium.spaces.Box(-np.inf, np.inf, (len(played.observation),), np.float32)
    scenarios, spec = sorted({one.header.scenario for one in episodes}), gymnasium.registry.get(id_of(skill))
    if spec is not None and {*scenarios} <= {*shipped_names("scenario")}:
        bounds = observation_space(make_skill(skill, header.options), *map(load_scenario, scenarios))
        # A real game may leave the simulator's bounds.
        seen = np.vstack([part for one in episodes for part in (one.columns["obs"], one.columns["new_obs"])])
        low, high = np.minimum(bounds.low, seen.min(axis=0)), np.maximum(bounds.high, seen.max(axis=0))
        space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        # The environment of the skill's id has what the skill observes by default, and one scenario.
        usual = make_skill(skill)
        if len(scenarios) == 1 and _names(PlayedSkill.of(usual, "script")) == _names(played):
            keywords = {**spec.kwargs, "scenario": scenarios[0]}
            own = EnvSpec(spec.id, spec.entry_point, max_episode_steps=usual.horizon, kwargs=keywords)
            described["env_spec"] = own.to_json()
    with whole_folder(datasets / name) as temporary:
        # Its function for this takes the place from the environment alone, and warns of every author who is not named.
        storage = minari.dataset.minari_storage.MinariStorage.new(
            temporary.absolute() / "data", space, gymnasium.spaces.Discrete(len(played.actions))
        )
        storage.update_metadata(described)
        storage.update_episodes(
            minari.data_collector.EpisodeBuffer(
                id=number,
                observations=np.vstack([one["obs"], one["new_obs"][-1:]]),
                actions=one["actions"],
                rewards=list(one["rewards"]),
                terminations=list(one["terminateds"]),
                truncations=list(one["truncateds"]),
                infos={},
            )
            for number, one in enumerate(episode.columns for episode in episodes)
        )
    return len(episodes)
