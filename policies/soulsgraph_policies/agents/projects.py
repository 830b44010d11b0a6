"""Skill graphs, and projects of users: packages with skills and graphs of their own, installed or in a named folder.

Nothing else leads to an import: a plan, a card and a checkpoint hold a project's name and digest, never a place.
"""

from __future__ import annotations

import hashlib
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from pathlib import Path
from traceback import StackSummary, extract_tb, format_exception_only
from types import ModuleType
from typing import Any

from soulsgraph_envs import register_skill
from soulsgraph_envs.combat.scripted import REFERENCES, Script
from soulsgraph_envs.core.config import to_json
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
        # Sorted: the edges are a set, and the order of the skills follows from it alone.
        edges = sorted(self.edges)
        return TopologicalSorter({skill: [a for a, b in edges if b == skill] for skill in self.skills})

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

#: Files that are no source, and folders below `data` whose files are fights.
_COMPILED, _FIGHTS = (".pyc", ".pyi"), ("scenarios", "bosses", "players")


def is_name(name: str) -> bool:
    """Return whether a text can name a project or a graph of one."""
    return bool(NAME.fullmatch(name))


@dataclass(frozen=True)
class OwnSkill:
    """A skill of a project: how it is declared, and the script that plays it for comparison."""

    definition: SkillDefinition
    reference: Callable[[Scenario], Script]


@dataclass(frozen=True)
class Project:
    """What a project adds: skills, and graphs of these and of the paper's; a graph is named PROJECT/GRAPH.

    Raises:
        SoulsGraphError: for a name that cannot be one, no graph, or two of one name.
    """

    name: str
    skills: tuple[OwnSkill, ...]
    graphs: tuple[SkillGraph, ...]

    def __post_init__(self) -> None:
        names = [graph.name for graph in self.graphs]
        for name in (self.name, *names):
            if not is_name(name):
                expected = "a name of at most 40 small letters, digits and underscores"
                raise SoulsGraphError(f"project {self.name!r}: expected {expected}, found {shown(name)}.")
        if not names or len(set(names)) < len(names):
            found = ", ".join(names) or "none"
            raise SoulsGraphError(f"project {self.name}: expected graphs, each of a name of its own, found {found}.")


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
        SoulsGraphError: if it is a project's that is not loaded.
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

    def check(self, source: object) -> None:
        """Check that the project is loaded, as it was.

        Raises:
            SoulsGraphError: naming the project, and the digest that was expected and found.
        """
        if self.name not in _LOADED:
            raise _missing(source, self.name)
        found = _LOADED[self.name]
        if found.digest != self.digest:
            raise SoulsGraphError(
                f"{source}: expected the project {self.name} as it was created with ({self.digest[:16]}), found other "
                f"files in {found.folder} ({found.digest[:16]}); restore them, or begin a new run."
            )


def _missing(source: object, name: str) -> SoulsGraphError:
    loaded = ", ".join(_LOADED) or "none"
    return SoulsGraphError(
        f"{source}: expected the project {shown(name)}, found none of that name (loaded: {loaded}); install it, or "
        "name its folder by `project`."
    )


def load_installed() -> list[SoulsGraphError]:
    """Load every project that is installed, and return what is wrong with those that cannot be."""
    problems = []
    for entry in entry_points(group=PROJECTS):
        try:
            _load(entry)
        except SoulsGraphError as error:
            problems.append(SoulsGraphError(f"installed project {entry.name} ({entry.value}): {error}"))
    return problems


def load_project(folder: Path) -> LoadedProject:
    """Load the project of a folder, which is on the path from then on.

    The folder's pyproject.toml names it as an installed one is named: by an entry point of the group
    `soulsgraph.projects`.

    Raises:
        SoulsGraphError: if the folder holds none, its code cannot be imported, or a skill does not hold.
    """
    folder, points = folder.absolute(), None
    try:
        values = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        points = values["project"]["entry-points"][PROJECTS]
        ((name, value),) = points.items()
        entry = EntryPoint(name, value, PROJECTS)
        assert entry.attr, "an object of the module is named"
    except (OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        raise SoulsGraphError(
            f'{folder}: expected the folder of a project, whose pyproject.toml has [project.entry-points."{PROJECTS}"] '
            f'with NAME = "MODULE:OBJECT", found {shown(points) if points else error}.'
        ) from error
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return _load(entry, folder)


def _load(entry: EntryPoint, folder: Path | None = None) -> LoadedProject:
    try:
        project = entry.load()
        package = sys.modules[entry.module]
    except SoulsGraphError:
        raise
    except (Exception, SystemExit) as error:  # An author's code may fail in any way.
        raise SoulsGraphError(f"{entry.value} cannot be imported.\n{authors_traceback(error, folder)}") from error
    place = Path(package.__file__ or "").resolve()
    if not isinstance(project, Project) or place.name != "__init__.py":
        raise SoulsGraphError(f"{entry.value}: expected a Project in a package, found {shown(project)} in {place}.")
    if folder is not None and not place.is_relative_to(folder.resolve()):
        raise SoulsGraphError(f"{folder}: expected its own package {entry.module}, found the one in {place}.")
    return _add(LoadedProject(project, package.__name__, place.parent, project_digest(place.parent), folder))


def authors_traceback(error: BaseException, folder: Path | None = None) -> str:
    """Return Python's traceback of an error cut to the frames of projects; without any frame, if none of it is theirs.

    The projects are the loaded ones, and the one that is in `folder`.
    """
    folders = [loaded.folder for loaded in _LOADED.values()] + ([] if folder is None else [folder.resolve()])
    frames = StackSummary.from_list(
        frame
        for frame in extract_tb(error.__traceback__)
        if any(Path(frame.filename).resolve().is_relative_to(each) for each in folders)
    )
    heading = ["Traceback (most recent call last):\n"] if frames else []
    return "".join([*heading, *frames.format(), *format_exception_only(error)]).rstrip()


def _add(loaded: LoadedProject) -> LoadedProject:
    project = loaded.project
    known = _LOADED.get(project.name)
    if known is not None:
        if known.project is project:
            return known
        raise SoulsGraphError(f"project {project.name}: expected a name of its own, found another in {known.folder}.")
    added = []
    try:
        for own in project.skills:
            register(own.definition)
            added.append(own.definition.name)
            REFERENCES[own.definition.name] = own.reference
        for graph in project.graphs:
            for name in graph.skills:
                definition_of(name)
    except SoulsGraphError:
        for name in added:
            forget(name)
            REFERENCES.pop(name, None)
        raise
    for graph in reversed(project.graphs):
        for name in added:
            if name in graph.skills:
                register_skill(name, graph.upstream(name))
    _LOADED[project.name] = loaded
    return loaded


def take_over(projects: Iterable[LoadedProject]) -> None:
    """Make projects known in a process that got them by value and has not imported their code.

    Raises:
        SoulsGraphError: if it has another project, or other code, of a name.
    """
    for loaded in projects:
        name = loaded.project.name
        if name in _LOADED:
            ProjectDigest(name, loaded.digest).check(f"project {name}")
        else:
            _add(loaded)


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
    """Return a SHA-256 of a package's files: of code what it does, of others the bytes.

    Fights have a digest of their own, in whatever names them: another one beside them changes no run.

    Raises:
        ReadError: if a file cannot be read.
    """
    digest = hashlib.sha256()
    # Paths themselves have another order on Windows.
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        fight = parts[0] == "data" and parts[1:2] and parts[1] in _FIGHTS
        if hidden or fight or path.suffix in _COMPILED or not path.is_file():
            continue
        with reading(path):
            # Line ends differ where git checks files out on Windows.
            content = path.read_bytes().replace(b"\r\n", b"\n")
        if path.suffix == ".py":
            with suppress(SyntaxError, ValueError, RecursionError):  # A template is no Python.
                content = meaning(content).encode()
        digest.update(f"{'/'.join(parts)}\n{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()
