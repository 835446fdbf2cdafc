"""The multiplexers by kind."""

from collections.abc import Callable, Mapping
from pathlib import Path

from mam.wrappers.mux import tmux
from mam.wrappers.mux.border import MuxBorder
from mam.wrappers.mux.headless import Headless
from mam.wrappers.mux.protocol import Multiplexer, MuxMissing

Maker = Callable[[str, Mapping[str, str], str], Multiplexer]

# server, environment, the mam command -> a multiplexer
MULTIPLEXERS: dict[str, Maker] = {
    "tmux": lambda server, environ, mam: tmux.Tmux(server, environ, environ.get("MAM_TMUX_CONF") or "/dev/null"),
    "headless": lambda server, environ, mam: Headless(Path(server), environ, mam),
}


def make(kind: str, server: str, environ: Mapping[str, str], mam: str) -> MuxBorder:
    """
    Return the multiplexer of *kind* on *server*, as a session's record names both, behind the border to foreign code.

    Raises MuxMissing, and MuxFailed where its own code fails.
    """
    maker = MULTIPLEXERS.get(kind)
    if maker is None:
        raise MuxMissing(name=kind, why=f"known are {', '.join(MULTIPLEXERS)}")
    return MuxBorder(kind, server, lambda: maker(server, environ, mam))


def choose(wanted: str, environ: Mapping[str, str]) -> str:
    """Return the kind to use: the wanted one; for `auto`, tmux where it is installed. Raises MuxMissing."""
    has_tmux = tmux.available(environ.get("PATH", ""))
    if wanted == "auto":
        return "tmux" if has_tmux else "headless"
    if wanted not in MULTIPLEXERS:
        raise MuxMissing(name=wanted, why=f"known are auto, {', '.join(MULTIPLEXERS)}")
    if wanted == "tmux" and not has_tmux:
        raise MuxMissing(name=wanted, why="there is no tmux on PATH")
    return wanted
