"""Free text for an agent's composer, outside of any job: it is queued, and the agent's runner delivers it."""

import json
import os
import secrets
import time
from typing import NamedTuple

from mam.broker import spool
from mam.broker.envelope import topics
from mam.broker.envelope.payloads import now_ms
from mam.broker.envelope.signing import unverified_body
from mam.broker.errors import Usage
from mam.broker.host.progress import Progress, silent
from mam.broker.host.waiting import wait_until
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.control_root.monitor_process import NoMonitorHere
from mam.control_plane.registry.queries import View, pages
from mam.control_plane.registry.records import LIVE, OutboxMessage
from mam.control_plane.sessions import refusals
from mam.control_plane.sessions.lookup import SessionBusy, SessionNotRunning, need_session
from mam.control_plane.sessions.readiness import NotReady

SENT_BYTES = 180_000
SENT_CHARS = 60_000
ANSWERED_WITHIN_S = 5.0  # the outcome may still come this long after the delivery's own limit


class NotDelivered(NotReady):
    """The runner did not answer in time. The text may still be typed until its own limit has passed."""

    message = "{session} has not taken the text after {waited_s:g} s"


class TextRefused(SessionBusy):
    """The runner did not type the text, and never will."""

    why: str
    hint: str
    reason: str
    evidence: str

    message = "{session} did not take the text: {why}"
    remedy_text = "{hint}"


class TextUnconfirmed(NotReady):
    """The text was typed, and what became of it cannot be told."""

    reason: str

    code = "text_unconfirmed"
    message = "whether {session} took the text is unknown after {waited_s:g} s"
    remedy_text = "`mam agent show {session}` shows its screen: send it again only where it is not there"


class Delivered(NamedTuple):
    """What a runner reports of a text. *state* is submitted, refused or unknown; *reason* says why it was refused."""

    state: str
    reason: str = ""
    evidence: str = ""


def queue(mam: Mam, name: str, text: str) -> str:
    """
    Queue *text* for the composer of the agent *name*; returns the id under which its delivery will be reported.

    Where the caller is an agent in its pane, the text begins with its name.

    Raises Usage for an empty or oversized text, UnknownSession, SessionNotRunning.
    """
    if not text.strip():
        raise Usage(what="there is nothing to send", hint="give some text, or - to read it from standard input")
    size = len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))
    if len(text) > SENT_CHARS or size > SENT_BYTES:  # too large for a message, it would be tried again for ever
        raise Usage(what=f"{len(text)} characters are too many", hint="write a file and send its path")
    mam.check_place()
    send_id = f"send-{secrets.token_hex(6)}"
    with mam.registry.transaction() as tx:
        session = need_session(tx, name)
        if session.status not in LIVE:
            raise SessionNotRunning(session=name, status=session.status)
        sender = _sender(mam, tx)
        if sender not in ("", name):
            text = f"[from {sender}] {text}"
        data = json.dumps({"prompt": text, "deliver_within_s": max(1, round(mam.settings.deliver_within_s))})
        tx.put(OutboxMessage(send_id, name, "say", send_id, 1, session.incarnation, data, now_ms()))
    spool.wake(mam.layout.monitor_wake)
    return send_id


def _sender(mam: Mam, view: View) -> str:
    """The agent of this control root in whose pane the caller runs; empty for a person, or an agent from elsewhere."""
    environ = mam.settings.environ
    name, root = environ.get("MAM_SESSION", ""), environ.get("WORKSPACE_ROOT", "")
    own = root and os.path.realpath(root) == os.path.realpath(mam.layout.root)
    return name if name and own and view.session(name) is not None else ""


def send(mam: Mam, name: str, text: str, *, say: Progress = silent) -> Delivered:
    """
    `mam agent send`: queue *text* and wait until it is submitted; what is awaited is said at once.

    Raises TextRefused, TextUnconfirmed, NotDelivered, NoMonitorHere (the text is kept), and what `queue` raises.
    """
    known = monitor_process.ensure(mam, say=say)
    with mam.registry.view() as view:
        after = view.last_event()
    send_id = queue(mam, name, text)
    if known is None:
        raise NoMonitorHere(kept=f"{send_id} for {name} is kept and will be typed")
    wait_s = mam.settings.deliver_within_s + ANSWERED_WITHIN_S
    with mam.registry.view() as view:
        session = need_session(view, name)
    say(f"waiting until {name} takes it, {wait_s:g} s at most; its screen: {session.screen or 'not seen yet'}")
    began = time.monotonic()

    def delivered() -> Delivered | None:
        with mam.registry.view() as view:
            return _delivery(view, name, send_id, after)

    found = wait_until(delivered, wait_s, every_s=0.05)
    if found is None:
        raise NotDelivered(session=name, waited_s=wait_s)
    if found.state == "refused":
        why = refusals.WHY.get(found.reason, found.reason or "it gave no reason")
        hint = refusals.remedy(session, found.reason, f"mam agent send {name} TEXT")
        raise TextRefused(session=name, why=why, hint=hint, reason=found.reason, evidence=found.evidence)
    if found.state != "submitted":
        raise TextUnconfirmed(session=name, waited_s=round(time.monotonic() - began, 1), reason=found.reason)
    return found


def _delivery(view: View, name: str, send_id: str, after: int) -> Delivered | None:
    for event in pages(view, topics.events(name), after):
        body = unverified_body(event["wire"])
        data = body.get("data")
        if body.get("job") == send_id and isinstance(data, dict) and data.get("state") != "received":
            return Delivered(*(str(data.get(word) or "") for word in Delivered._fields))
    return None
