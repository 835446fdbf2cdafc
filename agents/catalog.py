"""The agents by name: MAM's own in one typed table, others by the entry-point group `mam.agents`."""

from importlib import metadata
from typing import cast

from mam.agents import claude, codex, command, grok, opencode, scripted
from mam.agents.protocol import AgentCli
from mam.broker.errors import MamError

GROUP = "mam.agents"

AGENTS: dict[str, AgentCli] = {
    "claude": claude,
    "codex": codex,
    "command": command,
    "grok": grok,
    "opencode": opencode,
    "scripted": scripted,
}

_REQUIRED = [
    "name",
    "ready_within_s",
    "submit_pause_s",
    "new_conversation",
    "launch",
    "resume",
    "read",
    "draft",
    "grants",
    "instruction_file",
]


class UnknownAgent(MamError):
    """No adapter has this name."""

    name: str
    known: str

    code = "unknown_agent"
    exit_code = 2
    message = "there is no agent kind {name!r}"
    remedy_text = "known: {known}; a package can add one by the entry-point group mam.agents"


class BrokenAgent(MamError):
    """The adapter of another package cannot be loaded, or lacks something that the protocol demands."""

    name: str
    package: str
    why: str

    code = "broken_agent"
    message = "the agent kind {name!r} of {package} cannot be used: {why}"
    remedy_text = "repair or uninstall that package"


def find(name: str) -> AgentCli:
    """Return the adapter called *name*. Raises UnknownAgent, and BrokenAgent for a package's adapter that is unfit."""
    own = AGENTS.get(name)
    if own is not None:
        return own
    for point in metadata.entry_points(group=GROUP):
        if point.name == name:
            return _load(point)
    raise UnknownAgent(name=name, known=", ".join(names()))


def names() -> list[str]:
    """Return the names of all kinds of agents that can be created, sorted."""
    return sorted({*AGENTS, *(point.name for point in metadata.entry_points(group=GROUP))})


def _load(point: metadata.EntryPoint) -> AgentCli:
    package = point.dist.name if point.dist else "?"
    try:
        found = point.load()
    except (ImportError, AttributeError, SyntaxError) as error:
        raise BrokenAgent(name=point.name, package=package, why=str(error)) from error
    missing = [member for member in _REQUIRED if not hasattr(found, member)]
    if missing:
        raise BrokenAgent(name=point.name, package=package, why=f"it lacks {', '.join(missing)}")
    return cast(AgentCli, found)
