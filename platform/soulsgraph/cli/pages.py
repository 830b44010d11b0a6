"""Commands that write reports and pages, each a thin function over the library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from soulsgraph.cli.output import DEFAULT_RUN, OutputOptions, RunOptions
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import check_writable


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
        attach: Tables of other commands to show in it, as of transfer, recovery or retention.
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
    from soulsgraph.runs.workers import precompile_playing
    from soulsgraph.zoo import open_run

    if len(folders) != 1:
        raise SoulsGraphError(f"report --html: expected one run, found {len(folders)}; name a second with --beside.")
    runs = [open_run(folder) for folder in (*folders, *([] if beside is None else [beside]))]
    check_writable(path.parent)
    precompile_playing(output.console)
    write_run_report(path, runs, fight_video(runs))
    plain = {"page": str(path), "runs": [str(run.path) for run in runs], "bytes": path.stat().st_size}
    output.show(plain, f"written: {path}, {path.stat().st_size / 1e6:.1f} MB")


def replay(
    fight: Annotated[Positional[Path], arg(metavar="FIGHT")],
    html: Annotated[Path, arg(metavar="FILE")],
    output: RunOptions = DEFAULT_RUN,
    run: Annotated[Path | None, arg(metavar="RUN")] = None,
) -> None:
    """Write a page about a recorded fight: scrubbed tick by tick, with what every skill saw, valued and chose.

    It is one file that needs no network. Of a simulated fight that the agent lost it names the last decision for which
    another action lives at least 2 s longer.

    Args:
        fight: Recorded fight, a Parquet file.
        html: HTML file to write.
        run: Run folder of the agent that fought, to try its other actions; an agent of the zoo is found by its name.
    """
    from soulsgraph.pages.fight_page import write_fight_page
    from soulsgraph.pages.what_if import last_decision
    from soulsgraph.recordings.files import read_recording
    from soulsgraph.runs.workers import precompile_playing
    from soulsgraph.zoo import agent_names, open_agent, open_run

    recording = read_recording(fight)
    player = recording.header.player
    own = open_run(run) if run is not None else open_agent(player) if player in agent_names() else None
    check_writable(html.parent)
    precompile_playing(output.console)
    if recording.header.result.outcome == "died" and own is not None:
        output.console.print("trying other actions in the last 30 s of the fight", soft_wrap=True)
    search = last_decision(recording, own)
    write_fight_page(html, recording, search)
    size = html.stat().st_size
    found = None if search.found is None else search.found._asdict()
    plain = {"page": str(html), "bytes": size, "ticks": len(recording), "last_decision": found, "note": search.note}
    output.show(plain, f"written: {html}, {size / 1e6:.2f} MB, {len(recording):,} ticks")
