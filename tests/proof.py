"""
A pytest plugin: a line of the contract is proven by a test that passed, not by one that was skipped or only written.

A whole run in CI fails where a promised line has no such test; every run refuses marks that name no line.
"""

import os
from collections.abc import Iterable

import pytest

from tests.coverage_of_requirements import ALL, PROMISED

_PROPERTY = "req"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Proof(config), "proof")


class Proof:
    """Collects which lines were proven, from the reports of this process's tests or of its workers'."""

    def __init__(self, config: pytest.Config) -> None:
        self._whole = config.args == config.getini("testpaths") and not (
            config.option.keyword or config.option.markexpr
        )
        self._proven: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Write a test's lines where its report takes them along. Raises UsageError for what is no line."""
        for item in items:
            lines = list(_lines(item))
            if unknown := sorted(set(lines) - set(ALL)):
                raise pytest.UsageError(f"{item.nodeid}: the contract has no line {', '.join(unknown)}")
            item.user_properties += [(_PROPERTY, line) for line in lines]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            self._proven.update(str(value) for name, value in report.user_properties if name == _PROPERTY)

    @property
    def unproven(self) -> list[str]:
        return [line for line in PROMISED if line not in self._proven]

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        worker = hasattr(session.config, "workerinput")
        if self._whole and not worker and exitstatus == 0 and self.unproven and os.environ.get("CI"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._whole and self.unproven:
            terminalreporter.write_line(
                f"lines that no test proved in this run: {' '.join(self.unproven)}", yellow=True
            )


def _lines(item: pytest.Item) -> Iterable[str]:
    return (str(line) for mark in item.iter_markers(_PROPERTY) for line in mark.args)
