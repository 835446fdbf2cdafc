"""Every error class of MAM: its code, its sentence, its fields where it is raised."""

import ast
import pickle
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

import mam.agents
import mam.broker
import mam.control_plane
import mam.wrappers
from mam.broker.errors import MamError

ROOMS = (mam.broker, mam.agents, mam.wrappers, mam.control_plane)


def errors() -> list[type[MamError]]:
    """All error classes that are raised. A root of several has no sentence of its own and is only caught."""
    for room in ROOMS:
        for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
            import_module(module.name)

    def below(kind: type[MamError]) -> list[type[MamError]]:
        return [kind, *(found for child in kind.__subclasses__() for found in below(child))]

    return [kind for kind in below(MamError) if kind.message and kind.__module__.startswith("mam.")]


def sample(kind: type[MamError]) -> MamError:
    """An error of *kind* with a value of the declared type in each field."""
    hints = {
        name: hint for base in reversed(kind.__mro__) for name, hint in vars(base).get("__annotations__", {}).items()
    }
    values = {str: "writer", int: 7, float: 2.5}
    return kind(**{name: values.get(hints[name], 7) for name in kind.keywords})


@pytest.mark.parametrize("kind", errors(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_a_sentence_and_survives_pickling(kind: type[MamError]) -> None:
    error = sample(kind)

    assert kind.code and kind.code.replace("_", "").isalnum()
    assert kind.exit_code in (1, 2, 4, 5, 6, 75)
    assert str(error) and not {"{", "<"} & set(str(error) + error.remedy)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.data, str(again)) == (kind, error.data, str(error))


def test_every_error_that_a_person_meets_has_a_remedy() -> None:
    never_shown = {"EventRefused"}
    assert {kind.__name__ for kind in errors() if not kind.remedy_text} == never_shown


def test_every_error_is_raised_with_exactly_its_fields() -> None:
    kinds = {kind.__name__: kind for kind in errors()}
    calls = 0
    for room in ROOMS:
        for path in Path(room.__path__[0]).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                    kind = kinds.get(node.func.id if isinstance(node.func, ast.Name) else node.func.attr)
                    given = {word.arg for word in node.keywords}
                    if kind is not None and None not in given:
                        assert given == kind.keywords, f"{path}:{node.lineno}"
                        calls += 1
    assert calls > 100


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("usage", 2), ("session_busy", 5), ("broker_unreachable", 6), ("busy", 75), ("schema_mismatch", 75)],
)
def test_an_error_ends_with_the_exit_code_that_the_help_tells(code: str, exit_code: int) -> None:
    assert {kind.exit_code for kind in errors() if kind.code == code} == {exit_code}


def test_only_errors_of_one_family_share_a_code() -> None:
    by_code: dict[str, list[type[MamError]]] = {}
    for kind in errors():
        by_code.setdefault(kind.code, []).append(kind)

    for code, kinds in by_code.items():
        owners = {next(base for base in kind.__mro__ if "code" in vars(base)) for kind in kinds}
        assert len(owners) == 1 and owners != {MamError}, code
