"""Settings to parts: the one place that picks concrete classes."""

import os
import shutil
import sys
import sysconfig
from functools import cached_property
from pathlib import Path

from mam.broker.errors import MamError
from mam.control_plane.config import layout as layouts
from mam.control_plane.config import settings as config
from mam.control_plane.config.layout import Layout
from mam.control_plane.config.settings import Settings
from mam.control_plane.registry.database import none_at
from mam.control_plane.registry.transactions import Registry


class Moved(MamError):
    root: str
    made_at: str

    code = "control_root_moved"
    exit_code = 2
    message = "the registry at {root} was made at {made_at}"
    remedy_text = "`mam init --moved` if the directory was moved, `mam init --copied` if this is a copy"


class Mam:
    """What every verb works with: settings, places, registry."""

    def __init__(self, settings: Settings, layout: Layout, *, by: str) -> None:
        self.settings = settings
        self.layout = layout
        self.registry = Registry(layout.database, layout.registry_lock, by=by)
        self._meta: dict[str, str] = {}

    @classmethod
    def open(cls, *, root: str | None = None, jobs: str | None = None, by: str = "cli") -> "Mam":
        """Raises NoControlRoot, Usage; the registry itself is not touched yet."""
        first = config.load()
        env_file = layouts.layout(first, root, jobs).env_file
        settings = config.check(config.with_env_file(first, env_file))
        # Once more: `.mam.env` may name the jobs, logs and sessions of this control root.
        return cls(settings, layouts.layout(settings, root, jobs)._replace(env_file=env_file), by=by)

    def meta(self, name: str) -> str:
        """A fixed fact of this control root: fingerprint, control_root, slug. Raises NoRegistry."""
        if not self._meta:
            with self.registry.view() as view:
                rows = view.connection.execute("SELECT name, value FROM meta").fetchall()
            self._meta = {str(key): str(value) for key, value in rows}
        try:
            return self._meta[name]
        except KeyError as error:
            raise none_at(self.layout.database) from error

    @property
    def fingerprint(self) -> str:
        return self.meta("fingerprint")

    def check_place(self) -> None:
        """Raise Moved where the registry lies elsewhere than it was made."""
        made_at = self.meta("control_root")
        if Path(made_at).resolve() != self.layout.root.resolve():
            raise Moved(root=str(self.layout.root), made_at=made_at)

    @cached_property
    def command(self) -> str:
        """The absolute path of the `mam` that belongs to the running code."""
        return mam_command()

    def mux_server(self, kind: str) -> str:
        """This control root's own server: nothing of another one can share it."""
        if kind == "headless":
            return str(self.layout.run / "headless")
        return self.settings.text("MAM_TMUX_SERVER") or f"mam-{self.meta('slug')}-{self.fingerprint[:6]}"


def mam_command() -> str:
    """
    The console script of this installation.

    Never `python -m`: in somebody's worktree that would import the worktree's own `mam/`.
    """
    own = Path(sysconfig.get_path("scripts")) / "mam"
    if os.access(own, os.X_OK):
        return str(own)
    started = Path(sys.argv[0]).absolute()
    return str(started) if started.name == "mam" else shutil.which("mam") or str(own)
