"""The commands of a reproduction, each a thin function over the library."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from soulsgraph.cli.options import (
    DEFAULT_OUTPUT,
    DEFAULT_SESSION,
    Flag,
    Given,
    Option,
    OutputOptions,
    SessionOptions,
    given_options,
    make_console,
    print_json,
    ray_session,
)
from soulsgraph.cli.remedies import in_commands
from soulsgraph.paper.study import Study
from soulsgraph.plan import check_range
from soulsgraph.run_folder import check_given
from soulsgraph_envs.core.config import Where, parse
from soulsgraph_envs.core.errors import DataError, SoulsGraphError

if TYPE_CHECKING:
    from rich.console import Console

    from soulsgraph.paper.report import Attachment
    from soulsgraph.paper.study import ReproductionFolder

#: The options of a study: what a new reproduction trains and evaluates.
StudyOptions = Annotated[
    Given,
    arg(
        constructor=given_options(
            Study,
            seeds=Option(int, "Training seeds, counted from the first.", len(Study.seeds)),
            first_seed=Option(
                int,
                "First training seed; calibration, choosing and reporting each have a hundred of their own.",
                Study.seeds[0],
            ),
            overrides=Option(tuple[str, ...], name="set", metavar="OPTION=VALUE ..."),
        )
    ),
]


def study_values(given: Given, seeds: Sequence[int]) -> dict[str, Any]:
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
    session: SessionOptions = DEFAULT_SESSION,
    out: Path = Path("runs/reproduction"),
    resume: Flag = False,
) -> None:
    """Run the paper's whole protocol over several seeds in parallel, and write the report.

    Args:
        out: Folder to begin, or to go on with; on a cluster every node must see it under this path.
        resume: Go on with the reproduction in the folder instead of beginning one.
    """
    from soulsgraph.paper.study import ReproductionFolder
    from soulsgraph.progress import silence_advice

    console = make_console(session)
    if resume:
        folder = ReproductionFolder.open(out)
        kept = folder.plan
        check_given(out, kept, study_values(protocol, kept.seeds), "begin another folder with --out")
    else:
        folder = ReproductionFolder.planned(out, Study(**study_values(protocol, Study.seeds)))
    silence_advice()
    _work(folder, session, console)
    _report(folder.path / "report", session, (folder.path,))


def report(
    folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="DIR ...")],
    output: OutputOptions = DEFAULT_OUTPUT,
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
    from soulsgraph.paper.report import Attachment

    attachments = tuple(map(Attachment.parse, attach))
    _report(out or folders[0] / "report", output, folders, variants, attachments, earlier)


def _work(folder: ReproductionFolder, session: SessionOptions, console: Console) -> None:
    # Ray takes seconds to import.
    from soulsgraph.paper.work import do_units

    with ray_session(folder, session, needed=bool(folder.left)):
        console.print(f"folder {folder.path}", highlight=False, soft_wrap=True)
        do_units(folder, console, partial(in_commands, command="reproduce"))


def _report(
    out: Path,
    output: OutputOptions,
    folders: Sequence[Path],
    variants: Sequence[Path] = (),
    attachments: Sequence[Attachment] = (),
    earlier: Path | None = None,
) -> None:
    from soulsgraph.paper.records import load_reproductions
    from soulsgraph.paper.report import write_report

    written = write_report(folders, out, variants, attachments, earlier)
    tables = load_reproductions(folders)
    if output.json:
        print_json({"report": str(written), "tables": [table.to_dict() for table in tables]})
        return
    console = make_console(output)
    for table in tables:
        console.print(table.to_rich())
    console.print(f"report in {written}", highlight=False, soft_wrap=True)


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
