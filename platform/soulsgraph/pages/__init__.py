"""Self-contained HTML pages: a report, a fight tick by tick. No page requests anything from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from soulsgraph_envs.core.config import to_json

_HERE = Path(__file__).parent
#: Characters that could end a block of data within a page.
_IN_SCRIPTS = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def data_uri(kind: str, content: bytes) -> str:
    """Return bytes of a media type as an address that needs no request."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def page(
    title: str,
    template: str = "page.html.jinja",
    data: Mapping[str, Any] | None = None,
    scripts: Sequence[str] = (),
    **values: Any,
) -> str:
    """Return a whole page by a template of this folder, which escapes every text of `values`.

    `scripts` name files of this folder, run in order, that read `data` from the element `data`. The page's policy
    admits those scripts and the page's own style by their digests alone, pictures and videos from the page itself, and
    no request.
    """
    # Imported here: the core has none, and no page.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

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
    text = "" if data is None else to_json(data, separators=(",", ":")).translate(_IN_SCRIPTS)
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["spaced"] = lambda name: name.replace("_", " ")
    own = {"style": Markup(style), "data": Markup(text), "codes": [*map(Markup, codes)]}
    return environment.get_template(template).render(title=title, policy=policy, **own, **values) + "\n"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
