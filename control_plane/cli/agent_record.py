"""The job that an agent speaks of, and how its words are kept. Standard library only; no network, no database."""

import shlex
import sys
from pathlib import Path

from mam.broker import spool
from mam.broker.envelope import keys, signing, topics
from mam.broker.envelope.payloads import Producer
from mam.broker.errors import MamError, Usage
from mam.broker.host import atomic_files
from mam.control_plane.cli.base import Parser, emit
from mam.control_plane.config import layout as layouts
from mam.control_plane.config import settings as config


class NoRecord(MamError):
    """The jobs folder holds no record of this job."""

    job: str
    registry_dir: str

    code = "job_record_missing"
    exit_code = 2
    message = "there is no job {job} in {registry_dir}"
    remedy_text = "use the command as the prompt spells it out, with its absolute --registry-dir"


class NotNamed(MamError):
    """An agent's verb was called without the options that name its job."""

    hint: str

    code = "job_not_named"
    exit_code = 2
    message = "--job and --attempt are missing"
    remedy_text = "{hint}"


class NoSpool(MamError):
    """The agent cannot write to its spool, so what it says is not kept."""

    spool: str
    why: str

    code = "spool_unwritable"
    message = "{spool} cannot be written: {why}"
    remedy_text = "a sandboxed agent needs write access to it: `mam doctor --probe NAME` tells what is missing"


class Record:
    """job.json of one job, and the settings around it."""

    def __init__(self, registry_dir: Path, job: str, attempt: int) -> None:
        self.registry_dir, self.job, self.attempt = registry_dir, job, attempt
        self.folder = registry_dir / job
        content = atomic_files.read(self.folder / "job.json")
        places = [content.get(name) for name in ("key_file", "spool", "wake", "monitor_wake", "report")]
        if not all(isinstance(place, str) and place for place in places):
            raise NoRecord(job=job, registry_dir=str(registry_dir))
        key_file, self.spool, *wakes, self.report = (Path(str(place)) for place in places)
        self.key = keys.load(key_file)
        self.wakes = tuple(wakes)
        now = content.get("attempt")
        self.over = isinstance(now, int) and now > attempt  # the job was tried again
        review = content.get("review")
        self.review = {str(name): str(value) for name, value in review.items()} if isinstance(review, dict) else None

    def tell(self, kind: str, data: dict[str, object], *, beat: bool = False) -> str:
        """Sign and keep one event; return its id. Raises NoSpool."""
        body = Producer("verb").job_event(self.job, self.attempt, kind, data)
        topic = topics.job(self.job)
        wire = signing.seal(body, token=self.key, use=signing.USE_JOB, scope=self.job, topic=topic)
        try:
            spool.write(self.spool, str(body["id"]), topic, wire, beat=beat)
        except OSError as error:
            raise NoSpool(spool=str(self.spool), why=error.strerror or str(error)) from error
        # The runner carries it; where none reads, the monitor sweeps the spool itself.
        if not spool.wake(self.wakes[0]):
            spool.wake(self.wakes[1])
        return str(body["id"])

    @property
    def reported(self) -> Path:
        """What was reported of this attempt, once it is kept."""
        return self.folder / f".reported-{self.attempt}"


def common(parser: Parser) -> None:
    parser.add_argument("--registry-dir", metavar="DIR", help="the jobs folder, absolute, as in the prompt")
    parser.add_argument("--job", metavar="ID")
    parser.add_argument("--attempt", type=int, metavar="N")


def find(args: object) -> Record:
    values = vars(args)
    settings = config.load()
    if values["job"] is None or values["attempt"] is None:
        raise NotNamed(hint=_full_command(settings))
    job = topics.check_job_id(values["job"])
    if values["attempt"] < 1:
        raise Usage(what="--attempt counts from 1", hint="use the command as the prompt spells it out")
    return Record(_registry_dir(settings, values["registry_dir"]), job, values["attempt"])


def _registry_dir(settings: config.Settings, flag: str | None) -> Path:
    """Flag, then MAM_JOBS_DIR, then the control root's own."""
    if flag:
        return config.absolute(flag, settings.cwd)
    return layouts.layout(settings).jobs


def _full_command(settings: config.Settings) -> str:
    """The same command with everything it needs, for the job that is open in this pane."""
    spool_dir = settings.text("MAM_SPOOL")
    current = atomic_files.read(Path(spool_dir).parent / "open.json")
    if not {"registry_dir", "job", "attempt"} <= current.keys():
        return "no job is open in this pane: take --registry-dir, --job and --attempt from the prompt"
    flags = ["--registry-dir", current["registry_dir"], "--job", current["job"], "--attempt", current["attempt"]]
    return shlex.join(["mam", *sys.argv[1:3], *map(str, flags)])


def said(args: object, what: str, event: str) -> int:
    emit(args, {"said": what, "event": event}, f"{what}: kept as {event}")  # type: ignore[arg-type]
    return 0
