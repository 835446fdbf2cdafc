"""Lines of the contract whose tests were weak: documents, environments, file systems, roots of loops, the opt-out."""

from tests.mutants.mutant import Mutant

_DOCUMENTS = ("tests/control_plane/worktrees/test_documents.py",)
_OWN_ENVIRONMENT = (
    "tests/control_plane/worktrees/test_prepare.py::TestPreparing::"
    "test_an_environment_that_was_linked_from_elsewhere_is_replaced_by_one_of_the_trees_own",
)
_OPT_OUT = (
    "tests/control_plane/monitor/test_one_monitor.py::"
    "test_the_opt_out_is_respected_by_every_verb_that_starts_a_monitor",
)
_FILE_SYSTEMS = ("tests/control_plane/config/test_filesystems.py",)
_LOOP_RUN = "tests/control_plane/loops/test_run.py"
_WHAT_CHANGES = (f"{_LOOP_RUN}::test_the_worktree_changes_what_is_reviewed_and_nothing_else",)
_NO_WORKTREE = (f"{_LOOP_RUN}::test_what_is_no_worktree_of_this_repository_is_refused_with_a_reason",)
_ELSEWHERE = (f"{_LOOP_RUN}::test_a_creator_that_works_elsewhere_and_the_main_checkout_for_a_writer_are_refused",)

_SUITES = {
    "inherits": "tests/test_isolation.py::test_a_suite_that_inherits_a_production_binding_adds_nothing_to_it",
    "in-a-pane": "tests/test_isolation.py::test_the_suite_passes_inside_a_pane_with_the_binding_set",
    "of-a-creator": (
        "tests/control_plane/test_acceptance.py::"
        "test_a7_a_suite_that_runs_in_a_creators_pane_adds_nothing_to_the_registry"
    ),
}


def _text(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(f"docs-{name}", rule, "docs/loops.md", old, new, _DOCUMENTS)


def _start(name: str, rule: str, old: str, new: str, tests: tuple[str, ...]) -> Mutant:
    return Mutant(f"start-{name}", rule, "control_plane/loops/start.py", old, new, tests)


ROWS = (
    _text("shared", "M10: what worktrees share is named", "share refs, configuration, hooks", "share refs, hooks"),
    _text("not-shared", "M10: only what they share is named", "store and stashes;", "store, indexes and stashes;"),
    _text(
        "read-only",
        "M10: reviewers are not read-only by nature",
        "nothing but the check afterwards makes",
        "this makes",
    ),
    _text(
        "isolation", "M10: it is not called complete isolation", "even that is not complete", "even that is complete"
    ),
    _text("estimates", "M10: costs are called estimates", "are estimates;", "are measured;"),
    _text("chosen", "M11: what was chosen is said", "MAM is C with D,", "MAM is B with D,"),
    _text("weighed", "M11: each alternative is weighed", "| gives no parallel work |", "| – |"),
    _text(
        "boundary", "M12: central state is no security boundary", "is not a security boundary", "is a security boundary"
    ),
    Mutant(
        "keys-readable",
        "M12: the documents are right about keys",
        "docs/loops.md",
        "processes of one user can read",
        "processes of one user cannot read",
        _DOCUMENTS,
    ),
    Mutant(
        "venv-own",
        "M40: an environment is the tree's own, never a link",
        "control_plane/worktrees/provision.py",
        "        target.unlink()  # a shared",
        "        pass  # a shared",
        _OWN_ENVIRONMENT,
    ),
    Mutant(
        "venv-extras",
        "M40: what a project's tests need is installed",
        "control_plane/worktrees/provision.py",
        '["-e", f".[{\',\'.join(extras)}]" if extras else "."]',
        '["-e", "."]',
        _OWN_ENVIRONMENT,
    ),
    Mutant(
        "opt-out",
        "M92: the opt-out is respected by every starter",
        "control_plane/control_root/monitor_process.py",
        "    if found is None and mam.settings.no_daemon:\n",
        "    if False:\n",
        _OPT_OUT,
    ),
    Mutant(
        "nfs-loops",
        "M79: a loop's lock on a network file system is refused",
        "control_plane/loops/locks.py",
        "    filesystems.check(mam.layout.loops)\n",
        "",
        _FILE_SYSTEMS,
    ),
    Mutant(
        "nfs-root",
        "M79: a control root on a network file system is refused",
        "control_plane/control_root/create.py",
        "    filesystems.check(layout.mam)\n",
        "",
        _FILE_SYSTEMS,
    ),
    Mutant(
        "nfs-kinds",
        "M79: each network file system is refused",
        "control_plane/config/filesystems.py",
        '"afs", ',
        "",
        _FILE_SYSTEMS,
    ),
    Mutant(
        "loop-lock",
        "M76, M79: a living holder of a loop's lock keeps it",
        "control_plane/loops/locks.py",
        "            stack.enter_context(locks.hold(_lock(mam, loop_id), wait_s=0.5))\n",
        "            _lock(mam, loop_id).touch()\n",
        _FILE_SYSTEMS,
    ),
    _start(
        "folder",
        "M2, M21, M87: a loop's own files stay with the control root",
        "folder=str(mam.layout.loops / loop_id),",
        'folder=str(tree / ".mam" / "loops" / loop_id),',
        _WHAT_CHANGES,
    ),
    _start(
        "top",
        "M21, M87: below a tree's top the tree is reviewed",
        "    return top.resolve()\n",
        "    return path.resolve()\n",
        _WHAT_CHANGES,
    ),
    _start(
        "bare",
        "M26: a bare repository is refused as one",
        "    if dotgit.is_bare_folder(path):\n",
        "    if False:\n",
        _NO_WORKTREE,
    ),
    _start(
        "other",
        "M26: a worktree of another repository is refused",
        "    if dotgit.shared_dir(top) != dotgit.shared_dir(mam.layout.root):\n",
        "    if False:\n",
        _NO_WORKTREE,
    ),
    _start(
        "main",
        "M26: the main checkout is no writer's",
        "    if not review_only and top.resolve() == mam.layout.root.resolve():\n",
        "    if False:\n",
        _ELSEWHERE,
    ),
    _start(
        "creator",
        "M26: a creator that works elsewhere is refused",
        "        if name == wish.creator and Path(session.cwd).resolve() != tree.resolve():\n",
        "        if False:\n",
        _ELSEWHERE,
    ),
    *(
        Mutant(
            f"suite-scrubbed-{name}",
            "M73, M106, M107: a test inherits nothing of the control plane that it is run by",
            "tests/conftest.py",
            'if name in AMBIENT or name.startswith(("MAM_", "GIT_", "GROK_", "XAI_")):',
            'if name.startswith(("GIT_", "GROK_", "XAI_")):',
            (test,),
        )
        for name, test in _SUITES.items()
    ),
)
