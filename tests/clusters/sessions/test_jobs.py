"""What a job runs: the installed package, not a copy in the working directory that it brought."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.waiting import PATIENCE_S
from soulsgraph_clusters.sessions.jobs import JOB, Job, JobError
from soulsgraph_clusters.sessions.nodes import PACKAGES, differing, file_digests, find_source, package_folders


@pytest.fixture
def uploaded(tmp_path):
    """A working directory as Ray unpacks it, with a copy of one of our packages as it lies in the repository."""
    folder = tmp_path / "working_dir_files" / "_ray_pkg_0123456789abcdef"
    copy_package("soulsgraph_envs", folder / "envs")
    return folder


def copy_package(name, place):
    shutil.copytree(package_folders()[name], place / name, ignore=shutil.ignore_patterns("__pycache__"))


def environment(working_dir="gcs://_ray_pkg_0123456789abcdef.zip", path=""):
    runtime = {"working_dir": working_dir} if working_dir else {}
    settings = {"runtime_env": runtime, "metadata": {"job_submission_id": "raysubmit_1"}}
    return {JOB: json.dumps(settings), "PYTHONPATH": path}


def test_outside_a_job_there_is_none(uploaded):
    assert Job.present({}, uploaded) is None


@pytest.mark.parametrize("place", [".", "envs/soulsgraph_envs"])
def test_a_job_knows_its_name_and_its_uploaded_folder(uploaded, place):
    assert Job.present(environment(), uploaded / place) == Job("raysubmit_1", uploaded.resolve())


def test_a_job_that_left_its_folder_knows_it_by_the_path_that_ray_set(uploaded, tmp_path):
    path = os.pathsep.join([str(uploaded), "/elsewhere"])
    assert Job.present(environment(path=path), tmp_path).uploaded == uploaded.resolve()


def test_a_job_without_a_working_directory_brought_nothing(uploaded):
    job = Job.present(environment(working_dir=None), uploaded)
    assert job.uploaded is None
    job.check()


def test_a_copy_of_what_runs_is_no_other(uploaded):
    errors = uploaded / "envs" / "soulsgraph_envs" / "core" / "errors.py"
    errors.write_bytes(errors.read_bytes().replace(b"\n", b"\r\n"))
    Job("raysubmit_1", uploaded).check()


@pytest.mark.parametrize("level", ["", "projects/mine"])
def test_another_copy_than_the_one_that_runs_is_refused(uploaded, level):
    if level:
        (uploaded / level).mkdir(parents=True)
        shutil.move(uploaded / "envs", uploaded / level)
    changed = uploaded / level / "envs" / "soulsgraph_envs" / "core" / "errors.py"
    changed.write_text(changed.read_text() + "\n# changed\n")
    with pytest.raises(JobError) as refusal:
        Job("raysubmit_1", uploaded).check()
    for named in (Path(level, "envs", "soulsgraph_envs"), package_folders()["soulsgraph_envs"], "core/errors.py"):
        assert str(named) in str(refusal.value)


def test_packages_of_two_trees_are_refused(tmp_path):
    uploaded = tmp_path / "working_dir_files" / "_ray_pkg_1"
    copy_package("soulsgraph", uploaded)
    path = os.pathsep.join([str(uploaded), os.environ.get("PYTHONPATH", "")])
    code = "from soulsgraph_clusters.sessions.jobs import Job; Job.present().check()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment() | {"PYTHONPATH": path},
        cwd=uploaded,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    assert "JobError" in done.stderr


def test_what_is_missing_is_named():
    found = find_source(("numpy", "no-such-distribution"))
    assert found["missing"] == ["no-such-distribution"]
    assert {name.partition("/")[0] for name in found["files"]} == {*found["folders"]} == {*PACKAGES}


def test_files_that_only_one_has_differ(tmp_path):
    for name, text in {"same.py": "1", "changed.py": "2", "gone.toml": "3", "notes.txt": "4"}.items():
        (tmp_path / name).write_text(text)
    before = file_digests(tmp_path)
    (tmp_path / "changed.py").write_text("5")
    (tmp_path / "gone.toml").unlink()
    (tmp_path / "notes.txt").write_text("6")
    found = differing(before, file_digests(tmp_path))
    assert found == [f"{tmp_path.name}/changed.py", f"{tmp_path.name}/gone.toml"]
