"""mam registry backup · rebuild · export · import"""

from pathlib import Path

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import FileRefused
from mam.control_plane.cli.base import Parser, add_root, choose, emit, say, verb
from mam.control_plane.config import settings as config
from mam.control_plane.control_root import foreign
from mam.control_plane.control_root.context import Mam


def run(words: list[str]) -> int:
    table = {"backup": _backup, "rebuild": _rebuild, "export": _export, "import": _import}
    return choose(words, table, "the registry: the database in .mam and its print agent-sessions.yaml")


def _backup(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("target", nargs="?", help="a file that does not exist yet (default: below .mam/backups)")

    args = verb(words, 2, "mam registry backup", "a consistent copy while others work", build)
    mam = Mam.open(root=args.root)
    if args.target:
        target = config.absolute(args.target, mam.settings.cwd)
    else:
        target = mam.layout.mam / "backups" / f"registry-{now_ms()}.db"
        target.parent.mkdir(mode=0o700, exist_ok=True)
    if target.exists() or not target.parent.is_dir():
        raise FileRefused(path=str(target), why="it exists, or its folder does not", hint="name a new file")
    mam.registry.backup(target)
    emit(args, {"backup": str(target)}, str(target))
    return 0


def _rebuild(words: list[str]) -> int:
    from mam.control_plane.registry import rebuild
    from mam.control_plane.sessions import sessions_yaml

    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("--past-damage", action="store_true", help="take what can be read of a damaged audit log")

    describe = "make a lost or damaged registry again from audit.jsonl; the old one is set aside"
    args = verb(words, 2, "mam down && mam registry rebuild", describe, build)
    mam = Mam.open(root=args.root)
    foreign.check_tracked(mam.layout, mam.settings.environ)
    done = rebuild.rebuild(mam.layout, past_damage=args.past_damage, say=say)
    sessions_yaml.write(mam)
    lines = [f"rebuilt from {done.rows} changes and {done.events} events ({done.salvaged} only in the old database)"]
    lines += [f"damaged: line {line} of {mam.layout.audit}" for line in done.damaged_lines]
    lines += [f"set aside: {path}" for path in done.aside]
    emit(args, done._asdict(), "\n".join(lines))
    return 0


def _export(words: list[str]) -> int:
    from mam.control_plane.sessions import sessions_yaml

    args = verb(words, 2, "mam registry export", "write agent-sessions.yaml anew", add_root)
    mam = Mam.open(root=args.root)
    sessions_yaml.write(mam)
    emit(args, {"written": str(mam.layout.sessions_yaml)}, str(mam.layout.sessions_yaml))
    return 0


def _import(words: list[str]) -> int:
    from mam.control_plane.sessions import sessions_yaml

    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("file", nargs="?")

    args = verb(words, 2, "mam registry import", "take edited roles from agent-sessions.yaml; all or none", build)
    mam = Mam.open(root=args.root)
    foreign.check_tracked(mam.layout, mam.settings.environ)
    path = Path(config.absolute(args.file, mam.settings.cwd)) if args.file else mam.layout.sessions_yaml
    changed = sessions_yaml.take(mam, path)
    emit(args, {"changed": changed}, f"changed: {', '.join(changed) or 'nothing'}")
    return 0
