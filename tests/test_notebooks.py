"""Every notebook works on a run that `soulsgraph` wrote, and is kept without outputs."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from soulsgraph_envs.testing import PATIENCE_S

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
SKILLS = ("camera", "lock_on", "movement", "dodge", "heal_attack")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert cells
    assert not any(cell.outputs or cell.execution_count for cell in cells)


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
    NotebookClient(notebook, timeout=3 * int(PATIENCE_S), resources={"metadata": {"path": str(path.parent)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output["data"] for output in outputs if "data" in output]


@pytest.mark.slow
def test_open_a_run_shows_library_curves_and_win_rates(run_folder, monkeypatch):
    monkeypatch.setenv("SOULSGRAPH_RUN", str(run_folder))
    (path,) = (path for path in NOTEBOOKS if path.stem == "open_a_run")
    shown = outputs_of(path)
    library, win_rates = (data["text/markdown"] for data in shown if "text/markdown" in data)
    assert [line.split(" | ")[0].strip("| ") for line in library.splitlines()[2:]] == list(SKILLS)
    assert "| heal_attack | v1 | iudex-phase1 | 4,500 | camera v1, lock_on v1, movement v1, dodge v1 |" in library
    assert win_rates.count("/8 |") >= 4
    assert sum("image/png" in data for data in shown) == 1
