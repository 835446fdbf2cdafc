"""What the user of a CLI has set up once before MAM hires it: the model, a key, and answers to first questions."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from mam.agents.stand_in.server import ModelStandIn
from mam.agents.stand_in.setups import CLAUDE_KEY, ModelSetup, setups

# Without these two everything below /tmp, and so every control root of a test, could be written anyway.
CODEX_SANDBOX = """
[sandbox_workspace_write]
exclude_slash_tmp = true
exclude_tmpdir_env_var = true
"""


def grok(monkeypatch: pytest.MonkeyPatch, model: ModelStandIn) -> None:
    _environment(monkeypatch, model, "grok")


def claude(monkeypatch: pytest.MonkeyPatch, model: ModelStandIn, home: Path, trusted: Sequence[Path]) -> None:
    _environment(monkeypatch, model, "claude")
    answered = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [CLAUDE_KEY[-20:]], "rejected": []},
        "projects": {str(path.resolve()): {"hasTrustDialogAccepted": True} for path in trusted},
    }
    (home / ".claude").mkdir()
    (home / ".claude.json").write_text(json.dumps(answered), "utf-8")


def codex(monkeypatch: pytest.MonkeyPatch, model: ModelStandIn, home: Path, trusted: Sequence[Path]) -> None:
    setup = _environment(monkeypatch, model, "codex")
    said = "\n".join(f'[projects."{path.resolve()}"]\ntrust_level = "trusted"' for path in trusted)
    (home / ".codex").mkdir()
    (home / setup.file).write_text(setup.content + said + CODEX_SANDBOX, "utf-8")


def opencode(monkeypatch: pytest.MonkeyPatch, model: ModelStandIn, home: Path, **settings: object) -> None:
    """*settings* are added to those of its user."""
    setup = _environment(monkeypatch, model, "opencode")
    folder = (home / setup.file).parent
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "models.json").write_text("{}", "utf-8")  # to know of every model there is costs it most of its start
    monkeypatch.setenv("OPENCODE_MODELS_PATH", str(folder / "models.json"))
    (home / setup.file).write_text(json.dumps({**json.loads(setup.content), **settings}), "utf-8")


def _environment(monkeypatch: pytest.MonkeyPatch, model: ModelStandIn, kind: str) -> ModelSetup:
    setup = setups(model.url)[kind]
    for name, value in setup.env.items():
        monkeypatch.setenv(name, value)
    return setup
