"""How text reaches a program in a pane: whole, in one piece, and with nothing in it that acts as a key."""

import threading
import unicodedata

import pytest

from tests.support import until
from tests.support.panes import Panes

BEGIN, END = b"\x1b[200~", b"\x1b[201~"
TEXTS = {
    "many lines": "first\n\n  third, indented\nlast",
    "leading dash": "-n --help -- -",
    "trailing semicolon": "do it; now;",
    "only a semicolon": ";",
    "tabs": "\tone\t\ttwo\t",
    "quotes": "'single' \"double\" `back` $HOME $(id) \\ \\n",
    "formats": "#{pane_id} #(id) #S %H {} {",
    "unicode": "한국어 ✓ é ünï 👩‍💻 \u202e \u2028 end",
    "one letter": "x",
    "trailing line breaks": "text\n\n",
    "spaces": "   ",
}


def bracketed(text: str) -> bytes:
    return BEGIN + text.encode() + END


class TestPaste:
    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
    def test_text_arrives_in_one_bracketed_piece_and_enter_is_a_key_of_its_own(self, panes: Panes, text: str) -> None:
        reader = panes.reader()
        panes.mux.paste(reader.pane.id, text)
        assert reader.await_end(END) == bracketed(text)
        panes.mux.press(reader.pane.id, "Enter")
        assert reader.await_end(b"\r") == bracketed(text) + b"\r"

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
    def test_a_program_that_did_not_ask_gets_no_brackets(self, panes: Panes, text: str) -> None:
        reader = panes.reader(bracketed=False)
        panes.mux.paste(reader.pane.id, text)
        panes.mux.press(reader.pane.id, "Enter")
        assert reader.await_end(b"\r") == text.encode() + b"\r"

    @pytest.mark.parametrize("asks", [True, False])
    def test_300_kb_arrive_complete(self, panes: Panes, asks: bool) -> None:
        text = "".join(f"{number:06d} 한 줄 'of' text;\n" for number in range(12_000))
        assert len(text.encode()) > 300_000
        reader = panes.reader(bracketed=asks)
        panes.mux.paste(reader.pane.id, text)
        panes.mux.press(reader.pane.id, "Enter")
        assert reader.await_end(b"\r") == (bracketed(text) if asks else text.encode()) + b"\r"

    def test_no_control_but_line_feed_and_tab_reaches_the_program(self, panes: Panes) -> None:
        everything = "".join(chr(code) for code in range(0x100))
        text = f"a\x1b[201~\x03b\x00{everything}\x9b201~z"
        clean = "".join(c for c in text.replace("\r", "\n") if c in "\n\t" or unicodedata.category(c) != "Cc")
        reader = panes.reader()
        panes.mux.paste(reader.pane.id, text)
        assert reader.await_end(b"z" + END) == bracketed(clean)

    def test_an_end_mark_inside_the_text_does_not_end_the_bracket(self, panes: Panes) -> None:
        reader = panes.reader()
        panes.mux.paste(reader.pane.id, "harmless\x1b[201~\rrm -rf /\r")
        got = reader.await_end(END)
        assert got.count(END) == 1 and b"\r" not in got

    def test_dos_line_ends_become_line_feeds(self, panes: Panes) -> None:
        reader = panes.reader()
        panes.mux.paste(reader.pane.id, "one\r\ntwo\rthree\n\r\nend")
        assert reader.await_end(END) == bracketed("one\ntwo\nthree\n\nend")

    def test_half_a_surrogate_pair_is_replaced_and_the_rest_arrives(self, panes: Panes) -> None:
        reader = panes.reader()
        panes.mux.paste(reader.pane.id, "before \ud83d after")
        assert reader.await_end(END) == bracketed("before ? after")

    @pytest.mark.parametrize("text", ["", "\x00\x1b"], ids=["empty", "only controls"])
    def test_pasting_nothing_is_harmless(self, panes: Panes, text: str) -> None:
        reader = panes.reader()
        panes.mux.paste(reader.pane.id, text)
        panes.mux.paste(reader.pane.id, "more")
        assert reader.await_end(b"more" + END).replace(BEGIN, b"").replace(END, b"") == b"more"

    @pytest.mark.parametrize(("key", "typed"), [("Enter", b"\r"), ("Escape", b"\x1b"), ("C-c", b"\x03")])
    def test_a_key_arrives_as_its_byte_alone(self, panes: Panes, key: str, typed: bytes) -> None:
        reader = panes.reader()
        panes.mux.press(reader.pane.id, key)
        assert until(lambda: reader.got) == typed

    def test_pastes_into_two_panes_at_once_do_not_mix(self, panes: Panes) -> None:
        readers = {word: panes.reader() for word in ("alpha", "omega")}
        texts = {word: f"{word}\n" * 20_000 for word in readers}
        threads = [
            threading.Thread(target=panes.mux.paste, args=(readers[word].pane.id, texts[word])) for word in readers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for word, reader in readers.items():
            assert reader.await_end(END) == bracketed(texts[word])

    def test_two_clients_that_paste_into_one_pane_at_once_do_not_cut_into_each_other(self, panes: Panes) -> None:
        reader = panes.reader()
        texts = [f"{word} " * 100_000 for word in ("one", "two", "six")]  # each far over what a pipe takes at once
        clients = [panes.client(panes.environ) for _ in texts]
        threads = [
            threading.Thread(target=client.paste, args=(reader.pane.id, text))
            for client, text in zip(clients, texts, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        whole = sum(len(bracketed(text)) for text in texts)
        got = until(lambda: reader.got if len(reader.got) >= whole else None)
        assert sorted(got.removesuffix(END).split(END)) == sorted(bracketed(text).removesuffix(END) for text in texts)

    def test_what_is_typed_into_a_shell_shows_on_its_screen(self, panes: Panes) -> None:
        pane = panes.open("sh", "-c", "printf 'who? '; read name; echo \"hello $name\"; sleep 3600")
        panes.await_text(pane, "who?")
        panes.mux.paste(pane.id, "han")
        assert "hello" not in panes.await_text(pane, "who? han")
        panes.mux.press(pane.id, "Enter")
        panes.await_text(pane, "hello han")
