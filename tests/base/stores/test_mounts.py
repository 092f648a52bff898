"""Mounts: which file system a folder lies on, and whether others may write there."""

from __future__ import annotations

import pytest

from penstock.base.stores.mounts import FileSystem, file_system
from tests.base.stores.mounting import mounted

TABLE = r"""
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:40 / /mnt/nfs rw,relatime shared:1 - nfs4 host:/data rw,vers=4.2
41 40 0:41 / /mnt/nfs/local rw - xfs /dev/sdb rw
42 27 0:42 / /mnt/two\040words rw - lustre host:/x rw,flock
43 27 0:43 / /mnt/bucket rw - fuse.gcsfuse bucket rw
44 27 0:44 / /mnt/win rw - fuseblk /dev/sdc rw
45 27 0:45 / /mnt/hidden rw - nfs host:/y rw
46 27 0:46 / /mnt/hidden rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "is_shared"),
    [
        ("/data/out", "ext4", False),
        ("/mnt/nfs/out/that/is/not/there", "nfs4", True),
        ("/mnt/nfsX/out", "ext4", False),
        ("/mnt/nfs/local/out", "xfs", False),
        ("/mnt/two words/out", "lustre", True),
        ("/mnt/bucket/out", "fuse.gcsfuse", True),
        ("/mnt/win/out", "fuseblk", False),
        ("/mnt/hidden/out", "tmpfs", False),
    ],
)
def test_the_mount_that_is_nearest_and_last_says_what_a_folder_lies_on(path, kind, is_shared):
    found = file_system(path, TABLE.strip())
    assert (found.kind, found.is_shared) == (kind, is_shared)


def test_without_a_table_nothing_is_shared():
    assert file_system("/anywhere", "") == FileSystem()
    assert not FileSystem().is_shared


def test_a_real_mount_is_found(tmp_path):
    (tmp_path / "folder").mkdir()
    assert not file_system(str(tmp_path / "folder")).is_shared
    with mounted(tmp_path / "folder", tmp_path / "mount") as mount:
        (tmp_path / "link").symlink_to(mount)
        assert file_system(str(tmp_path / "link/out")) == FileSystem("fuse", str(mount))
        assert file_system(str(mount)).is_shared
