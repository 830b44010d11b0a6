"""A run as it stood after one of its scenarios: to go another way from there, or to look back."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

from soulsgraph.domains import domain_chain, record_domain
from soulsgraph.files import slug
from soulsgraph.run_folder import RunFolder
from soulsgraph_policies.atomic import whole_folder

#: Folder of the arm of a recovery that trains every skill anew.
SCRATCH = "scratch"


def arm_path(run: RunFolder, scenario: str, budget: int, arm: str) -> Path:
    """Return the folder of a recovery's arm below the run, named by what is done in it."""
    return run.path / "recovery" / slug(scenario) / str(budget) / arm


def branch(run: RunFolder, path: Path, after: str) -> RunFolder:
    """Copy the run's plan and the versions of the chain up to `after` into a new folder, and open it.

    The folder appears whole, its chain on record, or not at all.

    Raises:
        WriteError: if the folder exists or cannot be written.
    """
    chain = domain_chain(run, after)
    with whole_folder(path) as temporary:
        shutil.copy2(run.path / "plan.json", temporary / "plan.json")
        _copy_versions(run, chain, temporary / "library")
        copied = RunFolder(temporary, run.plan)
        for earlier, later in pairwise(chain):
            record_domain(copied, later, earlier)
    return RunFolder.open(path)


def _copy_versions(run: RunFolder, chain: tuple[str, ...], library: Path) -> None:
    for skill in run.plan.skill_graph.order:
        for number in run.library.versions(skill):
            if run.library.card(skill, number).training.scenario in chain:
                version = Path(skill, f"v{number}")
                shutil.copytree(run.library.folder / version, library / version)
