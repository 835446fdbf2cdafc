"""mam worktree prepare · list · remove · commit"""

from mam.control_plane.cli.base import Parser, add_root, choose, emit, say, verb
from mam.control_plane.cli.output import shown_table
from mam.control_plane.config import settings as config
from mam.control_plane.control_root.context import Mam
from mam.control_plane.explain import tables


def run(words: list[str]) -> int:
    table = {"prepare": _prepare, "list": _list, "remove": _remove, "commit": _commit}
    return choose(words, table, "worktrees: a tree and a branch of its own for each writer")


def _name(parser: Parser) -> None:
    add_root(parser)
    parser.add_argument("name")


def _prepare(words: list[str]) -> int:
    from mam.control_plane.worktrees import prepare as worktrees

    def build(parser: Parser) -> None:
        _name(parser)
        parser.add_argument("--branch", metavar="B", help="an existing branch, or how the new one is called")
        parser.add_argument("--base", default="HEAD", metavar="REV", help="where a new branch begins (default: HEAD)")
        parser.add_argument("--path", metavar="DIR", help="(default: below MAM_WORKTREES_DIR)")
        venv = parser.add_mutually_exclusive_group()
        venv.add_argument(
            "--venv", action="store_true", default=None, help="make a .venv of its own (default: if Python)"
        )
        venv.add_argument("--no-venv", action="store_false", dest="venv", help="make none")
        parser.add_argument("--setup", default="", metavar="CMD", help="a shell command to run in it once")

    describe = "make a worktree that an agent can work in; run again, it completes or heals it"
    args = verb(words, 2, "mam worktree prepare issue-20 --setup 'npm ci'", describe, build)
    mam = Mam.open(root=args.root)
    path = config.absolute(args.path, mam.settings.cwd) if args.path else None
    wish = worktrees.WorktreeRequest(args.name, args.branch, args.base, args.venv, args.setup, path)
    row = worktrees.prepare(mam, wish, say)
    data = {"name": row.name, "path": row.path, "branch": row.branch, "base_sha": row.base_sha, "state": row.state}
    text = f"{row.path} on {row.branch}\nnext: mam agent create --agent KIND --worktree {row.name}"
    emit(args, data, text)
    return 0


def _list(words: list[str]) -> int:
    from mam.control_plane.worktrees import listing

    args = verb(words, 2, "mam worktree list", "all worktrees, as the registry and git see them", add_root)
    mam = Mam.open(root=args.root)
    found = listing.listing(mam)
    header = ("WORKTREE", "STATE", "BRANCH", "HEAD", "AGENTS", "PATH")
    rows = [
        [
            t.name,
            t.state,
            t.branch,
            t.head[:12],
            ", ".join(t.agents) or "-",
            tables.near(str(t.path), str(mam.layout.root)),
        ]
        for t in found
    ]
    text = shown_table(header, rows) if rows else "no worktrees yet: mam worktree prepare NAME"
    emit(args, [tree._asdict() for tree in found], text)
    return 0


def _remove(words: list[str]) -> int:
    from mam.control_plane.worktrees import remove as worktree_removal

    def build(parser: Parser) -> None:
        _name(parser)
        parser.add_argument("--stop", action="store_true", help="stop its agents and cancel their jobs first")
        parser.add_argument("--purge", action="store_true", help="as --stop, and remove their conversations and rows")

    describe = "remove a worktree whose every change is committed; its branch stays"
    args = verb(words, 2, "mam worktree remove issue-20 --stop", describe, build)
    mam = Mam.open(root=args.root)
    gone = worktree_removal.remove(mam, args.name, stop=args.stop, purge=args.purge, say=say)
    lines = [f"{gone.name}: removed; the branch {gone.branch} stays at {gone.head}"]
    if gone.saved is not None:
        lines.append(f"ignored files were moved to {gone.saved}")
    emit(args, gone._asdict(), "\n".join(lines))
    return 0


def _commit(words: list[str]) -> int:
    from mam.control_plane.worktrees import commit as worktree_commit

    def build(parser: Parser) -> None:
        _name(parser)
        parser.add_argument("--message", "-m", required=True)
        parser.add_argument("--expect", metavar="SHA", help="refuse where the head is another commit")

    describe = "commit everything in a worktree, only on its own branch and the expected head"
    args = verb(words, 2, "mam worktree commit issue-20 -m 'Add a flag' --expect 1a2b3c4", describe, build)
    mam = Mam.open(root=args.root)
    sha = worktree_commit.commit(mam, args.name, args.message, expect_head=args.expect)
    emit(args, {"worktree": args.name, "commit": sha}, sha)
    return 0
