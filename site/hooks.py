"""What the site shows that is not in docs/: the README as its first page, every command's help, linked sources."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
#: Pages of the tree's root, by where the site has them.
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
#: Characters of a line that fit beside the menus in a window of 1,400 pixels.
_WIDTH = "78"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the tree's root, the commands' page, and each file that a page links to outside docs/."""
    for source, target in ROOT_PAGES.items():
        text = _relinked((ROOT / source).read_text(encoding="utf-8"), ROOT, target)
        files.append(File.generated(config, target, content=text))
    files.append(File.generated(config, "commands.md", content=commands_page()))
    for name, packed in (("mermaid.min.js", "mermaid-*.min.js"), ("iframe-worker.js", "iframe-worker-*.js")):
        (script,) = (ROOT / "build").glob(packed)
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(script)))
    for linked in sorted(_linked_sources(files)):
        path, target = ROOT / linked, _target(linked)
        if path.is_dir():
            files.append(File.generated(config, target, content=_listing(path)))
        elif path.suffix == ".md":
            text = _relinked(path.read_text(encoding="utf-8"), path.parent, target)
            files.append(File.generated(config, target, content=text))
        else:
            files.append(File.generated(config, target, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point a page's links that leave docs/ to where the site has what they mean."""
    uri = page.file.src_uri
    if page.file.generated_by and uri != "python.md":
        return markdown
    return _relinked(markdown, (ROOT / "docs" / uri).parent, uri)


def commands_page() -> str:
    """Return the help of every command, as it prints it."""
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": _WIDTH}
    )
    return done.stdout


def _print_help_texts() -> None:
    from soulsgraph.cli import main
    from soulsgraph.cli.commands import COMMANDS

    page = ["# Every command", "", "What `soulsgraph COMMAND --help` prints."]
    for name in sorted(COMMANDS):
        sys.argv = ["soulsgraph", *name.split(), "--help"]
        with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
            main()
        # What a command does is one line, however long.
        lines = [textwrap.fill(line, int(_WIDTH)) for line in printed.getvalue().strip("\n").splitlines()]
        page += ["", f"## {name}", "", "```text", *lines, "```"]
    print("\n".join(page))


def _linked_sources(files: Files) -> set[str]:
    """Return the paths that pages link to and that are none of their own: outside docs/, or folders in it."""
    pages = [(ROOT / "docs" / file.src_uri) for file in files.documentation_pages() if not file.generated_by]
    texts = [(page.parent, page.read_text(encoding="utf-8")) for page in pages]
    texts += [(ROOT, (ROOT / source).read_text(encoding="utf-8")) for source in ROOT_PAGES]
    found = {_in_tree(folder, link) for folder, text in texts for link, _ in _LINK.findall(text)} - {None}
    ours = {str(file.src_uri) for file in files}
    return {path for path in found if path is not None and _target(path) not in ours}


def _target(path: str) -> str:
    """Return where the site has a path of the tree; a folder is a page that lists it, or its README."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    target = path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}"
    if (ROOT / path).is_dir():
        return f"{target}/README.md" if (ROOT / path / "README.md").exists() else f"{target}/index.md"
    return target


def _in_tree(folder: Path, link: str) -> str | None:
    """Return a link's path from the tree's root; None if it leads out of it or to nothing."""
    path = (folder / link).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) and path.exists() else None


def _relinked(text: str, folder: Path, uri: str) -> str:
    """Return a page's text with its links as the site has them; `folder` is where the page lies in the tree."""

    def replaced(match: re.Match[str]) -> str:
        path = _in_tree(folder, match[1])
        if path is None:
            return match[0]
        return os.path.relpath(_target(path), PurePosixPath(uri).parent) + (match[2] or "")

    return _LINK.sub(replaced, text)


def _listing(folder: Path) -> str:
    """Return a page that names a folder's files."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    shown = [name for name in names if "__pycache__" not in name]
    return "\n".join([f"# {folder.relative_to(ROOT).as_posix()}", "", *(f"- `{name}`" for name in shown)]) + "\n"


if __name__ == "__main__":
    _print_help_texts()
