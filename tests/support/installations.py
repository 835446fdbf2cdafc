"""Two `mam` on one machine: the one that the tests run in, and the released one, installed from its wheel."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import filelock
import pytest

from tests.support.released import WHEEL


class Installation:
    """One installed `mam`: its interpreter and its console script."""

    def __init__(self, folder: Path) -> None:
        self.scripts = folder
        self.python = str(folder / "python")
        self.mam = str(folder / "mam")


def current() -> Installation:
    """The one that these tests run in."""
    return Installation(Path(sys.executable).parent)


def install(folder: Path) -> Installation:
    """
    Install the released wheel into a new virtual environment at *folder*, without network.

    Its dependencies are those of the environment that the tests run in. What that one has installed in editable mode
    stays unseen: only the folder of its packages is added to the path.
    """
    made = Installation(folder / "bin")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", made.python, "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--ignore-installed", str(WHEEL)], check=True)
    look = [made.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = Path(subprocess.check_output(look, text=True).strip())
    # After pip, which would take the editable installation for the one that was asked for.
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    (made.scripts / "nats-server").symlink_to(Path(sys.executable).parent / "nats-server")
    return made


def installed_once(factory: pytest.TempPathFactory) -> Installation:
    """The released version, installed once a run, whichever worker asks first."""
    folder = factory.getbasetemp().parent / "mam-0.1.0"
    with filelock.FileLock(f"{folder}.lock"):
        made = Installation(folder / "bin")
        return made if Path(made.mam).exists() else install(folder)
