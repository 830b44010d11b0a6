"""Skill graphs, and projects of users: skills and graphs of their own, installed or in a folder that a user names.

Nothing else leads to an import: a plan, a card and a checkpoint hold a project's name and digest, never a place.
"""

from __future__ import annotations

import hashlib
import re
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from dis import opmap
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from soulsgraph_envs import forget_skill, register_skill
from soulsgraph_envs.combat.scripted import REFERENCES, Script
from soulsgraph_envs.core.config import Where, read_file, to_json
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, reading, shown
from soulsgraph_envs.core.extras import PROJECTS
from soulsgraph_envs.core.meaning import meaning
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, SkillDefinition, definition_of
from soulsgraph_envs.skills.skill import NAME, forget, register


@dataclass(frozen=True)
class SkillGraph:
    """Skills and their training dependencies, a DAG; an edge (i, j) trains j with i fixed (Eq. 2).

    Raises:
        UnknownNameError: if an edge names a skill outside the graph.
        SoulsGraphError: if the edges form a cycle.
    """

    name: str
    skills: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        for edge in self.edges:
            for skill in edge:
                if skill not in self.skills:
                    raise UnknownNameError("skill in an edge", skill, self.skills)
        try:
            self._sorter().prepare()
        except CycleError as error:
            raise SoulsGraphError(
                f"skill graph {self.name!r}: expected no cycle, found {' -> '.join(error.args[1])}; remove an edge."
            ) from error

    def _sorter(self) -> TopologicalSorter[str]:
        return TopologicalSorter({skill: [a for a, b in self.edges if b == skill] for skill in self.skills})

    @property
    def order(self) -> tuple[str, ...]:
        """Return the skills in training order, every skill after all it depends on."""
        return tuple(self._sorter().static_order())

    @property
    def leaves(self) -> tuple[str, ...]:
        """Return the skills that no other is trained on, in training order."""
        built_on = {before for before, _ in self.edges}
        return tuple(name for name in self.order if name not in built_on)

    def upstream(self, skill: str) -> tuple[str, ...]:
        """Return every skill that `skill` depends on, directly or not, in training order.

        Raises:
            UnknownNameError: if the skill is not of this graph.
        """
        if skill not in self.skills:
            raise UnknownNameError("skill", skill, self.skills)
        needed = {skill}
        for candidate in reversed(self.order):
            if any(edge[0] == candidate and edge[1] in needed for edge in self.edges):
                needed.add(candidate)
        return tuple(name for name in self.order if name in needed - {skill})

    @property
    def digest(self) -> str:
        """Identify the graph by its content: sha256 over its skills and edges."""
        content = to_json([self.skills, sorted(self.edges)])
        return hashlib.sha256(content.encode()).hexdigest()


#: The chain of Eq. 2: camera -> lock-on -> movement -> dodge -> heal-attack.
PAPER_GRAPH = SkillGraph("paper", SKILL_NAMES, tuple(pairwise(SKILL_NAMES)))

#: The atomic agent of Appendix B: a graph of one skill.
END_TO_END_GRAPH = SkillGraph("end-to-end", (END_TO_END,), ())

GRAPHS = {graph.name: graph for graph in (PAPER_GRAPH, END_TO_END_GRAPH)}

_SOURCE = "pyproject.toml"
#: Bytes of a project's Python files together, far more than any project has.
_MOST_BYTES = 10_000_000
#: Characters of an error's message that are shown.
_LONGEST_MESSAGE = 300
#: Files that are code, and folders below `data` whose files are fights.
_CODE, _FIGHTS = (".py", ".pyc", ".pyi"), ("scenarios", "bosses", "players")


def is_name(name: str) -> bool:
    """Return whether a text can name a project or a graph of one."""
    return bool(NAME.fullmatch(name))


class ProjectError(SoulsGraphError):
    """A project cannot be loaded, is missing, or is not the expected one."""

    def __init__(self, source: object, expected: str, found: object, remedy: str = "correct the project") -> None:
        super().__init__(f"{source}: expected {expected}, found {found}", remedy)


@dataclass(frozen=True)
class OwnSkill:
    """A skill of a project: how it is declared, and the script that plays it for comparison."""

    definition: SkillDefinition
    reference: Callable[[Scenario], Script]


@dataclass(frozen=True)
class Project:
    """What a project adds: skills, and graphs of these and of the paper's; a graph is named PROJECT/GRAPH.

    Raises:
        ProjectError: for a name that cannot be one, a part of another type, no graph, or two of one name.
    """

    name: str
    skills: tuple[OwnSkill, ...]
    graphs: tuple[SkillGraph, ...]

    def __post_init__(self) -> None:
        source = f"project {shown(self.name)}"
        for name in (self.name, *(graph.name for graph in self.graphs if isinstance(graph, SkillGraph))):
            if not isinstance(name, str) or not is_name(name):
                raise ProjectError(source, "a name of at most 40 small letters, digits and underscores", shown(name))
        for parts, kind in ((self.skills, OwnSkill), (self.graphs, SkillGraph)):
            if not isinstance(parts, tuple) or not all(isinstance(part, kind) for part in parts):
                raise ProjectError(source, f"a tuple of {kind.__name__}", shown(parts))
        for own in self.skills:
            if not isinstance(own.definition, SkillDefinition):
                raise ProjectError(source, "an OwnSkill of a SkillDefinition", shown(own.definition))
            if not callable(own.reference):
                raise ProjectError(source, f"a reference to call for {own.definition.name}", shown(own.reference))
        names = [graph.name for graph in self.graphs]
        if not names or len(set(names)) < len(names):
            raise ProjectError(source, "one or more graphs, each of a name of its own", ", ".join(names) or "none")


@dataclass(frozen=True)
class LoadedProject:
    """A project whose code is imported, its package and the folder of it, and its `project_digest`.

    `named` is the folder by which a user named it; an installed one has none.
    """

    project: Project
    package: str
    folder: Path
    digest: str
    named: Path | None = None


_LOADED: dict[str, LoadedProject] = {}


def loaded_projects() -> Mapping[str, LoadedProject]:
    """Return every project that is loaded, by name."""
    return dict(_LOADED)


def projects_of(skills: Iterable[str]) -> dict[str, LoadedProject]:
    """Return the loaded projects that declare some of these skills, by name."""
    named = {*skills}
    return {
        name: loaded
        for name, loaded in _LOADED.items()
        if not named.isdisjoint(own.definition.name for own in loaded.project.skills)
    }


def graph_names() -> tuple[str, ...]:
    """Name every graph that is known: the shipped ones, then those of projects."""
    own = (f"{name}/{graph.name}" for name, loaded in _LOADED.items() for graph in loaded.project.graphs)
    return (*GRAPHS, *own)


def find_graph(name: str) -> SkillGraph:
    """Return a graph by its name.

    Raises:
        ProjectError: if it is a project's that is not loaded.
        UnknownNameError: if there is none of that name.
    """
    if name in GRAPHS:
        return GRAPHS[name]
    owner = project_of(name)
    if owner and owner not in _LOADED:
        raise _missing(f"graph {shown(name)}", owner)
    for graph in _LOADED[owner].project.graphs if owner else ():
        if name == f"{owner}/{graph.name}":
            return replace(graph, name=name)
    raise UnknownNameError("graph", name, graph_names())


def project_of(graph: str) -> str:
    """Return the name of the project that a graph is of, empty for a shipped one."""
    owner, separator, _ = graph.partition("/")
    return owner if separator else ""


@dataclass(frozen=True)
class ProjectDigest:
    """A project as a plan and a card name it."""

    name: str
    digest: str

    @classmethod
    def of(cls, graph: str) -> ProjectDigest | None:
        """Return that of a graph's project, None for a shipped graph."""
        owner = project_of(graph)
        return cls(owner, _LOADED[owner].digest) if owner else None

    @property
    def parts(self) -> tuple[str, str]:
        """The digests of its code, and of its data files: empty where there are none."""
        code, _, data = self.digest.partition(":")
        return code, data

    def check(self, source: object) -> None:
        """Check that the project is loaded, as it was.

        Raises:
            ProjectError: naming the project, and the digest that was expected and found.
        """
        if self.name not in _LOADED:
            raise _missing(source, self.name, f" ({self.digest[:16]}) that it was created with")
        found = _LOADED[self.name]
        there_now = ProjectDigest(self.name, found.digest)
        for what, expected, there in zip(("code", "data files"), self.parts, there_now.parts, strict=True):
            if expected != there:
                wanted = f"the project {shown(self.name)} that it was created with ({expected[:16] or 'none'})"
                changed = f"another state of its {what} in {found.folder} ({there[:16] or 'none'})"
                raise ProjectError(source, wanted, changed, f"restore the {what}, or begin a new run")


def _missing(source: object, name: str, which: str = "") -> ProjectError:
    known = f"none of that name; loaded: {', '.join(_LOADED) or 'none'}"
    return ProjectError(source, f"the project {shown(name)}{which}", known, "install it, or name its folder: `project`")


def load_installed() -> list[SoulsGraphError]:
    """Load every project that is installed, and return what is wrong with those that cannot be."""
    problems = []
    for entry in entry_points(group=PROJECTS):
        source = f"installed project {entry.name}"
        try:
            _load(entry.module, entry.attr, source)
        except SoulsGraphError as error:
            # What the package's own lines raise names the skill alone.
            named = str(error).startswith(source)
            problems.append(error if named else SoulsGraphError(f"{source} ({entry.module}): {error}"))
    return problems


def load_project(folder: Path) -> LoadedProject:
    """Load the project of a folder that a user named; its modules are found from now on.

    The folder's pyproject.toml names it as an installed one is named: by one entry point of the group
    `soulsgraph.projects`.

    Raises:
        ProjectError: if the folder holds none, or its code cannot be imported.
        SoulsGraphError: if a file cannot be read, or a skill does not hold.
    """
    file = folder.absolute() / _SOURCE
    remedy = "name the folder of a project"
    with reading(folder):
        if not file.is_file():
            raise ProjectError(folder, f"the folder of a project, with a {_SOURCE}", "none", remedy)
    values = read_file(Where(file))
    points = values.get("project", {})
    points = points.get("entry-points", {}) if isinstance(points, dict) else {}
    named = points.get(PROJECTS, {}) if isinstance(points, dict) else {}
    if not isinstance(named, dict) or len(named) != 1:
        raise ProjectError(file, f'one entry point in [project.entry-points."{PROJECTS}"]', shown(named))
    ((name, target),) = named.items()
    module, separator, attribute = target.partition(":") if isinstance(target, str) else ("", "", "")
    if not separator or not re.fullmatch(r"[A-Za-z_][\w.]*", module) or not attribute.isidentifier():
        raise ProjectError(file, f"entry point {shown(name)} as MODULE:NAME", shown(target))
    with _first_on_path(file.parent):
        return _load(module, attribute, str(folder), file.parent)


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    place = str(folder)
    sys.path.insert(0, place)
    try:
        yield
    finally:
        # Kept, behind all else: a module of the project may import another one later.
        sys.path.remove(place)
        sys.path.append(place)


def _load(module: str, attribute: str, source: str, folder: Path | None = None) -> LoadedProject:
    before = set(sys.modules)
    try:
        imported = import_module(module)
        project = getattr(imported, attribute, None)
    except SoulsGraphError:
        raise
    except (Exception, SystemExit) as error:  # A project's code may fail in any way.
        raise ProjectError(
            source, f"a module {module} that can be imported", fault(error, [folder] if folder else [])
        ) from error
    if not isinstance(project, Project):
        raise ProjectError(source, f"a Project named {attribute} in {module}", shown(project))
    place = _folder_of(imported, source)
    if folder is not None and not place.is_relative_to(folder.resolve()):
        remedy = "rename the project's package, or leave one out"
        raise ProjectError(source, f"its own package {module}", f"one of that name in {place}", remedy)
    if folder is not None:
        _check_inside(folder.resolve(), place, before, source)
    return _add(LoadedProject(project, imported.__name__, place, project_digest(place), folder), source)


def _check_inside(folder: Path, package: Path, before: Collection[str], source: str) -> None:
    """Refuse modules beside the package that its import brought: no digest covers them, and no worker gets them."""
    new = [(name, getattr(module, "__file__", None)) for name, module in [*sys.modules.items()] if name not in before]
    places = {name: Path(file).resolve() for name, file in new if isinstance(file, str)}
    # A virtual environment may be in the folder too: what is installed there is no code of the project.
    inside = {name: place.relative_to(folder) for name, place in places.items() if place.is_relative_to(folder)}
    own = {name: place for name, place in inside.items() if "site-packages" not in place.parts}
    beside = [place for place in own.values() if not (folder / place).is_relative_to(package)]
    if beside:
        for name in own:
            sys.modules.pop(name, None)  # Else the next attempt would find them imported.
        listed = ", ".join(place.as_posix() for place in beside)
        raise ProjectError(source, f"its modules in the package {package.name}", listed, "move them into it")


def fault(error: BaseException, folders: Iterable[Path] = ()) -> str:
    """Return an error of somebody's code in one line: file and line in a project, as far as it has one, kind, message.

    The projects are those in `folders`, and all that are loaded.
    """
    within = [*(folder.resolve() for folder in folders), *(loaded.folder for loaded in _LOADED.values())]
    frames = [(Path(frame.filename), frame.lineno) for frame in extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((Path(error.filename), error.lineno))
    own = [f"{file}:{line}: " for file, line in frames if any(file.is_relative_to(folder) for folder in within)]
    message = " ".join(str(error).split())
    cut = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}..."
    return f"{own[-1] if own else ''}{type(error).__name__}{cut and f': {cut}'}"


def authors_error(error: BaseException) -> ProjectError | None:
    """Return the one line of what failed in the code of a project that is loaded; None where that did not fail.

    Code that ends the program failed as well, unless a signal did that while it ran.
    """
    files = [Path(frame.filename) for frame in extract_tb(error.__traceback__)]
    for loaded in _LOADED.values():
        own = [file.is_relative_to(loaded.folder) for file in files]
        if any(own) and not (isinstance(error, SystemExit | KeyboardInterrupt) and _by_signal(error, own[-1])):
            source = f"project {loaded.project.name}"
            return ProjectError(source, "code that runs", fault(error), "correct it, and see `validate`")
    return None


def _by_signal(error: SystemExit | KeyboardInterrupt, innermost: bool) -> bool:
    """Return whether a signal ended the program, not code; `innermost` says whether a project's code ran then."""
    if isinstance(error, SystemExit):
        # As Ray answers a termination, in a handler of its own.
        return error.code == signal.SIGTERM and not innermost
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    # Python's own handler leaves no frame, but never acts at a `raise`.
    return step is None or not innermost or step.tb_frame.f_code.co_code[step.tb_lasti] != opmap["RAISE_VARARGS"]


def _folder_of(module: ModuleType, source: str) -> Path:
    if module.__file__ is None or Path(module.__file__).name != "__init__.py":
        raise ProjectError(source, "a package, a folder with an __init__.py", module.__name__)
    return Path(module.__file__).resolve().parent


def _add(loaded: LoadedProject, source: str) -> LoadedProject:
    project = loaded.project
    known = _LOADED.get(project.name)
    if known is not None:
        if known.project is project:
            return known
        raise ProjectError(source, "a project of a name of its own", f"another {project.name} in {known.folder}")
    added = []
    try:
        for own in project.skills:
            register(own.definition)
            added.append(own.definition.name)
            REFERENCES[own.definition.name] = own.reference
        for graph in project.graphs:
            for name in graph.skills:
                definition_of(name)
    except SoulsGraphError as error:
        for name in added:
            forget(name)
            REFERENCES.pop(name, None)
        raise ProjectError(source, "skills that hold", f"an error: {error}") from error
    for graph in reversed(project.graphs):
        for name in added:
            if name in graph.skills:
                register_skill(name, graph.upstream(name))
    _LOADED[project.name] = loaded
    return loaded


def take_over(projects: Iterable[LoadedProject]) -> None:
    """Make projects known in a process that got them by value and has not imported their code.

    Raises:
        ProjectError: if it has another project, or other code, of a name.
    """
    for loaded in projects:
        name = loaded.project.name
        if name in _LOADED:
            ProjectDigest(name, loaded.digest).check(f"project {name}")
        else:
            _add(loaded, f"project {name}")


def forget_project(name: str) -> None:
    """Make a project and its skills unknown again, and let its modules be imported anew."""
    loaded = _LOADED.pop(name)
    for own in loaded.project.skills:
        forget(own.definition.name)
        forget_skill(own.definition.name)
        REFERENCES.pop(own.definition.name, None)
    for module in [one.__name__ for one in modules_of(loaded)]:
        sys.modules.pop(module, None)


def modules_of(loaded: LoadedProject) -> list[ModuleType]:
    """Return the imported modules of a project's package."""
    package = loaded.package
    return [module for name, module in [*sys.modules.items()] if name == package or name.startswith(f"{package}.")]


@contextmanager
def carried_by_value(*picklers: Any) -> Iterator[None]:
    """Let picklers carry the projects' code along: workers and other machines have not imported it."""
    modules = [module for loaded in _LOADED.values() for module in modules_of(loaded)]
    for pickler in picklers:
        for module in modules:
            pickler.register_pickle_by_value(module)
    try:
        yield
    finally:
        for pickler in picklers:
            for module in modules:
                pickler.unregister_pickle_by_value(module)


def project_digest(folder: Path) -> str:
    """Return the digest of a package's code, and behind a colon, if it has any, that of its data files.

    Raises:
        ProjectError: as `code_digest`.
        ReadError: if a file cannot be read.
    """
    data = _data_digest(folder)
    return f"{code_digest(folder)}:{data}" if data else code_digest(folder)


def _data_digest(folder: Path) -> str:
    """Return a SHA-256 of a package's files that are no code; empty if there are none.

    Fights have a digest of their own, in whatever names them: another one beside them changes no run.
    """
    digest, found = hashlib.sha256(), False
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        if hidden or path.suffix in _CODE or (parts[0] == "data" and parts[1:2] and parts[1] in _FIGHTS):
            continue
        with reading(path):
            if not path.is_file():
                continue
            # Line ends differ where git checks files out on Windows.
            own = hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\n{own}\n".encode())
        found = True
    return digest.hexdigest() if found else ""


def code_digest(folder: Path) -> str:
    """Return a SHA-256 of the meaning of a package's Python files.

    Raises:
        ProjectError: if a file is no Python, or the files are too large.
    """
    digest, size = hashlib.sha256(), 0
    # Paths themselves have another order on Windows.
    for path in sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).parts):
        with reading(path):
            source = path.read_bytes()
        size += len(source)
        if size > _MOST_BYTES:
            raise ProjectError(folder, f"Python files of at most {_MOST_BYTES:,} bytes together", "more")
        try:
            does = meaning(source)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise ProjectError(path, "Python", error) from error
        digest.update(f"{path.relative_to(folder).as_posix()}\n{does}\n".encode())
    return digest.hexdigest()
