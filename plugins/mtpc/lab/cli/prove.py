"""`mtpc prove`."""

from __future__ import annotations

import typer

from mtpc.lab.options.settings import with_settings
from mtpc.lab.prove.settings import ProveOptions


@with_settings
def prove(options: ProveOptions) -> None:
    """Test that a server with any drafter has the same output distribution as the same server without one.

    Greedy outputs must equal the baseline's, at batch size 1 and among concurrent requests. Where they differ, the gap
    of log-probabilities separates rounding (bfloat16) from a fault.

    Sampled outputs must follow the distribution that the baseline states. Chi-square tests compare the joint
    distribution of the first tokens. Further tests check every token of longer outputs: in total, by position, and
    together with the previous token and with concurrent outputs. Repeated requests must not repeat their output.

    The baseline takes the same tests; if it fails one, nothing is proved. All tests together reject a correct server in
    0.1% of runs. The report states the smallest difference that each test detects.

    The command writes report.json and report.html. Exit code 0 means the same distribution; 1 means that it differs, or
    that nothing is proved.

    Examples:
    ```
    # Compare two running servers.
    mtpc prove http://127.0.0.1:8000 --baseline-url http://127.0.0.1:8001

    # If only one server fits into memory: record it, stop it, and compare.
    mtpc prove http://127.0.0.1:8000 --record runs/a.json
    mtpc prove --recorded runs/a.json --baseline-url http://127.0.0.1:8001

    # Detect smaller faults with ten times the samples.
    mtpc prove http://127.0.0.1:8000 --record runs/a.json --samples 40000
    ```
    """
    from mtpc.lab.console import console
    from mtpc.lab.prove import command

    report = command.prove(options, options.plan, console())
    if report is not None and report.verdict != "the same":
        raise typer.Exit(1)
