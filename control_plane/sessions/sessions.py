"""The creation of an agent. lifecycle.py resumes and stops it."""

import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mam.agents import catalog
from mam.agents.border import Adapter
from mam.agents.protocol import Launch
from mam.broker.envelope import topics
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host.progress import Progress, silent
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.records import Session
from mam.control_plane.sessions import occupancy, runtime
from mam.wrappers.mux import catalog as mux_catalog


class SessionExists(MamError):
    """The name belongs to another agent, which may be stopped."""

    session: str
    status: str

    code = "session_exists"
    message = "there is an agent {session} already ({status})"
    remedy_text = "`mam agent resume {session}` continues it; choose another name for a new one"


class NoDirectory(MamError):
    """The directory that the agent is to work in does not exist."""

    path: str

    code = "no_directory"
    exit_code = 2
    message = "{path} is not a directory"
    remedy_text = "create it first, or correct --cwd"


class ProgramNotFound(MamError):
    """The program of the agent is not installed, or is not on the caller's PATH."""

    program: str

    code = "agent_program_missing"
    message = "there is no program {program!r} to run the agent"
    remedy_text = "install it, or give the whole path of the program with --program"


class AgentRequest(NamedTuple):
    """What `agent create` was asked for."""

    name: str
    agent: str
    role: str = "creator"
    cwd: Path | None = None
    mux: str = "auto"
    program: str = ""
    args: Sequence[str] = ()


def create(mam: Mam, wish: AgentRequest, say: Progress = silent) -> Session:
    """
    Create an agent, and return as soon as its pane is open. `readiness` waits for its screen.

    When it raises, nothing is left: no record, no pane, no key.

    Raises: BadName, UnknownAgent, NoDirectory, SessionExists, TreeTaken, TreeUnready, MuxMissing,
        ProgramNotFound, LookFailed.
    """
    topics.check_name(wish.name)
    cli = catalog.find(wish.agent)
    roles = [topics.check_name(role.strip(), "role") for role in wish.role.split(",")]
    cwd = wish.cwd or mam.settings.cwd
    if not cwd.is_dir():
        raise NoDirectory(path=str(cwd))
    session = _new_row(mam, wish, cli, roles, cwd)
    _check_program(cli.launch(runtime.seat_of(mam, session, cli)), session, mam.settings.environ)
    with runtime.alone(mam, session.name):
        _enter(mam, session)
        _tell_others(mam, session, say)
        try:
            return runtime.open_pane(mam, session, cli.launch(runtime.seat_of(mam, session, cli)), say)
        except BaseException:
            with mam.registry.transaction() as tx:
                tx.drop(session)
            runtime.remove_files(mam.layout, session.name)
            raise


def _new_row(mam: Mam, wish: AgentRequest, cli: Adapter, roles: Sequence[str], cwd: Path) -> Session:
    """Return the record of an agent that begins its first life. Raises MuxMissing."""
    kind = mux_catalog.choose(wish.mux, mam.settings.environ)
    now = now_ms()
    return Session(
        name=wish.name,
        agent=wish.agent,
        role=",".join(roles),
        status="starting",
        generation=1,
        incarnation=runtime.new_incarnation(),
        mux=kind,
        mux_server=mam.mux_server(kind),
        pane="",
        cwd=str(cwd),
        program=wish.program,
        args=json.dumps(list(wish.args)),
        binding=json.dumps(mam.layout.binding()),
        conversation=cli.new_conversation(),
        created_at=now,
        updated_at=now,
    )


def _enter(mam: Mam, session: Session) -> None:
    try:
        with mam.registry.transaction() as tx:
            existing = tx.session(session.name)
            if existing is not None:
                raise SessionExists(session=session.name, status=existing.status)
            occupancy.check_seat(tx, session)
            runtime.make_files(mam.layout, session.name)
            tx.put(session)
    except sqlite3.IntegrityError as error:
        # Another process created it at the same moment.
        raise SessionExists(session=session.name, status="starting") from error


def _tell_others(mam: Mam, session: Session, say: Progress) -> None:
    """Say that another creator writes in the main checkout as well: that is allowed, and seldom meant."""
    with mam.registry.view() as view:
        others = occupancy.other_writers(view, session, str(mam.layout.root))
    if others:
        own = f"a tree of its own for {session.name}: mam worktree prepare NAME, and --worktree NAME when it is created"
        say(f"{', '.join(others)} may write in {mam.layout.root} as well, over what {session.name} writes; {own}")


def _check_program(launch: Launch, session: Session, environ: Mapping[str, str]) -> None:
    program = launch.argv[0]
    if os.sep in program:
        candidates = [str(Path(session.cwd) / program)]
    else:
        candidates = [os.path.join(folder, program) for folder in environ.get("PATH", os.defpath).split(os.pathsep)]
    if not any(os.path.isfile(path) and os.access(path, os.X_OK) for path in candidates):
        raise ProgramNotFound(program=program)
