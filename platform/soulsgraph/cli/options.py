"""Options that several commands share, shown as flags; those of a plan are derived from the plan's fields.

An option of a plan that was left out is told apart from one given with the default's value: a run that
exists keeps its own plan, and refuses what contradicts it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypedDict, get_args, get_type_hints

from tyro.conf import FlagCreatePairsOff, arg

from soulsgraph.evaluation import EVALUATION_SEED
from soulsgraph.plan import Plan, lasting_name
from soulsgraph.transfer.measures import TransferOptions
from soulsgraph_envs.skills import load_skill_options

#: The options that were given, by name.
Given = Mapping[str, Any]
#: A flag that is off unless given.
Flag = Annotated[bool, FlagCreatePairsOff]


@dataclass(frozen=True)
class Option:
    """An option as the command line shows it; one without a default needs none, one without help has its field's."""

    kind: Any
    help: str = ""
    default: object = None
    name: str | None = None
    metavar: str | None = None


def given_options(cls: type[Any], leave_out: tuple[str, ...] = (), **others: Option) -> Any:
    """Turn a dataclass's fields into a command's options, passed as a mapping of those that were given.

    A field's docstring is the option's help. `others` take the place of the fields of their names, or
    are added.
    """
    hints, docs = get_type_hints(cls), _field_docs(cls)
    options = {
        field.name: Option(_required(hints[field.name]), default=field.default)
        for field in fields(cls)
        if field.name not in (*leave_out, *others)
    }
    shown: Any = {name: _annotated(option, docs.get(name)) for name, option in (options | others).items()}
    make: Any = TypedDict  # Its fields are no literal.
    made = make(cls.__name__, shown, total=False)
    made.__doc__ = (cls.__doc__ or "").splitlines()[0]
    return made


def _annotated(option: Option, doc: str | None) -> Any:
    default = "" if option.default in (None, MISSING) else f"(default: {option.default})"
    shown = arg(name=option.name, metavar=option.metavar, help=option.help or doc, help_behavior_hint=default)
    return Annotated[option.kind, shown]


def _required(hint: Any) -> Any:
    """Return the type of an option that may be left out, but not be given as None."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return kinds[0] if NoneType in get_args(hint) else hint


def _field_docs(cls: type[Any]) -> dict[str, str]:
    """Return the docstring below each field of a dataclass."""
    (definition,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(str(doc.value.value).split())
        for field, doc in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant)
    }


#: The options of a plan: what a new run trains and how.
PlanOptions = Annotated[
    Given,
    arg(
        constructor=given_options(
            Plan,
            ("graph", "overrides"),
            skill_options=Option(Path, "TOML file of reward weights and options, one table a skill."),
        )
    ),
]


def plan_values(given: Given) -> dict[str, Any]:
    """Return the plan fields that the given options set.

    Raises:
        SoulsGraphError: if a file of skill options does not hold, or a scenario's path cannot be one.
    """
    values = dict(given)
    if "skill_options" in values:
        values["skill_options"] = load_skill_options(values["skill_options"])
    if "scenario" in values:
        values["scenario"] = lasting_name(values["scenario"])
    return values


@dataclass(frozen=True)
class OutputOptions:
    """How results are printed."""

    json: Flag = False
    """Print results as JSON only, for machines."""


@dataclass(frozen=True)
class SessionOptions(OutputOptions):
    """Where Ray runs and how results are printed."""

    address: str | None = None
    """Ray cluster to join, as HOST:PORT or auto; a local Ray is started if not given."""
    games: Path | None = None
    """TOML file of real-time games to train in, an env runner each; the simulator if not given."""


@dataclass(frozen=True)
class EvaluationOptions:
    """How long an agent is evaluated, and on which episodes."""

    episodes: int = Plan.episodes
    """Evaluation episodes for each setting."""
    seed: int = EVALUATION_SEED
    """Seed of the evaluation episodes, the same for every setting and every run by default."""


DEFAULT_EVALUATION, DEFAULT_TRANSFER = EvaluationOptions(), TransferOptions()
DEFAULT_OUTPUT, DEFAULT_SESSION = OutputOptions(), SessionOptions()
