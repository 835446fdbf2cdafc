"""mam completion bash|zsh|fish · mam names (what the scripts ask for agents and jobs)"""

from mam.control_plane import cli
from mam.control_plane.cli.base import Parser, add_root, verb
from mam.control_plane.control_root.context import Mam

SECOND = {
    "agent": "attach check create list resume sample send show stop",
    "job": "answer archive ask cancel delegate heartbeat list progress report retry show started wait",
    "loop": "archive cancel list resume run show",
    "worktree": "commit list prepare remove",
    "registry": "backup export import rebuild",
    "events": "export replay",
    "monitor": "install once run uninstall",
    "broker": "status",
    "bench": "all cli deliver events loop registry",
    "completion": "bash fish zsh",
}
# What names a thing of one kind: the verb of a noun does by its noun, an option by itself, and these know all kinds.
OPTIONS = {"--to": "agent", "--creator": "agent", "--reviewers": "agent", "--probe": "agent", "--worktree": "worktree"}
ANYTHING = "why tail verify"
KINDS = ("agent", "job", "loop", "worktree")
NAMELESS = "create list run delegate prepare"

BASH = """_mam() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" last="${{COMP_WORDS[COMP_CWORD-1]}}" noun="${{COMP_WORDS[1]}}" words=""
  case "$last" in
{options}
  esac
  if [ -n "$words" ]; then :
  elif [ "$COMP_CWORD" -eq 1 ]; then words="{first}"
  elif [[ " {anything} " == *" $last "* ]]; then words="$(mam names 2>/dev/null)"
  elif [ "$COMP_CWORD" -eq 2 ]; then case "$last" in
{cases}
  esac
  elif [ "$COMP_CWORD" -eq 3 ] && [[ " {kinds} " == *" $noun "* && " {nameless} " != *" $last "* ]]; then
    words="$(mam names --of "$noun" 2>/dev/null)"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _mam mam
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"
FISH_FIRST = "complete -c mam -n __fish_use_subcommand -f -a '{first}'\n"
FISH_SECOND = "complete -c mam -n '__fish_seen_subcommand_from {noun}' -f -a '{verbs}'\n"
FISH_NAMES = "complete -c mam -n '__fish_seen_subcommand_from {noun}' -f -a '(mam names{of} 2>/dev/null)'\n"
FISH_OPTION = "complete -c mam -l {option} -x -a '(mam names --of {kind} 2>/dev/null)'\n"


def run(words: list[str]) -> int:
    return _names(words) if words[0] == "names" else _completion(words)


def _completion(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        parser.add_argument("shell", choices=("bash", "zsh", "fish"))

    args = verb(words, 1, 'eval "$(mam completion bash)"', "print a completion script for a shell", build)
    print(script(args.shell), end="")
    return 0


def script(shell: str) -> str:
    """The completion script of *shell*: verbs, their verbs, and the names of agents and jobs."""
    first = " ".join(cli.VERBS)
    if shell == "fish":
        lines = [FISH_FIRST.format(first=first)]
        lines += [FISH_SECOND.format(noun=noun, verbs=verbs) for noun, verbs in SECOND.items()]
        lines += [FISH_NAMES.format(noun=noun, of=f" --of {noun}") for noun in KINDS]
        lines += [FISH_OPTION.format(option=option.lstrip("-"), kind=kind) for option, kind in OPTIONS.items()]
        return "".join([*lines, FISH_NAMES.format(noun=ANYTHING, of="")])
    cases = "\n".join(f'    {noun}) words="{verbs}";;' for noun, verbs in SECOND.items())
    of = "\n".join(f'    {option}) words="$(mam names --of {kind} 2>/dev/null)";;' for option, kind in OPTIONS.items())
    made = BASH.format(
        first=first, cases=cases, options=of, anything=ANYTHING, kinds=" ".join(KINDS), nameless=NAMELESS
    )
    return (ZSH if shell == "zsh" else "") + made


def _names(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("--of", choices=KINDS, help="only things of this kind")

    args = verb(words, 1, "mam names --of agent", "what has a name, one a line, for completion", build)
    with Mam.open(root=args.root).registry.view() as view:
        found = {
            "agent": [session.name for session in view.sessions()],
            "job": [job.id for job in view.jobs(limit=50)],
            "loop": [loop.id for loop in view.loops()[:20]],
            "worktree": [tree.name for tree in view.worktrees()],
        }
    for kind in KINDS if args.of is None else (args.of,):
        for name in found[kind]:
            print(name)
    return 0
