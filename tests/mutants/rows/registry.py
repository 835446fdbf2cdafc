"""The registry's rules."""

from tests.mutants.mutant import Mutant

_TX, _TX_TESTS = "control_plane/registry/transactions.py", ("tests/control_plane/registry/test_transactions.py",)
_AUDIT, _AUDIT_TESTS = "control_plane/registry/audit.py", ("tests/control_plane/registry/test_audit.py",)
_REBUILD, _REBUILD_TESTS = "control_plane/registry/rebuild.py", ("tests/control_plane/registry/test_rebuild.py",)


def _tx(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(f"registry-{name}", rule, _TX, old, new, _TX_TESTS)


def _audit(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(f"audit-{name}", rule, _AUDIT, old, new, _AUDIT_TESTS)


def _rebuild(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(f"rebuild-{name}", rule, _REBUILD, old, new, _REBUILD_TESTS)


ROWS = (
    _tx(
        "lock",
        "M89: one writer at a time",
        "            locks.take(descriptor, self._lock, LOCK_WAIT_S)\n",
        "            pass\n",
    ),
    _tx(
        "rollback",
        "a raise leaves everything as it was",
        'connection.execute("ROLLBACK")',
        'connection.execute("COMMIT")',
    ),
    _tx(
        "audited-drop",
        "what is removed is audited",
        "            audit.add_entry(self.connection, self._by, row.table, row.key_text(), None)",
        "            pass",
    ),
    _tx(
        "audited-put",
        "what is written is audited",
        "        audit.add_entry(self.connection, self._by, row.table, row.key_text(), content)",
        "        del content",
    ),
    _tx(
        "savepoint",
        "what fails in a savepoint is undone",
        'self.connection.execute("ROLLBACK TO one")',
        "pass",
    ),
    _tx(
        "savepoint-cache",
        "rows that a savepoint took back are read anew",
        "            self._rows.clear()\n",
        "",
    ),
    _tx("private", "a backup is private", "target.chmod(0o600)", "target.chmod(0o644)"),
    Mutant(
        "registry-made-twice",
        "the second of two that make a registry finds it made",
        _TX,
        "            if self.path.exists():\n                return\n",
        "",
        (
            "tests/control_plane/control_root/test_create.py::"
            "test_the_fingerprint_is_drawn_once_and_survives_a_second_init",
        ),
    ),
    _audit("torn", "a torn last line is cut off", "if end < path.stat().st_size:", "if False:"),
    _audit(
        "half",
        "a disk that takes half a line leaves none",
        "os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)",
        "pass",
    ),
    Mutant(
        "audit-chain",
        "a changed byte breaks the chain",
        _AUDIT,
        'damage = "" if link(before, text) == seen else "its chain value does not fit"',
        'damage = ""',
        (f"{_REBUILD_TESTS[0]}::test_a_flipped_byte_is_named_by_its_line_and_passed_only_when_told",),
    ),
    _audit(
        "kept",
        "a log that was edited is kept aside",
        'shutil.copy2(path, path.with_name(f"{path.name}.damaged-{now_ms()}"))',
        "pass",
    ),
    _audit(
        "position",
        "a position that is not this log's own is not believed",
        'if not before.endswith(b"\\n") or last.decode("ascii", "replace") != chain:',
        'if not before.endswith(b"\\n"):',
    ),
    _rebuild(
        "monitor",
        "nothing is rebuilt under a running monitor",
        "held.enter_context(locks.hold(layout.monitor_lock, wait_s=0.5))",
        "pass",
    ),
    _rebuild(
        "writers",
        "nothing is rebuilt while others write",
        "        held.enter_context(writers)\n",
        "        del writers\n",
    ),
    _rebuild("damage", "a damaged line is named", "            if not past_damage:\n", "            if False:\n"),
    _rebuild(
        "salvage",
        "what only the old database held is taken over",
        "        for entry in _left_in(path, replay):",
        "        for entry in ():",
    ),
    _rebuild(
        "whole",
        "what is set aside is the database with its log",
        'for suffix in ("-wal", "-shm", "") if',
        'for suffix in ("",) if',
    ),
    _rebuild("archived", "archived jobs keep no events", "archived_at IS NOT NULL)", "archived_at IS NULL AND 0)"),
    _rebuild(
        "others",
        "a damaged line takes no other job away",
        "            self._end_others(table, content)\n",
        "            return\n",
    ),
    _rebuild(
        "empty",
        "an empty log is not taken for a registry",
        "    if not replay.rows:\n",
        "    if False:\n",
    ),
)
