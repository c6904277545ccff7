r"""Acceptance length and drafting time of a draft model with another tokenizer, without an engine: TLI, SLEM and SLRS.

    mtpc convert pair runs/smollm2 --target runs/qwen --out runs/pair
    python -m benchmarks.pairs --target runs/qwen --drafter runs/pair --prompts questions.jsonl --temperatures 0 0.8 \
        --confidences 0 0.3 --out runs/pairs.json

Prompts are completed one at a time.  All times are milliseconds per decoding step:

    drafting ms     the draft model, and the translation of its tokens
    alignment ms    the alignment of the target's new tokens with the draft model's
    target ms       all other time: the target and verification, with SLRS also the draft model after a rejection

Prompts may be chat prompts, such as those of Spec-Bench, or texts to continue, such as the functions of HumanEval.
Outputs after chat prompts stop at an end token.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, get_args

import torch

from benchmarks.arguments import one_sentence, output_file
from benchmarks.questions import groups
from mtpc.draft_model.pair import PairPart, Rule
from mtpc.draft_model.part import TextDraft, TextPart
from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.lab.console import console
from mtpc.lab.evaluation.decoding import speculate_text
from mtpc.lab.evaluation.prompts import prompts_of_file
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import FrozenTarget, default_device
from mtpc.methods.drafter import load_drafter

WARM_UP = 8  # tokens


class Timed(TextPart):
    """A text part that adds up the time in `draft` and `add`, in seconds."""

    def __init__(self, part: TextPart) -> None:
        self.part, self.seconds = part, {"draft": 0.0, "add": 0.0}

    def memory(self) -> int:
        """See `TextPart.memory`."""
        return self.part.memory()

    def dummy_draft(self, *args: Any) -> None:
        """See `TextPart.dummy_draft`."""
        self.part.dummy_draft(*args)

    def add(self, *args: Any) -> None:
        """Time `TextPart.add`."""
        began = time.perf_counter()
        self.part.add(*args)
        self.seconds["add"] += time.perf_counter() - began

    def draft(self, *args: Any) -> TextDraft:
        """Time `TextPart.draft`."""
        began = time.perf_counter()
        draft: TextDraft = self.part.draft(*args)
        self.seconds["draft"] += time.perf_counter() - began
        return draft

    def forget(self, keys: Any) -> None:
        """See `TextPart.forget`."""
        self.part.forget(keys)


@one_sentence
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, and write the results with their provenance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", type=Path, required=True, help="folder of the target")
    add("--drafter", type=Path, required=True, help="checkpoint of `mtpc convert pair`")
    add("--prompts", type=Path, required=True, help="JSON Lines file, as for `mtpc bench`")
    add("--count", type=int, default=3, help="limit the prompts of each category (default: %(default)s)")
    add("--max-tokens", type=int, default=64, help="limit the tokens of an output (default: %(default)s)")
    temperatures = "sampling temperatures; 0 is greedy (default: 0 0.8)"
    add("--temperatures", type=float, nargs="+", default=[0.0, 0.8], help=temperatures)
    rules = "rules to measure (default: the drafter's)"
    add("--translations", nargs="+", choices=get_args(Rule), help=rules)
    add("--drafts", type=int, nargs="+", default=[4], help="numbers of draft tokens, K (default: 4)")
    confidences = "values of min_confidence: a draft ends when its confidence falls below (default: 0.3)"
    add("--confidences", type=float, nargs="+", default=[0.3], help=confidences)
    add("--dtype", default="bfloat16", help="dtype of the target (default: %(default)s)")
    add("--out", type=output_file, required=True, help="write results to this JSON file")
    given = parser.parse_args(arguments)
    target = FrozenTarget(given.target, device=default_device(), dtype=getattr(torch, given.dtype))
    drafter = load_drafter(given.drafter, target.facts)
    prompts = prompts_of_file(given.prompts, given.target, sys.maxsize)
    asked = [tokens for of_kind in groups(prompts.by_kind).values() for tokens in of_kind[: given.count]]
    part = drafter.method.text(given.drafter, drafter.config, str(given.target), target.device)
    if not isinstance(part, PairPart):
        raise MTPCError(f"{given.drafter} must be a checkpoint of `mtpc convert pair`.")
    if "slrs" in (given.translations or ()) and part.spelled is None:
        raise MTPCError("--translations slrs needs a checkpoint of `mtpc convert pair --method slrs`.")
    part.verifies_lazily = True
    ends = prompts.end_tokens(target)
    speculate_text(target, part, asked[0], WARM_UP, given.drafts[0], end_tokens=ends)  # first calls take longer
    results: list[dict[str, Any]] = []
    for translation, drafts, confidence, temperature in product(
        given.translations or [part.rule], given.drafts, given.confidences, given.temperatures
    ):
        part.rule, part.min_confidence = translation, confidence
        timed, generator, tokens = Timed(part), torch.Generator().manual_seed(0), 0
        accepted: list[int] = []
        began = time.perf_counter()
        for prompt in asked:
            decoded = speculate_text(
                target,
                timed,
                prompt,
                given.max_tokens,
                drafts,
                end_tokens=ends,
                temperature=temperature,
                generator=generator,
            )
            accepted += decoded.accepted
            tokens += len(decoded.tokens)
        seconds, steps = time.perf_counter() - began, len(accepted)
        results.append(
            {
                "translation": translation,
                "drafts": drafts,
                "confidence": confidence,
                "temperature": temperature,
                "acceptance length": round(1 + sum(accepted) / steps, 3),
                "drafting ms": round(1e3 * timed.seconds["draft"] / steps, 2),
                "alignment ms": round(1e3 * timed.seconds["add"] / steps, 3),
                "target ms": round(1e3 * (seconds - sum(timed.seconds.values())) / steps, 1),
                "tokens/s": round(tokens / seconds, 2),
            }
        )
        print(results[-1], flush=True)
    given.out.write_text(json.dumps({"results": results, **provenance.collect(prompts=given.prompts.name)}, indent=1))
    rows = [[str(value) for value in one.values()] for one in results]
    console().print(Table(f"{given.drafter.name} for {given.target.name}", list(results[0]), rows).to_rich())


if __name__ == "__main__":
    sys.exit(main())
