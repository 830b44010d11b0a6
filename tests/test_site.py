"""The site is built without a warning, every page of docs/ is in it, and it requests nothing from another host."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fakes.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site() -> Path:
    """Build the site as `make docs` does; a warning is an error there."""
    if shutil.which("npm") is None or subprocess.run(["npm", "ping"], capture_output=True, check=False).returncode:
        pytest.skip("npm, which brings mermaid for the diagrams, is missing or reaches no registry")
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return ROOT / "build" / "site"


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").glob("*.md")}
    built = {path.relative_to(site) for path in site.rglob("*.html")}
    assert pages <= built
    for name in ("commands.html", "python.html", "contributing.html", "security.html"):
        assert Path(name) in built
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert Path("notebooks", notebook.stem, "index.html") in built
    commands = (site / "commands.html").read_text(encoding="utf-8")
    assert "Usage: soulsgraph train" in commands
    # No help text is cut off beside the menus.
    texts = [unescape(re.sub("<[^>]+>", "", text)) for text in re.findall("<pre>(.*?)</pre>", commands, re.DOTALL)]
    assert max(len(line) for text in texts for line in text.splitlines()) <= 80
    # A file that a page links to is there with it.
    assert (site / "source" / "envs" / "soulsgraph_envs" / "data" / "skills.toml").is_file()


def test_browsing_every_page_requests_nothing_from_another_host(site: Path, browser: Any) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{server.server_port}"
        pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
        asked = [url for page in pages for url in _requested_by(browser, f"{origin}/{page}")]
        # A page that does, as a check of the check.
        (site / "control.html").write_text('<html><img src="http://elsewhere.invalid/a.png"></html>')
        control = _requested_by(browser, f"{origin}/control.html")
        server.shutdown()
    (site / "control.html").unlink()
    assert "http://elsewhere.invalid/a.png" in control
    assert f"{origin}/assets/mermaid.min.js" in asked
    assert [url for url in asked if not url.startswith((f"{origin}/", "data:", "blob:"))] == []


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def _requested_by(browser: Any, address: str) -> list[str]:
    """Return what a page requests, until its diagrams are drawn."""
    browser.open(address)
    # A drawn diagram takes the place of its text, behind a root that scripts cannot look into.
    drawn = "document.querySelectorAll('pre.mermaid').length === 0"
    until(lambda: browser.run(drawn), f"the diagrams of {address}")
    return list(browser.requests)


@pytest.mark.parametrize("page", ["index.html", "notebooks/open_a_run/index.html"])
def test_a_site_that_is_opened_from_a_file_is_searched(site: Path, browser: Any, page: str) -> None:
    browser.open(site / page)
    assert browser.run("location.protocol") == "file:"
    browser.run(
        "{const asked = document.querySelector('.md-search__input'); asked.focus(); asked.value = 'forgetting';"
        "asked.dispatchEvent(new Event('keyup', {bubbles: true})); asked.dispatchEvent(new Event('input')); 1}"
    )
    results = "Array.from(document.querySelectorAll('.md-search-result__link'), link => link.href)"
    until(lambda: browser.run(f"{results}.length > 0"), f"a result of the search on {page}")
    (found, *_) = browser.run(results)
    assert Path(found.partition("?")[0].partition("#")[0].removeprefix("file://")).is_relative_to(site)
