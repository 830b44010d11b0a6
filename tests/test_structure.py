import ast
import functools
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from soulsgraph.cli.front import COMMANDS

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


def _own_lines(function):
    """Count a function's lines without those of functions inside it."""
    inner = [node for node in ast.walk(function) if isinstance(node, ast.FunctionDef) and node is not function]
    inside = {line for node in inner for line in range(node.lineno, node.end_lineno + 1)}
    return function.end_lineno - function.lineno + 1 - len(inside)


def test_modules_and_functions_stay_small():
    large = []
    for file in (file for root in (*FLOORS.values(), "tests") for file in sorted((ROOT / root).rglob("*.py"))):
        text = _text(file)
        functions = [node for node in _nodes(file) if isinstance(node, ast.FunctionDef)]
        long = [node for node in functions if node.end_lineno - node.lineno >= 60]
        large += [(file.name, node.name) for node in long if _own_lines(node) > 60]
        large += [(file.name, "module")] if text.count("\n") > 700 else []
    assert not large


def _calls(file, methods, owner):
    """Return whether a file calls one of some methods on what is named `owner` or `_owner`, or a call of that name."""
    for node in _nodes(file):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
            of = node.func.value.func if isinstance(node.func.value, ast.Call) else node.func.value
            name = of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
            if name.strip("_").lower() == owner:
                return True
    return False


#: Who ticks a rollout itself: training never ends, RLlib asks for every step, and a benchmark times ticks alone.
_TICKING = {
    "policies/soulsgraph_policies/learning/sampler.py",
    "envs/soulsgraph_envs/gym/graph_fight.py",
    "platform/soulsgraph/bench/speed.py",
}


def test_one_rollout_steps_every_combat():
    files = [file for package, root in FLOORS.items() for file in (ROOT / root / package).rglob("*.py")]
    assert [file.name for file in files if _calls(file, {"step"}, "combat")] == ["rollout.py"]
    ticking = [file for file in files if _calls(file, {"tick", "advance"}, "rollout")]
    assert {file.relative_to(ROOT).as_posix() for file in ticking} == _TICKING


def test_one_module_reads_configuration():
    files = [file for package, root in FLOORS.items() for file in (ROOT / root / package).rglob("*.py")]
    parsing = {file.name for file in files if re.search(r"json\.loads?\b|tomllib", _text(file))}
    # The others read lines of our own processes, a browser's answers, and what a checkpoint holds beside its arrays.
    assert parsing - {"launch.py", "local_ray.py", "checkpoint.py"} == {"config.py"}


def test_one_function_splits_addresses():
    split = re.compile(r"""rpartition\(["']:["']\)|strip\(["']\[\]["']\)|removeprefix\(["']\["']\)""")
    files = (file for package, root in FLOORS.items() for file in (ROOT / root / package).rglob("*.py"))
    found = {file.name for file in files if split.search(_text(file))}
    assert found == {"access.py"}


def _imported_names(file):
    """Return what a file imports anywhere by dotted names: modules, and what is taken from them."""
    names = set()
    for node in _nodes(file):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


_BENCHMARKS = tuple(file.stem for file in (ROOT / "benchmarks").glob("*.py"))


def test_stand_ins_fakes_and_benchmarks_are_off_the_products_path():
    apart = ("soulsgraph_envs.games.standin", "soulsgraph.bench", "soulsgraph_envs.testing", "fakes", *_BENCHMARKS)
    allowed = ("soulsgraph/cli/", "soulsgraph/bench/", "soulsgraph_envs/games/standin/", "soulsgraph_envs/testing.py")
    found = []
    for package, root in FLOORS.items():
        for file in sorted((ROOT / root / package).rglob("*.py")):
            place = file.relative_to(ROOT / root).as_posix()
            if place.startswith(allowed):
                continue
            found += [
                (place, name)
                for name in sorted(_imported_names(file))
                if f"{name}.".startswith(tuple(f"{one}." for one in apart))
            ]
    assert not found


def _re_exports(nodes):
    """Yield what a file imports for others to import from it: `X as X`, and stars."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name for alias in node.names if alias.name in ("*", alias.asname))


#: Packages whose import paths are those of the projects that they stand in for.
_PROMISED = "soulsgraph_envs/compat/"


def test_no_module_re_exports_what_another_defines():
    example = "from a import x as x, y as z, u\nimport b as b, c.d as d\nfrom e import *"
    assert [*_re_exports(ast.walk(ast.parse(example)))] == ["x", "b", "*"]
    found = []
    for package, root in FLOORS.items():
        for file in sorted((ROOT / root / package).rglob("*.py")):
            place = file.relative_to(ROOT / root).as_posix()
            names = [*_re_exports(_nodes(file))]
            if file.name == "__init__.py" or place.startswith(_PROMISED):
                names = [name for name in names if name == "*"]
            found += [(place, name) for name in names]
    assert not found


def _texts(file):
    """Yield the texts of a file's code, without docstrings of modules, classes, functions and fields."""
    docstrings = {id(node.value) for node in _nodes(file) if isinstance(node, ast.Expr)}
    for node in _nodes(file):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


#: What follows our name where a version is named, and no command.
_VERSION = re.compile(r"version|\.soulsgraph$")


def _computed_commands(nodes):
    """Yield texts in which a computed word follows our program's name, and lists of words that begin with it."""
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            for text, word in pairwise(node.values):
                named = isinstance(text, ast.Constant) and re.search(r"\bsoulsgraph $", text.value)
                if named and not _VERSION.search(ast.unparse(word.value)):
                    yield ast.unparse(node)
        elif isinstance(node, ast.List | ast.Tuple) and len(node.elts) > 1:
            first, second = node.elts[:2]
            if isinstance(second, ast.Starred) and ast.unparse(first) == "'soulsgraph'":
                yield ast.unparse(node)


#: Options of other programs: of Ray's in the cluster for tests, and those that a few texts name.
_FOREIGN = {
    "soulsgraph_clusters/sessions/head.py": {"--address", "--block", "--head", "--node-ip-address", "--port"},
    "soulsgraph_clusters/sessions/jobs.py": {"--head"},
    "soulsgraph/results/origin.py": {"--porcelain", "--untracked-files"},
    "soulsgraph_envs/games/user32.py": {"--force-reinstall"},
}
#: The name by which the Siphon server answers its clients.
_SERVER_NAME = "soulsgraph serve-siphon"


def test_only_the_command_line_names_our_commands_and_options():
    command = re.compile(rf"\bsoulsgraph ({'|'.join(map(re.escape, COMMANDS))})\b")
    assert command.search("run soulsgraph import-sb3 FILE")
    lines = """f"soulsgraph {words[0]}", f"job {name} of soulsgraph {word} ends", ["soulsgraph", *words]"""
    assert len([*_computed_commands(ast.walk(ast.parse(lines)))]) == 3
    found = []
    for package, root in FLOORS.items():
        for file in sorted((ROOT / root / package).rglob("*.py")):
            place = file.relative_to(ROOT / root).as_posix()
            if place.startswith("soulsgraph/cli/"):
                continue
            for text in (text for text in _texts(file) if text != _SERVER_NAME):
                options = {*re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)} - _FOREIGN.get(place, set())
                found += [(place, text)] if options or command.search(text) else []
            found += [(place, text) for text in _computed_commands(_nodes(file))]
    assert not found


def test_tests_are_no_packages():
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_test_folders_mirror_the_packages():
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    # The chaos suite breaks whole fleets, and fakes stand in for anything: they are no one package's.
    assert folders == {*FLOORS.values(), "benchmarks", "chaos", "fakes"}
    for package, root in FLOORS.items():
        for folder in {
            path.parent.relative_to(ROOT / "tests" / root) for path in (ROOT / "tests" / root).rglob("test_*.py")
        }:
            assert (ROOT / root / package / folder / "__init__.py").exists(), folder


def test_every_folder_of_modules_has_tests_in_the_folder_of_its_name():
    without = []
    for package, root in FLOORS.items():
        for folder in {path.parent for path in (ROOT / root / package).rglob("*.py") if path.name != "__init__.py"}:
            own = ROOT / "tests" / root / folder.relative_to(ROOT / root / package)
            without += [] if list(own.glob("test_*.py")) else [str(folder.relative_to(ROOT))]
    assert not without


def _modules():
    """Return every product module by its dotted name."""
    modules = {}
    for package, root in FLOORS.items():
        for file in (ROOT / root / package).rglob("*.py"):
            parts = file.relative_to(ROOT / root).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return modules


def _import_graph(modules, nodes=_nodes):
    """Return the product modules that each imports anywhere in its file, or in those nodes of it."""
    graph = {name: set() for name in modules}
    for name, file in modules.items():
        for node in nodes(file):
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
    assert _circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set()}) == {"a": {"b"}, "b": {"c"}, "c": {"a"}}


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


def test_a_module_beside_a_subfolder_counts_and_a_front_door_does_not():
    files = {name: Path(path) for name, path in {"p": "p/__init__.py", "p.a": "p/a.py", "p.q.b": "p/q/b.py"}.items()}
    assert _folder_pairs({"p": {"p.q.b"}, "p.a": {"p.q.b"}, "p.q.b": {"p.a"}}, files) == {("p", "p.q"), ("p.q", "p")}
    assert _folder_pairs({"p": {"p.q.b"}, "p.a": set(), "p.q.b": {"p.a"}}, files) == {("p.q", "p")}


def _fresh(code):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    ).stdout.strip()


def test_platform_is_the_standard_librarys_beside_our_folder():
    code = "import sys; sys.path.insert(0, '.'); import platform; print(platform.python_version())"
    assert _fresh(code) == ".".join(map(str, sys.version_info[:3]))


def test_importing_the_world_loads_neither_ray_nor_torch():
    modules = "core.scenario", "skills", "combat.loop", "games.opening", "gym.skill_env", "simulator", "testing"
    imports = "; ".join(f"import soulsgraph_envs.{module}" for module in modules)
    code = f"import sys, soulsgraph_envs; {imports}; print(sorted({{'ray', 'torch'}} & set(sys.modules)))"
    assert _fresh(code) == "[]"


#: Modules that load torch and compute nothing by themselves: networks, losses, a session that loads it before Ray.
_COMPUTES_NOTHING = {"module.py", "replay.py", "session.py"}


def test_whatever_computes_with_torch_sets_its_threads_by_one_rule():
    loading = set()
    for package, root in FLOORS.items():
        for file in sorted((ROOT / root / package).rglob("*.py")):
            text = _text(file)
            assert "set_num_threads(" not in text or file.name == "machine.py", file
            if re.search(r"^(import torch|from torch)\b", text, re.MULTILINE):
                loading.add(file.name)
                assert "    compute_on_one_thread()\n" in text or file.name in _COMPUTES_NOTHING, file
    assert loading > _COMPUTES_NOTHING


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
    assert sum(map(len, found.values())) >= 10
    unsafe = [(name, words) for name, commands in found.items() for words in commands if words[:1] != ["-P"]]
    assert not unsafe


def test_every_dependency_has_a_lower_bound():
    """Without one pip accepts versions by which nothing works, as numba 0.67."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert len(found) > 10
    assert not [one for one in found if ">=" not in one and "==" not in one]


#: What one other module uses lives in that module, unless it has at least this many lines.
_OWN_MODULE_LINES = 80
#: Modules of one method each, all alike, which one table names: whoever adds a method adds a file.
_ONE_OF_MANY = re.compile(r"soulsgraph\.continual\.methods\.\w+")
#: Modules whose paths are those of the projects that they stand in for.
_PATHS_OF_OTHERS = re.compile(r"soulsgraph_envs\.compat\.(soulsgym|eldengym)\.\w+\.")


def _small_modules_of_one(graph, at_once, lines):
    """Return modules below `_OWN_MODULE_LINES` lines that exactly one other imports, at once and not inside a function.

    Where that is inside a function, a module of its own keeps what it loads from whoever does not need it.
    """
    importers = {name: [one for one, imported in graph.items() if name in imported] for name in graph}
    importers = {
        name: [one for one in ones if len(ones) > 1 or name in at_once[one]] for name, ones in importers.items()
    }
    small = {name for name, count in lines.items() if count < _OWN_MODULE_LINES}
    alone = {name for name in small if len(importers[name]) == 1}
    return {name for name in alone if not _PATHS_OF_OTHERS.match(name) and not _ONE_OF_MANY.match(name)}


def test_a_small_module_has_several_importers():
    modules = _modules()
    lines = {
        name: _text(file).count("\n")
        for name, file in modules.items()
        if not file.name.startswith("_") and not name.endswith("_pb2")
    }
    at_once = _import_graph(modules, lambda file: ast.parse(_text(file)).body)
    assert not _small_modules_of_one(_import_graph(modules), at_once, lines)
    example = {"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": set()}
    sizes = {name: 9 for name in example}
    assert _small_modules_of_one(example, example, sizes) == {"b", "d"}
    assert _small_modules_of_one(example, {**example, "a": {"b", "c"}}, sizes) == {"b"}


def _code_lines(file):
    """Return the numbers of a file's lines that are not blank, comment or docstring."""
    docstrings = set()
    for node in _nodes(file):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            docstrings.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(_text(file)).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - docstrings


_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
#: Lines spanned by import statements, wherever they stand, `from __future__` and those for types alone included.
_MOST_IMPORTS = 0.11


def test_imports_take_a_small_share_of_the_code():
    files = [file for file in _modules().values() if not file.name.endswith("_pb2.py")]
    code = sum(len(_code_lines(file)) for file in files)
    spans = [node for file in files for node in _nodes(file) if isinstance(node, ast.Import | ast.ImportFrom)]
    imports = sum(node.end_lineno - node.lineno + 1 for node in spans)
    assert imports / code <= _MOST_IMPORTS, f"{imports} of {code} lines"


def _classes():
    """Yield the name of every class at the top of a module, with the module's name."""
    for name, file in _modules().items():
        if not name.endswith("_pb2"):
            tree = ast.parse(_text(file))
            yield from ((node.name, name) for node in tree.body if isinstance(node, ast.ClassDef))


def test_no_two_public_classes_share_a_name():
    modules = defaultdict(list)
    for name, module in _classes():
        modules[name].append(module)
    assert not {name: where for name, where in modules.items() if len(where) > 1 and name[0] != "_"}


#: Nouns that end as participles do.
_NOUNS = {"Ending", "Listing", "Recording", "Setting", "Timing", "Training"}


def test_classes_are_no_participles():
    names = {
        name for name, _ in _classes() if re.fullmatch(r"_?([A-Z][a-z]+(ed|ing)|Shown|Seen|Spent|Kept|Found)", name)
    }
    assert not {name.strip("_") for name in names} - _NOUNS


_IMPORT_IN_TEXT = re.compile(r"from (soulsgraph\w*(?:\.\w+)*) import (\w+(?:, \w+)*)")


def test_code_in_texts_imports_what_is_there():
    """Programs that a test starts, and projects that it writes, are texts: no linter reads them."""
    modules, found = _modules(), []
    for file in sorted((ROOT / "tests").rglob("*.py")):
        for text in _texts(file):
            for module, names in _IMPORT_IN_TEXT.findall(text):
                known = module in modules and not module.endswith("_pb2")
                lacking = [name for name in names.split(", ") if not known or not _defines(modules, module, name)]
                found += [(file.name, module, lacking)] if lacking and not module.endswith("_pb2") else []
    assert not found


def _defines(modules, module, name):
    return f"{module}.{name}" in modules or re.search(rf"\b{name}\b", _text(modules[module])) is not None
