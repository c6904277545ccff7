"""A complete distillation: connect to a server or start one, generate conversations, record their provenance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256

from rich.console import Console
from rich.table import Table

from mtpc.files import provenance
from mtpc.lab.console import progress_on
from mtpc.lab.distill.questions import read_questions
from mtpc.lab.distill.run import Distillation
from mtpc.lab.distill.settings import DistillRequest
from mtpc.lab.servers.engine import ServerSettings
from mtpc.lab.servers.engine_registry import find_engine, must_be_installed
from mtpc.lab.servers.server import Server, base_url, exit_on_signals, running
from mtpc.lab.text.chat_template import ChatTemplate


@contextmanager
def server(request: DistillRequest) -> Iterator[Server]:
    """Provide a server: the one at ``url``, or one that is started and stopped again.

    Args:
        request: Options of the command.

    Yields:
        The running server.

    Raises:
        MTPCError: The engine is not installed or does not start.
    """
    if request.url is not None:
        yield Server(base_url(request.url), [])
        return
    engine = find_engine(request.engine, request.offline)
    must_be_installed(engine)
    plan, extra = request.plan, tuple(request.server_arg or ())
    settings = ServerSettings(request.target, plan.concurrency, plan.longest, extra=extra)
    with exit_on_signals(), running(engine, settings, request.out / "server.log") as answering:
        yield answering()


def distill(request: DistillRequest, console: Console) -> Distillation:
    """Generate conversations into ``request.out`` and print a summary.

    ``provenance.json`` is written even if the run is interrupted.

    Args:
        request: Options of the command.
        console: Console for the progress bar and the summary.

    Returns:
        The distillation, with its counts.

    Raises:
        MTPCError: A setting or file is wrong, or the server does not start or fails.
    """
    plan = request.plan
    questions = () if request.questions is None else read_questions(request.questions, plan.seed)
    work = Distillation(ChatTemplate(request.target), request.out, plan, questions)
    with progress_on(console) as progress:
        bar = progress.add_task("answer tokens", total=plan.tokens, completed=work.tokens.total())
        if not work.is_complete:
            with server(request) as served:
                try:
                    work.run(served.url, served.model(), lambda tokens: progress.update(bar, completed=tokens))
                finally:
                    write_provenance(work, request, served)
    console.print(summary(work))
    return work


def write_provenance(work: Distillation, request: DistillRequest, served: Server) -> None:
    """Write ``provenance.json`` next to the conversations."""
    provenance.write(
        request.out,
        target=request.target.name,
        target_provenance=provenance.read(request.target),
        server=served.command or served.url,
        plan={**asdict(work.plan), "user": asdict(work.plan.user)},
        questions_sha256=None if request.questions is None else sha256(request.questions.read_bytes()).hexdigest(),
        conversations=dict(work.conversations),
        answer_tokens=dict(work.tokens),
        left_out_in_this_run=dict(work.discarded),
    )


def summary(work: Distillation) -> Table:
    """Return a table of conversations by kind, and of discarded ones by reason."""
    table = Table("", "conversations", "answer tokens", title=str(work.folder))
    for kind, count in sorted(work.conversations.items()):
        table.add_row(kind, f"{count:,}", f"{work.tokens[kind]:,}")
    table.add_row("all", f"{work.conversations.total():,}", f"{work.tokens.total():,}", end_section=True)
    for reason, count in sorted(work.discarded.items()):
        table.add_row(f"discarded: {reason}", f"{count:,}", "")
    return table
