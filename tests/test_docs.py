"""Links between pages lead somewhere, and every page can be found."""

import re
from pathlib import Path

_DOCS = Path(__file__).parents[1] / "docs"


def test_every_link_between_pages_leads_somewhere() -> None:
    root = _DOCS.parent
    pages = [*root.glob("*.md"), *_DOCS.glob("*.md"), _DOCS / "results" / "README.md"]
    links = [
        (page, link.partition("#")[0])
        for page in pages
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
        if not link.startswith(("http", "#"))
    ]
    assert len(links) > 50
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


def test_every_page_is_in_the_list_of_pages_and_in_the_sites_navigation() -> None:
    pages = {page.name for page in _DOCS.glob("*.md")} - {"pages.md"}
    listed, navigation = ((_DOCS / name).read_text(encoding="utf-8") for name in ("pages.md", "../site/mkdocs.yml"))
    assert pages
    assert [name for name in sorted(pages) if f"]({name})" not in listed] == []
    assert [name for name in sorted(pages) if f": {name}\n" not in navigation] == []
