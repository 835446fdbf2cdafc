"""
Compare every verb of this `mam` with the released one's, on one control root that the released one recorded.

Compared are exit codes, error codes, JSON (values and all), and the flags that --help names. Texts for people are not.
Usage: python -m tests.compatibility.compare_verbs; exit code 1 where something differs that ALLOWED does not name.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compatibility.recorded_root import environment, record
from tests.compatibility.verb_cases import Case, cases
from tests.support.installations import Installation, current, install

DRIVER = Path(__file__).with_name("run_verbs.py")

# What is meant to differ, as patterns of a command line and of a place in its outcome, and why.
ALLOWED: dict[tuple[str, str], str] = {
    (r"mam status --json", r"json\[0\]\.schema"): "the snapshot that every face shows says which form it has",
    (r"mam why loop-.* --json", r"json\[0\]\.awaited"): "a sentence for people, now in plain English",
    (r"mam status --json", r"json\[0\]\.wants"): "what agents want of a person, with the commands",
    (r"mam why job-open --json", r"json\[0\]\.(awaited|because)"): "all open questions are named, with their choices",
    (r"mam job show .* --json", r"json\[0\]\.questions"): "questions with their answers",
    (r"mam job show --help", r"flags"): "--report came since",
    (r"mam job wait .* --json", r"json\[0\]\.next"): "the next step after an end without a report",
    (r"mam job wait job-open --timeout 0.1 --json", r"error"): "a wait that no monitor can end says so at once",
    (r"mam job ask .*", r"json\[0\]\.(poll|question)"): "the question's id, and the command that looks for its answer",
    (r"mam job ask --help", r"flags"): "--poll came since",
    (r"mam (status|up) --json", r"json\[0\]\.runtime"): "which mam serves the control root",
    (r"mam init --help", r"flags"): "--runtime came since",
    (r"mam completion .*", r"words\.(stand-in|sample|check|trust)"): "verbs that came since",
    (r"mam completion .*", r"words\.(creator|reviewers|noun|of|to|probe|n|l|x)"): "names are offered by kind of thing",
    (r"mam \w+ --help", r"flags"): "the help of a noun names --help and --json, which it always had",
    (r"mam doctor.* --json", r"json\[0\]\.findings"): "the doctor says which agent CLIs there are",
    (r"mam init.* --json", r"json\[0\]\.agent_clis"): "which agent CLIs there are to start",
    (r"mam down --json", r"json\[0\]\.agents"): "the agents that go on",
}
# What each run makes anew: there such values are compared by their form alone.
BY_CHANCE: dict[tuple[str, str], str] = {
    (r"mam job (started|heartbeat|progress|ask|report) .*", r"json\[0\]\.event"): "the id of a new event",
    (r"mam init --copied --json", r"json\[0\]\.fingerprint"): "a copy gets a fingerprint of its own",
    (r"mam worktree commit .*", r"json\[0\]\.commit"): "a commit's hash is made of the time as well",
}

Outcome = dict[str, Any]  # code, error, json, flags


@dataclass(frozen=True)
class Difference:
    """One place in one verb's outcome."""

    case: Case
    where: str
    before: object
    after: object

    def __str__(self) -> str:
        at = "" if self.case.cwd == "repo" else f" (in {self.case.cwd})"
        return f"{self.case.name}{at}\n    {self.where}: {_short(self.before)}\n      now: {_short(self.after)}"

    def named_in(self, table: Mapping[tuple[str, str], str]) -> bool:
        return any(re.fullmatch(words, self.case.name) and re.fullmatch(at, self.where) for words, at in table)

    @property
    def is_chance(self) -> bool:
        """Whether both are hex of one length, at a place where each run makes its own."""
        forms = [re.sub("[0-9a-f]", "x", value) for value in (self.before, self.after) if isinstance(value, str)]
        return len(forms) == 2 and forms[0] == forms[1] and self.named_in(BY_CHANCE)

    @property
    def is_meant(self) -> bool:
        return self.named_in(ALLOWED)


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"


def compare(old: Installation, folder: Path) -> list[Difference]:
    """Have *old* record a root in *folder*, run all cases with both versions, and return everything that differs."""
    place, store = folder / "place", folder / "store"
    record(old, place)
    os.rename(place, store)
    chosen, clock = cases(), time.time_ns()
    both = (old, current())
    before, after = (_outcomes(mam, chosen, place, store, clock, both) for mam in both)
    found = [
        Difference(case, where, was, now)
        for case, one, other in zip(chosen, before, after, strict=True)
        for where, was, now in _between("", one, other)
    ]
    return [each for each in found if not each.is_chance]


def _outcomes(
    mam: Installation, chosen: list[Case], place: Path, store: Path, clock_ns: int, both: tuple[Installation, ...]
) -> list[Outcome]:
    scratch = Path(tempfile.mkdtemp(dir=store.parent))
    request = {
        "cases": [
            {"words": [word.replace("@PLACE@", str(place)) for word in case.words], "acts": case.acts}
            | {"cwd": case.cwd, "stdin": case.stdin, "env": dict(case.env)}
            for case in chosen
        ],
        "store": str(store),
        "place": str(place),
        "clock_ns": clock_ns,
        "out": str(scratch / "outcomes.json"),
    }
    (scratch / "request.json").write_text(json.dumps(request), "utf-8")
    place.mkdir(exist_ok=True)
    env = environment(mam, place, MAM_NO_SUBSCRIBER_DAEMON="1", PYTHONDONTWRITEBYTECODE="1")
    subprocess.run([mam.python, str(DRIVER), str(scratch / "request.json")], env=env, cwd=scratch, check=True)
    raw = json.loads((scratch / "outcomes.json").read_text("utf-8"))
    return [_outcome(case, each, both) for case, each in zip(chosen, raw, strict=True)]


def _outcome(case: Case, raw: Mapping[str, Any], both: tuple[Installation, ...]) -> Outcome:
    """What is compared of a verb's outcome."""
    if "--help" in case.words:
        return {"code": raw["code"], "flags": sorted(set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", raw["out"])))}
    made: Outcome = {"code": raw["code"]}
    if case.words[:1] == ("completion",) and raw["code"] == 0:
        made["words"] = dict.fromkeys(re.findall(r"[a-z][a-z_-]*", raw["out"]), "there")
    elif "--json" in case.words:
        error = _last_json(raw["err"])
        made["error"] = error.get("error", {}).get("code") if isinstance(error, dict) else None
        made["json"] = _steady(_lines(raw["out"]), [str(mam.scripts) for mam in both])
    return made


def _last_json(text: str) -> object:
    lines = text.strip().splitlines()
    try:
        return json.loads(lines[-1]) if lines else None
    except ValueError:
        return None


def _lines(text: str) -> list[object]:
    """Each line as the JSON that it is; a verb whose result is no JSON, in spite of --json, has its text compared."""
    try:
        return [json.loads(line) for line in text.splitlines()]
    except ValueError:
        return [text]


def _steady(value: Any, scripts: list[str]) -> Any:
    """*value* with one word for the folders of both installations."""
    if isinstance(value, dict):
        return {name: _steady(each, scripts) for name, each in value.items()}
    if isinstance(value, list):
        return [_steady(each, scripts) for each in value]
    if isinstance(value, str):
        for folder in scripts:
            value = value.replace(folder, "<scripts>")
    return value


def _between(where: str, before: Any, after: Any) -> Iterator[tuple[str, object, object]]:
    """The deepest places at which two values differ, as paths."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            inner = f"{where}.{name}".lstrip(".")
            yield from _between(inner, before.get(name, "<missing>"), after.get(name, "<missing>"))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _between(f"{where}[{number}]", one, other)
    elif before != after:
        yield where, before, after


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="mam-compare-") as folder:
        found = compare(install(Path(folder) / "released"), Path(folder))
    new = [each for each in found if not each.is_meant]
    for each in new:
        print(each)
    print(f"{len(cases())} command lines, {len(found) - len(new)} differences that are meant, {len(new)} that are not")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
