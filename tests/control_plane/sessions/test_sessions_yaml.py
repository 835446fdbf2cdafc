"""The sessions file says what the registry says, and takes roles alone from a person."""

import yaml

from tests.support import Root, until


def test_the_sessions_file_says_what_the_registry_says(root: Root) -> None:
    root.agent("no")
    path = root.path / ".mam" / "agent-sessions.yaml"

    until(lambda: yaml.safe_load(path.read_text("utf-8"))["sessions"][0]["status"] == "running")

    entry = yaml.safe_load(path.read_text("utf-8"))["sessions"][0]
    assert (entry["name"], entry["pane"]["cwd"]) == ("no", str(root.path))


def test_roles_are_edited_in_the_file_and_everything_else_is_refused(root: Root) -> None:
    root.agent()
    path = root.path / ".mam" / "agent-sessions.yaml"
    root.mam("agent", "stop", "writer")
    root.mam("down")
    root.mam("registry", "export")
    text = path.read_text("utf-8")

    for broken, code in (
        (text.replace('"role": "creator"', '"role": "creator"\n  "role": "x"'), "import_refused"),
        (text.replace('"status": "stopped"', '"status": "running"'), "import_refused"),
        (text.replace('"creator"', "no"), "import_refused"),
        (text.replace('"generation": ', '"generation": 9'), "stale_import"),
        (text.replace('"writer"', '"nobody"', 1), "unknown_session"),
        ("[" * 5000, "import_refused"),
        (text.replace('"creator"', '"two words"'), "bad_name"),
    ):
        path.write_text(broken, "utf-8")
        assert root.mam("registry", "import", "--json").error["code"] == code
    path.write_text(text.replace('"creator"', '"planner,reviewer"'), "utf-8")
    assert root.ok("registry", "import")["changed"] == ["writer"]
    assert root.session("writer").role == "planner,reviewer"
