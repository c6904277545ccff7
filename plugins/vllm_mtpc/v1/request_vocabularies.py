"""Chooses each request's draft vocabulary on the host, from tokens that arrive there asynchronously."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mtpc.metrics.tally import Tally
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.requests import LanguageState, choose_all, read_all
from mtpc.vocabulary.vocabularies import DraftVocabularies
from vllm_mtpc.v1.request_outputs import RequestOutputs

# Steps that vLLM has in flight at a time: older tokens are on the host already.
STEPS_IN_FLIGHT = 2
MAX_PENDING = 64  # steps whose tokens may wait to be read


class PendingTokens(NamedTuple):
    """Sampled tokens that are being copied to the host.

    Attributes:
        readings: Language evidence of each request; None for a request that is gone.
        tokens: int [B, W], -1 where there is no token.
        copied: Event after the copy; None on a CPU.
        drafted: Vocabulary and number of draft tokens of each request; empty if metrics are off.
    """

    readings: tuple[LanguageState | None, ...]
    tokens: Tensor
    copied: torch.cuda.Event | None
    drafted: list[tuple[int | None, int]]


class V1RequestVocabularies:
    """Language evidence of every request, and the draft vocabulary that follows from it.

    Sampled tokens are evidence a fixed number of steps after they were sampled.  So nothing waits for the device, and
    all tensor-parallel ranks choose the same.  On a CPU they are evidence at once.

    Protocol of a decoding step: `record_step`, then `choose`; or `record_and_choose`.  Tokens of steps that vLLM leaves
    out are read on a CPU only, where they have arrived; see `RequestOutputs`.

    Attributes:
        tally: Counts accepted draft tokens by vocabulary; None if metrics are off.
        readings: Evidence by request id.
        outputs: What has been read of each request; on a GPU nothing is.
        pending: Tokens that are not evidence yet, oldest first.
        asynchronous: Whether tokens are copied from a GPU.

    Args:
        detector: Detects languages.
        device: Where vLLM samples.
    """

    tally: Tally | None = None

    def __init__(self, detector: LanguageDetector, device: torch.device) -> None:
        self.detector = detector
        self.readings: dict[str, LanguageState] = {}
        self.outputs = RequestOutputs()
        self.pending: deque[PendingTokens] = deque()
        self.asynchronous = device.type != "cpu"

    @classmethod
    def of(
        cls, vocabularies: DraftVocabularies | None, device: torch.device, counts_metrics: bool = False
    ) -> V1RequestVocabularies | None:
        """Create one for the draft vocabularies.

        Args:
            vocabularies: The draft vocabularies; None for the target's whole vocabulary.
            device: Where vLLM samples.
            counts_metrics: Whether to count accepted draft tokens by vocabulary.

        Returns:
            The object; None if there is no choice of vocabularies.
        """
        if vocabularies is None or vocabularies.detector is None:
            return None
        made = cls(vocabularies.detector, device)
        if counts_metrics:
            made.tally = Tally(vocabularies.names)
        return made

    def record_and_choose(
        self, sampled_token_ids: Tensor, requests: dict[str, Any], gpu_input_batch: Any, discard_request_mask: Tensor
    ) -> Tensor:
        """Call `record_step`, then `choose`.

        Args:
            sampled_token_ids: See `record_step`.
            requests: See `record_step`.
            gpu_input_batch: See `record_step`.
            discard_request_mask: See `record_step`.

        Returns:
            The number of each request's draft vocabulary, int64 [B], on the host.
        """
        self.record_step(sampled_token_ids, requests, gpu_input_batch, discard_request_mask)
        return self.choose(gpu_input_batch.req_ids[: len(sampled_token_ids)])

    def record_step(
        self,
        sampled_token_ids: Tensor,
        requests: dict[str, Any],
        gpu_input_batch: Any,
        discard_request_mask: Tensor | None = None,
    ) -> None:
        """Record the tokens that vLLM's runner passes to its proposer.

        Args:
            sampled_token_ids: int [B, K + 1], -1 for rejected tokens; may be overwritten later.
            requests: All unfinished requests of vLLM by id.
            gpu_input_batch: vLLM's input batch.
            discard_request_mask: bool [at least B], whether a part of the prompt is still to be prefilled; None for
                no request.
        """
        ids = gpu_input_batch.req_ids[: len(sampled_token_ids)]
        self.remove_requests(self.outputs.gone(requests))
        for name in ids:
            self.outputs.follow(name, requests[name])
            if name not in self.readings:
                self.add_request(name, requests[name].prompt_token_ids or [])
        drafted = [] if self.tally is None else list(map(len, gpu_input_batch.spec_token_ids[: len(ids)]))
        emitted = (
            sampled_token_ids.clone()
            if discard_request_mask is None
            else sampled_token_ids.masked_fill(discard_request_mask[: len(ids), None], -1)
        )
        if not self.asynchronous:
            counts = (emitted >= 0).sum(1).tolist()
            missed = [self.outputs.missed(name, requests[name], one) for name, one in zip(ids, counts, strict=True)]
            if any(missed):
                texts = [torch.tensor(row, dtype=torch.int64) for row in missed]
                self.add_tokens(ids, pad_sequence(texts, True, -1), [0] * len(ids))
                # The draft after a step that was left out was not this project's.
                drafted = [0 if row else count for row, count in zip(missed, drafted, strict=False)]
        self.add_tokens(ids, emitted, drafted)

    def add_request(self, request: str, prompt: Sequence[int]) -> None:
        """Add a request, in place of an earlier one with the same id.

        Args:
            request: Its id.
            prompt: Its tokens so far.
        """
        self.readings[request] = LanguageState(self.detector)
        self.readings[request].read(prompt)

    def remove_requests(self, requests: Iterable[str]) -> None:
        """Remove requests that are finished or preempted.

        Args:
            requests: Their ids.
        """
        for request in requests:
            self.readings.pop(request, None)

    def add_tokens(self, requests: Sequence[str], tokens: Tensor, drafted: Sequence[int] = ()) -> None:
        """Add the tokens that the target has just emitted.

        Args:
            requests: Ids of the requests.
            tokens: int [B, W], -1 where there is no token.
            drafted: Number of verified draft tokens of each request; empty if metrics are off.
        """
        copied, readings = None, tuple(map(self.readings.get, requests))
        vocabularies = (None if reading is None else reading.vocabulary for reading in readings)
        tokens = tokens.to("cpu", non_blocking=True)
        if self.asynchronous:
            copied = torch.cuda.Event()
            copied.record()
        self.pending.append(PendingTokens(readings, tokens, copied, list(zip(vocabularies, drafted, strict=False))))
        if len(self.pending) > MAX_PENDING:
            self.read_arrived()

    def read_arrived(self) -> None:
        """Read all tokens that must have arrived by now."""
        emitted: dict[LanguageState, list[int]] = {}
        while len(self.pending) > (STEPS_IN_FLIGHT if self.asynchronous else 0):
            step = self.pending.popleft()
            if step.copied is not None:
                step.copied.synchronize()
            texts = [[token for token in row if token >= 0] for row in step.tokens.tolist()]
            for reading, text in zip(step.readings, texts, strict=True):
                if reading is not None:
                    emitted.setdefault(reading, []).extend(text)
            if self.tally is not None:
                self.tally.count_drafts(
                    (number, drafted, len(text) - 1)
                    for (number, drafted), text in zip(step.drafted, texts, strict=True)
                    if number is not None and drafted and text
                )
        read_all(list(emitted), list(emitted.values()))

    def choose(self, requests: Sequence[str]) -> Tensor:
        """Choose each request's draft vocabulary.

        Args:
            requests: Ids of the batch's requests.

        Returns:
            The number of each request's draft vocabulary, int64 [B], on the host.
        """
        self.read_arrived()
        chosen = choose_all([self.readings[request] for request in requests], self.tally)
        return torch.tensor(chosen, dtype=torch.int64, pin_memory=self.asynchronous)
