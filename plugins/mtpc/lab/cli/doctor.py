"""`mtpc doctor`."""

from __future__ import annotations

import typer
from rich.table import Table
from rich.text import Text

from mtpc.lab.console import console


def doctor() -> None:
    """Say whether this machine can serve a drafter, and what mends it if not.

    Looks at Python, torch, the GPU, the engines that are installed, the draft methods, and every place where an
    adapter of this project touches its engine: each line is ok or failed, a failed one with the mend. Exit code 1 if a
    line failed.

    Example: mtpc doctor
    """
    from mtpc.lab.doctor import examine

    findings = examine()
    table = Table("", "what", "found", "mend", show_lines=False)
    for finding in findings:
        verdict = Text("ok", "green") if finding.ok else Text("failed", "red")
        table.add_row(verdict, finding.subject, finding.detail, finding.mend)
    terminal = console()
    terminal.print(table)
    failed = sum(not finding.ok for finding in findings)
    terminal.print("everything is as it should be" if not failed else f"{failed} of {len(findings)} failed")
    if failed:
        raise typer.Exit(1)
