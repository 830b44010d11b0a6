"""Plain words: no docstring begins with give or tell, and a short list of words is not used.

Of tests, which may have to quote a word, names and docstrings are read.
"""

import ast
import json
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SOURCES = [
    file for root in ("platform", "clusters", "policies", "envs") for file in sorted((ROOT / root).rglob("*.py"))
]
_PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
_NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
_BESIDE = [file for folder in ("examples", "site") for file in sorted((ROOT / folder).rglob("*.py"))]
_TESTS = sorted((ROOT / "tests").rglob("*.py"))
_AVOIDED = (
    *("of late", "heed", "heeded", "mend", "mended", "mends", "doings", "for ever", "whose word"),
    *("by chance", "for so long", "has nothing to give", "judge", "judged", "judging"),
    *("lest", "gone on with", "wins over", "practice ground", "adds up", "nobody sets", "chosen alike"),
    *("fall in value", "falls in value", "as ever"),
)
_FIRST_WORDS = ("Give", "Tell", "Say")
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: By kind of node the field with its name.
_NAMES = {**dict.fromkeys(_DEFINITIONS, "name"), ast.Name: "id", ast.arg: "arg"}


@cache
def _names_and_docstrings(file: Path) -> tuple[set[str], list[str]]:
    """Return the names of what a file defines, its arguments and variables, as words, and its docstrings."""
    names, docstrings = set(), []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if name := getattr(node, _NAMES.get(type(node), ""), ""):
            names.add(name.replace("_", " "))
        if isinstance(node, (ast.Module, *_DEFINITIONS)) and (text := ast.get_docstring(node)):
            docstrings.append(text)
    return names, docstrings


@cache
def _text(file: Path) -> str:
    """Return what is read of a file: of a notebook the sources of its cells, without what they printed."""
    if file in _TESTS:
        names, docstrings = _names_and_docstrings(file)
        return "\n.\n".join([*sorted(names), *docstrings])
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])


def test_no_docstring_begins_with_a_word_of_talk() -> None:
    files = (*_SOURCES, *_BESIDE, *_TESTS)
    found = [(file.name, text.split("\n")[0]) for file in files for text in _names_and_docstrings(file)[1]]
    assert len(found) > 1_000
    assert [entry for entry in found if re.match(rf"({'|'.join(_FIRST_WORDS)})\b", entry[1])] == []


def test_words_that_a_reader_would_have_to_look_up_stay_out() -> None:
    spaced = (r"\s+(?:# ?)?".join(rf"\b{part}\b" for part in word.split()) for word in _AVOIDED)
    pattern = re.compile("|".join(spaced), re.IGNORECASE)
    assert all(pattern.search(f"one {word}, two") for word in _AVOIDED)
    files = (*_SOURCES, *_PAGES, *_NOTEBOOKS, *_BESIDE, *_TESTS)
    assert [(file.name, match[0]) for file in files for match in pattern.finditer(_text(file))] == []


def test_notebooks_tests_and_what_lies_beside_the_packages_are_read() -> None:
    assert len(_NOTEBOOKS) >= 5
    assert {file.parent.name for file in _BESIDE} >= {"examples", "site"}
    assert "import" in _text(_NOTEBOOKS[0])
    assert "test notebooks tests and what lies beside the packages are read" in _text(Path(__file__))
