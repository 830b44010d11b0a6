"""The commands of a reproduction, each a thin function over the library."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from soulsgraph.cli import options
from soulsgraph.cli.remedies import in_commands
from soulsgraph.paper.report import Attachment, write_report
from soulsgraph.paper.rows import seed_tables
from soulsgraph.paper.study import ReproductionFolder, Study
from soulsgraph.plan import check_range
from soulsgraph.run_folder import check_given
from soulsgraph_envs.core.config import Where, parse
from soulsgraph_envs.core.errors import DataError, SoulsGraphError

#: The options of a study: what a new reproduction trains and evaluates.
StudyOptions = Annotated[
    options.Given,
    arg(
        constructor=options.given_options(
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
        )
    ),
]


def study_values(given: options.Given, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the fields of a study that the options given ask for, where otherwise it would have these seeds.

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
        overrides = dict(map(_override, values["overrides"]))
        if len(overrides) < len(values["overrides"]):
            found = " ".join(values["overrides"])
            raise SoulsGraphError(f"--set: expected each option once, found {found}; leave one out.")
        values["overrides"] = overrides
    return values


def reproduce(
    protocol: StudyOptions,
    session: options.SessionOptions = options.DEFAULT_SESSION,
    out: Path = Path("runs/reproduction"),
    resume: options.Flag = False,
) -> None:
    """Run the paper's whole protocol over several seeds in parallel, and write the report.

    Args:
        out: Folder to begin, or to go on with; on a cluster every node must see it under this path.
        resume: Go on with the reproduction in the folder instead of beginning one.
    """
    if resume:
        folder = ReproductionFolder.open(out)
        check_given(out, folder.study, study_values(protocol, folder.study.seeds), "begin another folder with --out")
    else:
        folder = ReproductionFolder.planned(out, Study(**study_values(protocol, Study.seeds)))
    # Imported when the options are known to hold: it takes seconds.
    from soulsgraph.paper.work import do_units

    with options.ray_session(folder, session, needed=bool(folder.left)):
        session.console.print(f"folder {folder.path}", soft_wrap=True)
        do_units(folder, session.console, partial(in_commands, command="reproduce"))
    _write(folder.path / "report", session, (folder.path,))


def report(
    folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="DIR ...")],
    output: options.OutputOptions = options.DEFAULT_OUTPUT,
    variants: tuple[Path, ...] = (),
    attach: Annotated[tuple[str, ...], arg(metavar="TITLE=PATH.parquet[:COLUMN,...] ...")] = (),
    earlier: Path | None = None,
    out: Path | None = None,
) -> None:
    """Write one report of one or several reproductions, presets beside each other.

    Args:
        folders: Folders that reproduce wrote.
        variants: Folders of an ablation, the reference first.
        attach: Tables of other commands to show in it, as of transfer, recovery or retention.
        earlier: Folder of a report on other seeds; every row is compared with its row there.
        out: Folder of the report; `report` in the first folder if not given.
    """
    if not folders:
        raise SoulsGraphError("report: expected one or more folders of reproductions, found none; name one.")
    attachments = tuple(map(Attachment.parse, attach))
    _write(out or folders[0] / "report", output, folders, variants, attachments, earlier)


def _write(out: Path, output: options.OutputOptions, folders: Sequence[Path], *others: Any) -> None:
    written, tables = write_report(folders, out, *others), seed_tables(folders)
    plain = {"report": str(written), "tables": [table.to_dict() for table in tables]}
    output.show(plain, *(table.to_rich() for table in tables), f"report in {written}")


def _override(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise SoulsGraphError(f"--set: expected OPTION=VALUE, found {text!r}; write for example double=true.")
    try:
        return name, parse(value, "JSON", Where(None, f"--set {name}", "correct the value"))
    except DataError as error:
        if isinstance(error.__cause__, ValueError):
            return name, value  # A word needs no quotes.
        raise
