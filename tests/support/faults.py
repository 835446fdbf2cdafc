"""What several rooms ask of a control root whose processes die, or whose disk refuses, at a durable step."""

from tests.support.control_root import Root
from tests.support.sizes import FULL


def refusals(points: list[str]) -> list[tuple[str, str]]:
    """What the disk says at each point: ENOSPC and EIO, of which everyday runs take one by turns."""
    actions = ("ENOSPC", "EIO")
    if FULL:
        return [(point, action) for point in points for action in actions]
    return [(point, actions[n % 2]) for n, point in enumerate(points)]


def delegate(root: Root, to: str = "writer", fault: str = "") -> int:
    """Delegate a job from the command line, with *fault* armed in that verb; its exit code."""
    env = {"MAM_FAULT": f"cli@{fault}"} if fault else {}
    return root.mam("job", "delegate", "--to", to, "--brief", "README", "--json", env=env).code


def jobs_of(root: Root) -> set[str]:
    """The ids of all jobs on record."""
    with root.registry.view() as view:
        return {job.id for job in view.jobs()}


def all_done(root: Root, agent: str = "writer") -> bool:
    """Whether every job of an agent was reported."""
    with root.registry.view() as view:
        return all(job.state == "reported" for job in view.jobs() if job.session == agent)


def settled(root: Root, job: str) -> str:
    """The job's state once it has ended, "agent gone" once its agent is; until then nothing."""
    row = root.job(job)
    if row.state in ("reported", "lost", "agent_blocked", "timed_out"):
        return str(row.state)
    return "agent gone" if root.session(row.session).status == "ended" else ""
