"""mam trust"""

from pathlib import Path

from mam.broker.errors import FileRefused, Usage
from mam.broker.host.text import clean
from mam.control_plane.cli.base import Parser, add_root, emit, verb
from mam.control_plane.config import env_file, trust
from mam.control_plane.config import layout as layouts
from mam.control_plane.config import settings as config


def run(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("file", help="a file of the work tree, as .mam.env; a change of it ends the trust")
        parser.add_argument("--forget", action="store_true", help="end the trust in it")

    describe = "let mam obey a file of the work tree, as long as its content stays what it is now"
    args = verb(words, 1, "mam trust .mam.env", describe, build)
    settings = config.load()
    path = config.absolute(args.file, settings.cwd)
    root = layouts.root_of(path, settings, args.root)
    if args.forget:
        was = trust.forget(path, root=root, environ=settings.environ)
        emit(
            args,
            {"path": str(path), "root": str(root), "forgotten": was},
            f"{path}: {'no longer' if was else 'not'} trusted",
        )
        return 0
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileRefused(
            path=str(path), why=error.strerror or str(error), hint="name a file that can be read"
        ) from error
    record = trust.allow(path, content, root=root, environ=settings.environ)
    data = {"path": str(path), "root": str(root), "record": str(record), "trusted": True}
    lines = [f"trusted for {root}: {path}, until it changes", *_names(path, content, root)]
    emit(args, data, "\n".join(lines))
    return 0


def _names(path: Path, content: bytes, root: Path) -> list[str]:
    """What the file lets happen, where it is a `.mam.env`."""
    try:
        return [f"  {clean(name)}" for name in env_file.powers(env_file.parse(content, path), root)]
    except (Usage, UnicodeDecodeError):
        return []
