"""`mam agent probe`: whether an agent takes a turn; and a prompt never goes to another program in its place."""

from tests.support import Root, until


def test_a_probe_proves_that_an_agent_takes_a_turn(root: Root) -> None:
    root.agent()

    assert root.ok("doctor", "--probe", "writer")["ok"]


def test_a_probe_of_an_agent_that_does_not_answer_fails_and_leaves_it_free(root: Root) -> None:
    root.agent("writer", {"hang": {}})

    said = root.mam("doctor", "--probe", "writer", "--timeout", "1", "--json")

    assert (said.code, said.error["code"]) == (1, "probe_failed")
    with root.registry.view() as view:
        assert view.open_job("writer") is None


def test_a_shell_that_took_the_agents_place_gets_no_prompt(root: Root) -> None:
    words = ["agent", "create", "shell", "--agent", "command", "--no-wait", "--", "sh", "-c", "exec sh -i"]
    assert root.mam(*words).code == 0
    until(lambda: root.session("shell").screen == "ready")
    canary = root.path / "canary"

    job = root.delegate("shell", f"x; touch {canary}", "--deliver-within", "1")
    done = root.mam("job", "wait", job, "--timeout", "30", "--json")

    assert (done.code, done.json["state"]) == (1, "agent_blocked")
    assert "not_foreground" in done.json["detail"]
    assert "a shell has the pane" in root.ok("why", job)["next"]
