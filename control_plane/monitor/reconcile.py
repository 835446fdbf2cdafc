"""
Where the registry and the world disagree: compared first, as data; acted upon elsewhere, and only on proof.

Each multiplexer server is asked once. "Could not look" never counts as
a difference, nor does what a record does not say yet (an agent that is just being opened).
"""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from mam.agents import catalog
from mam.broker.envelope import topics
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.version import VERSION
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.monitor import repository_checks
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, OPEN, Finding, Job, Session
from mam.control_plane.sessions import runtime
from mam.wrappers.mux import catalog as mux_catalog
from mam.wrappers.mux.protocol import MuxFailed, MuxGone, Pane

Kind = Literal["A", "B", "C", "D", "E", "F", "G", "H", "I"]
MuxServer = tuple[str, str]  # multiplexer, server

YOUNG_MS = 10_000  # a row this fresh is being worked on


class Drift(NamedTuple):
    """One difference. *code* is what findings carry; *next* is the command that ends it."""

    kind: Kind
    code: str
    subject: str
    text: str
    next: str


class World(NamedTuple):
    """What was looked at. A server is its panes, None where it is gone; those that did not answer are left out."""

    servers: Mapping[MuxServer, Sequence[Pane] | None]
    monitor_version: str = VERSION
    cards: Sequence[str] = ()  # retained cards of things that the registry does not know
    dark: Sequence[MuxServer] = ()  # what did not answer
    failed: Mapping[MuxServer, str] = {}  # of those, the ones whose own code failed, and how


def look(mam: Mam, view: View, cards: Iterable[str] = (), dark: Collection[MuxServer] = ()) -> World:
    """Ask each multiplexer server that a row names once, but for those that are known to be *dark*."""
    places = view.mux_places().difference(dark)
    servers: dict[MuxServer, Sequence[Pane] | None] = {}
    silent: list[MuxServer] = []
    failed: dict[MuxServer, str] = {}
    for place in sorted(places):
        try:
            servers[place] = mux_catalog.make(*place, mam.settings.of_panes, mam.command).panes()
        except MuxGone:
            servers[place] = None
        except MamError as error:  # no answer, or nothing here that could ask
            silent.append(place)
            if isinstance(error, MuxFailed):
                failed[place] = str(error)
    known = monitor_process.look(mam.layout)
    version = known.version if known is not None else VERSION
    return World(servers, version, left_over(view, cards), silent, failed)


def left_over(view: View, topics_seen: Iterable[str]) -> list[str]:
    """Topics of retained cards whose job or loop is archived, or was never here."""
    seen = set(topics_seen)
    if not seen:
        return []
    ids = "SELECT id FROM {} WHERE archived_at IS NULL"
    known = {topics.job_state(job_id) for (job_id,) in view.connection.execute(ids.format("jobs"))}
    known |= {topics.loop_state(loop_id) for (loop_id,) in view.connection.execute(ids.format("loops"))}
    unknown = sorted(seen - known)  # as sets: a day may leave ten thousand cards
    return [each for each in unknown if (at := topics.parse(each)) and at.place in ("job_state", "loop_state")]


def compare(mam: Mam, view: View, world: World, missing: Sequence[Drift] | None = None) -> list[Drift]:
    """Every difference at this moment; nothing is changed. *missing*: what `conversations` found lately."""
    now = now_ms()
    sessions = view.sessions()
    found = _panes(mam, sessions, world, now)
    found += conversations(mam, sessions, view) if missing is None else missing
    found += [_of_finding(finding) for finding in repository_checks.findings(mam, view) if finding.code in _REPOSITORY]
    found += [drift for job in view.open_jobs() if (drift := _job(view, job)) is not None]
    found += [
        Drift("H", "card_left", topic, "a retained card of something that the registry does not know", "mam up")
        for topic in world.cards
    ]
    if world.monitor_version != VERSION:
        text = f"the monitor is {world.monitor_version}, this mam is {VERSION}"
        found.append(Drift("I", "monitor_version", "monitor", text, "mam down && mam up"))
    return found


_REPOSITORY: dict[str, tuple[Kind, str]] = {
    "worktree_gone": ("D", "mam worktree prepare {subject}"),
    "main_moved": ("G", "git switch back in the main checkout, or mam init --guard to accept it"),
}


def _of_finding(finding: Finding) -> Drift:
    kind, following = _REPOSITORY[finding.code]
    return Drift(kind, finding.code, finding.subject, finding.text, following.format(subject=finding.subject))


def _panes(mam: Mam, sessions: Sequence[Session], world: World, now: int) -> list[Drift]:
    found = []
    for place, panes in world.servers.items():
        here = [session for session in sessions if (session.mux, session.mux_server) == place]
        live = [session for session in here if session.status in LIVE and not _young(session, now)]
        if panes is None:
            if live:
                names = ", ".join(session.name for session in live)
                text = f"{place[0]} ({place[1]}) is gone, and with it {names}"
                found.append(Drift("F", "mux_gone", place[1], text, f"mam agent resume {live[0].name}"))
            continue
        for session in live:
            pane = runtime.own_pane(mam, session, panes)
            if session.pane and (pane is None or pane.dead):
                text = f"its pane {session.pane} is {'dead' if pane else 'gone'}"
                found.append(Drift("A", "pane_dead", session.name, text, f"mam agent resume {session.name}"))
        found += _unknown(mam, place, here, panes, now)
    return found


def _unknown(mam: Mam, place: MuxServer, here: Sequence[Session], panes: Sequence[Pane], now: int) -> list[Drift]:
    """Panes that carry our tag, and that no row names."""
    rows = {session.name: session for session in here}
    found = []
    for pane in panes:
        root, _, name = pane.tag.partition("/")
        if root != mam.fingerprint or pane.dead:
            continue
        session = rows.get(name)
        if session is None or session.pane != pane.id:
            if session is not None and _young(session, now):
                continue
            text = f"pane {pane.id} is tagged {name}, and " + (
                f"its row names {session.pane or 'none'}" if session is not None else "there is no such agent"
            )
            # A resume closes what an ended life left, and leaves a living one alone.
            ended = session is not None and session.status not in LIVE
            found.append(
                Drift("B", "pane_unknown", name, text, f"mam agent resume {name}" if ended else _end(place, pane))
            )
    return found


def _end(place: MuxServer, pane: Pane) -> str:
    """The command that closes one pane, where no verb knows whose it is."""
    mux, server = place
    return shlex.join(["tmux", "-L", server, "kill-pane", "-t", pane.id] if mux == "tmux" else ["kill", str(pane.pid)])


def _young(session: Session, now: int) -> bool:
    """Whether it was just changed; a stamp of the future is one of before the clock was set back."""
    return 0 <= now - session.updated_at < YOUNG_MS


def adoptable(mam: Mam, view: View, world: World) -> list[tuple[Session, str]]:
    """
    Live sessions whose row names no pane, and the one pane that carries their tag.

    A verb that died between opening a pane and noting it leaves such a row. Only panes of this control root's
    own servers count, and only for rows that are there.
    """
    found, now = [], now_ms()
    for session in view.rows(Session, "WHERE pane = '' ORDER BY name"):
        panes = world.servers.get((session.mux, session.mux_server)) or ()
        mine = [pane for pane in panes if pane.tag == runtime.tag(mam, session.name) and not pane.dead]
        if session.status in LIVE and len(mine) == 1 and not _young(session, now):
            found.append((session, mine[0].id))
    return found


def conversations(
    mam: Mam, sessions: Sequence[Session], view: View, trouble: dict[str, str] | None = None
) -> list[Drift]:
    """
    Differences of kind C: each costs a look at files.

    Args:
        trouble: Gets the sessions whose adapter could not name the files, and why. They are no difference.
    """
    trouble = {} if trouble is None else trouble
    return [drift for session in sessions if (drift := _conversation(mam, view, session, trouble)) is not None]


def _conversation(mam: Mam, view: View, session: Session, trouble: dict[str, str]) -> Drift | None:
    """An id in the row, a prompt that was delivered, and nothing on disk: resuming would begin anew."""
    if not session.conversation or _young(session, now_ms()):
        return None
    query = "SELECT 1 FROM attempts WHERE session = ? AND started_at IS NOT NULL AND started_at < ? LIMIT 1"
    if view.connection.execute(query, (session.name, now_ms() - YOUNG_MS)).fetchone() is None:
        return None
    try:
        kept = catalog.find(session.agent).conversation_files(runtime.place_of(mam, session))
    except MamError as error:  # could not look
        trouble[session.name] = str(error)
        return None
    if kept or not Path(session.cwd).is_dir():
        return None
    text = f"its conversation {session.conversation} is nowhere in {session.cwd}'s"
    return Drift("C", "conversation_missing", session.name, text, f"mam agent show {session.name}")


def _job(view: View, job: Job) -> Drift | None:
    session = view.session(job.session)
    if job.state not in OPEN or session is None or session.status in LIVE:
        return None
    text = f"it is {job.state}, and its agent {session.name} is {session.status}"
    return Drift("E", "job_without_agent", job.id, text, f"mam why {job.id}")
