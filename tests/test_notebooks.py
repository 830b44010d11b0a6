"""Every notebook works on what `soulsgraph` wrote, and is kept without outputs."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from fakes.runs import write_synthetic_records
from fakes.waiting import PATIENCE_S

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
SKILLS = ("camera", "lock_on", "movement", "dodge", "heal_attack")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert cells
    assert not any(cell.outputs or cell.execution_count for cell in cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_a_page_of_what_it_shows(path):
    folder = path.parents[1] / "docs" / "notebooks" / path.stem
    page, cells = (folder / "README.md").read_text(encoding="utf-8"), nbformat.read(path, as_version=4).cells
    # `make notebooks` writes it: a notebook that changed is executed again.
    parts = [cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```" for cell in cells]
    places = [page.find(part.split("\n", 1)[-1].strip()) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    assert {path.name for path in folder.glob("*.png")} == {*re.findall(r"!\[png\]\((.*?)\)", page)}
    assert "Traceback" not in page


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebooks") / "run"
    command = [
        Path(sys.executable).with_name("soulsgraph"),
        "curriculum",
        f"--run={folder}",
        "--scale=0.05",
        "--episodes=8",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=3 * PATIENCE_S)
    return folder


def outputs_of(path: Path) -> list[dict]:
    """Execute a notebook in its folder and return the data of all its outputs."""
    notebook = nbformat.read(path, as_version=4)
    patience_s = int(PATIENCE_S)
    options = {"timeout": 3 * patience_s, "startup_timeout": patience_s, "iopub_timeout": patience_s}
    NotebookClient(notebook, resources={"metadata": {"path": str(path.parent)}}, **options).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output["data"] for output in outputs if "data" in output]


def shown_by(name: str) -> tuple[list[str], int]:
    """Execute a notebook; return its texts, and how many pictures it shows."""
    (path,) = (path for path in NOTEBOOKS if path.stem == name)
    shown = outputs_of(path)
    texts = [data["text/markdown"] for data in shown if "text/markdown" in data]
    return texts, sum("image/png" in data for data in shown)


@pytest.mark.slow
def test_open_a_run_shows_library_curves_and_win_rates(run_folder, monkeypatch):
    monkeypatch.setenv("SOULSGRAPH_RUN", str(run_folder))
    (library, win_rates), pictures = shown_by("open_a_run")
    assert [line.split(" | ")[0].strip("| ") for line in library.splitlines()[2:]] == list(SKILLS)
    assert "| heal_attack | v1 | iudex-phase1 | 4,500 | camera v1, lock_on v1, movement v1, dodge v1 |" in library
    assert win_rates.count("/8 |") >= 4
    assert pictures == 1


@pytest.mark.slow
def test_a_fight_is_examined_where_a_skill_was_surprised():
    (falls, moment), pictures = shown_by("examine_a_fight")
    assert [line.split(" | ")[0].strip("| ") for line in falls.splitlines()[2:]] == list(SKILLS)
    assert all(f"value of {name}" in moment for name in ("dodge", "idle"))
    assert pictures == 2


@pytest.mark.slow
def test_runs_are_compared_on_the_same_fights(monkeypatch):
    monkeypatch.setenv("SOULSGRAPH_RUNS", "iudex-phase1-paper-0,iudex-phase1-best-0,iudex-phase1-best-1")
    (plans, rates), pictures = shown_by("compare_runs")
    assert "| preset | paper | best | best |" in plans
    first, *others = rates.splitlines()[2:]
    assert first.endswith("|  |  |")
    # The zoo's cards: the paper's preset wins about half of its fights, the other nearly all.
    assert len(others) == 2
    assert all(float(line.split("|")[4]) > 15.0 for line in others)
    assert pictures == 1


@pytest.mark.slow
def test_the_papers_figures_are_drawn_of_a_reproduction(monkeypatch, tmp_path):
    monkeypatch.setenv("SOULSGRAPH_REPRODUCTION", str(write_synthetic_records(tmp_path / "made")))
    texts, pictures = shown_by("paper_figures")
    assert (texts, pictures) == ([], 5)


@pytest.mark.slow
def test_a_skill_of_ones_own_is_written_checked_and_tried():
    (checks, tried, reward), _ = shown_by("own_skill")
    assert "fails" not in checks
    assert checks.count("holds") > 5
    assert "| parry |" in tried
    assert len(reward.splitlines()) > 3


@pytest.mark.slow
def test_a_newcomer_without_a_checkout_watches_and_trains(monkeypatch):
    monkeypatch.setenv("SOULSGRAPH_SCALE", "0.05")
    _, pictures = shown_by("begin_in_colab")
    assert pictures == 2
