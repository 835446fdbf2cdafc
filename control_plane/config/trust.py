"""
Whether a file that was read from a work tree is obeyed. Standard library only.

A repository is written by others. What a file of it names is run, asked, read or written only while its user trusts
exactly this content (`mam trust FILE`). The records lie in the user's state directory, outside of every repository.
"""

import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from mam.broker.errors import FileRefused, MamError
from mam.broker.host import atomic_files
from mam.broker.host.text import clean
from mam.wrappers.git import dotgit

_SHOWN = 300  # characters of what a file names, in an error


class Untrusted(MamError):
    """A file of a work tree names what its user has not allowed. Nothing of the file was obeyed."""

    path: str
    names: str
    command: str

    code = "untrusted"
    exit_code = 2
    message = "{path} is not trusted, and it says {names}"
    remedy_text = "read the file; if you want that, `{command}` allows exactly this content"


def obey(path: Path, content: bytes, names: Sequence[str], *, root: Path, environ: Mapping[str, str]) -> None:
    """
    Return where the file may be obeyed; raise Untrusted where it may not.

    This is the one decision for every file of a work tree: a file that names nothing is obeyed, and so is one that lies
    in no work tree, since its user wrote it. Any other is obeyed while a record holds the hash of *content*.

    Args:
        content: The very bytes that the caller goes on with. The file is not read again.
        names: What the file would have run, asked, read or written, each as the file says it.
        root: The control root that would obey.
    """
    if not names or not _in_work_tree(path, root):
        return
    record = _record(path, root, environ)
    known = atomic_files.read(record) if record is not None else {}
    if known.get("sha256") == hashlib.sha256(content).hexdigest():
        return
    said = ", ".join(clean(name) for name in names)
    said = said if len(said) <= _SHOWN else f"{said[:_SHOWN]}…"
    raise Untrusted(path=str(path), names=said, command=command(path, root))


def command(path: Path, root: Path) -> str:
    """Return the command that trusts the file for this control root, from any directory."""
    where = "" if path.parent == root else f" --root {shlex.quote(str(root))}"
    return f"mam trust {shlex.quote(str(path))}{where}"


def allow(path: Path, content: bytes, *, root: Path, environ: Mapping[str, str]) -> Path:
    """Trust *content* as that of the file at *path*, in place of what was trusted there. Returns the record's path."""
    record = _record(path, root, environ)
    if record is None:
        raise FileRefused(path=str(path), why="there is no home to keep the trust in", hint="set HOME to a directory")
    private_folder(record.parent)
    said = {"root": str(root), "path": str(path), "sha256": hashlib.sha256(content).hexdigest()}
    atomic_files.write_json(record, said)
    return record


def forget(path: Path, *, root: Path, environ: Mapping[str, str]) -> bool:
    """End the trust in the file at *path*. Returns whether there was any."""
    record = _record(path, root, environ)
    known = record is not None and record.exists()
    if record is not None and known:
        record.unlink(missing_ok=True)
    return known


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of what MAM remembers for this user, whatever the control root; None without a home."""
    state = environ.get("XDG_STATE_HOME", "")
    home = environ.get("HOME", "")
    if os.path.isabs(state):
        return Path(state) / "mam"
    return Path(home) / ".local" / "state" / "mam" if os.path.isabs(home) else None


def private_folder(folder: Path) -> None:
    """Make a folder of the state folder (0700). Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def _record(path: Path, root: Path, environ: Mapping[str, str]) -> Path | None:
    """Where the trust in one file is kept, by the real places of the control root and of the file's folder."""
    folder = state_folder(environ)
    place = f"{os.path.realpath(root)}\0{_place(path)}"
    name = hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()
    return folder / "trust" / f"{name}.json" if folder is not None else None


def _place(path: Path) -> Path:
    """The path without links, but for the file itself: a link in a work tree is what the work tree says."""
    return Path(os.path.realpath(path.parent)) / path.name


def _in_work_tree(path: Path, root: Path) -> bool:
    place = _place(path)
    return place.is_relative_to(os.path.realpath(root)) or dotgit.top_of(place.parent) is not None
