"""Topics and signatures."""

from tests.mutants.mutant import Mutant

_TOPICS, _SIGNING = "broker/envelope/topics.py", "broker/envelope/signing.py"
_TOPIC_TESTS = ("tests/broker/envelope/test_topics.py",)
_SIGNING_TESTS = ("tests/broker/envelope/test_signing.py", "tests/broker/envelope/test_signing_matrix.py")


def _topic(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(f"topic-{name}", rule, _TOPICS, old, new, _TOPIC_TESTS)


_SPELLED = "the whole message is spelled again and compared, which refuses it with the same outcome"


def _sign(name: str, rule: str, old: str, new: str, reason: str = "") -> Mutant:
    return Mutant(f"sign-{name}", rule, _SIGNING, old, new, _SIGNING_TESTS, reason)


ROWS = (
    _topic("job-id", "a job id is 8 to 64 plain characters", '[a-z0-9_-]{7,63}")', '[a-z0-9_-]{0,63}")'),
    _topic(
        "name", "a name begins with a letter", 're.compile(r"[a-z][a-z0-9_-]{0,47}")', 're.compile(r"[a-z0-9_-]{1,48}")'
    ),
    _topic(
        "job-whole",
        "an id must fit as a whole",
        "if not JOB_ID.fullmatch(job_id):",
        "if not JOB_ID.match(job_id):",
    ),
    _topic(
        "name-whole",
        "a name must fit as a whole",
        "if not NAME.fullmatch(name):",
        "if not NAME.match(name):",
    ),
    _topic(
        "parse-job",
        "a topic with a wrong job id is none of ours",
        'case ["jobs", job_id] if JOB_ID.fullmatch(job_id):',
        'case ["jobs", job_id]:',
    ),
    _topic(
        "parse-agent",
        "a topic with a wrong session is none of ours",
        "if NAME.fullmatch(session) and place in _AGENT_PLACES:",
        "if place in _AGENT_PLACES:",
    ),
    _topic(
        "parse-state",
        "a job's state has its own kind of topic",
        'return Address("job_state", job_id)',
        'return Address("job", job_id)',
    ),
    _topic("root", "M37: the fingerprint roots the topics", 'return f"mam/{fingerprint}"', 'return "mam"'),
    _sign(
        "mac",
        "M96: a wrong signature is refused",
        "if not hmac.compare_digest(expected, wrapper.mac):",
        "if False:",
    ),
    _sign(
        "topic",
        "M96: a message is bound to its topic",
        'parts = (b"v1", kid.encode(), topic.encode())',
        'parts = (b"v1", kid.encode(), b"")',
    ),
    _sign(
        "scope",
        "M96: a key is one scope's alone",
        "keys.derive(token, use, scope), data",
        'keys.derive(token, use, "jobs/x"), data',
    ),
    _sign(
        "use",
        "M96: a key is for one use alone",
        "keys.derive(token, use, scope), data",
        'keys.derive(token, "event", scope), data',
    ),
    _sign(
        "kid",
        "the name of the key is signed as well",
        'parts = (b"v1", kid.encode(), topic',
        'parts = (b"v1", b"k1", topic',
    ),
    _sign("unknown-key", "an unknown key is refused", 'refuse("unknown_key", "kid")', 'refuse("bad_signature", "kid")'),
    _sign(
        "too-large",
        "a message over the limit is refused",
        "    if len(wire) > MAX_WIRE_BYTES:\n        refuse",
        "    if len(wire) > 2 * MAX_WIRE_BYTES:\n        refuse",
    ),
    _sign(
        "members",
        "an envelope has exactly its members",
        'or list(members) != ["v", "kid", "body", "sig"]:',
        'or not {"v", "kid", "body", "sig"} <= set(members):',
    ),
    _sign(
        "version",
        "another version is refused",
        "if type(version) is not int or version != 1:",
        "if type(version) is not int:",
    ),
    _sign("version-type", "true is no version", "if type(version) is not int or version != 1:", "if version != 1:"),
    _sign(
        "scheme", "another signature scheme is refused", "if not sig.startswith(_SIG_PREFIX):", "if False:", _SPELLED
    ),
    _sign("spelling", "a message has one spelling", "if _encode_wrapper(*wrapper) != wire:", "if False:"),
    _sign("plain-body", "a body's base64 has one spelling", "if plain and _canonical(plain[2]) and", "if plain and"),
    _sign("plain-signature", "a signature's base64 has one spelling", " and _canonical(plain[3]):", ":"),
    _sign("base64", "base64 has one spelling", "if _b64(data) != text:", "if False:", _SPELLED),
    _sign("twice", "a key stands once", "if len(members) != len(pairs):", "if False:"),
    _sign("object", "a body is an object", "if not isinstance(body, dict):", "if False:"),
    _sign(
        "numbers",
        "no float is a body's",
        "parse_float=_no_number, ",
        "",
    ),
    _sign(
        "surrogates",
        "half of a surrogate pair is refused",
        'if "\\\\u" in text:',
        'if "\\\\x" in text:',
    ),
)
