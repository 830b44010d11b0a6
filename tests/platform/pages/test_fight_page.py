"""The page of a fight: its numbers are the recorded ones, in a real browser too, and nothing leaves it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from fakes.programs import find_chromium, open_browser
from fakes.runs import pretend_run
from fakes.waiting import until
from soulsgraph.pages import fight_page
from soulsgraph.pages.fight_page import (
    LONGER_S,
    PivotalDecision,
    Search,
    largest_falls,
    last_decision,
    write_fight_page,
)
from soulsgraph.recordings.files import Recording, read_recording
from soulsgraph.recordings.format import READINGS, make_header
from soulsgraph.recordings.recording import Fighter, FightWriter, record
from soulsgraph.runs.evaluate import Setting, evaluation_seeds
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.combat.loop import Actions, Combat
from soulsgraph_envs.core.game import LaneIndices
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.games.opening import make_game

HOSTILE = "<img src=x onerror=document.title='PWNED'>"
_AREA = ("reach_m", "half_arc_rad", "offset_m", "winding_up", "open")
_PIXELS = "document.getElementById('fight').getContext('2d').getImageData(0, 0, 720, 480).data"
#: The colour of the player's disc.
_PLAYER = (70, 130, 220)
NOT_LOOKED = Search("Not looked for.")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    plan = Plan(overrides={"observations": "extended"}, scale=0.01)
    return pretend_run(tmp_path_factory.mktemp("fights") / "agent", plan)


def _record(run: RunFolder, folder: Path, seeds: Seeds, random: float = 0.0) -> list[Recording]:
    scenario = run.plan.scenario
    record(Fighter.of_run(run, Setting(scenario, scenario), random), seeds, folder)
    return [read_recording(path) for path in sorted(folder.glob("*.parquet"))]


@pytest.fixture(scope="module")
def fight(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return _record(run, tmp_path_factory.mktemp("one"), evaluation_seeds(5, 1))[0]


@pytest.fixture(scope="module")
def page(fight: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the fight."""
    path = tmp_path_factory.mktemp("page") / "fight.html"
    write_fight_page(path, fight, NOT_LOOKED)
    return path


def _game_fight(folder: Path) -> Recording:
    """Record a fight of a running game, whose readings are all that is known of it."""
    game, scenario = make_game(), load_scenario("iudex-phase1")
    raw = game.reset(np.zeros(1, np.int64), scenario, np.array([3], np.uint64))
    who = {"fight": "a-game", "source": "game", "driver": "memory", "player": HOSTILE}
    writer = FightWriter(folder, make_header(scenario, scenario="iudex-phase1", **who))
    for bits in (1, 1, 17, 1, 1, 0):
        writer.add(raw[0], bits, {"player_animation_name": "Idle", "boss_animation_name": HOSTILE})
        raw = game.step(np.array([bits], np.uint32))
    return read_recording(writer.finish(raw[0], "cut"))


def _without_readings(fight: Recording) -> Recording:
    table = fight.table
    for column in READINGS.values():
        place = table.schema.get_field_index(column.name)
        table = table.set_column(place, table.schema.field(column.name), pa.nulls(len(table), column.type))
    return replace(fight, table=table)


def _data(page: Path) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def _arrays(page: Path) -> dict[str, npt.NDArray[Any]]:
    data = _data(page)
    content = zlib.decompress(base64.b64decode(data["packed"]))
    arrays = {}
    for one in data["arrays"]:
        values = np.frombuffer(content, one["type"], int(np.prod(one["shape"])), one["offset"])
        arrays[one["name"]] = values.reshape(one["shape"])
    return arrays


def _columns(fight: Recording) -> list[str]:
    """Return every column of the skills that is a number."""
    names: list[str] = []
    for skill in fight.header.skills:
        names += [f"{skill.name}/{what}" for what in ("observation", "values", "reward", "decides", "action")]
        names += [f"{skill.name}/term/{term}" for term in skill.terms]
    return names


def _recorded(fight: Recording, name: str) -> npt.NDArray[Any]:
    values = fight.column(name)
    return values.astype(np.float32) if values.dtype.kind == "f" else values


def test_a_page_holds_every_number_of_the_recording_as_float32(fight: Recording, page: Path) -> None:
    arrays = _arrays(page)
    np.testing.assert_array_equal(arrays["raw"], fight.raw.astype(np.float32))
    np.testing.assert_array_equal(arrays["controls"], fight.controls)
    for name in _columns(fight):
        np.testing.assert_array_equal(arrays[name], _recorded(fight, name), err_msg=name)
    areas = fight.table.column("hit_areas").to_pylist()
    begins = arrays["areas_rows"]
    for row in range(len(fight) + 1):
        shown = arrays["areas"][begins[row] : begins[row + 1]]
        wanted = [[area[key] for key in _AREA] for area in areas[row] or ()]
        np.testing.assert_array_equal(shown, np.array(wanted, np.float32).reshape(-1, 5))


def test_the_largest_fall_is_measured_in_the_skills_own_spread(fight: Recording) -> None:
    falls = {fall.skill: fall for fall in largest_falls(fight)}
    assert falls
    for name, fall in falls.items():
        rows = np.flatnonzero(fight.column(f"{name}/decides"))
        best = fight.column(f"{name}/values").max(axis=1)
        index = rows.tolist().index(fall.row)
        assert (fall.before, fall.after) == (best[rows[index - 1]], best[fall.row])
        assert fall.before - fall.after == pytest.approx(-np.diff(best[rows]).min())
        assert fall.spreads == pytest.approx((fall.before - fall.after) / best[rows].astype(float).std())


class _Others:
    """Take in every lane another action at one decision: (row, skill, action)."""

    def __init__(self, others: Sequence[tuple[int, int, int]]) -> None:
        self._others = others

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        pass

    def act(self, combat: Combat, actions: Actions) -> None:
        for lane, (row, skill, action) in enumerate(self._others):
            if combat.ticks[lane] == row:
                assert combat.due[lane, skill]
                assert actions[lane, skill] != action
                actions[lane, skill] = action


def _live_longer(run: RunFolder, fight: Recording, others: Sequence[tuple[int, int, int]]) -> list[bool]:
    """Play the fight again with each of some other actions; return which of them win or live longer."""
    agent = Fighter.of_run(run, Setting(run.plan.scenario, run.plan.scenario)).agent
    seeds = np.full(len(others), int(fight.header.seed), np.uint64)
    played = agent.rollout(make_game(len(others)), _Others(others)).play(seeds)
    longer = played.won | (played.seconds >= fight.header.result.seconds + LONGER_S - 1e-6)
    return [bool(one) for one in longer]


@pytest.mark.slow
def test_another_action_at_the_decision_that_mattered_lives_longer_and_none_later_would(
    run: RunFolder, tmp_path: Path
) -> None:
    earlier = 0
    for fight in _record(run, tmp_path, evaluation_seeds(11, 5)):
        search = last_decision(fight, run)
        if (found := search.found) is None:
            continue
        skills = {skill.name: skill for skill in fight.header.skills}
        skill = skills[found.skill]
        assert skill.actions[fight.column(f"{skill.name}/action")[found.row]] == found.chosen
        others = [
            (row, number, action)
            for number, skill in enumerate(skills.values())
            for row in np.flatnonzero(fight.column(f"{skill.name}/decides")[: len(fight)]).tolist()
            for action in range(len(skill.actions))
            if action != fight.column(f"{skill.name}/action")[row] and row >= found.row - 39
        ]
        longer = [other for other, lives in zip(others, _live_longer(run, fight, others), strict=True) if lives]
        mattered = (found.row, [*skills].index(found.skill), list(skill.actions).index(found.other))
        assert mattered in longer
        rows = [row for row, _, _ in longer]
        assert max(rows) == found.row
        earlier += min(rows) < found.row
        # Its ghost takes that action there, and lives on.
        ghost = search.ghost
        assert ghost
        assert skill.actions[ghost.column(f"{skill.name}/action")[0]] == found.other
        np.testing.assert_array_equal(ghost.raw[0], fight.raw[found.row])
        assert found.row + len(ghost) > len(fight)
    # There were earlier ones to take by mistake.
    assert earlier > 0


def test_what_cannot_be_tried_again_says_why(run: RunFolder, fight: Recording, tmp_path: Path) -> None:
    assert last_decision(fight, None).note
    assert last_decision(_game_fight(tmp_path), run).note
    other = pretend_run(tmp_path / "other", Plan(overrides={"observations": "extended"}, scale=0.01, seed=9))
    assert "camera" in last_decision(fight, other).note
    (drawn,) = _record(run, tmp_path / "drawn", evaluation_seeds(5, 1), random=0.2)
    assert last_decision(drawn, run).note
    changed = replace(fight, header=replace(fight.header, scenario_digest="0" * 64))
    assert last_decision(changed, run).note
    assert not any(last_decision(one, run).found for one in (drawn, changed))


def test_a_browser_shows_the_recorded_numbers(browser: Any, fight: Recording, page: Path) -> None:
    browser.open(page, "#7")
    for name in _columns(fight):
        values = _recorded(fight, name)
        numbers = f"window.replay.arrays[{name!r}].values"
        unpacked = browser.run(f"Array.from({numbers}, (one) => Number.isNaN(one) ? null : one)")
        shown = np.array([np.nan if one is None else one for one in unpacked])
        np.testing.assert_array_equal(shown, values.astype(float).ravel(), err_msg=name)
    assert browser.text("time").startswith("tick 7 of ")
    # What is shown beside the action under way is what it was decided by.
    for row in (0, len(fight) // 2, len(fight)):
        browser.run(f"window.replay.show({row})")
        cells = browser.run("Array.from(document.querySelectorAll('#skills .skill'), (one) => one.innerText)")
        for skill, text in zip(fight.header.skills, cells, strict=True):
            begun = np.flatnonzero(fight.column(f"{skill.name}/decides")[: row + 1])
            values = fight.column(f"{skill.name}/values")[begun[-1] if begun.size else 0]
            assert all(f"{value:.3f}" in text for value in values.tolist()), (row, skill.name)
    assert [one for one in browser.requests if not one.startswith(("file:", "data:"))] == []
    assert browser.printed == []


def test_the_slider_buttons_and_keys_of_a_page_do_what_it_says(browser: Any, fight: Recording, page: Path) -> None:
    browser.open(page, "#20")
    row = "window.replay.row"

    def press(key: str) -> None:
        browser.run(f"document.dispatchEvent(new KeyboardEvent('keydown', {{key: {key!r}, bubbles: true}}))")

    shown = []
    for key in ("ArrowRight", "PageDown", "ArrowLeft", "PageUp", "End", "Home"):
        press(key)
        shown.append(browser.run(row))
    assert shown == [21, 31, 30, 20, len(fight), 0]
    press("ArrowUp")
    assert browser.run("window.replay.speed") == 2
    themes = [browser.run("getComputedStyle(document.body).backgroundColor")]
    press("d")
    themes.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert themes == ["rgb(255, 255, 255)", "rgb(22, 22, 26)"]
    views = []
    for key in "1234":
        press(key)
        views.append(browser.run("window.replay.view"))
    assert views == ["orbit", "game", "top", "flat"]
    browser.run("document.getElementById('slider').value = 12")
    browser.run("document.getElementById('slider').dispatchEvent(new Event('input'))")
    assert browser.run(row) == 12
    browser.run("document.getElementById('on').click()")
    assert browser.run(row) == 13
    browser.run("document.getElementById('back').click()")
    assert browser.run(row) == 12
    browser.run("document.querySelectorAll('[data-row]')[0].click()")
    assert browser.run(row) == largest_falls(fight)[0].row
    browser.run("window.replay.show(0)")
    browser.run("document.getElementById('play').click()")
    until(lambda: browser.run(row) > 2, "the fight to play")
    browser.run("document.getElementById('play').click()")
    pictures = [browser.run(f"(window.replay.show({one}), {_PIXELS}.join())") for one in (1, len(fight))]
    assert pictures[0] != pictures[1]
    assert browser.run("window.replay.measure(3).length") == 3


def test_without_webgl_a_fight_is_drawn_flat_and_the_page_says_so(page: Path) -> None:
    if (program := find_chromium()) is None:
        pytest.skip("no Chromium is installed to open pages in")
    with open_browser(program, ["--disable-3d-apis"]) as plain:
        plain.open(page)
        plain.run("window.replay.choose('game')")
        assert plain.run("window.replay.view") == "flat"
        assert plain.run("document.getElementById('no-stage').hidden") is False
        assert plain.run("document.getElementById('view-orbit').disabled") is True


_STAGE = (
    "(() => { const gl = document.getElementById('stage').getContext('webgl2'), [width, height] = "
    "[gl.drawingBufferWidth, gl.drawingBufferHeight], pixels = new Uint8Array(4 * width * height); "
    "window.replay.show({moment}); gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, pixels); "
    "return Array.from(pixels); })()"
)


def _drawn(browser: Any, moment: float) -> npt.NDArray[np.uint8]:
    """Return the pixels of the picture in three dimensions, (pixels, 3)."""
    pixels = browser.run(_STAGE.replace("{moment}", str(moment)))
    return np.array(pixels, np.uint8).reshape(-1, 4)[:, :3]


def test_a_fight_is_drawn_in_three_dimensions_from_three_cameras(browser: Any, fight: Recording, page: Path) -> None:
    areas = fight.table.column("hit_areas").to_pylist()
    strikes = next(row for row, found in enumerate(areas) if found and found[0]["open"])
    browser.open(page)
    browser.call("Emulation.setDeviceMetricsOverride", width=400, height=700, deviceScaleFactor=1, mobile=False)
    assert browser.run("window.replay.view") == "orbit"
    pictures = []
    for view in ("orbit", "game", "top"):
        browser.run(f"window.replay.choose({view!r})")
        pictures.append(_drawn(browser, strikes))
        # The player's blue, and the red of an open area on the floor.
        red, green, blue = pictures[-1].astype(int).T
        assert ((blue > red + 40) & (blue > green + 20)).any(), view
        assert ((red > green + 80) & (red > blue + 80)).any(), view
    assert not np.array_equal(pictures[0], pictures[1])
    assert not np.array_equal(pictures[1], pictures[2])
    # Between two ticks it is drawn between their places.
    halves = [_drawn(browser, moment) for moment in (5, 5.5, 6)]
    assert not any(np.array_equal(halves[1], whole) for whole in (halves[0], halves[2]))
    assert [one for one in browser.requests if not one.startswith(("file:", "data:"))] == []
    assert browser.printed == []
    browser.call("Emulation.clearDeviceMetricsOverride")


def test_the_decision_that_mattered_plays_a_ghost(browser: Any, fight: Recording, tmp_path: Path) -> None:
    row = int(np.flatnonzero(fight.column("dodge/decides"))[3])
    # The same fight as its own other course: what is drawn of it is known.
    ghost = replace(fight, table=fight.table.slice(row))
    ghost = replace(ghost, header=replace(fight.header, result=replace(fight.header.result, steps=len(fight) - row)))
    found = PivotalDecision(row, "dodge", "idle", "dodge", "lived 5.1 s longer")
    write_fight_page(tmp_path / "fight.html", fight, Search("The latest.", found, ghost))
    raw = _arrays(tmp_path / "fight.html")["ghost/raw"]
    np.testing.assert_array_equal(raw, fight.raw[row:].astype(np.float32))
    browser.open(tmp_path / "fight.html")
    browser.run("window.replay.choose('flat')")
    before = browser.run(f"(window.replay.show({row + 1}), {_PIXELS}.join())")
    browser.run("document.querySelector('[data-ghost]').click()")
    until(lambda: browser.run("window.replay.row") > row, "the other course to play")
    browser.run("document.getElementById('play').click()")
    assert browser.run(f"(window.replay.show({row + 1}), {_PIXELS}.join())") != before


def test_a_fight_of_a_running_game_is_drawn_from_its_readings(browser: Any, tmp_path: Path) -> None:
    fight = _game_fight(tmp_path)
    for one, drawn in ((fight, True), (_without_readings(fight), False)):
        write_fight_page(tmp_path / "fight.html", one, NOT_LOOKED)
        browser.open(tmp_path / "fight.html", f"#{3 + drawn}")
        browser.run("window.replay.choose('flat')")
        pixels = np.array(browser.run(f"Array.from({_PIXELS})")).reshape(-1, 4)[:, :3]
        assert (pixels == _PLAYER).all(axis=1).any() == drawn
        assert browser.printed == []


def test_a_fight_is_first_seen_from_where_neither_hides_the_other(tmp_path: Path) -> None:
    fight = _game_fight(tmp_path)
    x, y = fight.raw[0, [Raw.PLAYER_X, Raw.PLAYER_Y]] - fight.raw[0, [Raw.BOSS_X, Raw.BOSS_Y]]
    yaw = fight_page._side_rad(fight)
    # The page's floor has the game's y the other way; the player is the nearer one.
    seen = np.hypot(x, y) ** -1 * (x * np.cos(yaw) - y * np.sin(yaw))
    assert 0.0 < seen < 0.7


def test_names_from_a_recording_stay_names(browser: Any, tmp_path: Path) -> None:
    fight = _game_fight(tmp_path)
    hostile: Sequence[str] = (HOSTILE, "</script><script>document.title='PWNED'</script>")
    header = replace(fight.header, player=HOSTILE, scenario=hostile[1], start=HOSTILE, fight=HOSTILE + hostile[1])
    write_fight_page(tmp_path / "fight.html", replace(fight, header=header), Search(hostile[1]))
    browser.open(tmp_path / "fight.html")
    title = browser.run("document.title")
    assert title.startswith(f"{HOSTILE} in {hostile[1]}: ")
    assert browser.run("document.querySelector('h1').textContent") == title
    assert browser.run("document.images.length") == 0
    assert HOSTILE in browser.text("boss-doing")
    assert [one for one in browser.requests if not one.startswith(("file:", "data:"))] == []
