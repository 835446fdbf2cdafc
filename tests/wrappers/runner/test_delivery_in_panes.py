"""Prompts that are typed into real panes: whole and once, or refused by name."""

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mam.agents import scripted
from mam.agents.border import Adapter
from mam.broker.envelope.orders import FreeText
from mam.control_plane.sessions import runtime
from mam.wrappers.mux.protocol import Pane
from mam.wrappers.runner.agent_process import bare_shell
from mam.wrappers.runner.delivery import Delivery
from mam.wrappers.runner.ledger import DeliveryOutcome, Ledger
from tests.support import Root, until
from tests.support.panes import Panes, tmux
from tests.support.tmux_server import server

pytestmark = pytest.mark.hostile


class TestDelivery:
    """The whole way of a prompt, in a real pane."""

    def heard(self, root: Root) -> list[str]:
        memory = root.path / ".mam" / "run" / "writer" / "memory.json"
        return json.loads(memory.read_text("utf-8")) if memory.exists() else []

    @pytest.mark.parametrize("mode", ["copy-mode", "choose-tree", "clock-mode"])
    def test_a_job_reaches_an_agent_whose_pane_is_in_a_mode(self, tmux_root: Root, mode: str) -> None:
        tmux_root.agent()
        pane = tmux_root.session("writer").pane
        tmux(server(tmux_root), mode, "-t", pane)

        job = tmux_root.delegate()

        assert tmux_root.mam("job", "wait", job, "--timeout", "30").code == 0
        assert len(self.heard(tmux_root)) == 1

    @pytest.mark.parametrize("mux", ["tmux", "headless"])
    def test_a_draft_in_the_composer_is_left_alone_and_named(
        self, make_root: Callable[..., Root], needs: Callable[[str], str], mux: str
    ) -> None:
        if mux == "tmux":
            needs("tmux")
        root = make_root(mux=mux)
        root.agent()
        row = root.session("writer")
        panes_of(root).paste(row.pane, "half a thought")

        job = root.delegate("writer", "x", "--deliver-within", "1")
        done = root.mam("job", "wait", job, "--timeout", "30", "--json")

        assert (done.json["state"], "draft" in done.json["detail"]) == ("agent_blocked", True)
        assert "draft" in root.ok("why", job)["next"]
        assert self.heard(root) == []
        panes_of(root).press(row.pane, "Enter")
        until(lambda: self.heard(root) == ["half a thought"])

    def test_a_dispatch_that_comes_again_and_again_is_pasted_once(self, root: Root) -> None:
        root.agent()
        job = root.delegate()
        assert root.mam("job", "wait", job, "--timeout", "30").code == 0
        for number in range(3):
            with root.registry.transaction() as tx:  # as of a monitor that never heard of the delivery
                tx.connection.execute("UPDATE jobs SET state = 'dispatched' WHERE id = ?", (job,))
                tx.connection.execute(
                    "INSERT INTO outbox VALUES (?, 'writer', 'dispatch', ?, 1, NULL, ?, 0)",
                    (f"again-{number}", job, dispatch(root, job)),
                )
            until(lambda: not orders(root), what="the runner has answered")

        assert len(self.heard(root)) == 1

    def test_an_enter_that_a_real_composer_swallowed_is_pressed_again_and_the_text_is_not(self, panes: Panes) -> None:
        pane, out = composer(panes, swallows=2)

        assert deliver(panes, pane, "do it") == DeliveryOutcome("submitted")

        assert until(lambda: json.loads(out.read_text())) == ["do it"]

    def test_a_prompt_that_no_enter_submits_is_refused_and_stands_there_once(self, panes: Panes) -> None:
        pane, out = composer(panes, swallows=99)

        outcome = deliver(panes, pane, "do it")

        assert (outcome.state, outcome.reason) == ("refused", "unsubmitted")
        assert panes.mux.screen(pane.id).text.count("do it") == 1
        assert not out.exists()

    @pytest.mark.parametrize(
        "words",
        [
            ["bash"], ["-zsh"], ["/bin/sh", "-i"], ["bash", "--rcfile", "/x/rc", "-i"], ["bash", "--rcfile", "/x/cfg"],
            ["bash", "-O", "extglob"], ["sh", "-s", "word"], ["zsh", "-o", "vi"], ["dash", "+m"], ["ash"],
            ["busybox", "sh"], ["busybox", "ash", "-i"], ["csh"], ["tcsh", "-f"], ["mksh"], ["rbash"], ["fish", "-i"],
            ["fish", "--init-command", "x"], ["nu"], ["xonsh"], ["pwsh"], ["elvish"],
        ],
        ids=shlex.join,
    )  # fmt: skip
    def test_whatever_reads_commands_from_the_terminal_is_a_shell(self, words: list[str]) -> None:
        assert bare_shell(words)

    @pytest.mark.parametrize(
        "words",
        [
            [], ["claude"], ["node", "/usr/bin/codex"], ["sh", "-c", "exec agent"], ["bash", "-lc", "agent"],
            ["bash", "/usr/local/bin/agent"], ["bash", "--norc", "/bin/agent", "-i"], ["sh", "agent.sh"],
            ["bash", "-O", "extglob", "-c", "agent"], ["fish", "-c", "agent"], ["fish", "--command=agent"],
            ["busybox", "vi"], ["bashful"], ["python3", "-i"], ["zsh", "-o", "vi", "agent.zsh"],
        ],
        ids=shlex.join,
    )  # fmt: skip
    def test_what_runs_a_command_or_a_script_is_none(self, words: list[str]) -> None:
        assert not bare_shell(words)

    def test_a_shell_that_the_agent_left_behind_in_tmux_gets_no_prompt(self, tmux_root: Root) -> None:
        words = ["agent", "create", "writer", "--agent", "command", "--no-wait", "--"]
        words += ["sh", "-c", "echo welcome; exec bash --norc -i"]
        assert tmux_root.mam(*words).code == 0
        until(lambda: tmux_root.session("writer").screen == "ready")
        canary = tmux_root.path / "canary"

        job = tmux_root.delegate("writer", f"x; touch {canary}", "--deliver-within", "1")

        assert tmux_root.mam("job", "wait", job, "--timeout", "30", "--json").json["state"] == "agent_blocked"
        assert "MAM job" not in panes_of(tmux_root).screen(tmux_root.session("writer").pane).text

    def test_a_tool_of_the_agent_that_has_the_terminal_gets_no_prompt(self, tmux_root: Root) -> None:
        agent = Path(__file__).parents[2] / "support" / "terminal_agent.py"
        words = ["agent", "create", "writer", "--agent", "command", "--no-wait", "--", "python3", str(agent), "tool"]
        assert tmux_root.mam(*words).code == 0
        until(lambda: tmux_root.session("writer").screen == "ready")
        pane = tmux_root.session("writer").pane
        panes_of(tmux_root).press(pane, "Enter")
        until(lambda: "tool runs" in panes_of(tmux_root).screen(pane).text)

        job = tmux_root.delegate("writer", "x", "--deliver-within", "1")

        done = tmux_root.mam("job", "wait", job, "--timeout", "60", "--json")
        assert "not_foreground" in done.json["detail"]
        assert "MAM job" not in panes_of(tmux_root).screen(pane).text


def panes_of(root: Root) -> Any:
    return runtime.multiplexer(root.parts, root.session("writer"))


def orders(root: Root) -> list[Any]:
    with root.registry.view() as view:
        return view.outbox()


def dispatch(root: Root, job: str) -> str:
    row = root.job(job)
    data = {"brief_path": row.brief_path, "brief_sha256": row.brief_sha256, "prompt": "do it once more"}
    return json.dumps({**data, "key_file": str(root.parts.layout.job_key(job)), "deliver_within_s": 60})


def composer(panes: Panes, *, swallows: int) -> tuple[Pane, Path]:
    """A composer that takes no notice of the first Enters; what was submitted is in the file."""
    out = panes.folder / "submitted.json"
    pane = panes.open("python3", str(Path(__file__).parents[2] / "support" / "composer.py"), str(out), str(swallows))
    panes.await_text(pane, scripted.PROMPT.strip())
    return pane, out


def deliver(panes: Panes, pane: Pane, text: str) -> DeliveryOutcome:
    """Bring *text* to a pane on the real clock."""
    ledger = Ledger(panes.folder / "deliveries")
    order = FreeText(prompt=text, deliver_within_s=20)
    delivery = Delivery(
        *("send-1", 1, order),
        agent=Adapter("scripted", scripted),
        mux=panes.mux,
        pane=pane.id,
        ledger=ledger,
        in_foreground=lambda: True,
        now=time.monotonic(),
    )
    found: DeliveryOutcome = until(lambda: delivery.step(time.monotonic()))
    return found
