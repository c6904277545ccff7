"""The whole of `mtpc check-acceptance`: ask the server, compute what is expected, compare and report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from rich.console import Console

from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.lab.check_acceptance.comparison import compare_rates
from mtpc.lab.check_acceptance.expectation import AcceptanceReference
from mtpc.lab.check_acceptance.report import AcceptanceReport, outcome_of, rates_table
from mtpc.lab.check_acceptance.served_drafter import adaptive_lengths, served_drafter
from mtpc.lab.check_acceptance.settings import CheckAcceptanceOptions
from mtpc.lab.console import progress_on
from mtpc.lab.evaluation.acceptance import ExpectedCounts
from mtpc.lab.evaluation.prompts import Prompts, check_prompts
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.engine_api import CompletionRequest, TokenIds
from mtpc.lab.prove.plan import SamplingSetting
from mtpc.lab.servers.draft_counters import DraftCounters
from mtpc.lab.text.prompts import read_prompts

FULL = 0.99  # least share of K tokens in the mean draft of a server whose drafts all have K tokens


def check_acceptance(options: CheckAcceptanceOptions, console: Console) -> AcceptanceReport:
    """Compare a server's acceptance with that of the reference implementation, print the result, and write it.

    Args:
        options: The user's options.
        console: Where the table and the progress are printed.

    Returns:
        The report.

    Raises:
        MTPCError: A setting or file is wrong, the server cannot be compared, or it refuses a request or breaks off.
    """
    client = Client(options.url, options.concurrency)
    served = served_drafter(client, options.drafter)
    prompts = read_prompts(options.prompts, options.target)[: options.requests]
    with progress_on(console) as progress:

        def bar(description: str) -> Callable[[], None]:
            task = progress.add_task(description, total=len(prompts))
            return lambda: progress.advance(task)

        reference = AcceptanceReference(
            options.target, options.drafter, served.num_drafts, options.temperature, served.samples
        )
        texts = [client.tokens(prompt) for prompt, _ in prompts]
        check_prompts(Prompts({"": [list(text) for text in texts]}), reference.target.facts.vocab_size)
        client.on_response = bar(f"completions of {client.url}")
        before = client.counters()
        sampling = SamplingSetting(temperature=options.temperature)
        completed = client.complete([CompletionRequest(text, options.length, sampling) for text in texts])
        observed = completed.drafts + client.counters().since(before)
        outputs = [output for (output,) in completed.texts]
        check_counts(client, observed, served.num_drafts, outputs)
        advance, parts = bar("reference implementation"), list[ExpectedCounts]()
        for text, output in zip(texts, outputs, strict=True):
            parts.append(reference.counts(text, output))
            advance()
    expected = reduce(ExpectedCounts.plus, parts)
    *rates, total = compare_rates(observed, expected)
    lengths = observed.acceptance_length, expected.rates.length
    outcome, sentence = outcome_of(tuple(rates), total, *lengths)
    report = AcceptanceReport(
        outcome=outcome,
        sentence=sentence,
        url=client.url,
        engine=client.api.name,
        served=served.name,
        drafter=str(options.drafter),
        target=str(options.target),
        temperature=options.temperature,
        requests=len(outputs),
        length=options.length,
        num_drafts=served.num_drafts,
        acceptance_length=lengths[0],
        expected_length=lengths[1],
        rates=tuple(rates),
        total=total,
        provenance=provenance.collect(seed=0),
    )
    console.print(rates_table(report).to_rich())
    console.print(report.sentence, highlight=False)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(report.model_dump_json(indent=2) + "\n")
    return report


def check_counts(client: Client, counts: DraftCounters, num_drafts: int, outputs: Sequence[TokenIds]) -> None:
    """Check that the counts are of these requests alone, and of drafts of K tokens.

    Args:
        client: Client of the server.
        counts: What the server counted during the requests.
        num_drafts: K.
        outputs: What it generated.

    Raises:
        MTPCError: They are not.
    """
    if not counts.drafts:
        raise MTPCError(f"{client.url} drafted in no step of {len(outputs)} requests: lower --concurrency.")
    if counts.drafts + counts.accepted > sum(len(output) - 1 + num_drafts for output in outputs):
        raise MTPCError(
            f"{client.url} counted more tokens than these {len(outputs)} requests have: run the command again while "
            "nothing else uses the server."
        )
    if counts.draft_tokens < FULL * num_drafts * counts.drafts:
        raise MTPCError(adaptive_lengths(client))
