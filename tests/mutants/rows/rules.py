"""Rules that hold between rooms: each was once held by no test that would have noticed."""

from tests.mutants.mutant import Mutant

_CREATE = "control_plane/control_root/create.py"
_CREATE_TESTS = "tests/control_plane/control_root/test_create.py"
_LAYOUT = "control_plane/config/layout.py"
_HOOKS = "wrappers/git/hooks.py"
_REMOVE = "control_plane/worktrees/remove.py"
_MONITOR = "control_plane/control_root/monitor_process.py"
_RUNTIME = "control_plane/sessions/runtime.py"
_WRITERS = "tests/control_plane/worktrees/test_writers.py"
_REMOVALS = "tests/control_plane/worktrees/test_remove.py"
_BINDING = "tests/control_plane/sessions/test_binding.py"

_EVERY_PLACE = f"{_CREATE_TESTS}::test_every_place_lies_below_the_control_root_from_whichever_directory_it_is_asked"
_NEVER_TAKEN_UP = f"{_CREATE_TESTS}::test_git_never_takes_up_the_control_root_nor_the_file_with_its_settings"
_BOUND = f"{_WRITERS}::TestPanes::test_a_creator_is_bound_to_the_main_checkout_and_starts_no_monitor"
_BINDING_OF_ROW = f"{_BINDING}::test_resume_takes_the_binding_of_the_row_and_not_of_the_caller"
_REMOVED = f"{_REMOVALS}::TestRemoving::test_it_stops_cancels_checks_records_and_removes_in_this_order"
_AWAY = f"{_REMOVALS}::TestRemoving::test_trees_on_a_disk_that_is_away_survive_whatever_happens_to_others"
_ONLY_1 = "tests/wrappers/git/test_hooks.py::test_only_the_value_1_allows_it"
_PURGED = "tests/control_plane/sessions/test_purge.py::test_only_the_sessions_own_conversation_goes"
_REALLY_WORKS = f"{_BINDING}::test_a_row_says_where_the_agent_really_works"

_TABLE = "tests/control_plane/sessions/test_binding.py::test_the_table_of_variables_in_the_docs_is_what_the_verbs_do"
_POOL = (
    "tests/control_plane/loops/test_reviewers.py::"
    "test_a_reviewer_of_another_kind_joins_the_pool_and_keeps_its_conversation_when_it_is_stopped"
)
_PROVEN = "tests/test_requirements.py::test_in_ci_a_line_is_proven_only_by_a_test_that_passed"


def _place(name: str, old: str, new: str) -> Mutant:
    return Mutant(
        f"place-{name}", "M1, M3: every place follows from the control root", _LAYOUT, old, new, (_EVERY_PLACE,)
    )


ROWS = (
    Mutant(
        "env-file-excluded",
        "M3, M35: `.mam.env` is excluded from git",
        _CREATE,
        'EXCLUDED = (".mam/", ".mam.env")',
        'EXCLUDED = (".mam/",)',
        (_NEVER_TAKEN_UP,),
    ),
    Mutant(
        "mam-excluded",
        "M3: `.mam` is excluded from git",
        _CREATE,
        'EXCLUDED = (".mam/", ".mam.env")',
        'EXCLUDED = (".mam.env",)',
        (_NEVER_TAKEN_UP,),
    ),
    _place(
        "jobs",
        'settings.path("MAM_JOBS_DIR") or mam / "jobs"',
        'settings.path("MAM_JOBS_DIR") or settings.cwd / "jobs"',
    ),
    _place(
        "logs", '("DELEGATE_JOB_LOGS_DIR") or mam / "logs"', '("DELEGATE_JOB_LOGS_DIR") or settings.cwd / ".mam/logs"'
    ),
    _place("sessions", '("AGENT_SESSIONS_YAML") or mam /', '("AGENT_SESSIONS_YAML") or settings.cwd / ".mam" /'),
    _place("env-file", '("MAM_ENV_FILE") or root / ".mam.env"', '("MAM_ENV_FILE") or settings.cwd / ".mam.env"'),
    _place("worktrees", '("MAM_WORKTREES_DIR") or beside(root)', '("MAM_WORKTREES_DIR") or beside(settings.cwd)'),
    Mutant(
        "monitor-binding",
        "M27, M44: a monitor that a verb starts gets all four binding variables",
        _MONITOR,
        "return {**kept, **mam.layout.binding()}",
        'return {**kept, "WORKSPACE_ROOT": str(mam.layout.root)}',
        (_BOUND,),
    ),
    Mutant(
        "monitor-directory",
        "M44: a monitor that a verb starts works in the main checkout",
        _MONITOR,
        "pid = process.spawn(argv, log, mam.layout.root, env=",
        "pid = process.spawn(argv, log, mam.settings.cwd, env=",
        (_BOUND,),
    ),
    Mutant(
        "pane-binding",
        "M27: a pane gets all four binding variables",
        _RUNTIME,
        "        **json.loads(session.binding),\n",
        '        "WORKSPACE_ROOT": str(layout.root),\n',
        (_BOUND,),
    ),
    Mutant(
        "pane-binding-tmux",
        "M29: a multiplexer server that lacks the variables still gives them to a pane",
        "wrappers/mux/tmux.py",
        "environ = {**self._env, **spec.env}",
        "environ = dict(self._env)",
        (f"{_BOUND}[tmux]",),
    ),
    Mutant(
        "resume-binding",
        "M28: resume gives the pane the binding of the row",
        _RUNTIME,
        "        **json.loads(session.binding),\n",
        "        **layout.binding(),\n",
        (_BINDING_OF_ROW,),
    ),
    Mutant(
        "resume-log",
        "M28: a runner's log directory comes from the record on resume",
        _RUNTIME,
        'Path(json.loads(session.binding)["DELEGATE_JOB_LOGS_DIR"])',
        "mam.layout.logs",
        (_BINDING_OF_ROW,),
    ),
    Mutant(
        "no-prune",
        "M48: no global `git worktree prune` after a failed removal",
        _REMOVE,
        "        except (MamError, OSError):\n            if dotgit",
        "        except (MamError, OSError):\n"
        '            git.act(mam.layout.root, "worktree", "prune")\n            if dotgit',
        (_AWAY,),
    ),
    Mutant(
        "no-prune-after",
        "M48: no global `git worktree prune` after a removal",
        _REMOVE,
        "        _finish(mam, row, sessions, purge=purge)\n",
        '        _finish(mam, row, sessions, purge=purge)\n        git.act(mam.layout.root, "worktree", "prune")\n',
        (_AWAY,),
    ),
    Mutant(
        "removed-conversation",
        "M46: a removal records which conversation lived there",
        _REMOVE,
        "{session.name} {session.conversation or '(no conversation)'}",
        "{session.name}",
        (_REMOVED,),
    ),
    Mutant(
        "removed-head",
        "M46: a removal records the commit that was there",
        _REMOVE,
        'state="removing", head_sha=head, detail',
        'state="removing", head_sha=row.base_sha, detail',
        (_REMOVED,),
    ),
    Mutant(
        "removed-busy",
        "M45: nothing is removed while a job runs",
        _REMOVE,
        "        if job is not None or (session is not None and session.status in LIVE):\n",
        "        if False:\n",
        (_REMOVED,),
    ),
    Mutant(
        "purged-conversation",
        "M53: a purge records the conversation",
        "control_plane/sessions/lifecycle.py",
        '"conversation": session.conversation, "cwd"',
        '"conversation": None, "cwd"',
        (_PURGED,),
    ),
    Mutant(
        "allow-commit",
        "M8: only MAM_ALLOW_MAIN=1 passes the guard of commits",
        _HOOKS,
        '[ "${{{ALLOW}:-}}" = 1 ] && exit 0\nif [ "$(git rev-parse',
        '[ -n "${{{ALLOW}:-}}" ] && exit 0\nif [ "$(git rev-parse',
        (_ONLY_1,),
    ),
    Mutant(
        "allow-move",
        "M8: only MAM_ALLOW_MAIN=1 passes the guard of the branch",
        _HOOKS,
        '[ "${{{ALLOW}:-}}" = 1 ] && exit 0\ncase',
        '[ -n "${{{ALLOW}:-}}" ] && exit 0\ncase',
        (_ONLY_1,),
    ),
    Mutant(
        "workspace-below",
        "M33, M51: `--workspace` below a tree's top is the pane's directory",
        "control_plane/sessions/sessions.py",
        "cwd=str(cwd),",
        'cwd=str(next((each for each in (cwd, *cwd.parents) if (each / ".git").exists()), cwd)),',
        (_REALLY_WORKS,),
    ),
    Mutant(
        "stop-conversation",
        "M53, M101: a stopped agent keeps its conversation",
        "control_plane/sessions/lifecycle.py",
        'status="stopped", ended_reason="stopped", presence=None',
        'status="stopped", ended_reason="stopped", conversation=None, presence=None',
        (_POOL,),
    ),
    Mutant(
        "pool-kind",
        "M101: a reviewer of any kind joins the pool",
        "control_plane/loops/reviewers.py",
        'if s.status in LIVE and role in s.role.split(",")',
        'if s.status in LIVE and role in s.role.split(",") and s.agent != "opencode"',
        (_POOL,),
    ),
    Mutant(
        "proof-skipped",
        "M109: a skipped test proves no line",
        "tests/proof.py",
        'report.when == "call" and report.passed and',
        'report.when == "call" and not report.failed and',
        (_PROVEN,),
    ),
    Mutant(
        "proof-fails",
        "M109: in CI a line without a proof fails the run",
        "tests/proof.py",
        "            session.exitstatus = pytest.ExitCode.TESTS_FAILED\n",
        "            pass\n",
        (_PROVEN,),
    ),
    Mutant(
        "table-loop",
        "M31: the table of variables and verbs is what the verbs do, `loop run` as well",
        "docs/architecture.md",
        "| `mam loop run` | yes | yes | yes | yes |",
        "| `mam loop run` | yes | yes | yes | – |",
        (_TABLE,),
    ),
    Mutant(
        "table-jobs",
        "M30, M31: a job lies where MAM_JOBS_DIR says",
        "control_plane/jobs/delegate.py",
        "folder = mam.layout.jobs / job_id",
        'folder = mam.layout.mam / "jobs" / job_id',
        (_TABLE,),
    ),
    Mutant(
        "table-compares",
        "M30, M31: stop and resume compare each variable with the row",
        "control_plane/sessions/runtime.py",
        "    for name in BINDING:\n        asked",
        "    for name in BINDING[:-1]:\n        asked",
        (_TABLE,),
    ),
)
