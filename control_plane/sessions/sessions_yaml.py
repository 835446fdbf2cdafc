"""
agent-sessions.yaml: the agents, for people and scripts to read. It is printed from the registry, which is the truth.

An edit by hand counts only through `mam registry import`, which takes it as a whole or refuses it.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mam.broker.envelope import topics
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host import atomic_files
from mam.broker.host.atomic_files import Durability
from mam.control_plane.control_root import foreign
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import Session
from mam.control_plane.sessions.lookup import need_session


class ImportRefused(MamError):
    """The edited file cannot be read, or changes more than roles. Nothing was taken from it."""

    path: str
    why: str

    code = "import_refused"
    exit_code = 2
    message = "{path} was refused: {why}"
    remedy_text = "correct it, or write it anew with `mam registry export`"


class StaleImport(MamError):
    """The registry has changed since the file was printed. Nothing was taken from it."""

    path: str
    found: int
    current: int

    code = "stale_import"
    message = "{path} shows generation {found}, the registry is at {current}"
    remedy_text = "look at what changed, and make the edit again in the current file"


class _Pane(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    mux: str
    server: str
    id: str
    cwd: str


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: str
    agent: str
    role: str
    status: str
    conversation: str | None
    pane: _Pane


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    generation: int = Field(ge=0)
    fingerprint: str
    sessions: list[_Entry]


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, which YAML itself would swallow."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{name!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


class _Quoted(yaml.CSafeDumper):
    """Quotes every text, so that ids like 0123, 1e3 or no stay texts for every reader."""


def _represent_text(dumper: _Quoted, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')


_Quoted.add_representer(str, _represent_text)


def entry(session: Session) -> dict[str, object]:
    """Return what the file says of one agent."""
    pane = {"mux": session.mux, "server": session.mux_server, "id": session.pane, "cwd": session.cwd}
    return {
        "name": session.name,
        "agent": session.agent,
        "role": session.role,
        "status": session.status,
        "conversation": session.conversation,
        "pane": pane,
    }


def generation(view: View) -> int:
    """Return the number of the last audited change of agents. Two equal numbers mean the same content."""
    row = view.connection.execute("SELECT coalesce(max(seq), 0) FROM audit WHERE tbl = 'sessions'").fetchone()
    return int(row[0])


def write(mam: Mam) -> None:
    """
    Print the file under the writers' lock, so that an older print never replaces a newer one.

    Raises OSError, and FileRefused where the file is not such a print.
    """
    path = mam.layout.sessions_yaml
    foreign.check_sessions_file(mam.layout)
    with mam.registry.locked(), mam.registry.view() as view:
        content = {
            "generation": generation(view),
            "fingerprint": mam.fingerprint,
            "sessions": [entry(session) for session in view.sessions()],
        }
        text = foreign.SESSIONS_HEADER.format(path=path) + yaml.dump(
            content, Dumper=_Quoted, sort_keys=False, allow_unicode=True
        )
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = text.encode("utf-8", "replace")
        # Printed anew when it differs. Other users may read it where it was put outside of `.mam`.
        atomic_files.write(path, data, Durability.PROCESS, point="projection.rename", mode=0o644)


def take(mam: Mam, path: Path) -> list[str]:
    """
    Take the edited roles of *path* into the registry, all of them or none. Returns the names that changed.

    Raises ImportRefused where more than roles differs, and StaleImport where the registry has changed since.
    """
    file = _read(path)
    if file.fingerprint != mam.fingerprint:
        raise ImportRefused(path=str(path), why="it belongs to another control root")
    names = [item.name for item in file.sessions]
    for name in names:
        if names.count(name) > 1:
            raise ImportRefused(path=str(path), why=f"{name} stands twice")
    changed = []
    with mam.registry.transaction() as tx:
        current = generation(tx)
        if file.generation != current:
            raise StaleImport(path=str(path), found=file.generation, current=current)
        for item in file.sessions:
            session = need_session(tx, item.name)
            wanted = json.loads(item.model_dump_json())
            differs = [key for key, value in entry(session).items() if wanted[key] != value]
            if differs not in ([], ["role"]):
                raise ImportRefused(path=str(path), why=f"{item.name}: only the role may be edited, not {differs[0]}")
            if differs:
                for role in item.role.split(","):
                    topics.check_name(role.strip(), "role")
                tx.put(replace(session, role=item.role, updated_at=now_ms()))
                changed.append(item.name)
    write(mam)
    return changed


def _read(path: Path) -> _File:
    try:
        content = yaml.load(path.read_text("utf-8"), Loader=_Loader)
        return _File.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ImportRefused(path=str(path), why=f"{where}: {first['msg']}") from error
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ImportRefused(path=str(path), why=" ".join(str(error).split())[:300]) from error
