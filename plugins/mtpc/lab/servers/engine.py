"""What is to be known of an engine: how it is started, how it is given its load, and how it counts drafts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prometheus_client.samples import Sample

from mtpc.lab.servers.draft_counters import DraftCounters
from mtpc.lab.servers.load import Load, Sampling, run_load
from mtpc.lab.servers.ngram import Ngram
from mtpc.lab.text.prompts import Prompt

NGRAM = Ngram(shortest=2, longest=4, drafts=5)


@dataclass(frozen=True)
class ServerSettings:
    """What a server is started with; the same with and without a drafter, or with the engine's own n-gram drafter."""

    target: Path
    max_batch: int  # largest number of requests at once
    max_length: int  # prompt and completion, in tokens
    drafter: Path | None = None
    num_drafts: int = 0
    extra: tuple[str, ...] = ()  # arguments passed on as they are
    ngram: Ngram | None = None
    plugin: bool = True  # whether it loads this project's


@dataclass(frozen=True)
class Engine:
    """An engine that can be measured, behind its server or offline.

    counters reads its page of metrics; None where its answers bring the counts of their own drafts.
    ngram is how its own n-gram drafter is set unless the user says otherwise, and ngram_obstacle why it cannot be
    measured so at some temperatures, None where it can: the rest of a sentence.
    without_plugin are variables with which its processes load every plugin but this project's.  ngram_fixes is why its
    n-gram drafter needs that plugin at some temperatures, as a sentence; None where it does not.
    forgets makes a server forget the texts of earlier requests, from which its n-gram drafter drafts as well; None
    where that does not.
    """

    name: str  # of its Python package
    title: str
    command: Callable[[ServerSettings, int], list[str]]  # (settings, port) -> command line
    counters: Callable[[Sequence[Sample]], DraftCounters] | None = None
    environment: Callable[[], dict[str, str]] = dict
    load: Callable[[str, str, Sequence[Prompt], Sampling, int], Load] = run_load  # see `mtpc.lab.servers.load`
    ngram: Ngram = NGRAM
    ngram_obstacle: Callable[[Ngram, Sequence[float]], str | None] = lambda ngram, temperatures: None
    forgets: Callable[[str], None] | None = None  # of the server's URL
    without_plugin: Callable[[], dict[str, str]] = dict
    ngram_fixes: Callable[[Sequence[float]], str | None] = lambda temperatures: None

    def as_released(self, settings: ServerSettings, temperatures: Sequence[float]) -> ServerSettings:
        """Settings without our plugin, where there is no drafter of ours and no n-gram drafter that needs it."""
        if settings.drafter is not None:
            return settings
        needed = settings.ngram is not None and self.ngram_fixes(temperatures) is not None
        return replace(settings, plugin=needed)
