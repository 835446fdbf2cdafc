"""Real git repositories for tests."""

import subprocess
from pathlib import Path


def git(cwd: Path, *words: str) -> str:
    """Run git as a test's own user and return what it printed; fails where git does."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *words], cwd=cwd, capture_output=True, check=True)
    return done.stdout.decode("utf-8", "surrogateescape").strip()


def repository(path: Path) -> Path:
    """A real repository with one commit."""
    path.mkdir(parents=True)
    git(path, "init", "-q")
    (path / "README").write_text("a project\n", "utf-8")
    git(path, "add", ".")
    git(path, "commit", "-qm", "first")
    return path
