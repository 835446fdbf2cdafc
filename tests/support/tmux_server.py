"""The tmux server of a control root, by its name."""

from tests.support.control_root import Root


def server(root: Root) -> str:
    """What `tmux -L` calls the server of this control root's agents."""
    name: str = root.parts.mux_server("tmux")
    return name
