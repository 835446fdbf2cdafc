"""Secret key files: made once, private from the first byte, and refused where other users could read them."""

import hashlib
import hmac
import os
import secrets
import stat
from functools import lru_cache
from pathlib import Path

from mam.broker.errors import FileRefused, FileUnusable
from mam.broker.host import atomic_files
from mam.broker.host.atomic_files import Durability

KEY_BYTES = 32


class KeyMissing(FileUnusable):
    """The key file does not exist."""

    code = "key_missing"
    message = "there is no key at {path}"
    remedy_text = "the job was archived, or the control root moved: `mam doctor` tells which"


class SecretPermissions(FileUnusable):
    """Other users could read or replace the secret file, so its content must not be used."""

    why: str

    code = "secret_permissions"
    message = "{path} was refused: {why}"
    remedy_text = "`mam doctor --fix` makes MAM's own files private again; `chmod 600` does for yours"


def create(path: Path) -> bytes:
    """
    Make a new key of 32 random bytes at *path* (as hex, mode 0600), and return it.

    Other users can read the file at no moment. Raises FileExistsError, and OSError where the disk refuses.
    """
    token = secrets.token_bytes(KEY_BYTES)
    # Half a key would be refused for ever.
    atomic_files.write(path, token.hex().encode() + b"\n", Durability.FILE, exclusive=True, point="key.link")
    return token


def read_private(path: Path) -> bytes:
    """
    Return the content of a secret file of at most 4 KiB.

    Raises:
        KeyMissing: The file does not exist.
        SecretPermissions: It is a link, it belongs to another user, or others may read it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise KeyMissing(path=str(path)) from error
    except OSError as error:
        raise SecretPermissions(path=str(path), why=error.strerror or str(error)) from error
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise SecretPermissions(path=str(path), why="it is not a plain file")
        if info.st_mode & 0o077:
            raise SecretPermissions(path=str(path), why=f"others may read it (mode {info.st_mode & 0o777:04o})")
        if info.st_uid not in (os.geteuid(), 0):
            raise SecretPermissions(path=str(path), why=f"it belongs to user {info.st_uid}")
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def load(path: Path) -> bytes:
    """Return the key that *create* made. Raises what *read_private* raises, and FileRefused for other content."""
    text = read_private(path).strip()
    try:
        token = bytes.fromhex(text.decode("ascii"))
    except (UnicodeDecodeError, ValueError) as error:
        raise FileRefused(path=str(path), why="it holds no key", hint="restore it from a backup") from error
    if len(token) != KEY_BYTES:
        raise FileRefused(path=str(path), why=f"it holds {len(token)} bytes", hint="restore it from a backup")
    return token


@lru_cache(maxsize=4096)
def derive(token: bytes, use: str, scope: str) -> bytes:
    """Return the MAC key for one *use* inside one *scope*. The stored token itself signs nothing."""
    return hmac.digest(token, f"mam/v1/{use}\0{scope}".encode(), hashlib.sha256)
