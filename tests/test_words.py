"""Plain words: no docstring begins with give or tell, and a short list of words is not used."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_SOURCES = [
    file for root in ("platform", "clusters", "policies", "envs") for file in sorted((ROOT / root).rglob("*.py"))
]
_PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
_AVOIDED = ("of late", "heed", "mend", "mended", "mends", "doings", "for ever", "whose word")
_FIRST_WORDS = ("Give", "Tell", "Say")


def _docstrings(file: Path) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, kinds)]
    return [text for node in nodes if (text := ast.get_docstring(node))]


def test_no_docstring_begins_with_a_word_of_talk() -> None:
    found = [(file.name, text.split("\n")[0]) for file in _SOURCES for text in _docstrings(file)]
    assert len(found) > 1_000
    assert [entry for entry in found if re.match(rf"({'|'.join(_FIRST_WORDS)})\b", entry[1])] == []


@pytest.mark.parametrize("word", _AVOIDED)
def test_words_that_a_reader_would_have_to_look_up_stay_out(word: str) -> None:
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    found = [file.name for file in (*_SOURCES, *_PAGES) if pattern.search(file.read_text(encoding="utf-8"))]
    assert found == []
