"""Execute every notebook and write it with what it shows into docs/notebooks, a page and its pictures for each.

A run and a reproduction that two of them open are trained first, where they are not there from before: some minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

from soulsgraph_envs.core.files import whole_folder

ROOT = Path(__file__).parents[1]
#: What notebooks open, by the variable that names it to them, and the command that makes it.
OPENED = {
    "SOULSGRAPH_RUN": ("run", ("curriculum", "--preset", "best", "--run")),
    "SOULSGRAPH_REPRODUCTION": ("reproduction", ("study", "reproduce", "--preset", "fast", "--seeds", "3", "--run")),
}
#: Those that open an agent of the zoo by themselves.
_ZOO = ("examine_a_fight", "compare_runs")
_MOST_S = 600


def main() -> None:
    """Write the pages of all notebooks, or of those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="notebooks, without .ipynb; all if none is named")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "notebooks")
    parser.add_argument("--opened", type=Path, default=ROOT / "runs" / "notebooks", help="where the run is, or will be")
    words = parser.parse_args()
    paths = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    if unknown := {*words.names} - paths.keys():
        parser.error(f"expected some of {', '.join(paths)}, found {', '.join(sorted(unknown))}")
    for path in (paths[name] for name in words.names or paths):
        print(f"executing {path.name}", flush=True)
        write_page(path, words.out / path.stem, {} if path.stem in _ZOO else _opened(path, words.opened))


def _opened(path: Path, folder: Path) -> dict[str, str]:
    """Return the variables that a notebook reads, each with what it names, made where it is missing."""
    text, found = path.read_text(encoding="utf-8"), {}
    for variable, (name, command) in OPENED.items():
        if variable in text:
            if not (folder / name).exists():
                # What an interrupt leaves is not taken for whole.
                unfinished = folder / f"{name}-unfinished"
                shutil.rmtree(unfinished, ignore_errors=True)
                subprocess.run([Path(sys.executable).with_name("soulsgraph"), *command, unfinished], check=True)
                unfinished.rename(folder / name)
            found[variable] = str(folder / name)
    return found


def write_page(path: Path, folder: Path, environment: dict[str, str]) -> None:
    """Execute a notebook, and write `README.md` and its pictures into a folder, which is replaced."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=_MOST_S, resources=resources).execute(env={**os.environ, **environment})
    for cell in notebook.cells:
        # Warnings of libraries name the machine's folders.
        cell.outputs = [shown for shown in cell.get("outputs", []) if shown.get("name") != "stderr"]
    text, made = MarkdownExporter().from_notebook_node(notebook)
    source = f"What [the notebook](../../../notebooks/{path.name}) shows, executed by `make notebooks`.\n"
    title, rest = text.strip().split("\n", 1)
    with whole_folder(folder, replace=True) as temporary:
        (temporary / "README.md").write_text(f"{title}\n\n{source}{rest.rstrip()}\n", encoding="utf-8")
        for name, data in made["outputs"].items():
            (temporary / name).write_bytes(data)


if __name__ == "__main__":
    main()
