"""The four variables that bind a process to a control root, and how a living process has them."""

from pathlib import Path

BINDING = ("WORKSPACE_ROOT", "AGENT_SESSIONS_YAML", "MAM_JOBS_DIR", "DELEGATE_JOB_LOGS_DIR")


def environ_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(pair.decode("utf-8", "surrogateescape").split("=", 1) for pair in pairs if b"=" in pair)
