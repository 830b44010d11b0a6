"""The commands of a reproduction, each a thin function over the library."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from soulsgraph.cli.options import DEFAULT_OUTPUT, DEFAULT_SESSION, OutputOptions, SessionOptions
from soulsgraph.cli.place import make_console, print_json, ray_session
from soulsgraph.reproduction.protocol import Learner
from soulsgraph.reproduction.seeds import REPORTING
from soulsgraph_envs.errors import SoulsGraphError

if TYPE_CHECKING:
    from rich.console import Console

    from soulsgraph.reports.attachments import Attachment
    from soulsgraph.reproduction.folder import ReproductionFolder
    from soulsgraph.reproduction.protocol import Protocol


@dataclass(frozen=True)
class ProtocolOptions:
    """What a new reproduction trains and judges. One that exists keeps its own plan."""

    seeds: int = 10
    """Training seeds, counted from the first."""
    first_seed: int = REPORTING[0]
    """First training seed; calibration, choosing and reporting each have a hundred of their own."""
    preset: str = "fast"
    """How the agents learn: paper, fast, best or extended."""
    episodes: int = 400
    """Evaluation episodes for each row and measure."""
    scale: float = 1.0
    """Multiplies every budget."""
    no_skills: bool = False
    """Leave out the five skills, to train baselines only."""
    no_baseline: bool = False
    """Leave out the end-to-end baseline."""
    long_baseline: bool = False
    """Train the baseline for 500,000 steps too."""
    learner: Learner = "soulsgraph"
    """stable-baselines3 trains every stage by that package's own DQN."""
    overrides: Annotated[tuple[str, ...], arg(name="set", metavar="OPTION=VALUE ...")] = ()
    """Options of the preset to change, as an ablation does: double=true n_step=3; the baseline takes lanes alone."""

    def protocol(self) -> Protocol:
        """Make the protocol.

        Raises:
            SoulsGraphError: for an unknown name or a value out of range.
        """
        from soulsgraph.plan import check_range
        from soulsgraph.reproduction.protocol import Protocol

        check_range("seeds", self.seeds, 1, 1000)
        check_range("first-seed", self.first_seed, 0, 2**31 - 1000)
        overrides = dict(map(_override, self.overrides))
        if len(overrides) < len(self.overrides):
            raise SoulsGraphError(f"--set: expected each option once, found {' '.join(self.overrides)}; leave one out.")
        return Protocol(
            preset=self.preset,
            seeds=tuple(range(self.first_seed, self.first_seed + self.seeds)),
            episodes=self.episodes,
            scale=self.scale,
            baseline=not self.no_baseline,
            long_baseline=self.long_baseline,
            skills=not self.no_skills,
            learner=self.learner,
            overrides=overrides,
        )


@dataclass(frozen=True)
class Contents:
    """What a report is made of: reproductions, the variants of an ablation, tables of other commands."""

    folders: tuple[Path, ...]
    variants: tuple[Path, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    earlier: Path | None = None


_DEFAULT = ProtocolOptions()


def reproduce(
    protocol: ProtocolOptions = _DEFAULT,
    session: SessionOptions = DEFAULT_SESSION,
    out: Path = Path("runs/reproduction"),
    resume: bool = False,
) -> None:
    """Run the paper's whole protocol over several seeds, beside each other, and write the report.

    Args:
        out: Folder to begin, or to go on with; on a cluster every node must see it under this path.
        resume: Go on with the reproduction in the folder instead of beginning one.
    """
    from soulsgraph.advice import silence_advice
    from soulsgraph.reproduction.folder import ReproductionFolder

    wanted, console = protocol.protocol(), make_console(session)
    if resume:
        folder = ReproductionFolder.open(out)
        folder.check_against(wanted, _DEFAULT.protocol())
    else:
        folder = ReproductionFolder.planned(out, wanted)
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
        return name, json.loads(value)
    except ValueError:
        return name, value
