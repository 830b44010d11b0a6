"""Names of keys that changed: the earlier ones are read, and digests are taken over them."""

from dataclasses import dataclass

import pytest

from soulsgraph_envs.core.config import RENAMED, Where, canonical, present_names, read_table
from soulsgraph_envs.core.errors import DataError
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.skills import Task


@dataclass(frozen=True)
class _Options:
    gamma: float = 0.5
    epochs: int = 3


def test_a_table_is_read_by_earlier_names_unless_they_are_its_own():
    assert read_table(_Options, {"discount": 0.25, "epochs": 4}, Where("f")) == _Options(0.25, 4)
    with pytest.raises(DataError, match="gamma: expected gamma, or discount by its earlier name, found both"):
        read_table(_Options, {"discount": 0.25, "gamma": 0.5}, Where("f"))
    with pytest.raises(DataError, match=r"trace_decay: expected .* found an unknown key"):
        read_table(_Options, {"trace_decay": 0.25}, Where("f"))


def test_a_canonical_form_is_the_same_for_both_names_at_every_level():
    earlier = {"a": [{"discount": 1, "lanes": 2}], "learning": {"target_rate": 0.5}}
    present = {"a": ({"gamma": 1, "lanes": 2},), "learning": {"tau": 0.5}}
    assert canonical(present) == canonical(earlier) == earlier
    assert canonical(present_names(earlier)) == earlier


def test_no_name_is_both_present_and_earlier():
    assert not RENAMED.keys() & {*RENAMED.values()}
    assert len({*RENAMED.values()}) == len(RENAMED)


def test_a_skills_table_is_read_by_earlier_names():
    present = {
        "symbol": "J",
        "horizon": 8,
        "budget": 100,
        "training_scenario": {"start": "mid", "refill": True},
        "columns": ["DISTANCE"],
        "actions": [{"name": "hop", "presses": "JUMP"}, {"name": "stand"}],
        "precedence_over": "ROLL|LIGHT_ATTACK",
    }
    earlier = canonical(present)
    assert {"practice", "wins_over"} < earlier.keys()
    task = read_table(Task, earlier, Where("skills.toml"))
    assert task == read_table(Task, present, Where("skills.toml"))
    assert (task.training_scenario.start, task.precedence_over) == ("mid", Control.ROLL | Control.LIGHT_ATTACK)
