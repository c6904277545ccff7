"""Brings metrics of drafters to SGLang's own page of metrics (``--enable-metrics``).

SGLang's scheduler, in whose process drafts are made, writes what it counts into a folder that `prometheus_client` has
for that; what is counted with `prometheus_client` here goes the same way.
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


def watched() -> bool:
    """Whether this process counts: of tensor-parallel ranks the first one does."""
    return bool(get_observability().enable_metrics) and get_parallel().tp_rank == 0


class Sent(NamedTuple):
    """A step's requests, the numbers of their vocabularies, and how many tokens each one's draft has."""

    requests: Sequence[Any]
    numbers: Sequence[int]
    length: int


class Watch:
    """Counts what became of the drafts of this process, once SGLang has the verdicts on the host.

    vocabularies: that are drafted from; None: all tokens.  longest: tokens of a draft, of a tree's longest path.
    """

    def __init__(self, clock: DraftClock | None, vocabularies: DraftVocabularies | None, longest: int) -> None:
        from mtpc.metrics.exporter import Exporter  # reads the folder's name when it is imported

        self.tally, self.longest = Tally((ALL,) if vocabularies is None else vocabularies.names), longest
        self.sent = deque[Sent]()
        labels = {"model_name": str(get_serving().served_model_name), "engine": str(get_parallel().dp_rank or 0)}
        Exporter(labels, clock, self.tally, None).start()

    @classmethod
    def of_served(cls, clock: DraftClock | None, vocabularies: DraftVocabularies | None, longest: int) -> Watch | None:
        """That of this process; None: nobody watches it."""
        return cls(clock, vocabularies, longest) if watched() else None

    def drafting(self, batch: Any, numbers: Sequence[int] | None) -> None:
        """A step is about to be drafted and verified; numbers: of the requests' vocabularies, None: the first."""
        if not batch.forward_mode.is_extend():
            self.sent.append(Sent(list(batch.reqs), numbers or [0] * len(batch.reqs), self.longest))

    def cut(self, length: int) -> None:
        """The drafts of the step that is under way have so many tokens."""
        self.sent[-1] = self.sent[-1]._replace(length=length)

    def verified(self, accepted: Sequence[int]) -> None:
        """So many drafts were accepted of each request of the next step, in the order of the steps.

        As in SGLang's own counts, drafts for a request that had ended are none.
        """
        requests, numbers, length = self.sent.popleft()
        self.tally.verified(
            (number, length, count)
            for request, number, count in zip(requests, numbers, accepted, strict=True)
            if length and not (request.is_retracted or request.finished())
        )
