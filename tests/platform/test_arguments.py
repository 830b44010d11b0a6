"""Every public parameter refuses values of other types and out of range in one sentence, before anything begins."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest

import soulsgraph
from soulsgraph import api
from soulsgraph.api.playing import FightFilm, SkillPolicy, TrainedAgent
from soulsgraph.runs.evaluate import FightResults
from soulsgraph.runs.plan import Plan
from soulsgraph_envs.core.config import Between
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.gym.continual_env import ContinualEnv, ContinualVectorEnv
from soulsgraph_envs.gym.graph_fight import GraphFight
from soulsgraph_envs.gym.pettingzoo import SkillGraphParallelEnv
from soulsgraph_envs.gym.skill_env import SkillEnv, SkillVectorEnv

EXPORTED = [getattr(soulsgraph, name) for name in soulsgraph.__all__ if name != "__version__"]
RETURNED = (TrainedAgent, SkillPolicy, FightResults, FightFilm)
ENVIRONMENTS = (SkillEnv, SkillVectorEnv, ContinualEnv, ContinualVectorEnv, GraphFight, SkillGraphParallelEnv)
#: A value or more of each type, wrong wherever the type is.
VALUES: Mapping[type, Sequence[Any]] = {
    bool: [True, False],
    int: [3],
    float: [2.5, math.nan, math.inf],
    str: ["3"],
    NoneType: [None],
    bytes: [b"3"],
    complex: [1j],
    object: [object()],
    list: [[object()], [[]]],
    dict: [{"a": object()}, {1: 2}],
}
#: What takes any array, and says itself what it refuses.
ARRAYS = {"q", "act", "observe"}


def functions() -> Iterator[Callable[..., Any]]:
    yield from (one for one in EXPORTED if inspect.isfunction(one))
    for cls in (soulsgraph.Run, *RETURNED):
        members = inspect.getmembers(cls, inspect.isfunction)
        yield from (one for name, one in members if not name.startswith("_") and name not in ARRAYS)
    yield from (cls.__init__ for cls in ENVIRONMENTS)


def kinds(hint: Any) -> Iterator[Any]:
    """Yield the types that an annotation allows, without what is within them."""
    if get_origin(hint) is Annotated:
        yield from kinds(get_args(hint)[0])
    elif get_origin(hint) in (Union, UnionType):
        for one in get_args(hint):
            yield from kinds(one)
    elif get_origin(hint) is Literal:
        yield Literal
    else:
        yield get_origin(hint) or hint


def ranges(hint: Any) -> Iterator[Between]:
    yield from (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Between))
    for one in get_args(hint) if get_origin(hint) in (Union, UnionType) else ():
        yield from ranges(one)


def wrong(hint: Any) -> Iterator[Any]:
    allowed = [*kinds(hint)]
    for kind, values in VALUES.items():
        fits = kind in allowed or (kind is int and float in allowed)
        if not fits or kind is list:
            yield from values
    if float in allowed:
        yield from (math.nan, math.inf)
    for one in ranges(hint):
        yield from (one.low - 1, one.high + 1)


def parameters() -> list[Any]:
    found = []
    for function in functions():
        hints = get_type_hints(function, include_extras=True)
        for name, one in inspect.signature(function).parameters.items():
            if name != "self" and one.kind is not one.VAR_KEYWORD:
                found.append(pytest.param(function, name, hints[name], id=f"{function.__qualname__}-{name}"))
    return found


@pytest.fixture(autouse=True)
def nothing_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    def begun(*_: Any) -> None:
        raise AssertionError("it trains")

    monkeypatch.setattr(api, "_train_stages", begun)
    monkeypatch.chdir(tmp_path)
    yield
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("function", "name", "hint"), parameters())
def test_a_parameter_refuses_what_it_is_not_for(function: Callable[..., Any], name: str, hint: Any) -> None:
    signature = inspect.signature(function)
    needed = {key: "dodge" for key, one in signature.parameters.items() if one.default is one.empty}
    for key in signature.parameters:
        if signature.parameters[key].kind is inspect.Parameter.VAR_KEYWORD:
            del needed[key]
    # No method looks at its object before its arguments are known to be right.
    if "self" in needed:
        needed["self"] = object()
    for value in wrong(hint):
        with pytest.raises(SoulsGraphError, match=name) as refused:
            function(**{**needed, name: value})
        assert "\n" not in str(refused.value)


PLANNED = {
    name: hint for name, hint in get_type_hints(Plan, include_extras=True).items() if name in Plan.__match_args__
}


@pytest.mark.parametrize("name", [name for name in PLANNED if name not in ("overrides", "learners", "skill_options")])
def test_a_field_of_the_plan_refuses_what_it_is_not_for(name: str) -> None:
    for value in wrong(PLANNED[name]):
        with pytest.raises(SoulsGraphError, match=name):
            soulsgraph.train(run="run", **{name: value})
        with pytest.raises(SoulsGraphError, match=name):
            Plan(**{name: value})


@pytest.mark.parametrize(
    "given",
    [
        {"run": "a\0b"},
        {"gamma": "0.9"},
        {"gamma": math.nan},
        {"dodge": {"gamma": 2}},
        {"dodge": 3},
        {"learners": {"dodge": object}},
        {"track": [3]},
        {"skill_options": 3},
    ],
    ids=str,
)
def test_an_option_of_a_training_is_refused_before_it_begins(given: dict[str, Any]) -> None:
    with pytest.raises(SoulsGraphError):
        soulsgraph.train(**{"run": "run", **given})


@pytest.mark.parametrize("given", [{"seed": 3}, {"seeds": [1, 1]}, {"seeds": 0}, {"adapt": {}}], ids=str)
def test_a_sweep_is_refused_before_it_begins(given: dict[str, Any]) -> None:
    with pytest.raises(SoulsGraphError):
        soulsgraph.sweep({"gamma": [0.9, 0.99]}, **given)


@pytest.mark.parametrize(
    "options", [{"nope": 3}, {"skill": "camera"}, {"scenario": 3}, {"render_mode": "ansi"}], ids=str
)
@pytest.mark.filterwarnings("ignore:.*render_mode:UserWarning")
def test_an_environment_refuses_what_it_has_not(options: dict[str, Any]) -> None:
    for num_envs in (None, 2):
        with pytest.raises(SoulsGraphError, match=next(iter(options))):
            soulsgraph.make("dodge", num_envs, **options)


def test_observations_are_finite_numbers() -> None:
    agent = soulsgraph.load("iudex-phase1-best-0")
    policy = agent.skills["dodge"]
    size = len(policy.observed)
    for observation in (np.full(size, math.nan), np.full(size, math.inf), [1e39] * size, "a", None, [[1], [1, 2]]):
        for refuse in (policy.q, policy.act, agent.act):
            with pytest.raises(SoulsGraphError):
                refuse(observation)
    assert policy.q(np.zeros((0, size))).shape == (0, len(policy.actions))
