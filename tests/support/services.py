"""Programs and services that some tests need: where one is missing, a skip at home and a failure in CI."""

import os
import shutil
from typing import NoReturn

import pytest


def unavailable(why: str) -> NoReturn:
    """End the test: skipped at home, failed in CI (`CI` is set), where everything must be there."""
    if os.environ.get("CI"):
        pytest.fail(f"{why}, and this is CI")
    pytest.skip(why)


def need(program: str) -> str:
    """The path of *program*, also where it lies in /usr/sbin; ends the test where it is missing."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if found is None:
        unavailable(f"{program} is not installed")
    return found
