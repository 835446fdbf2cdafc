"""
Build the wheel, install it elsewhere, and use it: an editable install hides missing packages and data.

Usage: python -m tests.wheel VENV
"""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
ROOMS = ("broker", "agents", "wrappers", "control_plane")


def run(*argv: str, cwd: Path) -> str:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(argv)} → {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _modules() -> list[str]:
    """Every module of the source tree by its name, but for the four top rooms themselves."""
    found = (path.relative_to(HERE).with_suffix("") for room in ROOMS for path in (HERE / room).rglob("*.py"))
    names = ([part for part in path.parts if part != "__init__"] for path in found)
    return [".".join(["mam", *name]) for name in names if len(name) > 1]


def main(venv: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="mam-wheel-") as folder:
        place = Path(folder)
        python = str(venv.absolute() / "bin" / "python")
        run(python, "-m", "build", "--outdir", str(place / "dist"), str(HERE), cwd=place)
        wheel = next((place / "dist").glob("*.whl"))
        run(sys.executable, "-m", "venv", str(place / "env"), cwd=place)
        run(str(place / "env" / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", str(wheel), cwd=place)
        mam = str(place / "env" / "bin" / "mam")
        for words in ("--version", "--help", "job delegate --help", "agent check grok", "demo --mux headless"):
            run(mam, *words.split(), cwd=place)
        imported = run(
            str(place / "env" / "bin" / "python"), "-c", "import mam.broker; print(mam.broker.__file__)", cwd=place
        )
        if str(place) not in imported:
            sys.exit(f"not the installed package: {imported}")
        walk = (
            "import importlib, pkgutil\n"
            "for room in ('broker', 'agents', 'wrappers', 'control_plane'):\n"
            "    package = importlib.import_module(f'mam.{room}')\n"
            "    for module in pkgutil.walk_packages(package.__path__, f'mam.{room}.'):\n"
            "        print(importlib.import_module(module.name).__name__)\n"
        )
        installed = run(str(place / "env" / "bin" / "python"), "-c", walk, cwd=place).split()
        missing = sorted(set(_modules()) - set(installed))
        if missing:
            sys.exit(f"not in the wheel: {', '.join(missing)}")
        plugin = "from mam.agents import opencode; assert opencode.PLUGIN.with_suffix('.js').is_file()"
        run(str(place / "env" / "bin" / "python"), "-c", plugin, cwd=place)
    print("the wheel, installed elsewhere, runs the demo")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
