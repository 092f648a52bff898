"""Mounts: a folder -> its file system, and whether other machines may write there too."""

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_TABLE = Path("/proc/self/mountinfo")
_NETWORK = frozenset(["9p", "afs", "cifs", "nfs", "nfs4", "smb3", "smbfs", "vboxsf", "virtiofs"])
_CLUSTER = frozenset(["beegfs", "ceph", "gfs2", "glusterfs", "gpfs", "lustre", "ocfs2", "panfs", "pvfs2", "wekafs"])
_LOCAL_FUSE = frozenset(["fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.ntfs-3g", "fuse.exfat"])
_IN_MEMORY = frozenset(["ramfs", "tmpfs"])
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class FileSystem:
    """Type and mount point of a file system; both are empty if the machine has no /proc/self/mountinfo."""

    kind: str = ""
    point: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether other machines or containers may have mounted it too."""
        is_fuse = self.kind == "fuse" or (self.kind.startswith("fuse.") and self.kind not in _LOCAL_FUSE)
        return is_fuse or self.kind in _NETWORK | _CLUSTER

    @property
    def is_in_memory(self) -> bool:
        """Whether its files are in memory, which counts against a container."""
        return self.kind in _IN_MEMORY


@lru_cache(maxsize=256)
def file_system(path: str, table: str | None = None) -> FileSystem:
    """The file system of a folder that need not exist yet. `table` is the text of /proc/self/mountinfo."""
    if table is None:
        try:
            table = _TABLE.read_text(errors="surrogateescape")
        except OSError:  # not Linux
            return FileSystem()
    real, found = os.path.realpath(path), FileSystem()
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        point = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), before.split()[4])
        if len(point) >= len(found.point) and (real == point or real.startswith(point.rstrip("/") + "/")):
            found = FileSystem(after.split()[0], point)  # of mounts at one point, the last hides the others
    return found
