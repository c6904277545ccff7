"""`mtpc check-acceptance`."""

from __future__ import annotations

import typer

from mtpc.lab.check_acceptance.settings import CheckAcceptanceOptions
from mtpc.lab.options.settings import with_settings


@with_settings
def check_acceptance(options: CheckAcceptanceOptions) -> None:
    r"""Test that a running server accepts as many draft tokens as its drafter should have accepted.

    A server with a wrong head, norm, position or cache still generates the right output: it only accepts fewer draft
    tokens, down to an acceptance length of exactly 1.0. This command finds that.

    It sends prompts to the server and reads the engine's own counters of draft tokens. The reference implementation
    then drafts along the same outputs, without an engine and in float32. For each position, the command compares the
    acceptance rate of draft tokens that were verified after accepted ones. The rate's confidence interval must contain
    the expected rate. A correct server fails in less than 0.1% of runs.

    The server must draft chains of K tokens from the whole vocabulary, without prompt lookup. On a CPU, start it with
    "adaptive": false. Nothing else may use it meanwhile. Drafters of the engines' own have no reference implementation.

    Exit code 0 means as expected; 1 means lower or higher than expected.

    Examples:
    ```
    # Start a server, and check it once it has started.
    vllm serve --config serve_configs/vllm/byte.yaml \
        --additional-config '{"mtpc": {"adaptive": false}}' &
    mtpc check-acceptance http://127.0.0.1:8000 \
        --drafter weights/byte-mtpc-hmm-n8 --target weights/byte-target

    # Check sampled outputs, and keep all figures.
    mtpc check-acceptance http://127.0.0.1:8000 --temperature 1 \
        --drafter runs/fastmtp --target runs/smollm2 --out runs/check.json
    ```
    """
    from mtpc.lab.check_acceptance import command
    from mtpc.lab.console import console

    if command.check_acceptance(options, console()).outcome != "as expected":
        raise typer.Exit(1)
