"""Panes under a person's own settings, on a server that fails, in odd environments, dead or wedged."""

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mam.broker.envelope.payloads import now_ms
from mam.broker.host import process_identity
from mam.control_plane.monitor import reconcile
from mam.wrappers.mux.protocol import LookFailed, PaneGone
from tests.support import Root, repository, until
from tests.support.panes import Panes, tmux
from tests.support.tmux_server import server

pytestmark = pytest.mark.hostile


END = b"\x1b[201~"


class TestOwnSettings:
    """MAM_TMUX_CONF names a configuration of the user's; without it none is read."""

    def use(self, panes: Panes, *lines: str) -> None:
        config = panes.folder / "own.conf"
        config.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        panes.mux = panes.client(panes.environ, str(config))

    @pytest.mark.parametrize(
        "line",
        [
            "set -g prefix C-a\nunbind C-b\nbind -n Enter kill-server\nbind -n C-c kill-server\nbind -n q kill-pane",
            'set -g default-command "exit 3"',
            "set -g default-shell /bin/false",
            "set -g default-terminal dumb",
            "set -g remain-on-exit off",
            "set -g history-limit 0",
            "set -g mouse on\nset -wg mode-keys vi",
            "set -wg synchronize-panes on",
            "set -wg allow-rename on\nset -wg automatic-rename on\nset -g set-titles on",
            "set -g base-index 1\nset -wg pane-base-index 1\nset -g renumber-windows on",
            "set -g update-environment ''",
            "set -g status off\nset -g window-size smallest",
            "set -wg alternate-screen off\nset -wg wrap-search off",
            "set -s escape-time 5000\nset -g assume-paste-time 1000",
            "set -s exit-unattached off\nset -g lock-after-time 1",
            "set-hook -g after-new-session 'split-window'",
            "set-hook -g after-new-session 'new-window'",
            "set-hook -g session-created 'new-window ; new-window'",
            "set-hook -g after-load-buffer 'set-buffer something-else'",
            "set-hook -g after-send-keys 'display-message hello'",
            "set -g @plugin 'x'\nrun-shell /no/such/plugin\nthis is no command",
            "source-file /no/such/file",
        ],
    )
    def test_a_pane_works_under_a_configuration_of_the_users_own(self, panes: Panes, line: str) -> None:
        self.use(panes, line)
        first, second = panes.reader(), panes.reader()

        panes.mux.paste(second.pane.id, "for the second")
        panes.mux.press(second.pane.id, "Enter")

        assert second.await_end(b"\r") == b"\x1b[200~for the second" + END + b"\r"
        assert first.got == b""
        assert {pane.id for pane in panes.mux.panes()} == {first.pane.id, second.pane.id}
        assert panes.await_code(panes.saying("last words", 4)) == 4
        assert panes.mux.close(first.pane.id, first.pane.tag) is True
        assert panes.look(second.pane) is not None

    @pytest.mark.parametrize(
        "line",
        [
            "set -g destroy-unattached on",
            "set-hook -g after-new-session 'kill-session'",
            "set-hook -g after-new-session 'kill-server'",
            "set-hook -g session-created 'kill-session'",
            "kill-server",
        ],
    )
    def test_a_configuration_that_ends_every_pane_is_a_typed_error_and_leaves_none(
        self, panes: Panes, line: str
    ) -> None:
        self.use(panes, line)
        out = panes.folder / "out"

        try:
            pane = panes.program("read", str(out), "plain")
        except (PaneGone, LookFailed) as error:
            assert error.remedy
            listed = subprocess.run(["tmux", "-L", panes.server, "list-panes", "-a"], capture_output=True, text=True)
            assert listed.stdout == ""
        else:
            panes.await_dead(pane)  # or it was opened, and is seen dead at once

    def test_a_person_who_is_attached_when_an_agent_ends_lands_in_no_other_agents_pane(self, panes: Panes) -> None:
        self.use(panes, "set -g detach-on-destroy off")
        ending, _ = panes.open("cat", name="one"), panes.open("cat", name="other")
        command = panes.mux.attach_command(ending.id)
        assert command is not None
        ours, theirs = os.openpty()
        with subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env={**panes.environ, "TERM": "xterm"}
        ) as client:
            listing = ["tmux", "-L", panes.server, "list-clients"]
            until(lambda: subprocess.run(listing, capture_output=True, text=True).stdout, what="the person is attached")

            panes.mux.close(ending.id, ending.tag)
            try:
                assert client.wait(20) == 0
            finally:
                client.kill()
        os.close(ours)
        os.close(theirs)

    def test_an_agent_under_such_a_configuration_is_not_registered(self, tmux_root: Root) -> None:
        config = tmux_root.path / "own.conf"
        config.write_text("set-hook -g after-new-session 'kill-session'\n")

        said = tmux_root.mam(
            *("agent", "create", "writer", "--agent", "scripted", "--json"), env={"MAM_TMUX_CONF": str(config)}
        )

        assert said.code == 1 and said.error["code"] in ("pane_gone", "mux_gone", "look_failed"), said.err
        assert tmux_root.ok("agent", "list") == []
        tmux_root.agent()  # the name is free, and the server is not spoilt


class TestFlakyServer:
    """A tmux of which every third call fails: nobody is taken for dead, and work goes on."""

    def use(self, root: Root, words: str) -> None:
        folder = root.path.parent / "flaky"
        folder.mkdir()
        calls, real = shlex.quote(str(folder / "calls")), shlex.quote(str(shutil.which("tmux")))
        program = folder / "tmux"
        fails = f"{{ echo {shlex.quote(words)} >&2; exit 1; }}"
        lines = ["#!/bin/sh", f"printf x >> {calls}", f"[ $(( $(wc -c < {calls}) % 3 )) -ne 0 ] || {fails}"]
        program.write_text("\n".join([*lines, f'exec {real} "$@"', ""]))
        program.chmod(0o755)
        root.env["PATH"] = f"{folder}:{os.environ['PATH']}"

    def insist(self, root: Root, *words: str) -> None:
        """What a person does who is told that it failed: the same once more."""
        for _ in range(5):
            said = root.mam(*words, "--json")
            if said.code == 0:
                return
            assert said.error["remedy"], said.err
        raise AssertionError(said.err)

    @pytest.mark.parametrize("words", ["", "error connecting to /tmp/tmux (Resource temporarily unavailable)"])
    def test_a_tmux_that_fails_every_third_call_makes_no_drift_and_loses_no_job(
        self, tmux_root: Root, words: str
    ) -> None:
        root = tmux_root
        self.use(root, words)
        for name in ("one", "two"):
            self.insist(root, "agent", "create", name, "--agent", "scripted")
        runners = {name: root.session(name).pid for name in ("one", "two")}

        jobs = [root.delegate(name, "do it", "--started-within", "10", "--retries", "5") for name in runners]
        # What a paste that failed left is unknown: that attempt is given up, and another one made.
        until(lambda: all(root.job(job).state == "reported" for job in jobs), within_s=240, what="all are reported")

        looks = [root.mam("monitor", "once", "--json").json for _ in range(9)]
        assert looks == [[]] * 9
        until(lambda: now_ms() - root.session("one").updated_at > reconcile.YOUNG_MS)
        assert [root.mam("monitor", "once", "--json").json for _ in range(9)] == [[]] * 9
        for name, pid in runners.items():
            said = root.mam("agent", "resume", name, "--json")
            assert said.code == 0 and root.session(name).pid == pid, "a healthy agent is left alone"
        assert [finding["code"] for finding in root.ok("status")["findings"]] == []


class TestEnvironment:
    def agent_environ(self, root: Root, name: str) -> dict[str, str]:
        pairs = Path(f"/proc/{root.session(name).agent_pid}/environ").read_bytes().split(b"\0")
        return dict(pair.decode().split("=", 1) for pair in pairs if b"=" in pair)

    @pytest.mark.parametrize("mux", ["tmux", "headless"])
    def test_what_a_caller_exported_reaches_the_agent_that_it_makes_and_no_other(
        self, make_root: Callable[..., Root], needs: Callable[[str], str], mux: str
    ) -> None:
        if mux == "tmux":
            needs("tmux")
        root = make_root(mux=mux)
        root.agent("first")
        root.env |= {
            "API_TOKEN": "with 'quotes' and $signs;",
            "CLAUDECODE": "1",
            "TMUX": "/tmp/x,1,0",
            "LONG": "v" * 9000,
        }
        root.agent("second")
        del root.env["API_TOKEN"]
        root.agent("third")

        second = self.agent_environ(root, "second")
        assert second["API_TOKEN"] == "with 'quotes' and $signs;" and second["LONG"] == "v" * 9000
        assert "CLAUDECODE" not in second and second.get("TMUX") != "/tmp/x,1,0"
        assert "API_TOKEN" not in self.agent_environ(root, "first")
        assert "API_TOKEN" not in self.agent_environ(root, "third")

    def test_a_control_root_deep_down_has_agents_all_the_same(
        self, make_root: Callable[..., Root], needs: Callable[[str], str]
    ) -> None:
        """Seven variables and the command line carry its path."""
        needs("tmux")
        root = make_root("d" * 200, mux="tmux")
        deep = root.path / ("d" * (450 - len(str(root.path))))
        root.mam("down")
        root.path = repository(deep)
        assert root.mam("init").code == 0
        root.agent()

        assert root.mam("job", "wait", root.delegate(), "--timeout", "60").code == 0

    @pytest.mark.parametrize(
        "environ",
        [{"TERM": ""}, {"LC_ALL": "C", "LANG": ""}, {"HOME": ""}, {"LONG": "v" * 20_000}],
        ids=lambda e: str(e)[:20],
    )
    def test_a_job_is_done_in_tmux_whatever_the_environment_lacks(
        self, tmux_root: Root, environ: dict[str, str]
    ) -> None:
        tmux_root.env |= environ
        tmux_root.agent("writer", {"started": {}}, {"say": "한국어 ✓"}, {"report": {"text": "done"}})
        tmux_root.agent("second")

        assert tmux_root.mam("job", "wait", tmux_root.delegate(), "--timeout", "60").code == 0
        assert "한국어 ✓" in tmux_root.mam("agent", "show", "writer").out or "한국어" in json.dumps(
            tmux_root.ok("why", "writer"), ensure_ascii=False
        )


class TestDeadAndWedged:
    def test_a_wedged_multiplexer_is_one_finding_and_ends_nobody(self, tmux_root: Root) -> None:
        tmux_root.env["MAM_HEARTBEAT_S"] = "10"
        for name in ("one", "two", "three"):
            tmux_root.agent(name, {"started": {}}, {"hang": {}})
        job = tmux_root.delegate("one")
        until(lambda: tmux_root.job(job).state == "running")
        pid = int(tmux(server(tmux_root), "display-message", "-p", "#{pid}"))
        os.kill(pid, signal.SIGSTOP)
        try:
            found = tmux_root.mam("doctor", "--json", timeout_s=120).json["findings"]
            broken = [f for f in found if f["state"] == "broken"]
        finally:
            os.kill(pid, signal.SIGCONT)

        assert len(broken) == 1 and server(tmux_root) in broken[0]["what"] + broken[0]["detail"]
        assert {tmux_root.session(name).status for name in ("one", "two", "three")} == {"running"}
        assert tmux_root.job(job).state == "running"
        assert tmux_root.ok("status")["findings"] == []

    def test_a_multiplexer_that_died_is_said_once_a_session_and_stop_and_resume_work(self, tmux_root: Root) -> None:
        for name in ("one", "two"):
            tmux_root.agent(name)
        pid = int(tmux(server(tmux_root), "display-message", "-p", "#{pid}"))
        holder = process_identity.of(pid)
        os.kill(pid, signal.SIGKILL)
        assert holder is not None

        until(lambda: {tmux_root.session(name).status for name in ("one", "two")} == {"ended"})
        assert tmux_root.ok("status")["findings"] == []
        assert [tmux_root.mam("agent", "stop", "one").code for _ in range(2)] == [0, 0]
        assert tmux_root.mam("agent", "resume", "two").code == 0
        assert tmux_root.mam("job", "wait", tmux_root.delegate("two"), "--timeout", "30").code == 0

    def test_a_pane_that_a_person_closed_is_named_and_comes_back(self, tmux_root: Root) -> None:
        tmux_root.agent()
        tmux(server(tmux_root), "kill-pane", "-t", tmux_root.session("writer").pane)

        until(lambda: tmux_root.session("writer").status == "ended")
        assert "closed" in tmux_root.ok("why", "writer")["because"]
        assert tmux_root.mam("agent", "resume", "writer").code == 0

    def test_a_session_that_a_person_renamed_or_moved_is_still_found(self, tmux_root: Root) -> None:
        tmux_root.agent()
        pane = tmux_root.session("writer").pane
        tmux(server(tmux_root), "rename-session", "-t", "=writer", "my agent")
        tmux(server(tmux_root), "rename-window", "-t", pane, "a.b:c")
        tmux(server(tmux_root), "split-window", "-t", pane, "sleep 1000")
        tmux(server(tmux_root), "break-pane", "-d", "-s", pane)

        assert tmux_root.mam("job", "wait", tmux_root.delegate(), "--timeout", "30").code == 0
        assert tmux_root.mam("agent", "stop", "writer").code == 0
        assert pane not in tmux(server(tmux_root), "list-panes", "-a", "-F", "#{pane_id}").split()

    @pytest.mark.parametrize(
        "output",
        [
            "\\x00\\x00nul",
            "\\xff\\xfe\\xed\\xa0\\x80",
            "\\x1b]2;\\x1b[2Jtitle\\x07",
            "\\x1b]2;\\u202etitle\\x07",
            "\\x1b]52;c;aGk=\\x07",
        ],
    )
    def test_no_output_makes_a_look_fail_or_a_view_unsafe(self, root: Root, output: str) -> None:
        program = f"import os, time; os.write(1, b'{output} afterwards'); time.sleep(3600)"
        words = ["agent", "create", "writer", "--agent", "command", "--no-wait", "--", "python3", "-c", program]
        assert root.mam(*words).code == 0

        until(lambda: "afterwards" in (root.session("writer").screen_text or ""))
        for verb in (["agent", "show", "writer"], ["why", "writer"], ["status"]):
            said = root.mam(*verb)
            assert said.code == 0 and not {"\x1b", "\u202e", "\x00"} & set(said.out)

    def test_12_mb_of_one_line_do_not_hold_up_a_pane(self, panes: Panes) -> None:
        out = panes.folder / "line"
        out.write_text("w" * 12_000_000)
        pane = panes.open("sh", "-c", f"cat {shlex.quote(str(out))}; echo; echo afterwards; sleep 3600")

        panes.await_text(pane, "afterwards")


def test_a_tmux_configuration_that_the_env_file_names_is_read(tmux_root: Root) -> None:
    (tmux_root.path / "own.conf").write_text("set -g @read-from-file yes\n", "utf-8")
    env_file = tmux_root.path / ".mam.env"
    env_file.write_text("MAM_TMUX_CONF=own.conf\n", "utf-8")

    refused = tmux_root.mam("agent", "create", "writer", "--agent", "scripted", "--json")
    assert refused.error["code"] == "untrusted"
    tmux_root.ok("trust", str(env_file))
    tmux_root.agent()

    assert tmux(server(tmux_root), "show-options", "-gv", "@read-from-file").strip() == "yes"
