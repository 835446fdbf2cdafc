"""`mam why NAME`: finds what *NAME* is, looks at it, and has it explained by the module that knows it."""

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.control_root.monitor_process import MonitorStatus
from mam.control_plane.explain import agents_and_jobs, parts
from mam.control_plane.explain import loops as explain_loops
from mam.control_plane.explain.agents_and_jobs import Explanation, Observed
from mam.control_plane.loops import locks as loop_locks
from mam.control_plane.registry.queries import View
from mam.control_plane.sessions import occupancy, runtime
from mam.control_plane.worktrees import state as worktree_state


class UnknownThing(MamError):
    """Nothing in the registry has this name."""

    name: str

    code = "unknown_thing"
    exit_code = 2
    message = "there is no job, agent, loop or worktree called {name!r}"
    remedy_text = "`mam status` shows what there is"


def explain(mam: Mam, name: str) -> Explanation:
    """
    What is going on with *name*, on what evidence, and which command goes on from there.

    *name* is a job, an agent, a loop, a worktree, `monitor`, `broker`, a lease's resource, or the subject of a finding;
    where two have one name, the first of that list is meant. An agent's pane is looked at while it answers.

    Raises UnknownThing, and what Registry.view raises.
    """
    known = monitor_process.look(mam.layout)
    with mam.registry.view() as view:
        job = view.job(name)
        session = view.session(job.session if job is not None else name)
        screen, shown = runtime.look_now(mam, session) if session is not None else (None, "")
        now = Observed(now_ms(), known is not None, known.problem if known else "", screen, shown)
        if job is not None:
            return agents_and_jobs.job(view, job, now)
        if session is not None:
            return explain_loops.with_loops(view, session, agents_and_jobs.session(view, session, now))
        return _other(mam, view, name, known, now.ms)


def _other(mam: Mam, view: View, name: str, known: MonitorStatus | None, now: int) -> Explanation:
    loop, tree = view.loop(name), view.worktree(name)
    if loop is not None:
        return explain_loops.loop(view, loop, runs=loop_locks.runs(mam, loop.id), now=now)
    if tree is not None:
        state = worktree_state.now(mam.layout.root, tree)
        return explain_loops.worktree(view, tree, state, occupancy.residents(view, tree.path), now)
    found = [finding for finding in view.findings() if finding.subject == name]
    if name in parts.NAMES:
        embedded = not runtime.broker_ref(mam).url
        return parts.place(mam.layout, known, name, found, now, embedded=embedded)
    if found:
        return parts.findings(name, found, now)
    lease = view.lease(name)
    if lease is not None:
        return explain_loops.lease(view, lease, runs=loop_locks.runs(mam, lease.holder or ""), now=now)
    raise UnknownThing(name=name)
