"""Every durable step of the product has a fault point, and some test lets each of them fail."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
ROOMS = ("broker", "agents", "wrappers", "control_plane")
DURABLE = {"rename", "fsync", "link", "move"}  # of Path, os and shutil
# Where an atomic file is written: the fault point before its name, from which follows the one before its sync.
ATOMIC = re.compile(r"""atomic_files\.write\(.*?Durability\.(\w+).*?point="([a-z.]+)\"""", re.S)


def modules() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((TOP / room).rglob("*.py"))


def calls(function: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))


def is_durable(call: ast.Call) -> bool:
    """`Path.replace` takes one argument; that of a text takes two, that of a time or a row takes names."""
    assert isinstance(call.func, ast.Attribute)
    return call.func.attr in DURABLE or (call.func.attr == "replace" and len(call.args) == 1 and not call.keywords)


def points() -> list[str]:
    texts = [path.read_text("utf-8") for path in modules()]
    named = [name for text in texts for name in re.findall(r'\bpoint(?:\(|=)"([a-z.]+)"', text)]
    written = [found for text in texts for found in ATOMIC.findall(text)]
    synced = [f"{name.partition('.')[0]}.fsync" for durability, name in written if durability != "PROCESS"]
    # Or the patterns have lost what they look for, and this test would hold nothing.
    assert len(set(named)) > 40 and len(written) > 10, (named, written)
    return sorted({*named, *synced})


@pytest.mark.parametrize("path", list(modules()), ids=lambda path: str(path.relative_to(TOP)))
def test_whoever_renames_links_moves_or_syncs_passes_a_fault_point(path: Path) -> None:
    functions = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]

    bare = [
        function.name
        for function in functions
        if any(map(is_durable, calls(function)))
        and not any(isinstance(call.func, ast.Attribute) and call.func.attr == "point" for call in calls(function))
    ]

    assert bare == []


@pytest.mark.parametrize("name", points())
def test_each_fault_point_is_struck_by_some_test(name: str) -> None:
    tests = [path for path in (TOP / "tests").rglob("*.py") if path != Path(__file__)]

    assert any(re.search(rf"""["'@]{re.escape(name)}["':]""", path.read_text("utf-8")) for path in tests)
