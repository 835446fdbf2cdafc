"""Which verbs are compared, and with which words."""

from typing import NamedTuple

from tests.compatibility.recorded_root import HALF, PASSED, STUCK, WAITS


class Case(NamedTuple):
    """One command line in the recorded root."""

    words: tuple[str, ...]
    acts: bool = False  # it changes the root: it gets a copy of its own
    cwd: str = "repo"
    stdin: str = ""
    env: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return " ".join(["mam", *self.words])


# noun or noun and verb -> how many words it needs behind it
VERBS = {
    "init": 0, "up": 0, "down": 0, "demo": 0, "doctor": 0, "status": 0, "why": 1, "tail": 0, "verify": 1,
    "agent create": 1, "agent list": 0, "agent show": 1, "agent attach": 1, "agent stop": 1, "agent resume": 1,
    "agent send": 2, "job delegate": 0, "job list": 0, "job show": 1, "job wait": 1, "job answer": 2, "job cancel": 1,
    "job retry": 1, "job archive": 0, "job started": 0, "job heartbeat": 0, "job progress": 0, "job ask": 1,
    "job report": 0, "loop run": 0, "loop list": 0, "loop show": 1, "loop resume": 1, "loop cancel": 1,
    "loop archive": 0, "queue": 0, "worktree prepare": 1, "worktree list": 0, "worktree remove": 1,
    "worktree commit": 1, "events export": 0, "events replay": 1, "chaos": 0, "registry backup": 0,
    "registry rebuild": 0, "registry export": 0, "registry import": 0, "monitor run": 0, "monitor once": 0,
    "monitor install": 0, "monitor uninstall": 0, "broker status": 0, "bench": 0, "completion": 1,
}  # fmt: skip
NOUNS = ("agent", "job", "loop", "worktree", "events", "registry", "monitor", "broker")
AGENTS = ("writer", "rev-a", "asker", "mute", "left")
JOBS = ("job-done", "job-failed", "job-cancelled", "job-open", "job-lost", "job-archived", f"{PASSED}-r1-rev-a")
LOOPS = (PASSED, STUCK, HALF, WAITS)
UNKNOWN = "no-such-thing"


def cases() -> list[Case]:
    """All of them, in the order in which they are played."""
    return [*_wrong(), *_looking(), *_acting(), *_agents_own()]


def _wrong() -> list[Case]:
    """Help, flags that do not exist, too few words, too many, and a place without a control root."""
    made = [Case(words) for words in ((), ("--help",), ("--version",), (UNKNOWN,), ("--json", "status"))]
    for noun in NOUNS:
        made += [Case((noun,)), Case((noun, "--help")), Case((noun, UNKNOWN)), Case((noun, UNKNOWN, "--json"))]
    for verb, count in VERBS.items():
        words = tuple(verb.split())
        made.append(Case((*words, "--help")))
        made.append(Case((*words, *["x"] * count, "--no-such-flag", "--json")))
        made.append(Case((*words, *["x"] * (count + 3), "--no-such-flag")))
        if count:
            made.append(Case((*words, "--json")))
        if verb not in ("demo", "chaos", "bench", "init"):
            made.append(Case((*words, *["x"] * count, "--json"), cwd="home"))
    return made


def _looking() -> list[Case]:
    """What only reads."""
    words: list[tuple[str, ...]] = [("status",), ("queue",), ("broker", "status"), ("doctor",), ("monitor", "once")]
    words += [(noun, "list") for noun in ("agent", "job", "loop", "worktree")]
    words += [("job", "list", "--open"), ("job", "list", "--agent", "writer"), ("job", "list", "--limit", "2")]
    words += [("job", "list", "--agent", UNKNOWN), ("loop", "list", "--open"), ("tail", "--no-follow")]
    words += [
        ("tail", "--no-follow", "--since", "3600"),
        ("tail", "--no-follow", "--since", "-1"),
        ("events", "export"),
    ]
    words += [("events", "export", "job-done"), ("events", "export", UNKNOWN), ("monitor", "install", "--print")]
    for name in (*AGENTS, UNKNOWN):
        words += [("agent", "show", name), ("why", name), ("tail", "--no-follow", name)]
    for name in (*JOBS, UNKNOWN):
        words += [("job", "show", name), ("why", name), ("tail", "--no-follow", name), ("verify", name)]
        words += [("job", "wait", name, "--timeout", "0.1")]
    for name in (*LOOPS, UNKNOWN):
        words += [("loop", "show", name), ("why", name), ("verify", name)]
    words += [("why", name) for name in ("monitor", "broker", "tree-a", "tree-b", "loop_stuck", "blocked")]
    words += [("completion", shell) for shell in ("bash", "zsh", "fish", "tcsh")]
    words += [("names", kind) for kind in ("agents", "jobs", "loops", "worktrees", UNKNOWN)]
    made = [Case((*each, "--json")) for each in words]
    return made + [Case(each) for each in words if each[0] in ("status", "queue", "why", "verify", "completion")]


def _acting() -> list[Case]:
    """What changes the root, or is refused to."""
    words: list[tuple[str, ...]] = [("init",), ("init", "--moved"), ("init", "--copied"), ("init", "--guard")]
    words += [("init", "--unguard"), ("init", "--guard", "--unguard"), ("up",), ("down",), ("doctor", "--fix")]
    words += [("registry", verb) for verb in ("backup", "rebuild", "export", "import")]
    words += [("registry", "import", UNKNOWN), ("monitor", "uninstall"), ("events", "replay", UNKNOWN)]
    for name in ("writer", "mute", "left", UNKNOWN):
        words += [("agent", "stop", name), ("agent", "stop", name, "--force"), ("agent", "stop", name, "--purge")]
        words.append(("agent", "attach", name))
    words += [("agent", "send", name, "hello") for name in ("left", UNKNOWN)]
    words += [("agent", "resume", UNKNOWN)]
    words += [("agent", "stop", "writer", "--cwd", "/tmp"), ("agent", "resume", "left", "--cwd", "/tmp")]
    for each in (
        ("x", "--agent", UNKNOWN),
        ("writer", "--agent", "scripted"),
        ("x", "--agent", "scripted", "--mux", "no"),
    ):
        words.append(("agent", "create", *each))
    words += [("agent", "create", "a b", "--agent", "scripted"), ("agent", "create", "--agent", "scripted")]
    words += [("agent", "create", "x", "--agent", "scripted", "--worktree", UNKNOWN)]
    for to in ("writer", "asker", "mute", UNKNOWN):
        words.append(("job", "delegate", "--to", to, "--brief", "-", "--id", "job-new"))
    words += [("job", "delegate", "--to", "writer", "--brief", "/no/such/file")]
    words += [("job", "delegate", "--to", "writer", "--brief", "-", "--id", "job-done")]
    words += [("job", "delegate", "--to", "writer", "--brief", "-", "--id", "a b")]
    words += [("job", "delegate", "--to", "writer", "--brief", "-", "--limit", "-1")]
    for name in (*JOBS, UNKNOWN):
        words += [("job", "cancel", name), ("job", "retry", name), ("job", "archive", name)]
    words += [("job", "answer", name, "a") for name in ("job-open", "job-done", UNKNOWN)]
    words += [("job", "answer", "job-open", "c"), ("job", "answer", "job-open", "a", "--question", UNKNOWN)]
    words += [("job", "archive"), ("job", "archive", "--older", "0d"), ("job", "archive", "--older", "long")]
    for name in (*LOOPS, UNKNOWN):
        words += [("loop", "cancel", name), ("loop", "archive", name)]
    words += [("loop", "resume", name) for name in (PASSED, UNKNOWN)]
    words += [("loop", "archive"), ("loop", "archive", "--older", "0d"), ("loop", "archive", "--older", "long")]
    run = ("loop", "run", "--task", "-", "--review-only")
    words += [(*run, "--reviewers", "rev-a", "--worktree", tree) for tree in ("tree-b", "tree-c", UNKNOWN)]
    words += [(*run, "--reviewers", UNKNOWN, "--worktree", "tree-b"), (*run, "--pick", "0", "--worktree", "tree-b")]
    words += [(*run, "--pick", "9", "--worktree", "tree-b"), (*run, "--reviewers", "rev-a")]
    words += [("worktree", "prepare", name, "--no-venv") for name in ("tree-a", "fresh", "a b", "../x")]
    words += [("worktree", "prepare", "fresh", "--no-venv", "--base", UNKNOWN)]
    words += [("worktree", "prepare", "fresh", "--no-venv", "--setup", "exit 3")]
    for name in ("tree-a", "tree-b", "tree-c", "tree-d", UNKNOWN):
        words += [("worktree", "remove", name), ("worktree", "commit", name, "-m", "all of it")]
    words += [("worktree", "remove", "tree-a", "--stop"), ("worktree", "remove", "tree-b", "--purge")]
    words += [("worktree", "commit", "tree-a", "-m", "x", "--expect", "0" * 40)]
    return [Case((*each, "--json"), acts=True, stdin="text\n") for each in words]


def _agents_own() -> list[Case]:
    """What an agent says in the middle of a job, with the words of its prompt."""
    words: list[tuple[str, ...]] = [("started",), ("started", "--heartbeat", "0"), ("heartbeat",), ("ask", "which?")]
    words += [("progress", "--note", "half"), ("progress", "--note", "half", "--percent", "101"), ("progress",)]
    words += [("ask", "which?", "--no-wait"), ("ask", "which?", "--timeout", "1"), ("report", "--result", "done")]
    words += [("ask", "which?", "--timeout", "1", "--default", "a"), ("report", "--result", "perhaps")]
    words += [
        ("report", "--result", "done", "--file", "/no/such/file"),
        ("report", "--result", "done", "--verdict", "pass"),
    ]
    made = []
    for verb, *more in words:
        for job, attempt in (("job-open", "1"), ("job-open", "7"), (UNKNOWN, "1")):
            if (verb, *more) == ("ask", "which?") and job == "job-open":
                continue  # it would wait for an answer
            where = ("--registry-dir", "@PLACE@/repo/.mam/jobs", "--job", job, "--attempt", attempt)
            made.append(Case(("job", verb, *more, *where, "--json"), acts=True))
        made.append(Case(("job", verb, *more, "--json")))
    return made
