"""Self-contained HTML pages: a report of runs, a fight tick by tick. No page requests anything from anywhere.

Here is what they are built with: elements in which every text is escaped, and a page whose policy lets nothing in.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from soulsgraph_envs.core.config import to_json

_HERE = Path(__file__).parent
_EMPTY = ("img", "meta", "input")
#: Characters that could end a block of data within a page.
_IN_SCRIPTS = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


class Html(str):
    """Text that is HTML already; any other text is escaped where it comes into a page."""


#: A text, an element, or several.
Part = str | Iterable[str]


def tag(kind: str, /, *children: Part, **attributes: object) -> Html:
    """Return an element; a trailing underscore of an attribute's name is dropped, others become hyphens.

    An attribute that is True stands alone, one that is False or None is left out.
    """
    shown = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    if kind in _EMPTY:
        return Html(f"<{kind}{shown}>")
    return Html(f"<{kind}{shown}>{''.join(map(_text, children))}</{kind}>")


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def _text(child: Part) -> str:
    if isinstance(child, Html):
        return child
    return escape(child) if isinstance(child, str) else "".join(map(_text, child))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], marked: Iterable[int] = ()) -> Html:
    """Return a table, its first column to the left and the others to the right; `marked` rows stand out."""
    numbers = set(marked)
    head = tag("tr", [tag("th", text) for text in headings])
    body = [
        tag("tr", [tag("td", text) for text in row], class_="marked" if number in numbers else None)
        for number, row in enumerate(rows)
    ]
    return tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="wide")


def section(title: str, *children: Part) -> Html:
    """Return a part of a page under its title."""
    return tag("section", tag("h2", title), *children)


def data_uri(kind: str, content: bytes) -> str:
    """Return bytes of a media type as an address that needs no request."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def page(title: str, *body: Part, data: Mapping[str, Any] | None = None, scripts: Sequence[str] = ()) -> str:
    """Return a whole page; `scripts` name files of this folder, run in order, that read `data` from the element `data`.

    Its policy admits those scripts and the page's own style by their digests alone, pictures and videos from the page
    itself, and no request.
    """
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    codes = [(_HERE / script).read_text(encoding="utf-8") for script in scripts]
    sources = {
        "default-src": "'none'",
        "img-src": "data:",
        "media-src": "data:",
        "style-src": _digest(style),
        "script-src": " ".join(map(_digest, codes)) or "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    policy = "; ".join(f"{name} {source}" for name, source in sources.items())
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        Html(f"<style>{style}</style>"),
    )
    parts: list[str] = [Html(_text(part)) for part in body]
    if data is not None:
        text = to_json(data, separators=(",", ":")).translate(_IN_SCRIPTS)
        parts.append(Html(f'<script type="application/json" id="data">{text}</script>'))
    parts += [Html(f"<script>{code}</script>") for code in codes]
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', parts), lang='en')}\n"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
