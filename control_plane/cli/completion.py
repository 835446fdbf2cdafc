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
# Verbs whose next word names an agent or a job.
NAMED = "why tail verify show stop resume send attach wait cancel retry archive remove --to --probe --worktree"

BASH = """_mam() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" last="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then words="{first}"
  elif [[ " {named} " == *" $last "* ]]; then words="$(mam names 2>/dev/null)"
  elif [ "$COMP_CWORD" -eq 2 ]; then case "$last" in
{cases}
  esac; fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _mam mam
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"
FISH_FIRST = "complete -c mam -n __fish_use_subcommand -f -a '{first}'\n"
FISH_SECOND = "complete -c mam -n '__fish_seen_subcommand_from {noun}' -f -a '{verbs}'\n"
FISH_NAMES = "complete -c mam -n '__fish_seen_subcommand_from {named}' -f -a '(mam names 2>/dev/null)'\n"


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
        return "".join([*lines, FISH_NAMES.format(named=" ".join(w for w in NAMED.split() if w[0] != "-"))])
    cases = "\n".join(f'    {noun}) words="{verbs}";;' for noun, verbs in SECOND.items())
    return (ZSH if shell == "zsh" else "") + BASH.format(first=first, named=NAMED, cases=cases)


def _names(words: list[str]) -> int:
    args = verb(words, 1, "mam names", "agents and jobs, one a line, for completion", add_root)
    with Mam.open(root=args.root).registry.view() as view:
        for session in view.sessions():
            print(session.name)
        for job in view.jobs(limit=50):
            print(job.id)
        for loop in view.loops()[:20]:
            print(loop.id)
        for tree in view.worktrees():
            print(tree.name)
    return 0
