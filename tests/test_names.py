"""One word, one meaning: a public name is defined once, or stands here with the reason why it may be defined twice."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from mam.agents.protocol import AgentCli, KeepsConversations, SeesDrafts, TakesPermissions

TOP = Path(__file__).parents[1]
ROOMS = ("broker", "agents", "wrappers", "control_plane")

# Functions that are always called by their module's name, which says what they are about.
TWICE = {
    "act": "git.act changes a repository; job_checks.act writes down what a look found",
    "alive": "of a process (process_identity), of an agent's runner (runtime)",
    "alone": "one verb at a time on one worktree (prepare), on one agent (runtime)",
    "archive": "the verb of jobs and of loops",
    "ask": "git.ask is a question to git; questions.ask one of an agent; leases.ask one for a lease",
    "await_end": "of a job, of a loop",
    "begin": "of a loop's record (start), of the whole verb (run)",
    "cancel": "the verb of jobs, of loops, and the step of the job's state machine",
    "check": "each module's own precondition; it raises that module's error",
    "delivery": "a step of the job's machine; a benchmark",
    "choose": "a multiplexer (catalog), a verb (cli), reviewers",
    "create": "a key (keys), an agent (sessions)",
    "events": "a topic (topics), a benchmark (monitor)",
    "exit_code": "of a job, of a loop",
    "find": "an adapter by kind, a worktree by path, the job that an agent's verb speaks of",
    "findings": "what the monitor found in the repository; their explanation",
    "folder": "of a job's answers, of a review tree",
    "holder": "of a lock, of a branch",
    "install": "hooks, a database, a service",
    "job": "a topic (topics), an explanation (agents_and_jobs)",
    "load": "a spool's entry, a key, the settings",
    "look": "each module's own look at the world; it changes nothing",
    "loop": "an explanation, a benchmark",
    "main": "what a console script or an internal verb calls",
    "make": "a multiplexer, a control root",
    "moved": "what moved in a worktree; the verb of a control root that moved",
    "need": "the record by its name, or that noun's Unknown… error",
    "new_id": "of an event, of a loop",
    "of": "the identity of a process; the verdict of a report",
    "overdue": "questions, jobs",
    "parse": "a topic; an impairment",
    "pending": "entries of a spool; orders of a loop",
    "place": "a loop's worktree in words; an explanation; a benchmark's control root",
    "place_of": "a worktree's top; an agent's seat",
    "presence": "a topic; a step of the session's state machine",
    "probe": "a topic; the verb",
    "queue": "the order of tickets; free text for an agent",
    "read": "a file of the module's own kind",
    "resume": "the verb of agents and of loops",
    "run": "a program (process); a verb's entry in cli; a simulation",
    "said": "verdicts in a report; an agent's verb that has spoken",
    "session": "an explanation; a lease's resource",
    "set_aside": "a log, a report",
    "settle": "events of a spool; tickets",
    "step": "of the job's machine, of the loop's machine",
    "stop": "the broker; an agent",
    "take": "a lock; an edited file; a snapshot of status or queue",
    "uninstall": "hooks, a service",
    "write": "a file of the module's own kind",
}


def definitions() -> Iterator[tuple[str, str, bool]]:
    """Public name, module, and whether it is a class; at the top of modules alone."""
    protocol = set(AgentCli.__annotations__)
    for each in (AgentCli, KeepsConversations, SeesDrafts, TakesPermissions):
        protocol |= {name for name in dir(each) if not name.startswith("_")}
    for room in ROOMS:
        for path in sorted((TOP / room).rglob("*.py")):
            for node in ast.parse(path.read_text("utf-8")).body:
                for name, is_class in _named(node):
                    of_the_protocol = room == "agents" and name in protocol
                    if not name.startswith("_") and not of_the_protocol:
                        yield name, str(path.relative_to(TOP)), is_class


def _named(node: ast.stmt) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        yield node.name, isinstance(node, ast.ClassDef)
    elif isinstance(node, ast.Assign | ast.AnnAssign):  # an alias of a type is named like a class
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        yield from ((name, True) for name in names if name[:1].isupper() and not name.isupper())


def places() -> dict[tuple[str, bool], list[str]]:
    found: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for name, module, is_class in definitions():
        found[name, is_class].append(module)
    return found


def test_a_class_or_a_named_type_is_defined_once() -> None:
    twice = {name: modules for (name, is_class), modules in places().items() if is_class and len(modules) > 1}

    assert twice == {}
    assert len(places()) > 500  # or the search above has lost what it looks for


def test_a_function_that_is_defined_twice_is_listed_with_its_reason() -> None:
    twice = {name: modules for (name, is_class), modules in places().items() if not is_class and len(modules) > 1}

    assert {name: modules for name, modules in twice.items() if name not in TWICE} == {}


def test_the_list_names_nothing_that_is_defined_once() -> None:
    counted = {name: len(modules) for (name, is_class), modules in places().items() if not is_class}

    assert sorted(name for name in TWICE if counted.get(name, 0) < 2) == []
