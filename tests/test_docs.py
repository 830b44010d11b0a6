"""Pages agree with the code: settings, writes, misbehaviours, keys, columns, links and pictures."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from statistics import fmean

import gymnasium
import pytest
from PIL import Image, ImageSequence
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig
from stable_baselines3 import DQN

from soulsgraph.project.environment_pages import environment_pages
from soulsgraph.project.listing import toml_fields
from soulsgraph.recordings.format import FIGHT_COLUMNS, PlayedSkill, skill_columns
from soulsgraph.results.tables import as_markdown
from soulsgraph_envs.core.config import shipped_names
from soulsgraph_envs.core.files import write_text
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.keys import load_bindings
from soulsgraph_envs.games.link import ELDENGYM_OPERATIONS, OPERATIONS, GameSettings, Operation
from soulsgraph_envs.games.standin.program import KINDS
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

PageRows = Callable[[str, str], dict[str, list[str]]]
_DOCS = Path(__file__).parents[1] / "docs"


def test_every_key_of_the_games_file_is_told(page_rows: PageRows) -> None:
    assert list(page_rows("games_reference.md", "# The games file\n")) == [field.name for field in fields(GameSettings)]


@pytest.mark.parametrize(
    ("above", "operations"),
    [("# What is written\n", OPERATIONS), ("by the names of its attributes,", ELDENGYM_OPERATIONS)],
)
def test_every_write_operation_is_told_with_its_fields(
    page_rows: PageRows, above: str, operations: Mapping[str, Operation]
) -> None:
    told = page_rows("games_driver.md", above)
    assert list(told) == list(operations)
    for name, (purpose, written, optional) in told.items():
        operation = operations[name]
        assert purpose == operation.purpose
        assert tuple(re.findall(r"`(\w+)`", written)) == operation.fields
        assert (optional.strip("| ") == "yes") == operation.optional


def test_every_misbehaviour_of_the_stand_in_is_told(page_rows: PageRows) -> None:
    assert set(page_rows("real_games.md", "# When the stand-in misbehaves\n")) == set(KINDS)


def test_every_unverified_entry_is_on_the_checklist_with_its_fallback(page_rows: PageRows) -> None:
    maps = [load_address_map(name) for name in shipped_names("address map")]
    unverified = {
        name: one.entry(name).fallback for one in maps for name in one.readable() if not one.entry(name).verified
    }
    told = page_rows("game_pc_checklist.md", "# Entries that are not verified\n")
    assert {name: cells[-1].strip("| ") for name, cells in told.items()} == unverified


def test_every_column_of_a_recording_is_told_with_its_unit(page_rows: PageRows) -> None:
    skill = PlayedSkill("<skill>", "network", 1, "", True, (), (), ("<term>",))
    told = page_rows("recordings_format.md", "# Columns\n")
    assert {name: cells[0].strip() for name, cells in told.items()} == {
        column.name: column.unit for column in (*FIGHT_COLUMNS, *skill_columns(skill))
    }


def test_the_keys_to_set_are_those_of_the_bindings() -> None:
    bindings = load_bindings("dark-souls-3")
    text = (_DOCS / "game_pc.md").read_text(encoding="utf-8").split("# Keys\n", 1)[1].split("\n\nThey", 1)[0]
    cells = [cell.strip() for line in text.splitlines()[3:] for cell in line.strip("|").split(" | ")]
    keys = {key for cell in cells[1::2] for key in cell.strip("| ").split()}
    assert keys == set(bindings.keys)


def test_every_field_of_every_toml_file_is_on_its_page() -> None:
    assert (_DOCS / "toml_fields.md").read_text(encoding="utf-8").endswith(as_markdown(toml_fields()))


def test_every_environment_has_a_page_of_its_own(request: pytest.FixtureRequest) -> None:
    pages, folder = environment_pages(), _DOCS / "environments"
    if request.config.getoption("rewrite_pages"):
        for name, text in pages.items():
            write_text(folder / f"{name}.md", text)
    assert {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.md")} == pages
    ids = {id for id in gymnasium.registry if id.startswith("soulsgraph/")}
    assert {text.splitlines()[0].removeprefix("# ") for text in pages.values()} == ids
    overview = (_DOCS / "environments.md").read_text(encoding="utf-8")
    assert all(f"](environments/{name}.md)" in overview for name in pages)


def test_names_elsewhere_are_options_here_and_parameters_there(page_rows: PageRows) -> None:
    theirs = {0: (DQN.__init__,), 2: (DQNConfig.training, AlgorithmConfig.training)}
    rows = page_rows("rllib.md", "# Names of options elsewhere\n")
    assert len(rows) > 10
    for options, cells in rows.items():
        assert {name.strip("` ") for name in options.split(",")} <= {one.name for one in fields(DQNHyperparameters)}
        for column, functions in theirs.items():
            known = {name for function in functions for name in inspect.signature(function).parameters}
            assert set(re.findall(r"`(\w+)`", cells[column])) <= known, options


def test_the_readme_is_a_door() -> None:
    text = re.sub(r"```.*?```", "", (_DOCS.parent / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert 400 < len(text.split()) < 800


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
    assert len(pages) > 40
    assert [name for name in sorted(pages) if f"]({name})" not in listed] == []
    assert [name for name in sorted(pages) if f": {name}\n" not in navigation] == []


def test_the_pictures_in_git_are_at_most_15_mb_together() -> None:
    root, kinds = _DOCS.parent, ("*.png", "*.gif", "*.jpg", "*.jpeg", "*.svg")
    if not (root / ".git").exists():
        pytest.skip("no checkout: which files git keeps is not known")
    listed = subprocess.run(["git", "ls-files", "-z", *kinds], cwd=root, capture_output=True, text=True, check=True)
    files = [root / name for name in listed.stdout.split("\0") if name]
    assert len(files) > 40
    assert sum(file.stat().st_size for file in files if file.exists()) <= 15_000_000


def test_every_fault_of_the_chaos_suite_has_its_guarantee(page_rows: PageRows) -> None:
    text = (_DOCS.parent / "tests" / "chaos" / "test_chaos.py").read_text(encoding="utf-8")
    faults = re.findall(r"^    (\w+),$", text.split("\nFAULTS = [\n", 1)[1].split("]\n", 1)[0], re.MULTILINE)
    rows = page_rows("guarantees.md", "four things hold")
    assert len(faults) > 10
    assert [cells[-1].strip("`| ") for cells in rows.values()] == faults
    assert "def test_fault(" in text
    assert "def test_many_faults_in_one_run(" in text


def test_every_environment_has_a_picture_of_its_own_that_moves() -> None:
    ids = [id for id in gymnasium.registry if id.startswith("soulsgraph/")]
    page = (_DOCS / "environments.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| \[`(soulsgraph/[\w-]+)`\].*\]\((environments/\w+\.gif)\)", page, re.MULTILINE))
    assert sorted(shown) == sorted(ids)
    films = {id: _pictures(_DOCS / file) for id, file in shown.items()}
    assert len({film[0].tobytes() for film in films.values()}) == len(films) == len(ids)
    for film in films.values():
        assert len({picture.tobytes() for picture in film}) > 15


def _pictures(path: Path) -> list[Image.Image]:
    with Image.open(path) as film:
        return [frame.convert("RGB") for frame in ImageSequence.Iterator(film)]


def test_the_figures_of_pixels_are_those_of_their_files() -> None:
    text = (_DOCS / "gymnasium.md").read_text(encoding="utf-8").split("## Pixels\n", 1)[1].split("\n## ", 1)[0]
    results = json.loads((_DOCS / "results" / "pixels" / "speed.json").read_text())["results"]
    rates = {(one["what"], one["how"]): one["per_cpu_s"] for one in results}
    frames = [rate for (what, _), rate in rates.items() if what.startswith("frames")]
    assert min(frames) >= 5_000
    of_play = rates["decisions", "pixels"], rates["decisions", "values"]
    camera = json.loads((_DOCS / "results" / "pixels" / "camera.json").read_text())
    pixels, values = ([fmean(one["returns"]) for one in run["curve"]] for run in camera["runs"])
    returns = (pixels[0], max(pixels), pixels[-1], fmean(camera["random"]), values[-1])
    said = [f"{round(one, -2):,.0f}" for one in (min(frames), max(frames), *of_play)]
    said += [f"{one:.0f}" for one in returns] + [f"{camera['runs'][0]['curve'][-1]['cpu_s']:.0f} CPU seconds"]
    assert not [one for one in said if one not in text]
