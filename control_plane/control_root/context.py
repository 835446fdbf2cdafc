"""The parts that a verb works with, made of the settings."""

from functools import cached_property
from pathlib import Path

from mam.broker.errors import MamError
from mam.control_plane.config import env_file as env_files
from mam.control_plane.config import layout as layouts
from mam.control_plane.config import settings as config
from mam.control_plane.config.layout import Layout
from mam.control_plane.config.settings import Settings
from mam.control_plane.control_root import foreign, installation
from mam.control_plane.registry.database import none_at
from mam.control_plane.registry.transactions import Registry


class Moved(MamError):
    """The control root lies elsewhere than where it was made: it was moved or copied."""

    root: str
    made_at: str

    code = "control_root_moved"
    exit_code = 2
    message = "the registry at {root} was made at {made_at}"
    remedy_text = "`mam init --moved` if the directory was moved, `mam init --copied` if this is a copy"


class Mam:
    """The settings, the places and the registry of one control root. To make one touches no file."""

    def __init__(self, settings: Settings, layout: Layout, *, by: str) -> None:
        self.settings = settings
        self.layout = layout
        self.registry = Registry(layout.database, layout.registry_lock, by=by)
        self._meta: dict[str, str] = {}

    @classmethod
    def open(cls, *, root: str | None = None, jobs: str | None = None, by: str = "cli") -> "Mam":
        """
        Find the control root and read its settings. The registry is not opened.

        Raises NoControlRoot, Usage, and Untrusted for a `.mam.env` that may not be obeyed.
        """
        first = config.load()
        named = layouts.layout(first, root, jobs)
        settings = config.check(env_files.add(first, named.env_file, named.root))
        # The layout is made again, since `.mam.env` may name other places for jobs, logs and sessions.
        return cls(settings, layouts.layout(settings, root, jobs)._replace(env_file=named.env_file), by=by)

    def meta(self, name: str) -> str:
        """Return a fixed fact of this control root: fingerprint, control_root, slug. Raises NoRegistry."""
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
        """The 12 hex digits that name this control root on the bus. Raises NoRegistry."""
        return self.meta("fingerprint")

    def check_place(self) -> None:
        """
        Raise Moved where the registry lies elsewhere than where it was made. Every verb that acts calls this first.

        Raises Tracked where the registry came with the repository, and FileRefused where the print of the sessions
        would replace a file of others.
        """
        foreign.check_tracked(self.layout, self.settings.environ)
        foreign.check_sessions_file(self.layout)
        made_at = Path(self.meta("control_root"))
        if not made_at.is_absolute() or made_at.resolve() != self.layout.root.resolve():
            raise Moved(root=str(self.layout.root), made_at=str(made_at))

    @cached_property
    def command(self) -> str:
        """
        The absolute path of the `mam` that serves this control root: the recorded one, else that of the running code.

        Raises RuntimeGone, NoRegistry.
        """
        return installation.serving(self.runtime, self.layout.root)

    @property
    def runtime(self) -> str | None:
        """The recorded path of the `mam` that serves this root; None in one of 0.1.0 until its next `mam up`."""
        self.meta("fingerprint")
        return self._meta.get(installation.META)

    def take_runtime(self) -> str:
        """Record the running installation as the one that serves this control root. Returns its path."""
        own = installation.mam_command()
        with self.registry.transaction() as tx:
            tx.set_meta(installation.META, own)
        self._meta.clear()
        self.__dict__.pop("command", None)
        return own

    def mux_server(self, kind: str) -> str:
        """Return the name of this control root's own server of a multiplexer. No other control root uses it."""
        if kind == "headless":
            return str(self.layout.run / "headless")
        return self.settings.text("MAM_TMUX_SERVER") or f"mam-{self.meta('slug')}-{self.fingerprint[:6]}"
