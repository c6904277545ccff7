"""Measurements made up for the tests."""

from mtpc.bench.measure import Measurement
from mtpc.bench.results import Point
from mtpc.servers.draft_counters import NO_DRAFTS, DraftCounters

NAN = float("nan")


def measurement(
    tokens: int, seconds: float, drafts: DraftCounters = NO_DRAFTS, texts: tuple[str, ...] = ()
) -> Measurement:
    """A run of requests, two at a time; a drafting call takes a millisecond if anything was drafted."""
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
    )


def point(batch_size: int = 1, temperature: float = 0.0) -> Point:
    """Two rounds: 100 and 100 tokens/s without, 200 and 300 with the drafter."""
    drafts = DraftCounters(40, 80, 60, (40, 20))
    return Point(
        batch_size,
        temperature,
        (measurement(100, 1.0, texts=("a", "b")), measurement(100, 1.0, texts=("a", "c"))),
        (measurement(100, 0.5, drafts, ("a", "b")), measurement(300, 1.0, drafts, ("a", "d"))),
    )
