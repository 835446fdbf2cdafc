"""
Three protocols that agent CLIs speak to a model, reduced to one conversation and one act.

Every wire parses a request body and emits an act, whole or as server-sent events.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence

from mam.agents.stand_in.body import (
    Event,
    Json,
    Request,
    Wire,
    items_of,
    mapping,
    mappings,
    pieces,
    random_id,
    texts,
    tool,
    words,
)
from mam.agents.stand_in.policy import Act, Call, Item, ItemKind, Refuse, Say

CHAT_USAGE: Json = {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55}


class Chat:
    """OpenAI chat completions."""

    def parse(self, body: Json) -> Request:
        items: list[Item] = []
        for message in mappings(body.get("messages")):
            role = message.get("role")
            if role == "tool":
                items.append(Item("result", "\n".join(texts(message.get("content")))))
            elif role == "user":
                items += items_of("user", message.get("content"))
            elif role == "assistant":
                items += items_of("assistant", message.get("content"))
                for call in mappings(message.get("tool_calls")):
                    items.append(Item("call", str(mapping(call.get("function")).get("arguments"))))
        offered = [tool(mapping(spec.get("function")), "parameters") for spec in mappings(body.get("tools"))]
        return Request(items, offered, str(body.get("model")), bool(body.get("stream")))

    def whole(self, act: Say | Call, model: str) -> Json:
        message: dict[str, object] = {"role": "assistant", "content": words(act) or None}
        if isinstance(act, Call):
            message["tool_calls"] = [self._call(act)]
        choice = {"index": 0, "message": message, "finish_reason": self._finish(act)}
        return {**self._head(model, "chat.completion"), "choices": [choice], "usage": CHAT_USAGE}

    def events(self, act: Say | Call, model: str) -> Iterator[Event]:
        head = self._head(model, "chat.completion.chunk")
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        if isinstance(act, Call):
            deltas.append({"tool_calls": [{"index": 0, **self._call(act)}]})
        else:
            deltas += [{"content": piece} for piece in pieces(act.text)]
        for delta in deltas:
            yield Event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        last = {"index": 0, "delta": {}, "finish_reason": self._finish(act)}
        yield Event({**head, "choices": [last]})
        yield Event({**head, "choices": [], "usage": CHAT_USAGE})
        yield Event("[DONE]")

    def refusal(self, act: Refuse) -> Json:
        return openai_refusal(act)

    def _head(self, model: str, kind: str) -> Json:
        return {"id": random_id("chatcmpl-"), "object": kind, "created": int(time.time()), "model": model}

    def _finish(self, act: Act) -> str:
        return "tool_calls" if isinstance(act, Call) else "stop"

    def _call(self, act: Call) -> Json:
        function = {"name": act.name, "arguments": json.dumps(act.args)}
        return {"id": random_id("call_"), "type": "function", "function": function}


class Responses:
    """OpenAI Responses."""

    def parse(self, body: Json) -> Request:
        given = body.get("input")
        items = items_of("user", given) if isinstance(given, str) else []
        for entry in mappings(given):
            kind, role = str(entry.get("type", "message")), entry.get("role")
            if kind.endswith("_output"):
                items.append(Item("result", "\n".join(texts(entry.get("output")))))
            elif kind.endswith("_call"):
                items.append(Item("call", str(entry.get("arguments") or entry.get("action"))))
            elif kind == "message" and role in ("user", "assistant"):
                items += items_of("user" if role == "user" else "assistant", entry.get("content"))
        offered = [tool(spec, "parameters") for spec in mappings(body.get("tools"))]
        return Request(items, offered, str(body.get("model")), bool(body.get("stream")))

    def whole(self, act: Say | Call, model: str) -> Json:
        return self._response(model, "completed", [self._item(act)])

    def events(self, act: Say | Call, model: str) -> Iterator[Event]:
        item = self._item(act)
        begun = self._response(model, "in_progress", [])
        numbered = enumerate(self._steps(act, item))
        yield Event({"type": "response.created", "sequence_number": 0, "response": begun}, "response.created")
        for number, (kind, data) in numbered:
            yield Event({"type": kind, "sequence_number": number + 1, "output_index": 0, **data}, kind)
        done = {**self._response(model, "completed", [item]), "id": begun["id"]}
        last = {"type": "response.completed", "sequence_number": 99, "response": done}
        yield Event(last, "response.completed")

    def refusal(self, act: Refuse) -> Json:
        return openai_refusal(act)

    def _steps(self, act: Say | Call, item: Json) -> Iterator[tuple[str, Json]]:
        of: Json = {"item_id": item["id"]}
        if isinstance(act, Call):
            yield "response.output_item.added", {"item": {**item, "status": "in_progress"}}
            if item["type"] == "function_call":
                yield "response.function_call_arguments.done", {**of, "arguments": item["arguments"]}
        else:
            part = {"type": "output_text", "text": "", "annotations": []}
            yield "response.output_item.added", {"item": {**item, "status": "in_progress", "content": []}}
            yield "response.content_part.added", {**of, "content_index": 0, "part": part}
            for piece in pieces(act.text):
                yield "response.output_text.delta", {**of, "content_index": 0, "delta": piece}
            yield "response.output_text.done", {**of, "content_index": 0, "text": act.text}
        yield "response.output_item.done", {"item": item}

    def _item(self, act: Say | Call) -> Json:
        if isinstance(act, Say):
            part = {"type": "output_text", "text": act.text, "annotations": []}
            ids = {"type": "message", "id": random_id("msg_"), "role": "assistant"}
            return {**ids, "status": "completed", "content": [part]}
        if act.name == "local_shell":
            ids = {"type": "local_shell_call", "id": random_id("ls_"), "call_id": random_id("call_")}
            return {**ids, "action": {"type": "exec", "command": act.args["command"]}}
        names = {"type": "function_call", "id": random_id("fc_"), "call_id": random_id("call_"), "name": act.name}
        return {**names, "arguments": json.dumps(act.args), "status": "completed"}

    def _response(self, model: str, status: str, output: Sequence[Json]) -> Json:
        usage = {"input_tokens": 50, "output_tokens": 5, "total_tokens": 55}
        head = {"id": random_id("resp_"), "object": "response", "created_at": int(time.time()), "model": model}
        return {**head, "status": status, "output": output, "usage": usage if output else None}


class Messages:
    """Anthropic Messages."""

    def parse(self, body: Json) -> Request:
        items: list[Item] = []
        for message in mappings(body.get("messages")):
            kind: ItemKind = "user" if message.get("role") == "user" else "assistant"
            content = message.get("content")
            items += items_of(kind, content) if isinstance(content, str) else []
            for block in mappings(content):
                if block.get("type") == "tool_result":
                    items.append(Item("result", "\n".join(texts(block.get("content")))))
                elif block.get("type") == "tool_use":
                    items.append(Item("call", json.dumps(block.get("input"))))
                else:
                    items += items_of(kind, [block])
        offered = [tool(spec, "input_schema") for spec in mappings(body.get("tools"))]
        return Request(items, offered, str(body.get("model")), bool(body.get("stream")))

    def whole(self, act: Say | Call, model: str) -> Json:
        ids = {"id": random_id("msg_"), "type": "message", "role": "assistant", "model": model}
        usage = {"input_tokens": 50, "output_tokens": 5}
        stop = {"stop_reason": self._stop(act), "stop_sequence": None}
        return {**ids, "content": [self._block(act)], **stop, "usage": usage}

    def events(self, act: Say | Call, model: str) -> Iterator[Event]:
        block = self._block(act)
        message = {**self.whole(act, model), "content": [], "stop_reason": None}
        deltas: list[Json]
        if isinstance(act, Call):
            block = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(act.args)}]
        else:
            block = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(act.text)]
        steps: list[tuple[str, Json]] = [
            ("message_start", {"message": message}),
            ("content_block_start", {"index": 0, "content_block": block}),
            *(("content_block_delta", {"index": 0, "delta": delta}) for delta in deltas),
            ("content_block_stop", {"index": 0}),
            ("message_delta", {"delta": {"stop_reason": self._stop(act)}, "usage": {"output_tokens": 5}}),
            ("message_stop", {}),
        ]
        for kind, data in steps:
            yield Event({"type": kind, **data}, kind)

    def refusal(self, act: Refuse) -> Json:
        kinds = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
        error = {"type": kinds.get(act.status, "api_error"), "message": f"the stand-in answers {act.status}"}
        return {"type": "error", "error": error}

    def _block(self, act: Say | Call) -> Json:
        if isinstance(act, Say):
            return {"type": "text", "text": act.text}
        return {"type": "tool_use", "id": random_id("toolu_"), "name": act.name, "input": act.args}

    def _stop(self, act: Act) -> str:
        return "tool_use" if isinstance(act, Call) else "end_turn"


def openai_refusal(act: Refuse) -> Json:
    kinds = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
    code = kinds.get(act.status, "server_error")
    return {"error": {"message": f"the stand-in answers {act.status}", "type": code, "code": code}}


# By the end of the path, so that every base path works.
WIRES: Mapping[str, Wire] = {"/chat/completions": Chat(), "/responses": Responses(), "/messages": Messages()}
