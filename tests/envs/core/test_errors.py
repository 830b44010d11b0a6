import pickle
from pathlib import Path

import pytest

from soulsgraph_envs.core.config import Where
from soulsgraph_envs.core.errors import EpisodeLostError, SoulsGraphError, UnknownNameError, plain_number
from soulsgraph_envs.core.files import LockError, WriteError


@pytest.mark.parametrize(
    "error",
    [
        SoulsGraphError("expected this, found that; do so."),
        Where("file.toml", "key").error("a number", "text"),
        UnknownNameError("driver", "memry", ["memory", "siphon"]),
        EpisodeLostError("the game is gone", 7),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_between_processes_whole(error):
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert found.__dict__ == error.__dict__


@pytest.mark.parametrize("kind", [WriteError, LockError])
def test_a_refusal_of_the_system_without_a_number_says_why_too(kind):
    assert "no room" in str(kind(Path("file"), OSError("no room")))


@pytest.mark.parametrize(
    ("number", "text"),
    [(2.0**31, "2147483648"), (0.001, "0.001"), (0.1 + 0.2, "0.3"), (1e30, "1e+30"), (float("inf"), "inf")],
)
def test_numbers_read_as_people_write_them(number, text):
    assert plain_number(number) == text
