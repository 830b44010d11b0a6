"""The commands of a reproduction, each a thin function over the library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
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
    field_docs,
    given_options,
)
from soulsgraph.cli.place import make_console, print_json, ray_session
from soulsgraph.plan import check_range
from soulsgraph.reproduction.protocol import Protocol
from soulsgraph.run_folder import check_given
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.schema import Where, parse

if TYPE_CHECKING:
    from rich.console import Console

    from soulsgraph.reports.attachments import Attachment
    from soulsgraph.reproduction.folder import ReproductionFolder

#: The options of a protocol: what a new reproduction trains and evaluates.
ProtocolOptions = Annotated[
    Given,
    arg(
        constructor=given_options(
            Protocol,
            seeds=Option(int, "Training seeds, counted from the first.", len(Protocol.seeds)),
            first_seed=Option(
                int,
                "First training seed; calibration, choosing and reporting each have a hundred of their own.",
                Protocol.seeds[0],
            ),
            overrides=Option(
                tuple[str, ...],
                field_docs(Protocol)["overrides"],
                name="set",
                metavar="OPTION=VALUE ...",
            ),
        )
    ),
]


def protocol_values(given: Given, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the protocol fields that the given options set; `seeds` are the seeds without them.

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


@dataclass(frozen=True)
class Contents:
    """The contents of a report: reproductions, the variants of an ablation, tables of other commands."""

    folders: tuple[Path, ...]
    variants: tuple[Path, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    earlier: Path | None = None


def reproduce(
    protocol: ProtocolOptions,
    session: SessionOptions = DEFAULT_SESSION,
    out: Path = Path("runs/reproduction"),
    resume: Flag = False,
) -> None:
    """Run the paper's whole protocol over several seeds in parallel, and write the report.

    Args:
        out: Folder to begin, or to go on with; on a cluster every node must see it under this path.
        resume: Go on with the reproduction in the folder instead of beginning one.
    """
    from soulsgraph.advice import silence_advice
    from soulsgraph.reproduction.folder import ReproductionFolder

    console = make_console(session)
    if resume:
        folder = ReproductionFolder.open(out)
        kept = folder.protocol
        check_given(out, kept, protocol_values(protocol, kept.seeds), "begin another folder with --out")
    else:
        folder = ReproductionFolder.planned(out, Protocol(**protocol_values(protocol, Protocol.seeds)))
    silence_advice()
    _work(folder, session, console)
    _report(Contents((folder.path,)), folder.path / "report", session)


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
    from soulsgraph.reports.attachments import Attachment

    contents = Contents(folders, variants, tuple(map(Attachment.parse, attach)), earlier)
    _report(contents, out or folders[0] / "report", output)


def _work(folder: ReproductionFolder, session: SessionOptions, console: Console) -> None:
    # Ray takes seconds to import.
    from soulsgraph.reproduction.work import do_units

    with ray_session(folder, session):
        console.print(f"folder {folder.path}", highlight=False, soft_wrap=True)
        do_units(folder, console)


def _report(contents: Contents, out: Path, output: OutputOptions) -> None:
    from soulsgraph.reports.reproduction import write_report
    from soulsgraph.reproduction.table import seed_tables

    written = write_report(contents.folders, out, contents.variants, contents.attachments, contents.earlier)
    tables = seed_tables(contents.folders)
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
        json.loads(value)
    except ValueError:
        return name, value  # A word needs no quotes.
    except RecursionError:
        pass  # Reported below.
    return name, parse(value, json.loads, Where(None, f"--set {name}", "correct the value"))
