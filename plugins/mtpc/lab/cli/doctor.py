"""`mtpc doctor`."""

from __future__ import annotations

import typer
from rich.table import Table
from rich.text import Text

from mtpc.lab.console import console


def doctor() -> None:
    """Check that this machine can serve a drafter, and print the fix for each problem.

    Checks Python, libraries, the GPU, the installed engines, the draft methods and every integration point, which is a
    function of an engine that this project uses or patches. Exit code 1 if a check failed.

    Example:
    ```
    mtpc doctor
    ```
    """
    from mtpc.lab.doctor import examine

    findings = examine()
    table = Table("", "check", "found", "fix", show_lines=False)
    for finding in findings:
        status = Text("ok", "green") if finding.ok else Text("failed", "red")
        table.add_row(status, finding.subject, finding.detail, finding.fix)
    terminal = console()
    terminal.print(table)
    failed = sum(not finding.ok for finding in findings)
    terminal.print("all checks passed" if not failed else f"{failed} of {len(findings)} checks failed")
    if failed:
        raise typer.Exit(1)
