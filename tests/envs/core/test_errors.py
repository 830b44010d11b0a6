import pickle

import pytest

from soulsgraph_envs.core.errors import DataError, EpisodeLostError, SoulsGraphError, UnknownNameError


@pytest.mark.parametrize(
    "error",
    [
        SoulsGraphError("expected this, found that; do so."),
        DataError("file.toml", "key", "a number", "text"),
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
