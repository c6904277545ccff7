r"""Tokens per cost of decoding steps with adaptive draft lengths, and with all tokens that can be drafted.

    python -m benchmarks.draft_lengths --target runs/smollm2 --drafter weights/smollm2-fastmtp --prompts questions.jsonl

The reference implementation decodes without an engine, in batches of each size.  The next request replaces a completed
one; steps of smaller batches at the end do not count.  In place of time, this adds up costs: those of a chat model with
135 million parameters on two CPU cores, by which the lengths are chosen as well.  The result is therefore the same on a
busy machine.  With --copy prompt lookup joins the drafter.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from benchmarks.arguments import listed, one_sentence
from mtpc.draft import Draft, one_hot
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import DEFAULT_COSTS, FREE_DRAFTS
from mtpc.draw import draw
from mtpc.errors import MTPCError
from mtpc.lab.evaluation.decoding import TargetSession, probabilities
from mtpc.lab.evaluation.prompts import prompts_of_file
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import FrozenTarget, default_device, state_below
from mtpc.methods.drafter import Drafter, draft_budget
from mtpc.prompt_lookup.mixture import Copied
from mtpc.prompt_lookup.table import CopyTable
from mtpc.target_head.shared import SharedHead
from mtpc.verify import verify_greedy, verify_rejection

WAYS = {"adaptive": DEFAULT_COSTS, "always all": FREE_DRAFTS}


class Models(NamedTuple):
    """What decodes.

    Attributes:
        target: Frozen target.
        drafter: The drafter.
        head: Output head of the target.
        table: Probabilities of prompt lookup.
    """

    target: FrozenTarget
    drafter: Drafter
    head: SharedHead
    table: CopyTable


class Request:
    """One request: each step calls `draft`, then `verify`.

    Attributes:
        prompt: Tokens of the prompt.
        text: Tokens of prompt and output.
        emitted: Tokens of the last step.

    Args:
        models: What decodes.
        prompt: Tokens of the prompt.
        temperature: Temperature of target and drafter; 0 is greedy.
        seed: Seed of the sampling.
    """

    def __init__(self, models: Models, prompt: list[int], temperature: float, seed: int) -> None:
        self.models, self.prompt, self.temperature = models, prompt, temperature
        self._random = torch.Generator().manual_seed(seed)
        self._drafter = ReferenceDrafter(models.drafter, models.head)
        self._target = TargetSession(models.target, state_below(models.drafter))
        self._hidden, logits, _ = self._target.read(prompt, 0)
        self._known = 0  # tokens whose states the drafter has read
        self.emitted = self._verified(Draft(logits.new_zeros(1, 0).long(), None), logits[:, -1:])
        self.text = [*prompt, *self.emitted]

    def is_complete(self, max_tokens: int) -> bool:
        """Return whether the output has this many tokens, or has ended."""
        ends = self.models.target.end_tokens
        return len(self.text) - len(self.prompt) >= max_tokens or any(token in ends for token in self.emitted)

    def useful(self, max_tokens: int) -> int:
        """Return how many tokens of the last step belong to the output, which ends within a step."""
        ends = self.models.target.end_tokens
        emitted = next((place for place, token in enumerate(self.emitted, 1) if token in ends), len(self.emitted))
        before = len(self.text) - len(self.prompt) - len(self.emitted)
        return min(emitted, max_tokens - before)

    def draft(self, count: int, copied: Copied | None) -> Draft:
        """Draft this many tokens."""
        temperatures = torch.full((1,), self.temperature, device=self._hidden.device) if self.temperature else None
        following = torch.tensor([self.text[self._known + 1 :]], device=self._hidden.device)
        noise = self._uniforms(1, count) if self.temperature else None
        self._known = len(self.text) - 1
        return self._drafter.draft(self._hidden, following, count, temperatures, noise, copied)

    def verify(self, tokens: list[int], drafted: Draft) -> None:
        """Verify draft tokens: those of the drafter, cut or continued with copied ones."""
        self._hidden, logits, _ = self._target.read([self.text[-1], *tokens], self._known)
        draft = Draft(torch.tensor([tokens], device=logits.device).long(), None)
        if self.temperature:
            whole = one_hot(draft.tokens, logits.shape[-1])
            by_drafter = min(len(tokens), drafted.tokens.shape[1])
            if by_drafter and drafted.probs is not None:
                whole[:, :by_drafter] = drafted.probs[:, :by_drafter]
            draft = draft._replace(probs=whole)
        self.emitted = self._verified(draft, logits)
        self._hidden = self._hidden[:, : len(self.emitted)]
        self.text += self.emitted

    def _verified(self, draft: Draft, logits: Tensor) -> list[int]:
        """Return the tokens that a draft [1, K] emits by the target's logits [1, K + 1, V]."""
        count = draft.tokens.shape[1]
        if not self.temperature:
            verified = verify_greedy(draft.tokens, logits)
        elif draft.probs is None or not count:
            return [int(draw(probabilities(logits[:, 0], self.temperature), self._uniforms(1)))]
        else:
            p = probabilities(logits, self.temperature)
            verified = verify_rejection(draft.tokens, draft.probs, p, self._uniforms(1, count), self._uniforms(1))
        tokens: list[int] = verified.tokens[0, : int(verified.accepted[0]) + 1].tolist()
        return tokens

    def _uniforms(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self._random, dtype=torch.float64).to(self.models.target.device)


class Step(NamedTuple):
    """One decoding step of a batch.

    Attributes:
        tokens: Emitted tokens that belong to the outputs.
        drafts: Verified draft tokens.
        cost: Cost, relative to a step of one request without a draft.
    """

    tokens: int
    drafts: int
    cost: float


@torch.inference_mode()
def steps(
    models: Models, lengths: DraftLengths, requests: Iterator[Request], batch_size: int, max_tokens: int
) -> Iterator[Step]:
    """Yield the decoding steps of full batches.

    Args:
        models: What decodes.
        lengths: Chooses the draft lengths.
        requests: All requests.
        batch_size: Requests of a batch.
        max_tokens: Tokens after which a request is complete.
    """
    batch: list[Request] = []
    while True:
        complete = [request for request in batch if request.is_complete(max_tokens)]
        batch = [request for request in batch if request not in complete]
        lengths.forget(complete)
        while len(batch) < batch_size and (request := next(requests, None)) is not None:
            batch.append(request)
        if len(batch) < batch_size:
            return
        greedy = not batch[0].temperature
        lengths.begin(greedy)
        for request in batch:
            lengths.add(request, request.prompt.copy, request.emitted, waiting=False)
        planned = lengths.plan(lengths.longest)
        copied = lengths.copied(planned).to(models.target.device) if planned and lengths.copies else None
        drafts = [
            request.draft(planned, None if copied is None else Copied(*(each[row : row + 1] for each in copied)))
            for row, request in enumerate(batch)
        ]
        cut = lengths.cut([draft.tokens[0].tolist() for draft in drafts], lengths.longest, [False] * batch_size)
        for request, tokens, draft in zip(batch, cut, drafts, strict=True):
            request.verify(tokens, draft)
        costs, verified = DEFAULT_COSTS.of(greedy), sum(map(len, cut))
        drafting = costs.draft(batch_size) * lengths.budget.share(planned)
        emitted = sum(request.useful(max_tokens) for request in batch)
        yield Step(emitted, verified, costs.step(batch_size, verified) + drafting)


def row(models: Models, given: argparse.Namespace, way: str, temperature: float, batch_size: int) -> list[str]:
    """Decode all prompts in one way; return a row of the table."""
    prompts = prompts_of_file(given.prompts, given.target, given.questions).by_kind.values()
    texts = [prompt for of_kind in prompts for prompt in of_kind]
    progress = track(texts, f"{way}, T = {temperature:g}, batch size {batch_size}", transient=True)
    requests = (Request(models, prompt, temperature, seed) for seed, prompt in enumerate(progress))
    most = models.drafter.config.max_drafts
    longest = (given.longest or most) if given.copy else min(given.longest or most, most)
    budget = draft_budget(models.drafter.config, longest, given.copy)
    vocab_size = models.drafter.config.vocab_size
    lengths = DraftLengths(budget, longest, WAYS[way], models.table, vocab_size, copies=given.copy)
    found = list(steps(models, lengths, requests, batch_size, given.max_tokens))
    if not found:
        raise MTPCError(f"a batch size of {batch_size} needs as many prompts, but there are {len(texts)}.")
    tokens, drafts, spent = (sum(each) for each in zip(*found, strict=True))
    plain = DEFAULT_COSTS.of(not temperature).step(batch_size, 0)
    rate, requests_of_steps = tokens / spent, len(found) * batch_size
    return [
        f"{temperature:g}", str(batch_size), way, f"{rate * plain / batch_size:.2f}x",
        f"{tokens / requests_of_steps:.2f}", f"{drafts / requests_of_steps:.2f}",
    ]  # fmt: skip


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", type=Path, required=True, help="folder of the target")
    add("--drafter", type=Path, required=True, help="drafter checkpoint")
    add("--prompts", type=Path, required=True, help="JSON Lines file, as for `mtpc bench`")
    add("--questions", type=int, default=2, help="limit the prompts of each category (default: %(default)s)")
    add("--max-tokens", type=int, default=64, help="tokens of an output (default: %(default)s)")
    add("--copy", action="store_true", help="mix prompt lookup into the drafts")
    add("--longest", type=int, help="limit the tokens of a draft (default: the drafter's number)")
    temperatures = "sampling temperatures, comma-separated; 0 is greedy (default: 0,1)"
    add("--temperatures", type=listed(float), default=[0.0, 1.0], help=temperatures)
    sizes = "batch sizes, comma-separated (default: 1,16)"
    add("--batch-sizes", type=listed(int), default=[1, 16], help=sizes)
    return parser.parse_args(given)


@one_sentence
def main(arguments: Sequence[str] | None = None) -> None:
    """Decode, and print the table."""
    given = read_arguments(arguments)
    target = FrozenTarget(given.target, device=default_device())
    drafter = target.load_drafter(given.drafter)
    if drafter.method.reads_text:
        raise MTPCError(f"--drafter {given.drafter} reads text: measure it with benchmarks.pairs.")
    models = Models(target, drafter, SharedHead.of(target.model), CopyTable.of(given.drafter))
    rows = [
        row(models, given, way, temperature, size)
        for temperature in given.temperatures
        for size in given.batch_sizes
        for way in WAYS
    ]
    columns = ["temperature", "batch size", "draft lengths", "speedup by cost", "tokens per step", "draft tokens"]
    Console().print(Table("Decoding by the cost of steps", columns, rows).to_rich())


if __name__ == "__main__":
    sys.exit(main())
