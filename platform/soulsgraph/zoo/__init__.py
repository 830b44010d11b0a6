"""The zoo: trained agents that come with the package, each a run folder with a card of what it reaches.

`open_run` opens a run folder or an agent by its name, for reading; `copy_agent` makes a run of your own of an agent, or
goes on with one.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from soulsgraph.runs.lineage import branch, cards_of
from soulsgraph.runs.run_folder import RunFolder, RunFolderError
from soulsgraph_envs.core.errors import UnknownNameError

#: Where the agents lie, a folder each.
AGENTS = Path(__file__).with_name("agents")
#: A path that is none counts as a misspelt agent from this similarity on, as difflib measures it.
_MUCH_ALIKE = 0.7


def agent_names() -> tuple[str, ...]:
    """Return the names of the agents that are there."""
    return tuple(sorted(file.parent.name for file in AGENTS.glob(f"*/{RunFolder.plan_file}")))


def is_agent(path: Path) -> bool:
    """Return whether a path is the name of an agent; a folder of the same name comes first."""
    return str(path) in agent_names() and not path.exists()


def open_agent(name: str) -> RunFolder:
    """Open an agent as a run, for reading alone: it is a part of the package.

    Raises:
        UnknownNameError: if there is no agent of that name.
        SoulsGraphError: as `RunFolder.open`.
    """
    names = agent_names()
    if name not in names:
        raise UnknownNameError("agent of the zoo", name, names)
    return RunFolder.open(AGENTS / name)


def open_run(path: Path) -> RunFolder:
    """Open a run folder, or an agent of the zoo by its name, for reading.

    Raises:
        UnknownNameError: if there is no such folder, and an agent has a name much like it.
        SoulsGraphError: as `RunFolder.open`.
    """
    misspelt = not path.exists() and get_close_matches(str(path), agent_names(), cutoff=_MUCH_ALIKE)
    return open_agent(str(path)) if misspelt else RunFolder.open(path)


def refuse_agent(name: str) -> NoReturn:
    """Refuse to write into an agent, which is copied first; raises RunFolderError."""
    remedy = "name a folder for a copy of it with `run`"
    raise RunFolderError(Path(name), "a run folder to write into", "a read-only agent of the zoo", remedy)


def copy_agent(name: str, path: Path) -> RunFolder:
    """Open the copy of an agent that is in a folder, or make one there, which trains and adapts like any other run.

    Raises:
        UnknownNameError: if there is no agent of that name.
        RunFolderError: if something else is in the folder, another run too.
        WriteError: if it cannot be written, or something comes into it meanwhile.
        SoulsGraphError: as `RunFolder.open`.
    """
    agent = open_agent(name)
    if not (path / RunFolder.plan_file).exists():
        return branch(agent, RunFolder.planned(path, agent.plan).path, agent.plan.scenario)
    copy = RunFolder.open(path)
    versions = {(card.skill, card.version): card.digest for card in cards_of(copy)}
    same = all(versions.get((card.skill, card.version)) == card.digest for card in cards_of(agent))
    if not same or (copy.plan, copy.fight) != (agent.plan, agent.fight):
        raise RunFolderError(path, f"a copy of {name}", "another run", "name another folder with `run`")
    return copy
