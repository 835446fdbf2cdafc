"""The file systems that a control root can lie on: those whose locks several processes can rely on."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from mam.broker.errors import MamError

# The server keeps their locks. Such a lock ends with a connection instead of with its holder.
_REFUSED = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "smb2", "afs", "afpfs", "ncpfs", "webdav", "davfs"}


class NetworkFileSystem(MamError):
    """The directory lies on a file system whose locks MAM cannot rely on."""

    path: str
    kind: str
    mount: str

    code = "network_file_system"
    exit_code = 2
    message = "{path} lies on {kind} ({mount}), which does not keep locks between processes as MAM needs them"
    remedy_text = "have it on a local disk: `ln -s LOCAL/DIRECTORY .mam` before `mam init`, or move the repository"


class Mount(NamedTuple):
    """A mounted file system: its directory, and its type in the system's own word."""

    place: str
    kind: str


def check(path: Path) -> None:
    """Raise NetworkFileSystem where *path* lies on such a file system. An unknown file system is not refused."""
    import psutil  # noqa: PLC0415 (asked when something begins: looking at loops does without it)

    mounts = (Mount(each.mountpoint, each.fstype) for each in psutil.disk_partitions(all=True))
    mount = mount_of(path.resolve(), mounts)
    if mount is not None and mount.kind.removeprefix("fuse.") in _REFUSED:
        raise NetworkFileSystem(path=str(path), kind=mount.kind, mount=mount.place)


def mount_of(path: Path, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that holds *path*: the innermost one, and the last of several at one place; else None."""
    found = None
    for mount in mounts:
        inside = path.is_relative_to(mount.place)
        if inside and (found is None or len(Path(mount.place).parts) >= len(Path(found.place).parts)):
            found = mount
    return found
