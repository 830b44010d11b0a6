"""The front door of the command line: the commands by what people do, and the help that shows them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from textwrap import fill

from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.extras import DISTRIBUTION, check_extra, installed_version
from soulsgraph_envs.core.files import writing

DESCRIPTION = "Train, compose, evaluate and adapt agents made of skills for Souls games."


#: The commands by what people do, in the order of the help, each with the first line of its help.
#:
#: The lines are kept here because to import or parse every command's module takes longer than all else that the help
#: does; a test holds them to the functions' docstrings.
GROUPS: Mapping[str, Mapping[str, str]] = {
    "Watch and play": {
        "watch": "Watch an agent fight in the simulator, with what each of its skills observes, values and chooses.",
        "play": "Play against the boss in the simulator, by keyboard or gamepad, in a window at the game's speed.",
        "replay": (
            "Write an HTML page about a recorded fight: tick by tick, with what every skill saw, valued and chose."
        ),
        "zoo": "Use the trained agents that come with the package: list them, see their cards, copy and verify them.",
    },
    "Train": {
        "curriculum": "Train all skills in graph order, then print the table of win rates.",
        "train": "Train one skill on top of the run's library; an interrupted stage resumes from its checkpoint.",
        "baseline": "Train the end-to-end agent of Appendix B (250,000 steps times the scale) and evaluate it.",
        "supervise": (
            "Run a training command, and resume its run when it crashes or is killed: soulsgraph supervise -- "
            "curriculum."
        ),
        "clone": "Clone skills from recorded fights of people, scripts or agents; training continues from the clones.",
    },
    "Evaluate": {
        "evaluate": "Evaluate one setting of a run's skills, greedily.",
        "table": "Evaluate every row of the paper's Table 1 that the run's skills allow.",
        "skills": "Check the run's skill library, weights included, and show every version and its lineage.",
    },
    "Adapt to another fight": {
        "adapt": "Fine-tune chosen skills in another scenario, everything else frozen; earlier versions stay.",
        "transfer": "Measure, without training, what a shift does to each skill, and recommend which to adapt.",
        "recovery": (
            "Compare how much win rate the same steps recover: recommended skills, each alone, all, all from scratch."
        ),
        "necessity": "Measure what agents lose when one skill acts at random, does nothing, or never learned.",
        "retention": (
            "Evaluate every scenario of a run with the versions after each adaptation: transfer and forgetting."
        ),
        "continual": (
            "Compare continual learners over sequences of bosses: run methods, score evaluations, write the report."
        ),
    },
    "Make skills of your own": {
        "init": (
            "Begin a project of your own: a skill, a graph, a boss, a reward, a test and a README, in a new folder."
        ),
        "validate": (
            "Check a project without training: skills, graphs, fights, rewards, references, an update; exit 1 on "
            "failure."
        ),
        "smoke": "Play and learn 1,000 decisions of each skill of a project, on top of untrained networks.",
        "compare": "Train agents of several skill graphs on the same seeds, and evaluate them in the same fights.",
        "list": "List known names: scenarios, presets, options, skills, graphs, sequences, methods ...",
    },
    "Record and exchange": {
        "data": "Record fights as Parquet files, list, check and summarize them, and export them for other tools.",
        "export": "Export an agent's skills for other programs: an ONNX file for each, with its normalisation inside.",
        "import-sb3": (
            "Import a DQN saved by stable-baselines3 as a version of a skill: only its weights, nothing is unpickled."
        ),
    },
    "Fit the simulator to a game": {
        "calibrate": (
            "Fit a boss's data to recorded fights: values with intervals and verdicts, and a scenario to train in."
        ),
        "fidelity": (
            "Measure how wrong the simulator is about recorded fights: errors of replayed rows, moves, win rates."
        ),
    },
    "Tune": {
        "sweep": "Train every setting of a space of options on the same seeds by Ray Tune, and compare the win rates."
    },
    "Repeat the paper's study": {
        "reproduce": "Run the paper's whole protocol over several seeds in parallel, and write the report.",
        "report": (
            "Write one report of one or several reproductions, presets beside each other; with `--html` a page about "
            "a run."
        ),
    },
    "Running games": {
        "doctor": "Report what this machine can do, with the remedy beside each failure; exit 1 if something fails.",
        "saves": (
            "Find the saves of a game on this PC, copy them before an agent plays, and put a copy back afterwards."
        ),
        "standin": (
            "Run the stand-in game: the simulator as a program with a window, keys and a memory like the real game's."
        ),
        "serve-siphon": (
            "Serve a game of this machine to Siphon clients: a stand-in, started for it, or a process that runs."
        ),
        "host": "Play this PC's games for a head that trains, until Ctrl-C.",
        "pause": "Pause the games that this PC plays for a head: their keys are released, and a person may play.",
        "resume": "Let this PC's games play for their head again.",
        "fleet": "Let game PCs play for a run on this machine: tokens, certificates, and the state of the PCs.",
    },
}
COMMANDS = {name: summary for commands in GROUPS.values() for name, summary in commands.items()}
#: The modules of this package, and the commands that are functions there.
MODULES: Mapping[str, tuple[str, ...]] = {
    "adapting": ("adapt", "transfer", "recovery", "necessity", "retention"),
    "continual": ("continual",),
    "fights": ("watch", "play", "replay", "data"),
    "fitting": ("calibrate", "fidelity"),
    "fleet": ("fleet",),
    "games": ("doctor", "saves", "standin", "serve-siphon"),
    "host": ("host", "pause", "resume"),
    "projects": ("init", "validate", "smoke", "compare", "list"),
    "studies": ("reproduce", "report"),
    "supervise": ("supervise",),
    "tuning": ("sweep",),
    "training": ("curriculum", "train", "baseline", "clone", "evaluate", "table", "skills"),
    "zoo": ("zoo", "export", "import-sb3"),
}
#: The extras, and what needs them: commands, and actions and options of commands that by themselves do not.
NEEDING: Mapping[str, tuple[str, ...]] = {
    "data": ("replay", "table", "data", *MODULES["fitting"], "evaluate --out", "play --record"),
    "train": (
        *("curriculum", "train", "baseline", "supervise", "clone", "validate", "smoke", "compare", "continual"),
        *(*MODULES["adapting"], *MODULES["studies"], *MODULES["tuning"]),
        *("evaluate --fleet", "doctor --fleet", "fidelity --out"),
    ),
}
MODULE_OF = {name: module for module, names in MODULES.items() for name in names}
_EXTRA_OF = {words: extra for extra, needing in NEEDING.items() for words in needing}

#: What a newcomer types, and what it does.
_EXAMPLES = (
    ("watch iudex-phase1-best-0", "watch a trained agent fight in a window"),
    ("curriculum", "train an agent of five skills"),
    ("evaluate runs/curriculum", "play 400 fights and print how many it wins"),
    ("adapt iudex-phase1-best-0 --scenario vordt --run runs/vordt", "adapt a trained agent to another boss"),
    ("init duel", "begin a skill, a graph and a boss of your own"),
    ("standin --speed 3", "start the stand-in, a program that imitates the game"),
    ("host --help", "let this PC's games play for a head that trains"),
)
#: An option of tyro's, which writes the script by which a shell completes words.
_COMPLETION, _SHELLS = "--tyro-write-completion", ("bash", "zsh")
_MORE = (
    ("COMMAND --help", "every option of a command, with its unit and default"),
    ("--version", "the version that is installed"),
    (f"{_COMPLETION} bash|zsh FILE", "the script by which a shell completes commands and options"),
)
_WIDEST = 110
#: Similarity from which on an option counts as misspelt, as difflib measures it.
_ALIKE = 0.7


def front_page(words: list[str]) -> str | None:
    """Return what is printed where no command is asked for: the help or the version; None if there is a command.

    Raises:
        UnknownNameError: for a command that does not exist.
        SoulsGraphError: for an option before the command.
    """
    first = words[0] if words else ""
    if first in ("", "-h", "--help"):
        return help_text(min(shutil.get_terminal_size().columns - 2, _WIDEST))
    if first == "--version":
        return _version()
    if first == _COMPLETION:
        _check_completion(words[1:])
        return None
    if first.startswith("-"):
        raise SoulsGraphError(f"expected a command first, found {shown(first)}; see soulsgraph --help.")
    if first.replace("_", "-") not in COMMANDS:
        raise UnknownNameError("command", first, COMMANDS)
    return None


def check_extras(words: str, options: Collection[str]) -> None:
    """Check that what a command needs is installed, by its name with its action and the names of its options given.

    Raises:
        SoulsGraphError: naming the extra and the command that installs it.
    """
    needed = {words: _EXTRA_OF.get(words) or _EXTRA_OF.get(words.partition(" ")[0])}
    needed |= {line: _EXTRA_OF.get(line) for line in (f"{words} --{name}" for name in options)}
    for what, extra in needed.items():
        if extra:
            check_extra(what, extra)


def help_text(width: int) -> str:
    """Return the commands by what people do, a line each, with examples."""
    widest = max(map(len, COMMANDS)) + 4
    parts = ["usage: soulsgraph COMMAND [OPTIONS]", fill(DESCRIPTION, width)]
    for group, commands in GROUPS.items():
        lines = [_line(f"  {name}", summary, widest, width) for name, summary in commands.items()]
        parts.append("\n".join([f"{group}:", *lines]))
    examples = [f"  soulsgraph {words}\n      {what}" for words, what in _EXAMPLES]
    more = [f"  soulsgraph {words}\n      {what}" for words, what in _MORE]
    return "\n\n".join([*parts, "\n".join(["Examples:", *examples]), "\n".join(["More:", *more])])


def command_lines() -> list[tuple[str, ...]]:
    """Return every command that can be asked for its help, each action of those that have several by itself."""
    lines: list[tuple[str, ...]] = []
    for name in COMMANDS:
        lines += [(name, action) for action in load(name)[1]] or [(name,)]
    return lines


def load(name: str) -> tuple[Callable[..., None], Mapping[str, Callable[..., None]]]:
    """Return a command's function, and its actions if it is one of several."""
    module = import_module(f"{__package__}.{MODULE_OF[name]}")
    function: Callable[..., None] = getattr(module, name.replace("-", "_"))
    return function, module.ACTIONS if "action" in function.__annotations__ else {}


def suggestions(words: Sequence[str], help_text: str) -> list[str]:
    """Return for each word that a command's help does not have, but nearly, the option or choice that is meant."""
    options = [*dict.fromkeys(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", help_text))]
    choices = re.split(r"[,\s│]+", ",".join(re.findall(r"\{([\w.,\s│-]+)\}", help_text)))
    meant = []
    for word in words:
        name, known = word.partition("=")[0].replace("_", "-"), options if word.startswith("--") else choices
        close = [] if name in known else get_close_matches(name, known, n=1, cutoff=_ALIKE)
        meant += [f"{word.partition('=')[0]}: did you mean {close[0]}?"] if close else []
    return meant


def _check_completion(words: Sequence[str]) -> None:
    """Check what tyro does not: the shell, and that the script's file can be written."""
    if len(words) != 2 or words[0] not in _SHELLS or Path(words[1]).is_dir():
        found = shown(" ".join(words)) if words else "none"
        raise SoulsGraphError(f"{_COMPLETION}: expected {' or '.join(_SHELLS)} and a file to write, found {found}.")
    with writing(words[1]):
        Path(words[1]).parent.mkdir(parents=True, exist_ok=True)


def _line(name: str, text: str, indent: int, width: int) -> str:
    return fill(text, max(width, indent + 20), initial_indent=name.ljust(indent), subsequent_indent=" " * indent)


def _version() -> str:
    """Return the version that is installed; a tree that is not installed has none."""
    return f"{DISTRIBUTION} {installed_version()}"
