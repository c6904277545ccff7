"""The report of `mtpc check-acceptance`: the result in one sentence, and the table behind it."""

from __future__ import annotations

from typing import Any, Literal

from mtpc.files.config_model import Strict
from mtpc.lab.check_acceptance.comparison import FALSE_ALARMS, AcceptanceRate
from mtpc.lab.table import Table

FIRST = (
    "The first draft token is wrong already. Likely causes: other weights than those of --drafter, a missing or wrong "
    "norm of the states that it reads, or another target (quantized, fine-tuned)."
)
LATER = (
    "The first draft token is right, so the weights and the states are. Likely causes: wrong positions or a stale "
    "cache in later draft steps, or a parallel part that knows the wrong tokens."
)
HIGHER = "The server drafts better than --drafter could. Likely cause: it loads another checkpoint."
Outcome = Literal["as expected", "lower than expected", "higher than expected"]


class AcceptanceReport(Strict):
    """The figures of a check; the fields are keys of its JSON file.

    Attributes:
        outcome: The result.
        sentence: The same with its reason.
        url: Address of the server.
        engine: Name of its engine.
        served: The drafter as the user named it to the server.
        drafter: Drafter checkpoint that it was compared with.
        target: Target of the reference implementation.
        temperature: Sampling temperature; 0 is greedy.
        requests: Number of outputs.
        length: Tokens of each output.
        num_drafts: Draft tokens per decoding step, K.
        acceptance_length: Mean tokens per target forward pass on the server, bonus token included.
        expected_length: The same of the reference implementation along the same outputs.
        rates: Conditional acceptance rates by position.
        total: All positions together.
        provenance: Command, versions and hardware.
    """

    outcome: Outcome
    sentence: str
    url: str
    engine: str
    served: str
    drafter: str
    target: str
    temperature: float
    requests: int
    length: int
    num_drafts: int
    acceptance_length: float
    expected_length: float
    rates: tuple[AcceptanceRate, ...]
    total: AcceptanceRate
    provenance: dict[str, Any]


def outcome_of(
    rates: tuple[AcceptanceRate, ...], total: AcceptanceRate, length: float, expected: float
) -> tuple[Outcome, str]:
    """Return the result of a check, and the sentences that state it.

    Args:
        rates: Rates by position.
        total: All positions together.
        length: The server's acceptance length.
        expected: That of the reference implementation.
    """
    lengths = f"acceptance length {length:.3f}, {expected:.3f} expected along the same outputs."
    lower = [rate for rate in (*rates, total) if rate.result == "lower than expected"]
    if lower:
        none = "" if total.accepted else " No draft token is ever accepted."
        cause = FIRST if lower[0].position in (1, None) else LATER
        return "lower than expected", f"lower than expected: {lengths}{none} {cause}"
    if any(rate.result == "higher than expected" for rate in (*rates, total)):
        return "higher than expected", f"higher than expected: {lengths} {HIGHER}"
    return "as expected", f"as expected: {lengths}"


def rates_table(report: AcceptanceReport) -> Table:
    """Return the table of the rates.

    Args:
        report: The report.

    Returns:
        A row for each position, and one for all together.
    """
    rows = [
        [
            "all" if rate.position is None else str(rate.position),
            str(rate.verified),
            str(rate.accepted),
            f"{rate.rate:.3f}" if rate.verified else "-",
            f"{rate.low:.3f} to {rate.high:.3f}" if rate.verified else "-",
            "-" if rate.result == "not reached" else f"{rate.expected:.3f}",
            rate.result,
        ]
        for rate in (*report.rates, report.total)
    ]
    title = (
        f"Acceptance of {report.served} on {report.engine}: draft tokens that were accepted, of those verified after "
        f"accepted ones (intervals hold together in {1 - FALSE_ALARMS:.1%} of runs)"
    )
    return Table(title, ["position", "verified", "accepted", "rate", "interval", "expected", "result"], rows)
