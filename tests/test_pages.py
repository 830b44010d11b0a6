"""Every command and every piece of code on a page is run, or the page says why it is not.

`make docs-test` runs every block but those with `<!-- not run: why -->` on the line before, in the order of `PAGES` in
one folder, where `runs/curriculum` is the run that docs/first_run.md trains; a block whose first line ends in
`title="NAME"` is that file. Data is read in every run of the tests.

What a page shows as printed is what the block of code before it prints, and says so: `<!-- printed -->` before a block,
`<!-- printed: training -->` where figures are of an agent that was just trained, `<!-- not printed: why -->` where no
block prints it. `...` in such a block leaves lines out. `make docs-test` compares all these with what comes out, `make
docs-write` rewrites them, and keeps what was printed, with the processor, in `docs/results/pages/printed.json`.
Figures of stored agents are compared exactly on the kind of processor that wrote them. Elsewhere, and where an agent
was trained, a share has to lie within the printed interval, or within Wilson's of the printed counts; seconds and rates
are not compared.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.keys import virtual_screen
from fakes.waiting import PATIENCE_S
from soulsgraph.results.origin import describe_origin
from soulsgraph.results.statistics import wilson_interval
from soulsgraph.zoo.card import TrainingOrigin
from soulsgraph_envs.core.files import write_json

ROOT = Path(__file__).parents[1]
#: Pages that go on with what another one made, behind it.
_FIRST = ("README.md", "docs/first_run.md", "docs/adapt.md", "docs/own_boss.md")
PAGES = (
    *_FIRST,
    *sorted({path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))} - {*_FIRST}),
)
_DATA, _CODE = ("toml", "yaml", "json"), ("sh", "bash", "python")
_BLOCK = re.compile(
    r"(?:^<!-- (?P<when>[^\n]*) -->\n)?^ *```(?P<kind>\w*)(?P<info>[^\n]*)\n(?P<text>.*?)^ *```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A block of a page; `when` is its comment, `file` the name that it is to have, `start` where its text begins."""

    page: str
    line: int
    kind: str
    when: str
    file: str
    text: str
    start: int = 0

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
        name = title[1] if title else ""
        yield Block(page, line, found["kind"], found["when"] or "", name, found["text"], found.start("text"))


ALL = list(blocks())
#: What is run before all pages, some of which compare another run with the one that docs/first_run.md trains.
_TRAIN = Block("README.md", 0, "sh", "", "", "soulsgraph curriculum --run runs/other --seed 1\n")
_PRINTED = ROOT / "docs" / "results" / "pages" / "printed.json"

#: What makes commands of a written project's README small enough, and needs no window.
_SMALL = {"curriculum": "--scale 0.01", "watch": "--seconds 1 --file project.png"}


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


def _run(block: Block, folder: Path, display: str) -> str:
    """Run a block, a shell's with an end at the first command that fails, and return what it printed."""
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
    # Nobody else has these folders.
    return done.stdout.replace(f"{folder}/", "").replace(f"{ROOT}/", "")


@pytest.mark.parametrize("block", [block for block in ALL if block.kind in _DATA], ids=str)
def test_data_can_be_read(block: Block) -> None:
    read = {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": yaml.safe_load}[block.kind]
    assert read(block.text)


@dataclass(frozen=True)
class Printed:
    """A block that a page shows as printed by `source`; its text begins at `start`.

    `trained` is whether its figures are of an agent that was just trained.
    """

    page: str
    line: int
    source: Block
    text: str
    start: int
    trained: bool

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def key(self) -> str:
        """What printed it, by page and commands: lines of a page move."""
        return _key(self.source)


def _key(block: Block) -> str:
    commands = [line.partition("  #")[0].strip() for line in block.text.splitlines() if not line.startswith("#")]
    return f"{block.page}: {'; '.join(commands) if block.kind != 'python' else commands[0]}"


def printed_parts() -> Iterator[Printed]:
    """Yield everything that the pages show as printed, page by page."""
    for page in PAGES:
        source = _TRAIN
        for one in (block for block in ALL if block.page == page):
            if one.when.startswith("printed"):
                yield Printed(page, one.line, source, one.text, one.start, "training" in one.when)
            elif one.run and not one.file:
                source = one


_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
_PROGRESS = re.compile(r"^(\S+): [\d,]+/[\d,]+ \w+ ")
#: Seconds and rates, which no two runs have in common.
_OF_TIME = re.compile(r"[\d.,]+ \w+/s\b|\bin [\d.,]+ s\b|\bleft [\d:-]+|\bcommit [0-9a-f]+")
#: A share with its interval, and counts that have none.
_SHARE = re.compile(r"([\d.]+) % +([\d.]+)-([\d.]+) %")
_COUNTS = re.compile(r"(?<![\w/])([\d,]+)/([\d,]+)(?![\w/])")


def _shape(line: str) -> str:
    """Return a line without its figures and widths."""
    text = re.sub(r"\b[0-9a-f]{16}\b", "DIGEST", line)
    return re.sub("─+", "─", " ".join(_NUMBER.sub("0", text).split()))


def _lines_of(text: str) -> list[str]:
    """Return the lines of what was printed, without blank ones, and progress that more of it follows."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    progress = [found[1] if (found := _PROGRESS.match(line)) else None for line in lines]
    return [
        line for line, now, then in zip(lines, progress, [*progress[1:], None], strict=True) if not now or now != then
    ]


def _aligned(shown: str, output: list[str]) -> list[tuple[int, str]] | None:
    """Return the lines that came out in place of those of a block, by their numbers; None if one did not.

    Lines that follow one another in the block do so in the output, but for progress.
    """
    wanted, after_gap = [], True
    for number, line in enumerate(shown.splitlines()):
        if line.strip() == "...":
            after_gap = True
        elif line.strip() and not line.startswith(("$ ", ".venv/bin/soulsgraph ")):
            wanted.append((number, _shape(line), after_gap))
            after_gap = False
    shapes = [_shape(line) for line in output]

    def place(first: int, at: int) -> list[int] | None:
        if first == len(wanted):
            return []
        _, shape, anywhere = wanted[first]
        for index in range(at, len(shapes)):
            if _alike(shape, shapes[index]) and (rest := place(first + 1, index + 1)) is not None:
                return [index, *rest]
            if not anywhere and not _PROGRESS.match(output[index]):
                return None
        return None

    found, lines = place(0, 0), shown.splitlines()
    if found is None:
        return None
    numbers = [number for number, *_ in wanted]
    return [(number, _cut(lines[number], output[at])) for number, at in zip(numbers, found, strict=True)]


def _alike(shown: str, came: str) -> bool:
    """Return whether a line has the shape that a page shows, which may leave its end out."""
    return came.startswith(shown[:-3]) if shown.endswith("...") else came == shown


def _cut(shown: str, came: str) -> str:
    return f"{came[: len(shown) - 3]}..." if shown.endswith("...") else came


def _holds(shown: str, came: str, exact: bool) -> bool:
    """Return whether a line that came out says what the page does."""
    if exact:
        return " ".join(_OF_TIME.sub("", shown).split()) == " ".join(_OF_TIME.sub("", came).split())
    shares = zip(_SHARE.findall(shown), _SHARE.findall(came), strict=True)
    if not all(float(low) <= float(share) <= float(high) for (_, low, high), (share, *_) in shares):
        return False
    counts = zip(_COUNTS.findall(_OF_TIME.sub("", shown)), _COUNTS.findall(_OF_TIME.sub("", came)), strict=True)
    return _PROGRESS.match(shown) is not None or all(_within(*both) for both in counts)


def _with_times_of(shown: str, came: str) -> str:
    """Return a line that came out with the seconds and rates that the page shows: how busy a machine was is no news."""
    times = _OF_TIME.findall(shown)
    same = len(times) == len(_OF_TIME.findall(came))
    return _OF_TIME.sub(lambda _: times.pop(0), came) if same else came


def _within(shown: tuple[str, str], came: tuple[str, str]) -> bool:
    """Return whether counts of the same number lie within Wilson's interval of those that are shown."""
    (wins, of), (now, now_of) = ([int(text.replace(",", "")) for text in one] for one in (shown, came))
    low, high = wilson_interval(wins, of)
    return of == now_of and low <= now / of <= high


def compared(part: Printed, output: str, exact: bool) -> tuple[str, str]:
    """Return what is wrong with what a page shows, empty if nothing is, and the text that it should show."""
    lines = _aligned(part.text, _lines_of(output))
    shown = part.text.splitlines()
    if lines is None:
        came = "\n".join(_lines_of(output))
        return (
            f"{part}: expected the lines shown, one after another, found\n{came}\nin the place of\n{part.text}",
            part.text,
        )
    wrong = [
        f"{part}: shows\n{shown[at]}\nand out came\n{line}" for at, line in lines if not _holds(shown[at], line, exact)
    ]
    for at, line in lines:
        shown[at] = _with_times_of(shown[at], line)
    return "\n".join(wrong), "\n".join(shown) + "\n"


def _kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_PRINTED.read_text(encoding="utf-8"))
    return found


def compare_pages(outputs: Mapping[str, str], exact: bool) -> list[str]:
    """Return what is wrong with what the pages show of some outputs; figures of trainings are not compared exactly."""
    parts = [part for part in printed_parts() if part.key in outputs]
    return [wrong for part in parts if (wrong := compared(part, outputs[part.key], exact and not part.trained)[0])]


def rewrite_pages(outputs: Mapping[str, str]) -> list[str]:
    """Rewrite what the pages show of some outputs, keep these with their origin, and return what is left to do."""
    parts = [part for part in printed_parts() if part.key in outputs]
    left = []
    for page in {part.page for part in parts}:
        text = (ROOT / page).read_text(encoding="utf-8")
        for part in sorted((one for one in parts if one.page == page), key=lambda one: -one.start):
            wrong, now = compared(part, outputs[part.key], True)
            left += [wrong] if wrong and now == part.text else []
            text = text[: part.start] + now + text[part.start + len(part.text) :]
        (ROOT / page).write_text(text, encoding="utf-8")
    kept = {part.key: "\n".join(_shortened(outputs[part.key])) for part in parts}
    write_json(_PRINTED, {**describe_origin(), "kind": TrainingOrigin.now().processor, "printed": kept})
    return left


def _shortened(output: str) -> list[str]:
    """Return the lines of an output that pages may show: blank ones and much of the progress are left out."""
    kept = set(_lines_of(output))
    return [line.rstrip() for line in output.splitlines() if line.rstrip() in kept]


_LEARNS = re.compile(
    r"soulsgraph (?:adapt|data clone|study (?:compare|continual|sweep)|curriculum|train)\b|\.(?:learn|sweep|train)\("
)


@pytest.mark.parametrize("block", [block for block in ALL if block.run and _LEARNS.search(block.text)], ids=str)
def test_code_that_trains_has_the_whole_budget_and_is_followed_by_what_came_out(block: Block) -> None:
    assert "scale" not in block.text
    # The README says which page shows that of its lines.
    assert block.page == "README.md" or any(part.source == block for part in printed_parts())


@pytest.mark.docs
def test_every_block_that_can_be_run_runs_in_the_order_of_the_pages(
    folder: Path, request: pytest.FixtureRequest
) -> None:
    """Print what each block takes; with `--rewrite-pages` what the pages show is rewritten, else compared."""
    outputs, failed = {_key(_TRAIN): _run(_TRAIN, folder, "")}, []
    with virtual_screen() as display:
        for block in (*ALL, *_of_a_written_project("written")):
            if block.file:
                (folder / block.file).write_text(block.text, encoding="utf-8")
            elif block.run:
                begun = time.monotonic()
                try:
                    outputs[_key(block)] = _run(block, folder, display)
                except (AssertionError, subprocess.TimeoutExpired) as error:
                    failed.append(str(error))
                    continue
                print(f"{block}: {time.monotonic() - begun:.1f} s: {block.text.splitlines()[0]}", flush=True)
    if request.config.getoption("rewrite_pages"):
        failed += rewrite_pages(outputs)
    else:
        failed += compare_pages(outputs, _kept()["kind"] == TrainingOrigin.now().processor)
    assert not failed, "\n\n".join(failed)
