"""What each agent CLI must be told so that it takes the stand-in for its model."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

MODEL = "standin-model"
CLAUDE_KEY = "sk-ant-stand-in-0123456789abcdef"
_CODEX = """\
model = "gpt-5.4"
model_provider = "standin"
check_for_update_on_startup = false
[model_providers.standin]
name = "stand-in"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "STANDIN_KEY"
"""


class ModelSetup(NamedTuple):
    """Variables of the pane's environment, words behind `--`, and a file of the agent's home where it needs one."""

    env: Mapping[str, str]
    args: Sequence[str] = ()
    file: str = ""  # below the home directory
    content: str = ""


def setups(url: str) -> dict[str, ModelSetup]:
    """By agent kind, for a stand-in at *url* (without a path)."""
    return {
        "claude": ModelSetup(
            {
                "ANTHROPIC_BASE_URL": url,
                "ANTHROPIC_API_KEY": CLAUDE_KEY,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            }
        ),
        "codex": ModelSetup({"STANDIN_KEY": "stand-in"}, (), ".codex/config.toml", _CODEX.format(url=url)),
        "grok": ModelSetup(
            {
                "XAI_API_KEY": "xai-stand-in",
                "GROK_MODELS_BASE_URL": f"{url}/v1",
                "GROK_XAI_API_BASE_URL": f"{url}/v1",
            },
            ("-m", MODEL),
        ),
        "opencode": ModelSetup(
            # To know of every model there is costs it most of its start, and it would fetch a package for plug-ins.
            {"OPENCODE_DISABLE_MODELS_FETCH": "1", "npm_config_offline": "true"},
            (),
            ".config/opencode/opencode.json",
            json.dumps(_opencode(url)),
        ),
    }


def _opencode(url: str) -> dict[str, object]:
    about = {"name": MODEL, "tool_call": True, "limit": {"context": 128_000, "output": 8192}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Stand-in",
        "options": {"baseURL": f"{url}/v1", "apiKey": "stand-in"},
        "models": {MODEL: about},
    }
    used = f"standin/{MODEL}"
    return {"model": used, "small_model": used, "provider": {"standin": provider}}
