"""The page about runs: their tables, curves, graph, lineage and settings, and names that stay names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.runs import pretend_run
from fakes.waiting import until
from soulsgraph.pages import run_report
from soulsgraph.pages.run_report import ReportedRun, fight_video, write_run_report
from soulsgraph.results.figures import draw_curves, draw_graph
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import WinRateTable, write_rows
from soulsgraph.runs.lineage import cards_of
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.watch import watching
from soulsgraph.zoo import open_agent
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import write_json, write_text

HOSTILE = "<img src=x onerror=document.title='PWNED'>$x_1"


def _results(run: RunFolder, setting: str = "dodge trained") -> None:
    table = WinRateTable("Win rates", (WinRate(30, 40, setting, 44.0),))
    write_json(run.path / "results" / "table.json", table.to_dict())
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
def test_a_page_shows_a_run_and_a_fight_of_it(
    browser: Any, runs: tuple[RunFolder, RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_report, "_VIDEO_S", 3.0)
    run, page = runs[0], tmp_path / "run.html"
    write_run_report(page, [run], fight_video([run]))
    browser.open(page)
    text = browser.run("document.body.innerText")
    for card in cards_of(run):
        assert card.digest[:12] in text
    # The learning curves, and the skill graph.
    until(lambda: browser.run("Array.from(document.images, (one) => one.naturalWidth > 100)") == [True, True], "images")
    video = "document.querySelector('video')"
    until(lambda: browser.run(f"{video}.readyState") >= 1, "the video to load")
    assert browser.run(f"[{video}.videoWidth, {video}.videoHeight]") == [640, 720]
    assert [one for one in browser.requests if not one.startswith(("file:", "data:"))] == []
    assert browser.printed == []


def test_two_runs_stand_beside_each_other_and_names_stay_names(
    browser: Any, runs: tuple[RunFolder, RunFolder], tmp_path: Path
) -> None:
    page = tmp_path / "both.html"
    write_run_report(page, runs)
    browser.open(page)
    assert browser.run("document.querySelector('h1').textContent") == f"one beside {HOSTILE}"
    bold = browser.run(
        "Array.from(document.querySelectorAll('tr:has(strong) td:first-child'), (one) => one.textContent)"
    )
    assert {"scenario", "preset", "seed", "double q"} <= set(bold)
    assert "lr" not in bold
    assert browser.run("document.title").endswith(HOSTILE)
    assert browser.printed == []


def test_a_curve_has_the_stages_of_its_skill_one_after_another(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", Plan())
    points = [("a", 1_000, 1.0), ("a", 2_000, 2.0), ("b", 500, 3.0), ("c", 1_000, 4.0)]
    rows = [
        {"stage": stage, "skill": "dodge" if stage != "b" else "camera", "step": step, "return": value}
        for stage, step, value in points
    ]
    write_rows(run.results("curves"), [row | {"low": 0.0, "high": 9.0} for row in rows])
    curves = ReportedRun(run).curves
    assert curves["dodge"][["step", "mean"]].to_numpy().tolist() == [[1_000, 1.0], [2_000, 2.0], [3_000, 4.0]]
    assert curves["camera"]["step"].tolist() == [500]
    figure = draw_curves({skill: {"run": curve} for skill, curve in curves.items()}, "return")
    assert figure is not None
    assert [axes.lines[0].get_xdata().tolist() for axes in figure.axes if axes.lines] == [[1, 2, 3], [0.5]]
    assert draw_curves({"dodge": {}}, "return") is None


def test_a_graph_is_drawn_with_every_skill_and_edge() -> None:
    graph = Plan().skill_graph
    (axes,) = draw_graph(graph, {"dodge": "v3"}).axes
    texts = [text.get_text() for text in axes.texts if text.get_text()]
    assert [text.split("\n")[0] for text in texts] == [skill.replace("_", " ") for skill in graph.order]
    assert "dodge\nv3" in texts
    assert len(axes.texts) == len(graph.order) + len(graph.edges)


def test_what_is_reported_of_a_run_are_its_rates_curves_and_what_its_preset_has_not(
    runs: tuple[RunFolder, RunFolder],
) -> None:
    one, other = map(ReportedRun, runs)
    assert one.whole == WinRate(30, 40, "dodge trained", 44.0)
    assert one.decisions == sum(card.training.steps for card in one.cards) > 0
    assert one.curves["camera"]["step"].tolist() == [1_000, 2_000, 3_000]
    assert {name: one.settings[name] for name in ("seed", "scale", "fcnet hiddens")} == {
        "seed": "3", "scale": "0.01", "fcnet hiddens": "64, 64",
    }  # fmt: skip
    for reported, changed in ((one, {"seed", "scale"}), (other, {"scale", "scenario"})):
        settings, usual = reported.settings, reported.preset_settings
        chosen = {name for name in settings if settings[name] != usual[name]}
        assert changed <= chosen
        assert "preset" not in chosen


def test_what_hinders_a_comparison_is_warned_of(runs: tuple[RunFolder, RunFolder], tmp_path: Path) -> None:
    def warnings(*shown: RunFolder) -> int:
        write_run_report(tmp_path / "page.html", shown)
        return (tmp_path / "page.html").read_text(encoding="utf-8").count("<strong>The r")

    assert warnings(runs[0]) == 0
    # Other scenarios, and other training seeds.
    assert warnings(*runs) == 2
    for number, run in enumerate(runs):
        write_rows(run.results("episodes"), [{"seed": number}])
    assert warnings(*runs) == 3
    write_rows(runs[1].results("episodes"), [{"seed": 0}])
    assert warnings(*runs) == 2


def test_an_agent_of_the_zoo_and_a_run_that_has_only_begun_have_a_page(tmp_path: Path) -> None:
    agent, begun = open_agent("vordt-paper-0"), RunFolder.create(tmp_path / "run", Plan())
    assert ReportedRun(agent).whole.episodes == 1_000
    assert ReportedRun(begun).whole is None
    for run in (agent, begun):
        write_run_report(tmp_path / "page.html", [run])
        assert run.plan.scenario in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_video_is_a_gif_without_ffmpeg_and_shorter_where_it_would_be_too_large(
    runs: tuple[RunFolder, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_report, "_VIDEO_S", 1.0)
    whole = fight_video([runs[0]])
    monkeypatch.setattr(run_report, "_MOST_VIDEO_BYTES", len(whole[1]) - 1)
    kind, content = fight_video([runs[0]])
    assert (kind, whole[0]) == ("mp4", "mp4")
    assert len(content) < len(whole[1])

    def missing() -> None:
        raise SoulsGraphError("no imageio-ffmpeg")

    monkeypatch.setattr(watching, "import_ffmpeg", missing)
    monkeypatch.setattr(run_report, "_MOST_VIDEO_BYTES", 10**9)
    kind, content = fight_video([runs[0]])
    assert kind == "gif"
    assert content.startswith(b"GIF89a")
