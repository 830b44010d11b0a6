"""Which disks are another machine's."""

import os

import pytest

from soulsgraph_envs.core.machine import is_remote


@pytest.mark.parametrize(
    ("kind", "remote"), [("nfs4", True), ("cifs", True), ("fuse.sshfs", True), ("ext4", False), ("fuseblk", False)]
)
def test_a_disk_is_anothers_by_the_kind_of_its_file_system(tmp_path, kind, remote):
    device = os.stat(tmp_path).st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 0:999 / /other rw - nfs server:/ rw\n"
        f"23 1 {os.major(device)}:{os.minor(device)} / / rw,relatime shared:1 - {kind} /dev/vda rw\n"
    )
    assert is_remote(tmp_path, mounts) == remote


def test_a_disk_of_which_the_system_says_nothing_is_this_machines(tmp_path):
    assert not is_remote(tmp_path, tmp_path / "missing")
    assert not is_remote(tmp_path)
