"""What Python files do, as a text that is the same on every Python and system: digests are taken of it."""

from __future__ import annotations

import ast
from typing import Any


def meaning(source: bytes) -> str:
    """Return what a Python file does: comments, layout and docstrings do not count.

    Raises:
        SyntaxError, ValueError, RecursionError: if it is no Python, or nested too deep.
    """
    return ascii(_plain(ast.parse(source)))


def _plain(node: Any) -> Any:
    """Return a syntax tree as lists, without the fields that are empty: each Python has others."""
    if isinstance(node, list):
        return [_plain(each) for each in node if not _is_text(each)]
    if not isinstance(node, ast.AST):
        return node
    if isinstance(node, ast.JoinedStr):  # Python 3.12 ends some of them by an empty text.
        node.values = [each for each in node.values if getattr(each, "value", None) != ""]
    fields = [[name, _plain(value)] for name, value in ast.iter_fields(node) if value not in (None, [])]
    return [type(node).__name__, *fields]


def _is_text(node: Any) -> bool:
    """Return whether a statement is a string alone: a docstring, of a field too."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
