"""`mtpc doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from mtpc.lab.console import console

if TYPE_CHECKING:
    from mtpc.lab.doctor import CheckResult


def doctor(
    verbose: Annotated[bool, typer.Option("--verbose", help="Print every integration point.")] = False,
) -> None:
    """Check that this machine can serve a drafter, and print the fix for each problem.

    Checks Python, libraries, the GPU, the installed engines, the draft methods and every integration point, which is a
    function of an engine that this project uses or patches. Each adapter is one line, followed by the integration
    points that failed. Exit code 1 if a check failed.

    Example:
    ```
    mtpc doctor
    ```
    """
    from mtpc.lab.doctor import examination

    found = examination()
    findings = found.all
    terminal = console()
    terminal.print(findings_table(findings if verbose else found.short))
    failed = sum(not finding.ok for finding in findings)
    terminal.print("all checks passed" if not failed else f"{failed} of {len(findings)} checks failed")
    if failed:
        raise typer.Exit(1)


def findings_table(findings: Iterable[CheckResult]) -> Table:
    """Return findings as a table, with the fix of each below what was found."""
    table = Table(show_lines=False)
    table.add_column()
    for heading in ("check", "found"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        status = Text("ok", "green") if finding.ok else Text("failed", "red")
        detail = "\n".join(filter(None, (finding.detail, finding.fix)))
        table.add_row(status, Text(finding.subject), Text(detail))
    return table
