"""How to go on from a new control root, said by `mam init` and `mam doctor`."""

from mam.agents import catalog
from mam.control_plane.control_root.context import Mam


def agent_clis(mam: Mam) -> tuple[list[str], str]:
    """The agent CLIs that are on PATH here, and the command that starts one of them."""
    found = catalog.on_path(mam.settings.environ.get("PATH", ""))
    return found, f"mam agent create writer --agent {found[0] if found else 'KIND'}"
