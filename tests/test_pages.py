"""Every command and every piece of code on a page is run, or the page says why it is not.

A comment on the line before a block says when: `<!-- quick -->` in every run of the tests, `<!-- not run: why -->`
never; without a comment `make docs-test` runs it. Data is read in every run. Blocks run in the order of `PAGES` in one
folder, where `runs/curriculum` is a trained run; a block whose first line ends in `title="NAME"` is that file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from soulsgraph_envs.testing import PATIENCE_S
from soulsgraph_envs.testing.keys import virtual_screen

KeepResult = Callable[[str, Mapping[str, Any]], None]
ROOT = Path(__file__).parents[1]
#: Pages that go on with what another one made, behind it.
_FIRST = ("README.md", "docs/first_run.md", "docs/adapt.md", "docs/own_boss.md")
PAGES = (
    *_FIRST,
    *sorted({path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))} - {*_FIRST}),
    "host/README.md",
)
_DATA, _CODE = ("toml", "yaml", "json"), ("sh", "bash", "python")
_SHOWN = ("", "text", "mermaid", "console")
#: Below how many seconds a block may be marked quick, and how many all of them may take together.
_QUICK_S, _MOST_S = 5.0, 1_800.0
_BLOCK = re.compile(
    r"(?:^<!-- (?P<when>[^\n]*) -->\n)?^ *```(?P<kind>\w*)(?P<info>[^\n]*)\n(?P<text>.*?)^ *```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A block of a page; `when` is its comment, `file` the name that it is to have."""

    page: str
    line: int
    kind: str
    when: str
    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def run(self) -> bool:
        """Whether it is code that can be run."""
        return self.kind in _CODE and not self.when.startswith("not run: ")


def blocks() -> Iterator[Block]:
    """Yield every block of every page."""
    for page in PAGES:
        yield from _blocks_of(page, (ROOT / page).read_text(encoding="utf-8"))


def _blocks_of(page: str, text: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(text):
        title = re.search(r'title="([\w.-]+)"', found["info"])
        line = text.count("\n", 0, found.start("kind")) + 1
        yield Block(page, line, found["kind"], found["when"] or "", title[1] if title else "", found["text"])


ALL = list(blocks())


#: What makes commands of a written project's README small enough, and needs no window.
_SMALL = {"curriculum": "--scale 0.01", "watch": "--seconds 1 --png project.png"}


def _of_a_written_project(name: str) -> Iterator[Block]:
    """Yield how a project is written, and the commands of the README that is in it, at a small scale."""
    template = ROOT / "platform" / "soulsgraph" / "project" / "template" / "README.md.txt"
    yield Block(template.name, 0, "sh", "", "", f"soulsgraph init {name}\n")
    for block in _blocks_of(template.name, template.read_text(encoding="utf-8").replace("@NAME@", name)):
        text = block.text
        for command, options in _SMALL.items():
            text = re.sub(rf"^soulsgraph {command} .*$", rf"\g<0> {options}", text, flags=re.M)
        yield replace(block, text=text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as a reader's, in which the commands of the environment are found."""
    made = tmp_path_factory.mktemp("pages")
    (made / ".venv").symlink_to(ROOT / ".venv")
    return made


def _run(block: Block, folder: Path, display: str) -> None:
    """Run a block, a shell's with an end at the first command that fails."""
    if block.kind == "python":
        command = [sys.executable, "-c", block.text]
    else:
        command = ["bash", "-euo", "pipefail", "-c", block.text]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "DISPLAY": display, "SDL_AUDIODRIVER": "dummy"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3.0 * PATIENCE_S,
    )
    assert done.returncode == 0, f"{block}\n{block.text}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def test_every_block_has_a_known_kind_and_comment() -> None:
    assert len(ALL) > 60
    for block in ALL:
        assert block.kind in (*_DATA, *_CODE, *_SHOWN), block
        if block.kind in _CODE:
            assert re.fullmatch(r"|quick|not run: .{10,}", block.when), block
        if block.kind in _SHOWN:
            assert not re.search(r"^ *(\.venv/bin/)?soulsgraph ", block.text) or block.page == "README.md", block


@pytest.mark.parametrize("block", [block for block in ALL if block.kind in _DATA], ids=str)
def test_data_can_be_read(block: Block) -> None:
    read = {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": yaml.safe_load}[block.kind]
    assert read(block.text)


@pytest.mark.slow
@pytest.mark.parametrize("block", [block for block in ALL if block.run and block.when == "quick"], ids=str)
def test_a_quick_block_runs(block: Block, folder: Path) -> None:
    _run(block, folder, "")


def _timed(block: Block, folder: Path, display: str) -> float:
    """Run a block, and return the seconds that it took."""
    begun = time.monotonic()
    _run(block, folder, display)
    return time.monotonic() - begun


@pytest.mark.docs
def test_every_block_that_can_be_run_runs_in_the_order_of_the_pages(folder: Path, keep_result: KeepResult) -> None:
    """Print what each block takes; `--keep-results` keeps it."""
    train = "soulsgraph curriculum --run runs/curriculum; soulsgraph curriculum --run runs/other --seed 1"
    taken_s = {"the runs that pages open": _timed(Block("", 0, "sh", "", "", train), folder, "")}
    failed, quicker = [], []
    with virtual_screen() as display:
        for block in (*ALL, *_of_a_written_project("written")):
            if block.file:
                (folder / block.file).write_text(block.text, encoding="utf-8")
            elif block.run:
                try:
                    taken_s[str(block)] = _timed(block, folder, display)
                except (AssertionError, subprocess.TimeoutExpired) as error:
                    failed.append(str(error))
                    continue
                print(f"{block}: {taken_s[str(block)]:.1f} s: {block.text.splitlines()[0]}", flush=True)
                if taken_s[str(block)] < _QUICK_S and block.when != "quick":
                    quicker.append(str(block))
    total_s = sum(taken_s.values())
    print(f"{total_s:.0f} s in {len(taken_s)} blocks; under {_QUICK_S:.0f} s, not marked quick: {', '.join(quicker)}")
    assert not failed, "\n\n".join(failed)
    keep_result("pages/blocks.json", {"total_s": total_s, "taken_s": taken_s})
    assert total_s < _MOST_S, f"the blocks took {total_s:.0f} s"
