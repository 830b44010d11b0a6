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


def test_a_checkout_is_named_by_its_commit(checkout):
    head = subprocess.run(("git", "-C", checkout, "rev-parse", "HEAD"), capture_output=True, text=True, check=True)
    (checkout / "untracked").write_text("of no account")
    assert provenance.source_commit() == head.stdout.strip()


def test_a_modified_checkout_says_so(checkout):
    (checkout / "file").write_text("second")
    assert str(provenance.source_commit()).endswith("-modified")


def test_a_hook_of_another_repository_puts_no_commit_of_it_into_a_card(checkout, tmp_path_factory, monkeypatch):
    other = tmp_path_factory.mktemp("other")
    for command in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "another")):
        subprocess.run(("git", "-C", other, *command), check=True)
    expected = subprocess.run(("git", "-C", checkout, "rev-parse", "HEAD"), capture_output=True, text=True, check=True)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert provenance.source_commit() == expected.stdout.strip()


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
