"""A worker's own copy of the repository, with an interpreter that imports that copy and nothing of the checkout."""

import os
import shutil
import signal
import site
import subprocess
import sys
import venv
from pathlib import Path
from typing import Literal

import psutil

from tests.mutants.mutant import REPOSITORY, Mutant

Verdict = Literal["killed", "survived", "undecided"]

LIMIT_S = 240.0  # for one mutant; what takes longer is undecided, and fails the run
_MAM = "#!{python}\nimport sys\nfrom mam.control_plane.cli import main\nsys.exit(main())\n"


class Tree:
    """One copy at *path*. Mutants are tried in it one after the other; each leaves it as it was."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._code = path / "code"
        self._python = path / "code" / ".venv" / "bin" / "python"
        self._clock = 1_000_000_000

    def make(self) -> None:
        """Copy what git knows or would add, as it lies in the work tree, and give it a small environment."""
        words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(words, cwd=REPOSITORY, capture_output=True, check=True).stdout
        for name in filter(None, listed.decode("utf-8", "surrogateescape").split("\0")):
            source, target = REPOSITORY / name, self._code / name
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        self._make_environment()

    def _make_environment(self) -> None:
        folder = self._code / ".venv"
        venv.create(folder, with_pip=False, symlinks=True)
        packages = Path(next((folder / "lib").glob("python3*")), "site-packages")
        # Behind the copy stand this interpreter's packages, without their .pth files: these lead to the checkout.
        lines = [str(self._code / ".types"), *site.getsitepackages()]
        (packages / "mutants.pth").write_text("\n".join(lines) + "\n", "utf-8")
        mam = self._python.with_name("mam")
        for program in Path(sys.prefix, "bin").iterdir():  # the broker's server among them
            if program.name != mam.name and not self._python.with_name(program.name).exists():
                self._python.with_name(program.name).symlink_to(program)
        mam.write_text(_MAM.format(python=self._python), "utf-8")
        mam.chmod(0o755)

    def imports_itself(self) -> bool:
        """Whether the code under test is this copy's: otherwise no mutant would ever be seen."""
        words = [str(self._python), "-c", "import mam.broker.errors as found; print(found.__file__)"]
        said = subprocess.run(words, cwd=self.path, capture_output=True, text=True, check=True).stdout.strip()
        return Path(said).resolve() == (self._code / "broker" / "errors.py").resolve()

    def attempt(self, mutant: Mutant) -> tuple[Verdict, str]:
        """Apply *mutant*, run its tests, and take it back. Returns the verdict and pytest's last words."""
        target = self._code / mutant.file
        original, stamp = target.read_text("utf-8"), target.stat()
        target.write_text(mutant.mutated(original), "utf-8")
        self._clock += 10  # Python trusts a compiled file by size and time: no two mutants may share both
        os.utime(target, (self._clock, self._clock))
        try:
            return self.run(mutant.tests)
        finally:
            target.write_text(original, "utf-8")
            os.utime(target, (stamp.st_atime, stamp.st_mtime))

    def run(self, tests: tuple[str, ...], *, limit_s: float = LIMIT_S) -> tuple[Verdict, str]:
        """Run *tests* as the code stands: "survived" where they pass."""
        temporary = self.path / "t"
        words = [str(self._python), "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=line"]
        words += [f"--basetemp={temporary}", f"--timeout={limit_s / 2:g}", *tests]
        process = subprocess.Popen(
            words, cwd=self._code, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return "undecided", f"no end within {limit_s:g} s"
        finally:
            self._end_leftovers()
            shutil.rmtree(temporary, ignore_errors=True)
        last = [line for line in said.splitlines() if line.strip()][-4:]
        match process.returncode:
            case 0 if "skipped" not in last[-1]:
                return "survived", "\n".join(last)
            case 1:
                return "killed", "\n".join(last)
        return "undecided", "\n".join(last)

    def _end_leftovers(self) -> None:
        """What a test that failed left behind: every process that was started from this copy."""
        for process in psutil.process_iter(["pid", "cmdline"]):
            words = process.info["cmdline"] or []
            if process.pid != os.getpid() and any(str(self.path) in word for word in words):
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    pass  # it ended by itself
