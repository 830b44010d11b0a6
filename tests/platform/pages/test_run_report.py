"""The page about runs: their tables, curves, graph, lineage and settings, and names that stay names."""

from __future__ import annotations

import base64
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fakes.runs import pretend_run
from fakes.waiting import until
from soulsgraph.pages import run_report
from soulsgraph.pages.run_report import ReportedRun, Video, fight_video, write_run_report
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import write_rows
from soulsgraph.runs.evaluate import EVALUATION_SEED
from soulsgraph.runs.lineage import cards_of
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.watch import watching
from soulsgraph.watch.watching import AgentSource, draw, play_fights
from soulsgraph.zoo import open_agent
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import write_text

HOSTILE = "<img src=x onerror=document.title='PWNED'>$x_1"


def _results(run: RunFolder, setting: str = "dodge trained") -> None:
    write_rows(run.results("table"), [WinRate(30, 40, setting, 44.0).to_dict()])
    points = [
        {"stage": stage.name, "skill": stage.skill, "step": step, "return": step / 1e3, "low": 0.0, "high": 9.0}
        for stage in run.plan.stages()
        for step in (1_000, 2_000, 3_000)
    ]
    write_rows(run.results("curves"), points)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, RunFolder]:
    """Return two evaluated runs, of which the second has hostile names wherever a user may choose one."""
    folder = tmp_path_factory.mktemp("runs")
    scenario = f'based_on = "iudex-phase1"\nname = "{HOSTILE}"\n'
    write_text(folder / f"{HOSTILE}.toml", scenario)
    one = pretend_run(folder / "one", Plan(preset="fast", scale=0.01, seed=3))
    other = pretend_run(folder / HOSTILE, Plan(scale=0.01, preset="best", scenario=str(folder / f"{HOSTILE}.toml")))
    _results(one)
    _results(other, HOSTILE)
    return one, other


@pytest.mark.slow
def test_a_page_shows_a_run(
    browser: Any, runs: tuple[RunFolder, RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_report, "_VIDEO_S", 3.0)
    run, page = runs[0], tmp_path / "run.html"
    write_run_report(page, [run], fight_video([run]))
    assert page.stat().st_size < run_report.MOST_BYTES
    browser.open(page)
    browser.run("document.querySelector('details').open = true")
    text = browser.run("document.body.innerText")
    for words in ("dodge trained", "30/40", "75.0 %", "44.0 %", "hidden sizes", "64, 64", "seed\t3"):
        assert words in text, words
    for card in cards_of(run):
        assert f"{card.skill} v1" in text
        assert card.digest[:12] in text
    nodes = "document.querySelectorAll('svg .node text:first-of-type')"
    names = browser.run(f"Array.from({nodes}, (one) => one.textContent)")
    assert names == [skill.replace("_", " ") for skill in run.plan.skill_graph.order]
    assert browser.run("document.querySelectorAll('svg .edge').length") == 4
    curves = "Array.from(document.querySelectorAll('svg.curve'), (one) => one.getBoundingClientRect().width > 150)"
    assert browser.run(curves) == [True] * len(run.plan.skill_graph.order)
    video = "document.querySelector('video')"
    until(lambda: browser.run(f"{video}.readyState") >= 1, "the video to load")
    assert browser.run(f"[{video}.videoWidth, {video}.videoHeight]") == [640, 720]
    poster = Image.open(BytesIO(base64.b64decode(browser.run(f"{video}.poster").partition(",")[2])))
    (fight,) = next(play_fights([AgentSource(run)], EVALUATION_SEED, 1, 30))
    # A fight of 3 s is over before the moment that is shown of a longer one: its end is.
    np.testing.assert_array_equal(np.asarray(poster), draw((fight,), len(fight) - 1))
    assert [one for one in browser.requests if not one.startswith(("file:", "data:"))] == []
    assert browser.printed == []


def test_two_runs_stand_beside_each_other_and_names_stay_names(
    browser: Any, runs: tuple[RunFolder, RunFolder], tmp_path: Path
) -> None:
    page = tmp_path / "both.html"
    write_run_report(page, runs)
    browser.open(page)
    assert browser.run("document.title") == f"one beside {HOSTILE}"
    assert browser.run("Array.from(document.querySelectorAll('h1'), (one) => one.textContent)") == ["one", HOSTILE]
    # The learning curves are drawn by the page itself, a picture a skill with a line for each run.
    assert browser.run("document.images.length") == 0
    order = runs[0].plan.skill_graph.order
    assert browser.run("document.querySelectorAll('svg.curve').length") == len(order)
    assert browser.run("document.querySelectorAll('svg.curve .line').length") == 2 * len(order)
    warned = browser.run("Array.from(document.querySelectorAll('.warning'), (one) => one.textContent).join()")
    assert "other scenarios" in warned
    assert "trained from other seeds" in warned
    marked = browser.run("Array.from(document.querySelectorAll('tr.marked td:first-child'), (one) => one.textContent)")
    assert {"scenario", "preset", "seed", "double"} <= set(marked)
    assert "learning rate" not in marked
    text = browser.run("document.body.innerText")
    assert text.count(HOSTILE) > 5
    assert browser.printed == []


def test_a_page_opens_with_a_sentence_and_shows_what_differs_from_the_preset(
    runs: tuple[RunFolder, RunFolder], tmp_path: Path
) -> None:
    write_run_report(tmp_path / "page.html", [runs[0]])
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    own, _, whole = text.partition("<details>")
    assert "5 skills in iudex-phase1 won 30 of 40 fights (75.0 %, 95 % interval 59.8-85.8 %)" in own
    assert "<td>seed</td><td>3</td>" in own
    assert "<td>scale</td><td>0.01</td>" in own
    assert "<td>double</td>" not in own
    assert "<td>double</td>" in whole
    assert 'class="warning"' not in text


def test_a_run_in_a_fight_of_its_own_is_compared_with_its_preset_there(
    runs: tuple[RunFolder, RunFolder], tmp_path: Path
) -> None:
    write_run_report(tmp_path / "page.html", [runs[1]])
    own, _, _ = (tmp_path / "page.html").read_text(encoding="utf-8").partition("<details>")
    assert escape(f"{HOSTILE}.toml") in own
    assert "<td>preset</td>" not in own


def test_rows_of_other_seeds_are_named(runs: tuple[RunFolder, RunFolder], tmp_path: Path) -> None:
    for number, run in enumerate(runs):
        write_rows(run.results("episodes"), [{"seed": number}])
    write_run_report(tmp_path / "page.html", runs)
    assert "fights of other seeds" in (tmp_path / "page.html").read_text(encoding="utf-8")
    write_rows(runs[1].results("episodes"), [{"seed": 0}])
    write_run_report(tmp_path / "page.html", runs)
    assert "fights of other seeds" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_an_agent_of_the_zoo_shows_what_its_card_says(tmp_path: Path) -> None:
    write_run_report(tmp_path / "page.html", [open_agent("vordt-paper-0")])
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "/1000" in text
    assert "No learning curve is kept here." in text


def test_a_run_that_has_only_begun_has_a_page(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", Plan())
    write_run_report(tmp_path / "page.html", [run])
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "not trained yet" in text
    assert "has not been evaluated yet" in text


@pytest.mark.slow
def test_a_video_is_a_gif_without_ffmpeg_and_shorter_where_it_would_be_too_large(
    runs: tuple[RunFolder, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_report, "_VIDEO_S", 2.0)
    whole = fight_video([runs[0]])
    monkeypatch.setattr(run_report, "_MOST_VIDEO_BYTES", len(whole[1]) - 1)
    kind, content, _ = fight_video([runs[0]])
    assert (kind, whole[0]) == ("video/mp4", "video/mp4")
    assert len(content) < len(whole[1])

    def missing() -> None:
        raise SoulsGraphError("no imageio-ffmpeg")

    monkeypatch.setattr(watching, "import_ffmpeg", missing)
    monkeypatch.setattr(run_report, "_MOST_VIDEO_BYTES", 10**9)
    kind, content, _ = fight_video([runs[0]])
    assert kind == "image/gif"
    assert content.startswith(b"GIF89a")


def test_a_page_that_would_be_too_large_is_not_written(runs: tuple[RunFolder, RunFolder], tmp_path: Path) -> None:
    with pytest.raises(SoulsGraphError, match="at most 10,000,000 bytes"):
        write_run_report(tmp_path / "page.html", [runs[0]], Video("video/mp4", bytes(9_000_000)))
    assert list(tmp_path.iterdir()) == []


def test_foreign_results_are_refused(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", Plan())
    write_rows(run.results("curves"), [{"step": 1}])
    with pytest.raises(SoulsGraphError, match="expected the columns stage, skill, step, return, found step"):
        write_run_report(tmp_path / "page.html", [run])
    write_rows(run.results("table"), [{"setting": "all", "wins": "many", "episodes": 4, "paper_percent": 44.0}])
    with pytest.raises(SoulsGraphError, match="expected numbers in the column wins, found 'many'"):
        _ = ReportedRun(run).rates
    assert not (tmp_path / "page.html").exists()
