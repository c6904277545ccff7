"""Metrics of drafters on SGLang's metrics endpoint (``--enable-metrics``).

Drafting runs in the process of SGLang's scheduler, which exports its metrics through the multiprocess directory of
`prometheus_client`.  Metrics of drafters are exported in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from sglang.srt.runtime_context import get_observability, get_parallel, get_serving

from mtpc.metrics.draft_clock import DraftClock
from mtpc.metrics.tally import Tally
from mtpc.vocabulary.ranking import ALL
from mtpc.vocabulary.vocabularies import DraftVocabularies


def metrics_enabled() -> bool:
    """Return whether this process counts drafts: with metrics enabled, the first tensor-parallel rank does."""
    return bool(get_observability().enable_metrics) and get_parallel().tp_rank == 0


class PendingStep(NamedTuple):
    """A step whose verification result is not yet on the host.

    Attributes:
        requests: SGLang's ``Req`` of each row.
        numbers: Number of each request's draft vocabulary.
        length: Tokens of each draft.
    """

    requests: Sequence[Any]
    numbers: Sequence[int]
    length: int


class DraftMetrics:
    """Counts draft tokens and accepted draft tokens of this process.

    `begin_step` before each step, then `set_length` if its drafts are shorter than the longest.  `verified` follows
    for each step in order, once SGLang has the result on the host; steps may overlap.

    Args:
        clock: Measures the time of drafting; None: not exported.
        vocabularies: Draft vocabularies; None: the whole vocabulary.
        longest: Tokens of the longest draft, or of a tree's longest path.
    """

    def __init__(self, clock: DraftClock | None, vocabularies: DraftVocabularies | None, longest: int) -> None:
        from mtpc.metrics.exporter import Exporter  # reads the directory's name at import

        self.tally, self.longest = Tally((ALL,) if vocabularies is None else vocabularies.names), longest
        self.pending = deque[PendingStep]()
        labels = {"model_name": str(get_serving().served_model_name), "engine": str(get_parallel().dp_rank or 0)}
        Exporter(labels, clock, self.tally, None).start()

    @classmethod
    def of_served(
        cls, clock: DraftClock | None, vocabularies: DraftVocabularies | None, longest: int
    ) -> DraftMetrics | None:
        """Return the metrics of this process, with the class's arguments; None where they are disabled."""
        return cls(clock, vocabularies, longest) if metrics_enabled() else None

    def begin_step(self, batch: Any, numbers: Sequence[int] | None) -> None:
        """Begin a step.

        Args:
            batch: SGLang's ``ScheduleBatch``; one that reads prompts is not counted.
            numbers: Number of each request's draft vocabulary; None: the first for all.
        """
        if not batch.forward_mode.is_extend():
            self.pending.append(PendingStep(list(batch.reqs), numbers or [0] * len(batch.reqs), self.longest))

    def set_length(self, length: int) -> None:
        """Set the number of draft tokens of the current step."""
        self.pending[-1] = self.pending[-1]._replace(length=length)

    def verified(self, accepted: Sequence[int]) -> None:
        """Count the accepted draft tokens of each request of the oldest pending step.

        Drafts of finished or retracted requests are not counted, as in SGLang's own metrics.
        """
        requests, numbers, length = self.pending.popleft()
        self.tally.count_drafts(
            (number, length, count)
            for request, number, count in zip(requests, numbers, accepted, strict=True)
            if length and not (request.is_retracted or request.finished())
        )
