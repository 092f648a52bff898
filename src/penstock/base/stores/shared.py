"""Shared store: a folder that the members of one run write at once, from several machines and containers.

Each run has a folder of its own, `.penstock/tmp/run-TOKEN`. Members never create that folder. They write every file in
it and rename it from there. To remove a file, they rename it into the folder first. Another run that takes the output
removes the folder (`LocalStore.fence`). From then on, every operation of a member fails and changes nothing, even if
the member was stopped in the middle and continues a day later.
"""

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from penstock.base.files import WriteFile, doing, link_or_copy, unique_name
from penstock.base.stores.local import RUN_PREFIX, TEMPORARY, LocalStore, fence_run, sync_folder
from penstock.base.stores.store import PLACING

LEASES, MEMBERS, FAILURES = "leases", "members", "failures"  # folders of a run
_ROOT = re.compile(r"run:(?P<token>[0-9a-f]{16}):(?P<member>[^:/]+):(?P<folder>/.*)", re.DOTALL)


def shared_root(folder: str, token: str, member: str) -> str:
    """The root with which every process of a member opens the store."""
    return f"run:{token}:{member}:{folder}"


def is_shared_root(root: str) -> bool:
    return _ROOT.fullmatch(root) is not None


def run_folder(token: str, name: str = "") -> str:
    """Name of the run's folder in the output, or of a file in it."""
    return f"{TEMPORARY}/{RUN_PREFIX}{token}" + (f"/{name}" if name else "")


def begin_run(folder: str, token: str) -> None:
    """Create the folder of a run. The caller must hold the output alone."""
    for each in (LEASES, MEMBERS, FAILURES):
        path = os.path.join(folder, run_folder(token, each))
        with doing("create the folder", path, "mkdir"):
            os.makedirs(path, exist_ok=True)


@dataclass(frozen=True)
class SharedStore(LocalStore):
    """`root` names the run, the member and the folder: `run:TOKEN:MEMBER:/folder`."""

    @cached_property
    def _parts(self) -> dict[str, str]:
        found = _ROOT.fullmatch(self.root)
        assert found
        return found.groupdict()

    @property
    def folder(self) -> str:
        return self._parts["folder"]

    @property
    def token(self) -> str:
        return self._parts["token"]

    @property
    def member(self) -> str:
        return self._parts["member"]

    @property
    def session(self) -> str:
        """Empty: every file is synced, and counts on any machine."""
        return ""

    @property
    def scratch_folder(self) -> str:
        return LocalStore(self.folder).scratch_folder

    @cached_property
    def run_path(self) -> str:
        return os.path.join(self.folder, run_folder(self.token))

    @property
    def is_fenced(self) -> bool:
        """Whether the output was taken away from this run, or the run is over."""
        return not os.path.isdir(self.run_path)

    def _path(self, name: str) -> str:
        """Files that are placed grow in the run's folder, so that only this run can rename them into place."""
        if name == PLACING or name.startswith(f"{PLACING}/"):
            return os.path.join(self.run_path, name.removeprefix(f"{os.path.dirname(PLACING)}/"))
        return os.path.join(self.folder, name)

    where = local_path = _path

    def _beside(self, name: str) -> str:
        return os.path.join(self.run_path, f"{self.member}-{unique_name(name)}")

    _temporary = _beside

    def _move(self, name: str, into: str) -> None:
        """The file also keeps its first name until the run is over: a member that takes over finds it there."""
        beside = self._beside(into)
        link_or_copy(self._path(name), beside)
        os.replace(beside, self._path(into))
        with suppress(FileNotFoundError):  # renaming a link over another link of the same file does nothing
            os.unlink(beside)

    def append(self, name: str) -> WriteFile:
        """Only for files in the run's folder, which exists."""
        return WriteFile(self._path(name), os.O_WRONLY | os.O_APPEND)

    def remove(self, name: str) -> None:
        path = self._path(name).rstrip("/")
        if not os.path.lexists(path):
            return
        gone = self._beside(name.rstrip("/"))
        with doing("remove", path, "remove"):
            try:
                os.rename(path, gone)
            except FileNotFoundError:
                if self.is_fenced:
                    raise
                return  # another member has removed it
            _discard(gone)
        sync_folder(os.path.dirname(path))

    def _make_folder(self, name: str) -> None:
        path = self._path(name).rstrip("/")
        missing: list[str] = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for each in reversed(missing):
            made = self._beside("folder")
            with doing("create the folder", each, "mkdir"):
                os.mkdir(made)
                try:
                    os.rename(made, each)
                except OSError:
                    if not os.path.isdir(each):
                        raise
                    os.rmdir(made)  # another member was first
            sync_folder(os.path.dirname(each))

    def sweep(self, whole: bool = False) -> None:  # noqa: ARG002
        """Remove files that dead processes of this member left. Other members may be writing theirs."""
        with suppress(FileNotFoundError), doing("remove", self.run_path, "remove"):
            for name in os.listdir(self.run_path):
                if name.startswith(f"{self.member}-"):
                    _discard(os.path.join(self.run_path, name))

    def fence(self) -> None:
        """End this run: without its folder, its members can write nothing."""
        fence_run(self.run_path)


def _discard(path: str) -> None:
    """Remove a file or a folder; another process may be removing it too."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)
