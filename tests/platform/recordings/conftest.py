"""Recorded fights that several files of tests read."""

import pytest

from soulsgraph.recordings.files import recording_files
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import evaluation_seeds


@pytest.fixture(scope="session")
def fights(tmp_path_factory):
    """Four fights of the oracle, a tenth of its decisions drawn."""
    folder = tmp_path_factory.mktemp("fights")
    record(Fighter.oracle("iudex-phase1", random=0.1), evaluation_seeds(11, 4), folder)
    return folder


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """One recorded fight."""
    folder = tmp_path_factory.mktemp("whole")
    record(Fighter.oracle("iudex-phase1"), evaluation_seeds(3, 1), folder)
    (path,) = recording_files(folder)
    return path
