"""`.mam/loops/ID/`: what a person reads of a loop, as plain files; the rows are the truth."""

from datetime import UTC, datetime
from pathlib import Path

from mam.broker.errors import FileRefused
from mam.broker.host import atomic_files
from mam.broker.host.atomic_files import Durability, write_json
from mam.broker.host.text import clean_lines
from mam.control_plane.config.settings import Settings
from mam.control_plane.jobs import reports
from mam.control_plane.loops.state import LoopState, Round
from mam.control_plane.registry.records import Loop


def note(loop: Loop, text: str) -> None:
    """One line of the timeline, with the time in UTC."""
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    with (Path(loop.folder) / "timeline.md").open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"- {at}Z {' '.join(text.split())}\n")


def round_folder(loop: Loop, number: int) -> Path:
    path = Path(loop.folder) / f"round-{number}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def verdict_file(loop: Loop, number: int, reviewer: str) -> Path:
    """Where a reviewer's verdict of a round lies, or will lie."""
    return Path(loop.folder) / f"round-{number}" / f"verdict-{reviewer}.md"


def identity(loop: Loop, at: Round) -> None:
    """What every verdict of a round is bound to."""
    content = _triple(loop, at) | {"round": at.number, "worktree": loop.worktree, "branch": loop.branch}
    content |= {"branch_tip": at.tip, "snapshot": at.captured}
    write_json(round_folder(loop, at.number) / "identity.json", content)


def other_identity(loop: Loop, at: Round) -> str:
    """What the round's identity.json says that is not what the loop was about; empty where it says the same."""
    path = round_folder(loop, at.number) / "identity.json"
    said = atomic_files.read(path)
    other = {name: said.get(name) for name, value in _triple(loop, at).items() if said.get(name) != value}
    return f"{path} says {other}" if other else ""


def _triple(loop: Loop, at: Round) -> dict[str, object]:
    return {"loop_id": loop.id, "base_sha": at.base, "head_sha": at.head}


def verdict(loop: Loop, at: Round, reviewer: str, said: str | None, why: str, report: Path) -> None:
    """A reviewer's verdict with its identity above its report's own words."""
    lines = [f"# {reviewer}: {said or 'no verdict'}", "", f"loop {loop.id}, round {at.number}"]
    lines += [f"base {at.base}", f"head {at.head}"]
    lines += [f"does not count: {why}"] if why else []
    text = report.read_text("utf-8", "replace") if report.is_file() else "(no report)"
    round_folder(loop, at.number)
    path = verdict_file(loop, at.number, reviewer)
    content = "\n".join([*lines, "", text]).encode("utf-8", "replace")
    atomic_files.write(path, content, Durability.FILE, point="verdict.rename")


def remarks(loop: Loop, number: int, reviewer: str, *, lines: int) -> list[str]:
    """What a reviewer reported in a round, as at most *lines* lines that a terminal may show; none before it did."""
    found = reports.content(verdict_file(loop, number, reviewer))
    head, _, text = (found or b"").decode("utf-8", "replace").partition("\nhead ")
    return clean_lines(text.partition("\n\n")[2], lines=lines) if head else []


def superseded(loop: Loop, at: Round) -> None:
    """Mark the verdicts of a round whose commit is no longer what the worktree holds."""
    text = f"the worktree moved on from {at.head}: these verdicts count for that commit alone\n"
    path = round_folder(loop, at.number) / "SUPERSEDED"
    atomic_files.write(path, text.encode(), Durability.FILE, point="verdict.rename")


def archive_report(loop: Loop, number: int, session: str, report: Path, settings: Settings, mam_folder: Path) -> Path:
    """A copy of a report below the declared root: MAM_REPORTS_ROOT, else `.mam`. Raises FileRefused."""
    root = settings.path("MAM_REPORTS_ROOT") or mam_folder
    target = root / ".agents" / "reports" / session / f"{loop.id}-round-{number}.md"
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_files.write(target, report.read_bytes(), Durability.FILE, point="verdict.rename")
    except OSError as error:
        hint = "make it writable, or set MAM_REPORTS_ROOT"
        raise FileRefused(path=str(target), why=error.strerror or str(error), hint=hint) from error
    return target


def summary(loop: Loop, state: LoopState) -> None:
    """loop.json: the whole state, and the table of rounds for people beside it."""
    content: dict[str, object] = {"loop_id": loop.id, "title": loop.title, "worktree": loop.worktree}
    content |= {"branch": loop.branch, "phase": state.phase, "outcome": state.outcome, "detail": state.detail}
    rounds = [
        {"round": each.number, "base_sha": each.base, "head_sha": each.head, "snapshot": each.captured,
         "stale": each.stale, "verdicts": {review.reviewer: review.verdict for review in each.reviews}}
        for each in state.rounds
    ]  # fmt: skip
    write_json(Path(loop.folder) / "loop.json", {**content, "promoted": state.promoted, "rounds": rounds})


def rounds_table(state: LoopState) -> list[list[str]]:
    """Rows for people: one a round."""
    rows = []
    for each in state.rounds:
        said = ", ".join(f"{review.reviewer} {review.verdict or '–'}" for review in each.reviews)
        mark = "superseded" if each.stale else "snapshot" if each.captured else "commit" if each.head else "-"
        rows.append([str(each.number), each.head[:12] or "-", mark, said or "-"])
    return rows


ROUNDS_HEADER = ("ROUND", "HEAD", "IS", "VERDICTS")
