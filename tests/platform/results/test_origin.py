import subprocess

import pytest

from soulsgraph.results import origin as provenance


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A git checkout of one file, taken for the tree that the package runs from."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "someone")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "someone@example.org")
    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    (tmp_path / "file").write_text("first")
    for command in (("init", "-q"), ("add", "file"), ("commit", "-q", "-m", "first")):
        subprocess.run(("git", "-C", tmp_path, *command), check=True)
    provenance.source_commit.cache_clear()
    yield tmp_path
    provenance.source_commit.cache_clear()


def _git(folder, *words):
    return subprocess.run(("git", "-C", folder, *words), capture_output=True, text=True, check=True).stdout.strip()


def test_a_checkout_is_named_by_its_commit_whatever_a_hook_of_another_one_says(checkout, tmp_path_factory, monkeypatch):
    head, other = _git(checkout, "rev-parse", "HEAD"), tmp_path_factory.mktemp("other")
    _git(other, "init", "-q")
    _git(other, "commit", "-q", "--allow-empty", "-m", "another")
    (checkout / "untracked").write_text("of no account")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert provenance.source_commit() == head
    (checkout / "file").write_text("second")
    provenance.source_commit.cache_clear()
    assert str(provenance.source_commit()) == f"{head}-modified"


def test_outside_a_checkout_no_commit_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    provenance.source_commit.cache_clear()
    assert provenance.source_commit() is None
    provenance.source_commit.cache_clear()


def test_figures_say_what_they_were_measured_on():
    described = provenance.describe_run()
    assert described["vector_bits"] in (128, 256, 512)
    assert described["load"] >= 0.0
    assert {"commit", "versions", "machine"} <= described.keys()
