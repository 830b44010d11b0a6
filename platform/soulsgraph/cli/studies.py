"""The paper's study and its reports, and how fast all of it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from soulsgraph.cli import options
from soulsgraph.cli.output import DEFAULT_RUN, OutputOptions, RunOptions
from soulsgraph.paper.study import ReproductionFolder, Study
from soulsgraph.runs.plan import check_range
from soulsgraph.runs.run_folder import check_given
from soulsgraph.zoo import open_run
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import check_writable

#: The options of a study: what a new reproduction trains and evaluates.
StudyOptions = Annotated[
    options.Given,
    options.given_options(
        Study,
        seeds=options.option(int, "Training seeds, counted from the first.", len(Study.seeds)),
        first_seed=options.option(
            int,
            "First training seed; calibration, choosing and reporting each have a hundred of their own.",
            Study.seeds[0],
        ),
        overrides=options.option(
            tuple[str, ...], options.field_docs(Study)["overrides"], name="set", metavar="OPTION=VALUE ..."
        ),
    ),
]


def study_values(given: options.Given, seeds: Sequence[int], example: str = "double_q=true") -> dict[str, Any]:
    """Return the fields of a study that the options given ask for, where otherwise it would have these seeds.

    `example` is what the refusal of a malformed --set advises.

    Raises:
        SoulsGraphError: for a number of seeds out of its range, or an option set twice or without a value.
    """
    values = dict(given)
    first = values.pop("first_seed", seeds[0])
    if {"seeds", "first_seed"} & given.keys():
        count = values.get("seeds", len(seeds))
        check_range("seeds", count, 1, 1000)
        check_range("first-seed", first, 0, 2**31 - 1000)
        values["seeds"] = tuple(range(first, first + count))
    if "overrides" in values:
        values["overrides"] = options.read_overrides(values["overrides"], example)
    return values


def reproduce(
    study: StudyOptions,
    session: options.SessionOptions = options.DEFAULT_SESSION,
    run: Path = Path("runs/reproduction"),
) -> None:
    """Run the paper's whole protocol over several seeds in parallel, and write the report.

    Args:
        run: Folder of the study, begun if it does not exist; on a cluster it is on the head, and other nodes need not
            see it.
    """
    if session.games or session.fleet or session.gateways != 1 or session.no_ray:
        found = "found --games, --fleet, --gateways or --no-ray"
        raise SoulsGraphError(f"reproduce: expected the simulator alone, {found}; leave them out.")
    if (run / ReproductionFolder.plan_file).exists():
        folder = ReproductionFolder.open(run)
        check_given(run, folder.plan, study_values(study, folder.plan.seeds))
    else:
        folder = ReproductionFolder.planned(run, Study(**study_values(study, Study.seeds)))
        folder.plan.check_learns()
    # Imported when the options are known to hold: it takes seconds.
    from soulsgraph.paper.seed_job import do_units

    with options.ray_session(folder, session, needed=bool(folder.left)) as joined:
        if folder.left:
            joined.check_nodes()
        session.console.print(f"folder {folder.path}")
        do_units(folder, session.console)
    write_reproductions(folder.path / "report", session, (folder.path,))


def report(
    folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="DIR ...")],
    output: RunOptions = DEFAULT_RUN,
    variants: tuple[Path, ...] = (),
    attach: Annotated[tuple[str, ...], arg(metavar="TITLE=PATH.parquet[:COLUMN,...] ...")] = (),
    earlier: tuple[Path, ...] = (),
    out: Path | None = None,
    html: Annotated[Path | None, arg(metavar="FILE")] = None,
    beside: Annotated[Path | None, arg(metavar="RUN")] = None,
) -> None:
    """Write one report of one or several reproductions, presets beside each other; with `--html` a page about a run.

    The page is one file that needs no network: win rates, learning curves, the skill graph, lineage, hyperparameters
    and a fight.

    Args:
        folders: Folders that reproduce wrote; with `--html` a run folder, or the name of an agent of the zoo.
        variants: Folders of an ablation, the reference first.
        attach: Tables of other commands to show in the report, such as those of transfer, recovery or retention.
        earlier: Folders of reports on other seeds; every row is compared with its row there, their seeds pooled.
        out: Folder of the report; `report` in the first folder if not given.
        html: HTML file to write about a run.
        beside: Another run or agent, shown beside the first in the page.
    """
    # Imported here: a page about a run need not wait for what reports of reproductions need.
    from soulsgraph.paper.report import Attachment

    if html is not None:
        if variants or attach or earlier or out:
            raise SoulsGraphError(
                "report --html: expected a run alone, found options of a reproduction's report; leave them out."
            )
        return _write_page(html, folders, beside, output)
    if beside is not None:
        raise SoulsGraphError("report: expected --html FILE with --beside, found none; name the file.")
    if not folders:
        raise SoulsGraphError("report: expected one or more folders of reproductions, found none; name one.")
    attachments = tuple(map(Attachment.parse, attach))
    return write_reproductions(out or folders[0] / "report", output, folders, variants, attachments, earlier)


def write_reproductions(out: Path, output: OutputOptions, folders: Sequence[Path], *others: Any) -> None:
    """Write the report of reproductions, and print their tables."""
    from soulsgraph.paper.records import load_reproductions
    from soulsgraph.paper.report import write_report

    written, tables = write_report(folders, out, *others), load_reproductions(folders)
    plain = {"report": str(written), "tables": [table.to_dict() for table in tables]}
    output.show(plain, *(table.to_rich() for table in tables), f"report in {written}")


def _write_page(path: Path, folders: Sequence[Path], beside: Path | None, output: OutputOptions) -> None:
    from soulsgraph.pages.run_report import fight_video, write_run_report

    if len(folders) != 1:
        raise SoulsGraphError(f"report --html: expected one run, found {len(folders)}; name a second with --beside.")
    runs = [open_run(folder) for folder in (*folders, *([] if beside is None else [beside]))]
    check_writable(path.parent)
    output.precompile()
    write_run_report(path, runs, fight_video(runs))
    plain = {"page": str(path), "runs": [str(run.path) for run in runs], "bytes": path.stat().st_size}
    output.show(plain, f"written: {path}, {path.stat().st_size / 1e6:.1f} MB")
