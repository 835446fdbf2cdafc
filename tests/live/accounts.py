"""What the user of a CLI has set up once before MAM hires it: the model, a key, and answers to first questions."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.standin.model import ModelStandIn

CLAUDE_KEY = "sk-ant-stand-in-0123456789abcdef"
# Without the last two everything below /tmp, and so every control root of a test, could be written anyway.
CODEX_CONFIG = """\
model = "gpt-5.4"
model_provider = "standin"
check_for_update_on_startup = false
[model_providers.standin]
name = "stand-in"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "STANDIN_KEY"
{trusted}
[sandbox_workspace_write]
exclude_slash_tmp = true
exclude_tmpdir_env_var = true
"""


def grok(monkeypatch: pytest.MonkeyPatch, model: ModelStandIn) -> None:
    monkeypatch.setenv("XAI_API_KEY", "xai-stand-in")
    monkeypatch.setenv("GROK_MODELS_BASE_URL", f"{model.url}/v1")
    monkeypatch.setenv("GROK_XAI_API_BASE_URL", f"{model.url}/v1")


def claude(monkeypatch: pytest.MonkeyPatch, model: ModelStandIn, home: Path, trusted: Sequence[Path]) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", CLAUDE_KEY)
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    answered = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [CLAUDE_KEY[-20:]], "rejected": []},
        "projects": {str(path.resolve()): {"hasTrustDialogAccepted": True} for path in trusted},
    }
    (home / ".claude").mkdir()
    (home / ".claude.json").write_text(json.dumps(answered), "utf-8")


def codex(monkeypatch: pytest.MonkeyPatch, model: ModelStandIn, home: Path, trusted: Sequence[Path]) -> None:
    monkeypatch.setenv("STANDIN_KEY", "stand-in")
    said = "\n".join(f'[projects."{path.resolve()}"]\ntrust_level = "trusted"' for path in trusted)
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(CODEX_CONFIG.format(url=model.url, trusted=said), "utf-8")


def opencode(monkeypatch: pytest.MonkeyPatch, model: ModelStandIn, home: Path, **settings: object) -> None:
    """*settings* are added to those of its user."""
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "models.json").write_text("{}", "utf-8")  # to know of every model there is costs it most of its start
    monkeypatch.setenv("OPENCODE_MODELS_PATH", str(folder / "models.json"))
    monkeypatch.setenv("OPENCODE_DISABLE_MODELS_FETCH", "1")
    monkeypatch.setenv("npm_config_offline", "true")  # it would fetch a package for plug-ins
    about = {"name": "standin-model", "tool_call": True, "limit": {"context": 128_000, "output": 8192}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Stand-in",
        "options": {"baseURL": f"{model.url}/v1", "apiKey": "stand-in"},
        "models": {"standin-model": about},
    }
    used = {"model": "standin/standin-model", "small_model": "standin/standin-model", "provider": {"standin": provider}}
    (folder / "opencode.json").write_text(json.dumps({**used, **settings}), "utf-8")
