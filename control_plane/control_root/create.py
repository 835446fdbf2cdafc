"""`mam init`: make a control root, or tell an old one where it is now."""

import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from mam.broker.envelope import keys
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import FileRefused
from mam.control_plane.config import filesystems
from mam.control_plane.config.layout import Layout
from mam.control_plane.control_root import foreign, installation
from mam.control_plane.registry.transactions import Registry
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit

EXCLUDED = (".mam/", ".mam.env")
PATH_BYTES = 460  # SQLite opens paths of at most 512 bytes, and its own files have longer names
LINKED = ".mam"  # git does not take a link for a directory


def fingerprint(root: Path, salt: str) -> str:
    """Return 12 hex digits that name a control root on the bus. The salt keeps equal paths on two machines apart."""
    return hashlib.sha256(f"{root}\0{salt}".encode() if salt else str(root).encode()).hexdigest()[:12]


def make(layout: Layout, environ: Mapping[str, str], *, in_git: bool = True) -> bool:
    """
    Make the control root, or repair what is missing in an old one. Returns whether it was new.

    Raises NoRepository, NetworkFileSystem, Tracked, and FileRefused where `.mam` cannot be used, or has lost its
    registry.
    """
    foreign.check_tracked(layout, environ)
    if in_git and dotgit.own_dir(layout.root) is None:
        git.top(layout.root)  # raises NoRepository; at the top of a repository it is not needed
    _own_folder(layout.mam)
    filesystems.check(layout.mam)
    for folder in (layout.jobs, layout.logs, layout.secrets, layout.run, layout.broker):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if in_git:
        git.exclude(layout.root, *excluded(layout))
    _shield(layout.mam)
    if not layout.monitor_wake.exists():
        os.mkfifo(layout.monitor_wake, 0o600)
    try:
        keys.create(layout.control_key)
    except FileExistsError:
        pass
    fresh = not layout.database.exists()
    if fresh and layout.audit.exists():
        hint = f"`mam registry rebuild` brings it back; move {layout.audit} away to begin anew"
        raise FileRefused(path=str(layout.mam), why="it lost its registry, but not its audit log", hint=hint)
    salt = secrets.token_hex(16)
    Registry(layout.database, layout.registry_lock, by="init").create(
        fingerprint=fingerprint(layout.root, salt),
        salt=salt,
        control_root=str(layout.root),
        slug=slug(layout.root),
        created_at=str(now_ms()),
        **{installation.META: installation.mam_command()},
    )
    return fresh


def excluded(layout: Layout) -> tuple[str, ...]:
    """Return the patterns that keep a control root out of its repository's commits."""
    return (*EXCLUDED, LINKED) if layout.mam.is_symlink() else EXCLUDED


def slug(root: Path) -> str:
    """Return the directory's name with only the characters that a multiplexer allows in a name."""
    return re.sub(r"[^a-z0-9]+", "-", root.name.lower()).strip("-")[:24] or "root"


def _own_folder(folder: Path) -> None:
    length = len(os.fsencode(folder))
    if length > PATH_BYTES:
        why = f"its path has {length} bytes, and SQLite opens nothing deeper than {PATH_BYTES}"
        raise FileRefused(path=str(folder), why=why, hint="choose a directory with a shorter path")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        owner = folder.stat().st_uid
    except FileExistsError as error:
        raise FileRefused(path=str(folder), why="it is not a directory", hint="move it away") from error
    except OSError as error:
        raise FileRefused(
            path=str(folder), why=error.strerror or str(error), hint="make the directory writable"
        ) from error
    if owner != os.geteuid():
        raise FileRefused(path=str(folder), why=f"it belongs to user {owner}", hint="run mam as that user")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileRefused(path=str(folder), why="it is read-only", hint=f"chmod u+rwx {folder}")
    folder.chmod(0o700)


def _shield(folder: Path) -> None:
    """Make a stub repository inside `.mam`, so that even `git clean -fdx` and `git stash --all` leave it alone."""
    stub = folder / ".git"
    for name in ("objects", "refs"):
        (stub / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    head = stub / "HEAD"
    if not head.exists():
        head.write_text("ref: refs/heads/none\n", "ascii")
