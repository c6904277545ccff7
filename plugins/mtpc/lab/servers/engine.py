"""The description of an engine: how to start it, send it requests, and read its counters of draft tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prometheus_client.samples import Sample

from mtpc.lab.servers.draft_counters import DraftCounters
from mtpc.lab.servers.load import CompletionParams, Load, run_load
from mtpc.lab.servers.ngram import Ngram
from mtpc.lab.text.prompts import Prompt

NGRAM = Ngram(shortest=2, longest=4, drafts=5)


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server, independent of the engine.

    Attributes:
        target: Folder of the target.
        max_batch: Largest number of concurrent requests.
        max_length: Largest number of tokens of a prompt and its completion together.
        drafter: Drafter checkpoint; None to serve without one of this project's drafters.
        num_drafts: Draft tokens per decoding step, K.
        extra: Arguments that are passed to the engine as they are.
        ngram: Setting of the engine's own n-gram drafter; None to serve without it.
        native: Whether ``extra`` sets up another drafter of the engine's own. The plugin may change its drafts.
        plugin: Whether the server loads this project's plugin.
    """

    target: Path
    max_batch: int
    max_length: int
    drafter: Path | None = None
    num_drafts: int = 0
    extra: tuple[str, ...] = ()
    ngram: Ngram | None = None
    native: bool = False
    plugin: bool = True


@dataclass(frozen=True)
class Engine:
    """An engine that can be measured, behind its server or offline.

    Attributes:
        name: Name of its Python package.
        title: Name for output.
        command: Returns the command line that serves settings on a port.
        counters: Reads the counters from the page of metrics; None where the responses carry them.
        environment: Returns environment variables of the server with settings.
        load: Sends prompts to a model at a URL, with parameters and a concurrency, see `mtpc.lab.servers.load`.
        ngram: Default setting of the engine's own n-gram drafter.
        ngram_obstacle: Returns why this drafter cannot be measured at given temperatures, as the end of a sentence;
            None where it can.
        clear_history: Clears, at a server's URL, the outputs of earlier requests from which the n-gram drafter drafts;
            None where it drafts from no other request.
        without_plugin: Returns environment variables with which every plugin but this project's is loaded.
        ngram_plugin_reason: Returns why the n-gram drafter needs this project's plugin at given temperatures, as a
            sentence; None where it does not.
        has_drafter: Returns whether a server at a URL is one of this engine with a drafter of any kind.
        fixed_length: Option, and its value, with which this project's drafters draft K tokens in every step.
    """

    name: str
    title: str
    command: Callable[[ServerSettings, int], list[str]]
    counters: Callable[[Sequence[Sample]], DraftCounters] | None = None
    environment: Callable[[ServerSettings], dict[str, str]] = lambda settings: {}
    load: Callable[[str, str, Sequence[Prompt], CompletionParams, int], Load] = run_load
    ngram: Ngram = NGRAM
    ngram_obstacle: Callable[[Ngram, Sequence[float]], str | None] = lambda ngram, temperatures: None
    clear_history: Callable[[str], None] | None = None
    without_plugin: Callable[[], dict[str, str]] = dict
    ngram_plugin_reason: Callable[[Sequence[float]], str | None] = lambda temperatures: None
    has_drafter: Callable[[str], bool] = lambda url: False
    fixed_length: tuple[str, str] = ("", "")

    def as_released(self, settings: ServerSettings, temperatures: Sequence[float]) -> ServerSettings:
        """Return settings without this project's plugin where neither the drafter nor the n-gram drafter needs it.

        Args:
            settings: Settings of a server.
            temperatures: Temperatures that will be measured.
        """
        if settings.drafter is not None or settings.native:
            return settings
        needed = settings.ngram is not None and self.ngram_plugin_reason(temperatures) is not None
        return replace(settings, plugin=needed)
