"""The agents by name: MAM's own in one typed table, others by the entry-point group `mam.agents`."""

import shutil
from importlib import metadata

from mam.agents import claude, codex, command, grok, opencode, scripted
from mam.agents.border import Adapter, AdapterFailed
from mam.agents.protocol import AgentCli
from mam.broker.errors import MamError, described

GROUP = "mam.agents"

AGENTS: dict[str, AgentCli] = {
    "claude": claude,
    "codex": codex,
    "command": command,
    "grok": grok,
    "opencode": opencode,
    "scripted": scripted,
}


OWN_PROGRAM = ("claude", "codex", "grok", "opencode")  # kinds that are called as their program is


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


def find(name: str) -> Adapter:
    """
    Return the adapter called *name*, behind the border to foreign code.

    Raises UnknownAgent, and BrokenAgent for a package's adapter that is unfit.
    """
    own = AGENTS.get(name)
    if own is not None:
        return Adapter(name, own)
    for point in metadata.entry_points(group=GROUP):
        if point.name == name:
            return _load(point)
    raise UnknownAgent(name=name, known=", ".join(names()))


def on_path(path: str) -> list[str]:
    """Return the kinds whose own program is in a folder of *path* (as PATH); a command of one's own is none of them."""
    return [kind for kind in OWN_PROGRAM if shutil.which(kind, path=path)]


def names() -> list[str]:
    """Return the names of all kinds of agents that can be created, sorted."""
    return sorted({*AGENTS, *(point.name for point in metadata.entry_points(group=GROUP))})


def _load(point: metadata.EntryPoint) -> Adapter:
    package = point.dist.name if point.dist else "?"
    try:
        return Adapter(point.name, point.load())
    except AdapterFailed as error:
        why = f"{error.member}: {error.why}"
        raise BrokenAgent(name=point.name, package=package, why=why) from error
    except (Exception, SystemExit) as error:  # the border to foreign code, here while it is imported
        raise BrokenAgent(name=point.name, package=package, why=described(error)) from error
