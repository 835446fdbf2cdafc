"""
What stands where MAM keeps its own files, and is the work of others.

A `.mam` that came with the repository is refused, whatever stands in it. A file that MAM did not write is not replaced.
"""

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from mam.broker.errors import FileRefused, MamError
from mam.broker.host import atomic_files
from mam.broker.host.text import clean
from mam.control_plane.config import trust
from mam.control_plane.config.layout import Layout
from mam.wrappers.git import dotgit

SESSIONS_HEADER = "# written by mam; to change a role, edit it here and run: mam registry import {path}\n"
_HEAD_BYTES = 1000
# The header, or what follows it: a person may take the comment away.
_SESSIONS = re.compile(rb"# written by mam|\s*[\"']?generation[\"']?: [0-9]+\r?\n[\"']?fingerprint[\"']?: ")
_NAMED = re.compile(rb"\.mam[/\0]", re.IGNORECASE)
_LOOK = ("ls-files", "-z", "--", ":(icase).mam")  # some file systems take .MAM for .mam


class Tracked(MamError):
    """Git tracks files of `.mam`. None of them was obeyed, and nothing was changed."""

    root: str
    first: str

    code = "mam_tracked"
    exit_code = 2
    message = "git tracks {first} in {root}: a `.mam` that comes with a repository is not obeyed"
    remedy_text = "if it is yours, `git rm -rf --cached .mam` keeps it; what others made goes with `git rm -rf .mam`"


def check_tracked(layout: Layout, environ: Mapping[str, str]) -> None:
    """
    Raise Tracked where the index of the repository around the control root has `.mam`, or anything in it.

    The index is read when it has changed since the last time that nothing was tracked. Git is asked about an index that
    does not tell by itself. Raises GitFailed where git cannot answer.
    """
    index = _index(layout.root)
    if index is None:
        return
    state, note = _state(index), _note(layout.root, environ)
    if note is not None and atomic_files.read(note).get("index") == state:
        return
    if _may_track(index):
        from mam.wrappers.git import command as git  # noqa: PLC0415 (dearer than a short verb, and rarely needed)

        found = git.ask(layout.root, *_LOOK).split("\0")[0]
        if found:
            raise Tracked(root=str(layout.root), first=clean(found))
    if note is not None:
        try:
            trust.private_folder(note.parent)
            atomic_files.write_note(note, {"root": str(layout.root), "index": state})
        except OSError:
            pass  # a sandbox without the user's home: the index is read each time


def _index(root: Path) -> Path | None:
    """Return the index file of the repository around *root*; None where there is none, so that nothing is tracked."""
    top = dotgit.top_of(root)
    own = dotgit.own_dir(top) if top is not None else None
    return own / "index" if own is not None and (own / "index").exists() else None


def _state(index: Path) -> list[int]:
    """Return what changes with each new index: git never writes into the old one."""
    seen = index.stat()
    return [seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns]


def _may_track(index: Path) -> bool:
    """
    Whether an index can have an entry for `.mam`.

    Versions 2 and 3 spell out each path, so that one without these bytes has none. Version 4 shortens paths, and a
    split index (extension `link`) leaves them to another file.
    """
    content = index.read_bytes()
    spelled_out = content[:4] == b"DIRC" and int.from_bytes(content[4:8], "big") in (2, 3) and b"link" not in content
    return not spelled_out or _NAMED.search(content) is not None


def _note(root: Path, environ: Mapping[str, str]) -> Path | None:
    """Where the look is remembered: outside of the work tree, which could bring a note of its own."""
    folder = trust.state_folder(environ)
    name = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()
    return folder / "untracked" / f"{name}.json" if folder is not None else None


def check_sessions_file(layout: Layout) -> None:
    """
    Raise FileRefused where the print of the sessions would replace a file that is no such print.

    At its usual place in `.mam` each file is MAM's. An empty file may be replaced anywhere.
    """
    path = layout.sessions_yaml
    if path == layout.mam / "agent-sessions.yaml":
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        head = os.read(descriptor, _HEAD_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)
    if head is None or (head and not _SESSIONS.match(head)):
        hint = "let AGENT_SESSIONS_YAML name a new file"
        raise FileRefused(path=str(path), why="it is no print of agents, and would be replaced", hint=hint)
