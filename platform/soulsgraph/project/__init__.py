"""What a user does with a project of their own: begin it from a template, check it, compare its graphs.

What a project is, and how one is loaded, stands in `soulsgraph_policies.agents.projects`.
"""

from __future__ import annotations

import keyword
import sys
from importlib.util import find_spec
from pathlib import Path

from soulsgraph_envs.core.errors import SoulsGraphError, reading, shown
from soulsgraph_envs.core.files import whole_folder
from soulsgraph_policies.agents.projects import is_name

_TEMPLATE = Path(__file__).parent / "template"
_OWN_NAME = "@NAME@"
#: The template's files, and the places they come to.
_FILES = {
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "package.py.txt": "@NAME@/__init__.py",
    "parry.py.txt": "@NAME@/parry.py",
    "boss.toml.txt": "@NAME@/data/bosses/duellist.toml",
    "scenario.toml.txt": "@NAME@/data/scenarios/duel.toml",
    "test.py.txt": "tests/test_@NAME@.py",
}


def begin_project(folder: Path) -> tuple[Path, ...]:
    """Write a project into a new folder, whole or not at all, and return its files; the folder's name is the project's.

    Raises:
        SoulsGraphError: if the name cannot be one, or something is there already.
        WriteError: if it cannot be written.
    """
    name = folder.name
    remedy = "choose another name"
    if not is_name(name) or keyword.iskeyword(name):
        expected = "a name of at most 40 small letters, digits and underscores that begins with a letter"
        raise SoulsGraphError(f"project: expected {expected}, found {shown(name)}; {remedy}.")
    with reading(folder):
        if folder.exists():
            raise SoulsGraphError(f"{folder}: expected a new folder, found one that is there; {remedy}.")
    if name in sys.stdlib_module_names or find_spec(name) is not None:
        raise SoulsGraphError(f"project {name}: expected a name of its own, found a Python module of it; {remedy}.")
    with whole_folder(folder) as temporary:
        for source, target in _FILES.items():
            text = (_TEMPLATE / source).read_text(encoding="utf-8")
            path = temporary / target.replace(_OWN_NAME, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(_OWN_NAME, name), encoding="utf-8")
    return tuple(folder / target.replace(_OWN_NAME, name) for target in _FILES.values())
