"""`mam worktree commit`, and the guard of the main checkout."""

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import Root, git, repository, until
from tests.support.hidden_work import commit, write
from tests.support.worktree_verbs import creator, found, prepare, refused, text_of


def state_of(root: Root) -> dict[str, Any]:
    """What nothing that happens in worktrees may change in the main checkout."""
    hooks = root.path / ".git" / "hooks"
    return {
        "status": git(root.path, "status", "--porcelain=v2", "--ignored", "-z"),
        "HEAD": (root.path / ".git" / "HEAD").read_text(),
        "main": git(root.path, "rev-parse", "main"),
        "config": (root.path / ".git" / "config").read_bytes(),
        "index": hashlib.sha256((root.path / ".git" / "index").read_bytes()).hexdigest(),
        "hooks": {path.name: path.read_bytes() for path in sorted(hooks.iterdir())},
        "files": {p.name: p.read_bytes() for p in sorted(root.path.iterdir()) if p.is_file()},
    }


class TestCommitting:
    @pytest.mark.req("M6")
    def test_a_commit_lands_on_the_trees_own_branch_and_expected_head_only(self, root: Root) -> None:
        tree = prepare(root)
        head = git(tree, "rev-parse", "HEAD")
        write(tree / "a file.txt")
        before = state_of(root)

        sha = root.ok("worktree", "commit", "one", "-m", "Add a file", "--expect", head[:12])["commit"]

        assert git(tree, "log", "-1", "--format=%H %P %s") == f"{sha} {head} Add a file"
        assert git(root.path, "rev-parse", "one") == sha
        assert git(tree, "status", "--porcelain") == ""
        assert state_of(root) == before
        error = refused(root, "worktree", "commit", "one", "-m", "x", "--expect", head)
        assert error["code"] == "not_as_expected" and sha in error["message"]
        assert refused(root, "worktree", "commit", "one", "-m", "x", "--expect", "nothing")["code"] == "no_commit"
        assert refused(root, "worktree", "commit", "one", "-m", "x")["code"] == "nothing_to_commit"

    @pytest.mark.req("M6")
    @pytest.mark.parametrize(
        "switch", [["switch", "-qc", "other"], ["checkout", "-q", "--detach"], ["bisect", "start"]]
    )
    def test_a_tree_that_is_not_as_expected_is_not_committed_in(self, root: Root, switch: list[str]) -> None:
        tree = prepare(root)
        git(tree, *switch)
        write(tree / "file.txt")
        refs = git(root.path, "for-each-ref")

        error = refused(root, "worktree", "commit", "one", "-m", "x")

        assert error["code"] == "not_as_expected"
        assert git(root.path, "for-each-ref") == refs
        assert (tree / "file.txt").exists()

    @pytest.mark.req("M6", "M9")
    def test_a_branch_that_is_switched_under_a_commit_never_gets_it(self, root: Root, tmp_path: Path) -> None:
        tree = prepare(root)
        git(root.path, "branch", "other")
        write(tree / "file.txt")
        other = git(root.path, "rev-parse", "other")
        program = tmp_path / "signer"
        # Signing is the last thing that git runs before the new commit exists: a good moment to be switched.
        program.write_text(
            "#!/bin/sh\ngit symbolic-ref HEAD refs/heads/other\nprintf '\\n[GNUPG:] SIG_CREATED \\n' >&2\necho s\n"
        )
        program.chmod(0o755)
        git(root.path, "config", "commit.gpgSign", "true")
        git(root.path, "config", "gpg.program", str(program))

        error = refused(root, "worktree", "commit", "one", "-m", "x")

        assert error["code"] == "not_as_expected" and "other" in error["message"]
        assert git(root.path, "rev-parse", "other") == other == git(root.path, "rev-parse", "one")
        assert (tree / "file.txt").exists()

    @pytest.mark.req("M6")
    def test_a_commit_that_lands_meanwhile_is_not_thrown_off_the_branch(self, root: Root, tmp_path: Path) -> None:
        tree = prepare(root)
        write(tree / "file.txt")
        new = git(tree, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "of the creator")
        program = tmp_path / "signer"
        program.write_text(
            f"#!/bin/sh\ngit update-ref refs/heads/one {new}\nprintf '\\n[GNUPG:] SIG_CREATED \\n' >&2\necho s\n"
        )
        program.chmod(0o755)
        git(root.path, "config", "commit.gpgSign", "true")
        git(root.path, "config", "gpg.program", str(program))

        error = refused(root, "worktree", "commit", "one", "-m", "x")

        assert error["code"] == "not_as_expected"
        assert git(root.path, "rev-parse", "one") == new and (tree / "file.txt").exists()

    @pytest.mark.req("M9")
    def test_after_somebody_switched_the_main_checkout_nothing_lands_on_main_and_it_is_reported(
        self, root: Root
    ) -> None:
        tree = prepare(root)
        root.mam("up")
        before = git(root.path, "rev-parse", "main")

        git(root.path, "switch", "-qc", "feature/20-x")  # as another process did
        commit(tree, "creator.txt")
        write(tree / "orchestrator.txt")
        root.ok("worktree", "commit", "one", "-m", "orchestrator")
        git(tree, "switch", "-q", "main")  # free now
        write(tree / "astray.txt")

        assert refused(root, "worktree", "commit", "one", "-m", "x")["code"] == "not_as_expected"
        error = refused(root, "worktree", "prepare", "two", "--branch", "main", "--no-venv")
        assert error["code"] == "branch_taken" and "main checkout" in error["message"]
        assert git(root.path, "rev-parse", "main") == before
        until(lambda: found(root, "main_moved"), what="the switch is reported")
        assert "from main to feature/20-x" in found(root, "main_moved")
        until(lambda: found(root, "worktree_strayed"), what="the stray tree is reported")
        git(tree, "stash", "-q", "-u")
        git(tree, "switch", "-q", "one")
        git(root.path, "switch", "-q", "main")
        until(lambda: not found(root, "main_moved"), what="it is over")

    @pytest.mark.req("M47")
    @pytest.mark.parametrize(
        "hide",
        [
            "git update-index --assume-unchanged deep/file && echo work > deep/file",
            "git update-index --skip-worktree deep/file && echo work > deep/file",
            "git sparse-checkout set elsewhere && mkdir deep && echo work > deep/file && echo work > deep/new",
            "git config core.fileMode false && chmod +x deep/file",
        ],
        ids=["assume-unchanged", "skip-worktree", "sparse", "mode"],
    )
    def test_what_a_removal_is_refused_for_is_committed_however_it_is_hidden(self, root: Root, hide: str) -> None:
        commit(root.path, "deep/file", "before\n")
        tree = prepare(root)
        subprocess.run(["sh", "-c", hide], cwd=tree, check=True)
        assert refused(root, "worktree", "remove", "one")["code"] == "worktree_dirty"

        root.ok("worktree", "commit", "one", "-m", "all of it")

        assert "deep/file" in git(tree, "show", "--format=", "--name-only")
        root.ok("worktree", "remove", "one")

    def test_a_repository_inside_is_refused_and_not_committed_as_a_mere_link(self, root: Root) -> None:
        tree = prepare(root)
        repository(tree / "inside")

        error = refused(root, "worktree", "commit", "one", "-m", "x")

        assert error["code"] == "not_capturable" and "inside" in error["message"]


class TestMainCheckout:
    @pytest.mark.req("M3")
    def test_it_is_byte_for_byte_the_same_after_everything(self, root: Root) -> None:
        prepare(root, "warm-up")  # what is shared is written once: excludes
        root.ok("worktree", "remove", "warm-up")
        (root.path / "untracked.txt").write_text("mine")
        before = state_of(root)

        prepare(root)
        script: tuple[dict[str, Any], ...] = (
            {"started": {}},
            {"shell": "echo x > work.txt"},
            {"report": {"text": "done"}},
        )
        name = creator(root, "one", *script)
        assert root.mam("job", "wait", root.delegate(name), "--timeout", "60").code == 0
        root.ok("worktree", "commit", "one", "-m", "work")
        root.ok("worktree", "list")
        root.ok("worktree", "remove", "one", "--stop")

        assert state_of(root) == before
        mam = [path for path in root.path.parent.rglob(".mam") if path.parent != root.path]
        assert mam == [], "there is one control plane"
        assert (root.path / ".mam" / "registry.db").exists() and (root.path / ".mam" / "audit.jsonl").exists()

    @pytest.mark.req("M8")
    def test_the_guard_is_set_and_removed_by_init(self, root: Root) -> None:
        tree = prepare(root)
        assert root.ok("init", "--guard")["guarded"] == "main"
        write(root.path / "README", "changed\n")
        identity = ["git", "-c", "user.name=x", "-c", "user.email=x"]
        before = git(root.path, "rev-parse", "main")

        for words in (["commit", "-qam", "x"], ["commit", "-qam", "x", "--no-verify"]):
            done = subprocess.run([*identity, *words], cwd=root.path, capture_output=True, text=True)
            assert done.returncode != 0 and "mam" in done.stderr
        assert git(root.path, "rev-parse", "main") == before
        commit(tree, "work.txt")
        root.ok("init", "--unguard")
        subprocess.run([*identity, "commit", "-qam", "x"], cwd=root.path, check=True)
        assert "help" in text_of("loops.md") and "no exclusion" in text_of("loops.md")
