import ast
import functools
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Package to source root, from the top floor to the ground.
FLOORS = {
    "soulsgraph": "platform",
    "soulsgraph_clusters": "clusters",
    "soulsgraph_policies": "policies",
    "soulsgraph_envs": "envs",
}


@functools.cache
def _text(file):
    return file.read_text(encoding="utf-8")


@functools.cache
def _nodes(file):
    """Return all nodes of a file's syntax tree, which most tests here go through."""
    return list(ast.walk(ast.parse(_text(file))))


def _imports(file):
    for node in _nodes(file):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute, so that this test can read them"
            yield node.module.split(".")[0]


@pytest.mark.parametrize("package", FLOORS)
def test_imports_only_go_down(package):
    floors = list(FLOORS)
    above = floors[: floors.index(package)]
    files = sorted((ROOT / FLOORS[package] / package).rglob("*.py"))
    assert files
    upward = [(str(file.relative_to(ROOT)), name) for file in files for name in _imports(file) if name in above]
    assert not upward


@pytest.mark.parametrize("package", FLOORS)
def test_a_source_root_holds_one_typed_package_and_nothing_else(package):
    root = ROOT / FLOORS[package]
    assert [path.name for path in root.iterdir() if path.name != "__pycache__"] == [package]
    assert (root / package / "py.typed").is_file()


def _modules():
    """Return every product module by its dotted name."""
    modules = {}
    for package, root in FLOORS.items():
        for file in (ROOT / root / package).rglob("*.py"):
            parts = file.relative_to(ROOT / root).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return modules


def _import_graph(modules):
    """Return the product modules that each imports anywhere in its file."""
    graph = {name: set() for name in modules}
    for name, file in modules.items():
        for node in _nodes(file):
            if isinstance(node, ast.Import):
                graph[name].update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name].update(inner & modules.keys() or {node.module})
    return {name: (imported & modules.keys()) - {name} for name, imported in graph.items()}


def _circle(graph):
    """Return modules that import each other in a circle, empty if there are none."""
    left = {name: set(imported) for name, imported in graph.items()}
    while free := {name for name, imported in left.items() if not imported}:
        left = {name: imported - free for name, imported in left.items() if name not in free}
    return left


def test_no_module_imports_itself_through_others():
    assert not _circle(_import_graph(_modules()))


def _folder_pairs(graph, files):
    """Return which folder imports which; a package's front door, which may name its subfolders, does not count."""
    folder = {name: name if files[name].name == "__init__.py" else name.rpartition(".")[0] for name in graph}
    inner = {name: imported for name, imported in graph.items() if files[name].name != "__init__.py"}
    pairs = {(folder[name], folder[one]) for name, imported in inner.items() for one in imported}
    return {(a, b) for a, b in pairs if a != b}


def test_no_two_folders_import_each_other():
    modules = _modules()
    pairs = _folder_pairs(_import_graph(modules), modules)
    assert not {(a, b) for a, b in pairs if (b, a) in pairs}


def _fresh(code):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    ).stdout.strip()


def test_platform_is_the_standard_librarys_beside_our_folder():
    code = "import sys; sys.path.insert(0, '.'); import platform; print(platform.python_version())"
    assert _fresh(code) == ".".join(map(str, sys.version_info[:3]))


def _commands(file):
    """Yield the constant words behind `sys.executable` in every list or tuple that begins with it."""
    for node in _nodes(file):
        first, *words = node.elts if isinstance(node, ast.List | ast.Tuple) and node.elts else (None,)
        if isinstance(first, ast.Attribute) and ast.unparse(first) == "sys.executable":
            yield [word.value for word in words if isinstance(word, ast.Constant)]


def test_a_module_in_the_working_folder_is_not_executed_by_our_processes():
    """With `-P` Python puts neither the working folder nor a script's own in front of what it imports from."""
    files = [file for package, root in FLOORS.items() for file in (ROOT / root / package).rglob("*.py")]
    found = {file.relative_to(ROOT).as_posix(): [*_commands(file)] for file in files}
    assert any(found.values())
    unsafe = [(name, words) for name, commands in found.items() for words in commands if words[:1] != ["-P"]]
    assert not unsafe


def test_every_dependency_has_a_lower_bound():
    """Without one pip accepts versions by which nothing works, as numba 0.67."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert len(found) > 10
    assert not [one for one in found if ">=" not in one and "==" not in one]
