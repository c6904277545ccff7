"""A whole distillation: a server started or reached, conversations written, their origin noted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.lab.console import progress_on
from mtpc.lab.distill.questions import read_questions
from mtpc.lab.distill.run import Distillation, Plan
from mtpc.lab.servers.engine import ServerSettings
from mtpc.lab.servers.engine_registry import find_engine, must_be_installed
from mtpc.lab.servers.server import Server, exit_on_signals, running
from mtpc.lab.text.chat_template import ChatTemplate


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    target: Path
    out: Path
    engine: str = "vllm"
    url: str | None = None  # of a running server
    server_arguments: tuple[str, ...] = ()
    offline: bool = False
    questions: Path | None = None  # a file

    def __post_init__(self) -> None:
        if self.url is not None and self.offline:
            raise MTPCError("--offline writes with an engine that it starts itself; it does not go with --url.")


@contextmanager
def server(request: Request, plan: Plan) -> Iterator[Server]:
    """The server to write with: the one at ``url``, or one of our own that is gone afterwards.

    Errors: `MTPCError` where the engine is not installed or does not start.
    """
    if request.url is not None:
        yield Server(request.url.rstrip("/"), [])
        return
    engine = find_engine(request.engine, request.offline)
    must_be_installed(engine)
    settings = ServerSettings(request.target, plan.concurrency, plan.longest, extra=request.server_arguments)
    with exit_on_signals(), running(engine, settings, request.out / "server.log") as answering:
        yield answering()


def distill(request: Request, plan: Plan, console: Console) -> Distillation:
    """Write conversations into ``request.out``, then ``provenance.json``, also when it is broken off.

    Errors: `MTPCError` for settings or files that are wrong, or a server that does not start or breaks off.
    """
    questions = () if request.questions is None else read_questions(request.questions, plan.seed)
    work = Distillation(ChatTemplate(request.target), request.out, plan, questions)
    with progress_on(console) as progress:
        bar = progress.add_task("tokens of answers", total=plan.tokens, completed=work.tokens.total())
        if not work.enough:
            with server(request, plan) as served:
                try:
                    work.run(served.url, served.model(), lambda tokens: progress.update(bar, completed=tokens))
                finally:
                    write_provenance(work, request, served)
    console.print(summary(work))
    return work


def write_provenance(work: Distillation, request: Request, served: Server) -> None:
    """``provenance.json`` beside the conversations."""
    provenance.write(
        request.out,
        target=request.target.name,
        target_provenance=provenance.read(request.target),
        server=served.command or served.url,
        plan=asdict(work.plan),
        questions_sha256=None if request.questions is None else sha256(request.questions.read_bytes()).hexdigest(),
        conversations=dict(work.conversations),
        answer_tokens=dict(work.tokens),
        left_out_in_this_run=dict(work.left_out),
    )


def summary(work: Distillation) -> Table:
    """What there is, by kind, and what was left out."""
    table = Table("", "conversations", "tokens of answers", title=str(work.folder))
    for kind, count in sorted(work.conversations.items()):
        table.add_row(kind, f"{count:,}", f"{work.tokens[kind]:,}")
    table.add_row("all", f"{work.conversations.total():,}", f"{work.tokens.total():,}", end_section=True)
    for reason, count in sorted(work.left_out.items()):
        table.add_row(f"left out: {reason}", f"{count:,}", "")
    return table
