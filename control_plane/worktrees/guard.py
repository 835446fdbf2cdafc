"""The guard of the main checkout's branch: installed and undone, and the branch noted."""

from mam.control_plane.control_root.context import Mam
from mam.wrappers.git import hooks


def guard(mam: Mam) -> str:
    """Install the hooks that keep commits off the main checkout's branch, which is returned. Raises NotGuardable."""
    installed = hooks.install(mam.layout.root)
    with mam.registry.transaction() as tx:
        tx.set_meta("main_branch", installed.branch)
    return installed.branch


def unguard(mam: Mam) -> str:
    """Undo `guard`; an empty text."""
    hooks.uninstall(mam.layout.root)
    return ""
