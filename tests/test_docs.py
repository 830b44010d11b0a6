"""Links between pages lead somewhere, every page can be found, and commands have the options that pages give them."""

import re
import shlex
from pathlib import Path

from soulsgraph.cli.commands import COMMANDS, make_app

_DOCS = Path(__file__).parents[1] / "docs"
_BLOCKS = re.compile(r"^```(?:sh)?\n(.*?)^```$", re.M | re.S)
#: A command of ours in a block, its prompt left out; what follows it in a shell, and a comment, are not its own.
_COMMAND = re.compile(r"^(?:\$ )?(?:\S*bin/)?soulsgraph (?!-)(.+?)(?: +#.*| *[|&>].*)?$", re.M)


def test_every_command_of_the_pages_is_understood() -> None:
    app, commands = make_app(COMMANDS), 0
    for page in (*_DOCS.parent.glob("*.md"), *_DOCS.glob("*.md")):
        for block in _BLOCKS.findall(page.read_text(encoding="utf-8").replace("\\\n", "")):
            for command in _COMMAND.findall(block):
                app.parse_args(shlex.split(command), exit_on_error=False, print_error=False)
                commands += 1
    assert commands > 50


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


def test_every_page_is_in_the_readme_and_in_the_sites_navigation() -> None:
    pages = {page.name for page in _DOCS.glob("*.md")}
    listed, navigation = (
        (_DOCS.parent / name).read_text(encoding="utf-8") for name in ("README.md", "site/mkdocs.yml")
    )
    assert pages
    assert [name for name in sorted(pages) if f"](docs/{name})" not in listed] == []
    assert [name for name in sorted(pages) if f": {name}\n" not in navigation] == []
