"""The sessions file after a person's hand: a role is taken, all else is refused."""

import json
from collections.abc import Callable

import pytest

from mam.broker.errors import BadName
from mam.control_plane.sessions import sessions_yaml
from mam.control_plane.sessions.lookup import UnknownSession
from tests.support.desk import Desk

pytestmark = pytest.mark.hostile


HEAD = 'generation: {generation}\nfingerprint: "{fingerprint}"\nsessions:\n'


ENTRY = """- name: {name}
  agent: "scripted"
  role: {role}
  status: "running"
  conversation: {conversation}
  pane: {{"mux": "headless", "server": {server}, "id": "p1", "cwd": {cwd}}}
"""


class TestHandEditedSessions:
    """agent-sessions.yaml as people write it: YAML reads `no` as false and 0123 as 83."""

    def text(self, desk: Desk, *, head: str = HEAD, entry: str = ENTRY, **changes: str) -> str:
        with desk.mam.registry.view() as view:
            row, generation = view.session("writer"), sessions_yaml.generation(view)
        assert row is not None
        quoted = {"server": json.dumps(row.mux_server), "cwd": json.dumps(row.cwd)}
        fields = {"name": '"writer"', "role": '"creator"', "conversation": "null", **quoted, **changes}
        facts = {"generation": generation, "fingerprint": desk.mam.fingerprint}
        return head.format(**{**facts, **changes}) + entry.format(**fields)

    def take(self, desk: Desk, text: str) -> list[str]:
        path = desk.mam.layout.root / "edited.yaml"
        path.write_text(text, "utf-8")
        return sessions_yaml.take(desk.mam, path)

    def test_an_edited_role_is_taken(self, desk: Desk) -> None:
        desk.session()

        assert self.take(desk, self.text(desk, role="planner")) == ["writer"]

    @pytest.mark.parametrize("value", ["no", "0123", "1e3", "~", "2026-11-30", "12:30:45", "[a]", "0x1F", ".inf"])
    @pytest.mark.parametrize("member", ["name", "role", "conversation"])
    def test_what_yaml_reads_as_another_thing_is_refused(self, desk: Desk, member: str, value: str) -> None:
        before = desk.session(conversation="0123" if member == "conversation" else None)
        if (member, value) == ("conversation", "~"):
            value = "!!null"

        with pytest.raises((sessions_yaml.ImportRefused, UnknownSession, BadName)):
            self.take(desk, self.text(desk, **{member: value}))

        with desk.mam.registry.view() as view:
            assert view.session("writer") == before

    @pytest.mark.parametrize("identity", ["no", "0123", "1e3", "~", "null", "2026-11-30", " ", "a: b", "#", "%"])
    def test_an_id_that_looks_like_another_thing_is_printed_and_read_back_as_itself(
        self, desk: Desk, identity: str
    ) -> None:
        desk.session("no", conversation=identity)
        sessions_yaml.write(desk.mam)

        assert sessions_yaml.take(desk.mam, desk.mam.layout.sessions_yaml) == []
        text = desk.mam.layout.sessions_yaml.read_text("utf-8").replace('"creator"', '"planner"')
        assert self.take(desk, text) == ["no"]

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda text: text.replace("  role:", "  role: x\n  role:"),
            lambda text: text.replace('"mux":', '"id": "p9", "mux":'),
            lambda text: text + text[text.index("sessions:") :],
            lambda text: text.replace('"creator"', '"creator"\n  extra: 1'),
            lambda text: "x: &a [z]\n" + text,
            lambda text: text.replace('role: "creator"', "<<: {role: planner}"),
            lambda text: text.replace('"creator"', "!!python/object/apply:os.system ['true']"),
            lambda text: text.replace('"creator"', "&a [*a]"),
            lambda text: text.replace('"creator"', '"pla\\0nner"'),
            lambda text: text.replace("creator", "pla\x00nner"),
            lambda text: text[: len(text) // 2],
            lambda text: text.replace("generation: ", "generation: -"),
            lambda text: text.replace("generation: ", "generation: 1_"),
            lambda text: f"---\n{text}---\n{text}",
            lambda text: "\t" + text,
            lambda _: "",
            lambda _: "- - - -",
            lambda _: "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nsessions: *c",
            lambda _: "{" * 3000,
        ],
    )
    def test_what_is_not_plainly_the_file_with_another_role_is_refused(
        self, desk: Desk, spoil: Callable[[str], str]
    ) -> None:
        before = desk.session()

        with pytest.raises((sessions_yaml.ImportRefused, sessions_yaml.StaleImport, BadName)):
            self.take(desk, spoil(self.text(desk)))

        with desk.mam.registry.view() as view:
            assert view.session("writer") == before

    def test_a_session_that_stands_twice_is_refused(self, desk: Desk) -> None:
        before = desk.session()
        text = self.text(desk, role="planner")

        with pytest.raises(sessions_yaml.ImportRefused):
            self.take(desk, text + text[text.index("- name") :].replace("planner", "reviewer"))

        with desk.mam.registry.view() as view:
            assert view.session("writer") == before
