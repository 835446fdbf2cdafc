"""
The registry's schema: one migration a version, applied in order (schema.py does). One that was released never changes.

A migration is SQL, and a function where rows must be made of rows. Both are used twice: on a database of before, and
by `mam registry rebuild` on what the audit log holds of before. So neither may look at anything but the database.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Convert = Callable[[str, dict[str, Any]], list[tuple[str, dict[str, Any]]]]


class Migration(NamedTuple):
    """
    One step from a schema to the next.

    Args:
        sql: Statements that each end their line with `;`. They change tables, and rows where SQL says all of it.
        convert: A pure function of a table's name and one row from before *sql*, for every row but those of `events`
            and `audit`. It returns what the row becomes, as (table, row) in the new schema: itself where nothing
            changes, nothing where it goes. A column that it leaves out keeps the value that *sql* gave it. Of two
            rows with one key the later counts. What it changes is audited; what *sql* alone changes is not.
    """

    sql: str
    convert: Convert | None = None


MIGRATIONS: tuple[Migration, ...] = (
    Migration("""
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE sessions (
        name TEXT PRIMARY KEY, agent TEXT NOT NULL, role TEXT NOT NULL, status TEXT NOT NULL,
        generation INTEGER NOT NULL, incarnation TEXT NOT NULL, mux TEXT NOT NULL, mux_server TEXT NOT NULL,
        pane TEXT NOT NULL, cwd TEXT NOT NULL, program TEXT NOT NULL, args TEXT NOT NULL, binding TEXT NOT NULL,
        conversation TEXT, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, pid INTEGER, pid_start TEXT,
        boot_id TEXT, agent_pid INTEGER, agent_start TEXT, version TEXT, presence TEXT, screen TEXT,
        screen_text TEXT, screen_at INTEGER, ended_reason TEXT, exit_code INTEGER
    ) STRICT;
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY, topic_prefix TEXT NOT NULL, title TEXT NOT NULL, session TEXT NOT NULL,
        state TEXT NOT NULL, attempt INTEGER NOT NULL, folder TEXT NOT NULL, brief_sha256 TEXT NOT NULL,
        started_within_s REAL NOT NULL, deliver_within_s REAL NOT NULL, limit_s REAL NOT NULL,
        heartbeat_misses INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
        ended_at INTEGER, result TEXT, verdict TEXT, late INTEGER NOT NULL, detail TEXT, summary TEXT,
        report_sha256 TEXT, report_bytes INTEGER, archived_at INTEGER
    ) STRICT;
    -- One busy job a session: the database refuses the second one, however many processes try.
    CREATE UNIQUE INDEX one_open_job ON jobs (session)
        WHERE state IN ('queued', 'waiting_local_directory', 'dispatched', 'running');
    CREATE INDEX jobs_by_state ON jobs (state);
    CREATE TABLE attempts (
        job TEXT NOT NULL, attempt INTEGER NOT NULL, session TEXT NOT NULL, created_at INTEGER NOT NULL,
        delivery TEXT, delivery_reason TEXT, delivery_evidence TEXT, delivered_at INTEGER, received_at INTEGER,
        started_at INTEGER, heartbeat_s REAL, last_heartbeat_at INTEGER, last_progress_at INTEGER, last_note TEXT,
        ended_at INTEGER, PRIMARY KEY (job, attempt)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, arrived_at INTEGER NOT NULL, id TEXT NOT NULL, topic TEXT NOT NULL,
        scope TEXT NOT NULL, kind TEXT NOT NULL, attempt INTEGER NOT NULL, producer TEXT NOT NULL,
        slot INTEGER NOT NULL, wire_sha256 TEXT NOT NULL, outcome TEXT NOT NULL, wire BLOB NOT NULL
    ) STRICT;
    -- A slot is used once; what comes again in it is a duplicate or an equivocation.
    CREATE UNIQUE INDEX one_event_a_slot ON events (scope, attempt, producer, slot);
    CREATE TABLE outbox (
        id TEXT PRIMARY KEY, session TEXT NOT NULL, kind TEXT NOT NULL, job TEXT NOT NULL, attempt INTEGER NOT NULL,
        incarnation TEXT, data TEXT NOT NULL, created_at INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE findings (
        code TEXT NOT NULL, subject TEXT NOT NULL, since INTEGER NOT NULL, text TEXT NOT NULL,
        PRIMARY KEY (code, subject)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE audit (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, by TEXT NOT NULL, tbl TEXT NOT NULL,
        key TEXT NOT NULL, row TEXT
    ) STRICT;
    """),
    Migration("""
    ALTER TABLE jobs ADD COLUMN loop TEXT;
    ALTER TABLE jobs ADD COLUMN round INTEGER;
    ALTER TABLE jobs ADD COLUMN base_sha TEXT;
    ALTER TABLE jobs ADD COLUMN head_sha TEXT;
    ALTER TABLE jobs ADD COLUMN seen_sha TEXT;
    CREATE TABLE worktrees (
        name TEXT PRIMARY KEY, path TEXT NOT NULL, branch TEXT NOT NULL, base_sha TEXT NOT NULL, state TEXT NOT NULL,
        new_branch INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, head_sha TEXT,
        detail TEXT
    ) STRICT;
    -- One work tree a path and one a branch, among those that are there.
    CREATE UNIQUE INDEX one_worktree_a_path ON worktrees (path) WHERE state <> 'removed';
    CREATE UNIQUE INDEX one_worktree_a_branch ON worktrees (branch) WHERE state <> 'removed';
    CREATE TABLE loops (
        id TEXT PRIMARY KEY, state TEXT NOT NULL, generation INTEGER NOT NULL, worktree TEXT NOT NULL,
        branch TEXT, base_sha TEXT NOT NULL, creator TEXT, reviewers TEXT NOT NULL, isolation TEXT NOT NULL,
        promote TEXT NOT NULL, remote TEXT, test_command TEXT, title TEXT NOT NULL, folder TEXT NOT NULL,
        checkpoint TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, head_sha TEXT,
        round INTEGER NOT NULL, outcome TEXT, detail TEXT, ended_at INTEGER, cancel_at INTEGER, archived_at INTEGER
    ) STRICT;
    CREATE TABLE steps (
        loop TEXT NOT NULL, step TEXT NOT NULL, state TEXT NOT NULL, at INTEGER NOT NULL, detail TEXT,
        PRIMARY KEY (loop, step)
    ) STRICT, WITHOUT ROWID;
    """),
    Migration("""
    ALTER TABLE jobs ADD COLUMN retries INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN hook TEXT;
    ALTER TABLE sessions ADD COLUMN hook_at INTEGER;
    ALTER TABLE loops ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
    -- token: how often the resource was given away; whoever holds an older one is fenced.
    CREATE TABLE leases (
        resource TEXT PRIMARY KEY, holder TEXT, token INTEGER NOT NULL, renewals INTEGER NOT NULL, ttl_s REAL NOT NULL,
        since INTEGER, usual_s REAL
    ) STRICT;
    CREATE TABLE tickets (
        id TEXT PRIMARY KEY, seq INTEGER NOT NULL, holder TEXT NOT NULL, names TEXT NOT NULL, pool TEXT NOT NULL,
        count INTEGER NOT NULL, priority INTEGER NOT NULL, ttl_s REAL NOT NULL, asked_at INTEGER NOT NULL,
        granted_at INTEGER, granted TEXT, renewals INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE questions (
        id TEXT PRIMARY KEY, job TEXT NOT NULL, attempt INTEGER NOT NULL, question TEXT NOT NULL, choices TEXT NOT NULL,
        asked_at INTEGER NOT NULL, timeout_s REAL, fallback TEXT, answered_at INTEGER, answer TEXT, answered_by TEXT
    ) STRICT;
    """),
    Migration("""
    -- What the monitor asks for again and again, over rows that only grow in number.
    CREATE INDEX attempts_of_session ON attempts (session, started_at);
    CREATE INDEX open_questions ON questions (job) WHERE answered_at IS NULL;
    CREATE INDEX open_loops ON loops (created_at) WHERE ended_at IS NULL;
    """),
)

VERSION = len(MIGRATIONS)
UNMARKED = 4  # the schema that a log begins with where it names none: MAM 0.1.0 wrote no mark
