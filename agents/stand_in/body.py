"""What all wires share: the shape of a request, of an event, and careful reading of a body."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from mam.agents.stand_in.policy import Act, Call, Item, ItemKind, Refuse, Say, Tool

Json = Mapping[str, object]


class Request(NamedTuple):
    """What a body asks, whatever its protocol."""

    items: Sequence[Item]
    tools: Sequence[Tool]
    model: str
    stream: bool


class Event(NamedTuple):
    """One server-sent event. Data that is no mapping goes out as it is."""

    data: Json | str
    name: str = ""

    def encode(self) -> bytes:
        head = f"event: {self.name}\n" if self.name else ""
        body = self.data if isinstance(self.data, str) else json.dumps(self.data)
        return f"{head}data: {body}\n\n".encode()


class Wire(Protocol):
    def parse(self, body: Json) -> Request: ...

    def whole(self, act: Say | Call, model: str) -> Json: ...

    def events(self, act: Say | Call, model: str) -> Iterator[Event]: ...

    def refusal(self, act: Refuse) -> Json: ...


def mappings(value: object) -> list[Json]:
    """The objects in a list, or none where it is no list: a body is not to be trusted."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def texts(content: object) -> list[str]:
    """The text blocks of a message's content."""
    if isinstance(content, str):
        return [content]
    return [str(block["text"]) for block in mappings(content) if block.get("text")]


def items_of(kind: ItemKind, content: object) -> list[Item]:
    """One item a block: a CLI puts its own reminders beside the user's words."""
    return [Item(kind, text) for text in texts(content)]


def tool(spec: Json, schema_key: str) -> Tool:
    schema = spec.get(schema_key)
    return Tool(str(spec.get("name") or spec.get("type")), schema if isinstance(schema, Mapping) else {})


def mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def random_id(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4().hex[:20]}"


def pieces(text: str, size: int = 16) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]


def words(act: Act) -> str:
    return act.text if isinstance(act, Say) else ""
