"""Measurements made up for the tests."""

from dataclasses import replace

from mtpc.lab.bench.measure import Measurement
from mtpc.lab.bench.results import Point
from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters

NAN = float("nan")


def measurement(
    tokens: int, seconds: float, drafts: DraftCounters = NO_DRAFTS, texts: tuple[str, ...] = ()
) -> Measurement:
    """A run of requests, two at a time; a drafting call for both takes a millisecond if anything was drafted."""
    return Measurement(
        requests=2,
        tokens=tokens,
        seconds=seconds,
        in_flight=2.0,
        first_token=0.1,
        per_token=0.01,
        drafts=drafts,
        draft_seconds=0.001 if drafts.drafts else NAN,
        texts=texts,
        draft_calls=int(drafts.drafts) // 2,
    )


def drafting_always(batch_size: int = 1) -> Point:
    """Return a round of 100 tokens/s without the drafter, and 200 with drafts of two tokens in each of its steps."""
    plain, drafts = measurement(100, 1.0, texts=("a", "b")), DraftCounters(40, 80, 60, (40, 20))
    return Point(batch_size, 0.0, (plain,), (measurement(100, 0.5, drafts, ("a", "b")),))


def point(batch_size: int = 1, temperature: float = 0.0, ngram: bool = False) -> Point:
    """Return two rounds: 100 and 100 tokens/s without the drafter, 200 and 300 with it.

    ngram: add 150 and 150 tokens/s with an n-gram drafter, which drafts in few steps.
    """
    drafts, few = DraftCounters(40, 80, 60, (40, 20)), DraftCounters(10, 50, 18, (9, 9))
    without = measurement(100, 1.0, texts=("a", "b")), measurement(100, 1.0, texts=("a", "c"))
    drafted = measurement(100, 0.5, drafts, ("a", "b")), measurement(300, 1.0, drafts, ("a", "d"))
    found = replace(measurement(75, 0.5, few, ("a", "b")), draft_seconds=NAN), measurement(75, 0.5, texts=("a", "c"))
    others = {"n-gram 2-4:5": Point(batch_size, temperature, without, found)} if ngram else {}
    return Point(batch_size, temperature, without, drafted, others)
