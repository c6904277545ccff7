r"""Expected acceptance of the rules for a draft model with another tokenizer, by overlap of the vocabularies.

    mtpc convert pair runs/smollm2 --target runs/qwen05 --out runs/pair
    python -m benchmarks.overlap --target runs/qwen05 --drafter runs/pair --prompts questions.jsonl --out runs/overlap

This is table 3 of arXiv:2502.05202 for two real models, without an engine.  `benchmarks.heterogeneous_rules` has toy
models.  Both distributions are at temperature 1, along texts that the target samples.  To reduce the overlap,
the rarest common tokens are removed from the draft model's vocabulary, so that it generates smaller tokens instead.
Rarity is the order of token ids, as in a BPE tokenizer.

Algorithms 2 and 3 need psi(t): the probability that the draft model's text begins with the target's token t.  It is
approximated.  Each of the most probable first tokens counts with its exact probability, and its most probable
continuation decides t.  Any other first token counts as itself if it is common.  "SLEM, as served" is the target's
probability of the first token of the most probable text.  This project drafts that text.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import matplotlib
import torch
from matplotlib.figure import Figure
from rich.console import Console
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

from benchmarks.arguments import listed, one_sentence
from mtpc.draft_model.alignment import AlignedText, continuation
from mtpc.draft_model.pair import load_tokenizer
from mtpc.draft_model.translation import TokenizerPair
from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.files.hub import local_folder
from mtpc.lab.evaluation.prompts import prompts_of_file
from mtpc.lab.evaluation.reference import truncate_cache
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import FrozenTarget, default_device
from mtpc.methods.drafter import load_drafter
from mtpc.methods.pair import PairConfig

CONSOLE = Console(width=160)
FIRST = 32  # most probable first tokens of a draft that are continued
AHEAD = 3  # tokens of a continuation
RULES = ("Alg 1 (union)", "Alg 2 (SLEM)", "Alg 3 (SLRS)", "Alg 4 (TLI)", "SLEM, as served")
COVERED = "draft model's probability of common tokens"


class Position(NamedTuple):
    """A position in a text that the target sampled.

    Attributes:
        text: Token ids of the target before it.
        probs: The target's distribution of the next token, float64 [V].
    """

    text: list[int]
    probs: Tensor


class RealDrafter:
    """A draft model whose vocabulary can be reduced.

    Args:
        folder: The draft model.
        target: Folder of the target, for its tokenizer.
        device: Device of the model.
        dtype: Its dtype.
    """

    def __init__(self, folder: Path, target: Path, device: str, dtype: torch.dtype) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
        self.pair = TokenizerPair.of(load_tokenizer(folder), load_tokenizer(target))
        self.unwritable = self.pair.unwritable(self.model.get_output_embeddings().weight.shape[0])
        plain = self.pair.common[:, : self.pair.common.shape[1] - len(self.pair.ends)]
        self.by_frequency = plain[:, plain[0].argsort()]  # [2, N]

    def common(self, share: float) -> Tensor:
        """Return ids of a share of the common tokens, the most frequent ones, and of all special ones: int64 [2, n]."""
        ends = self.pair.common[:, self.pair.common.shape[1] - len(self.pair.ends) :]
        return torch.cat([self.by_frequency[:, : round(share * self.by_frequency.shape[1])], ends], 1)

    @torch.inference_mode()
    def acceptance(self, position: Position, shares: Sequence[float]) -> Iterator[dict[str, float]]:
        """Yield the expected acceptance by rule for each share of the common tokens."""
        text = AlignedText(self.pair.target.tokens, self.pair.own, self.pair.special)
        text.extend(position.text)
        ids = text.ids if text.ids[:1] == self.pair.beginning else self.pair.beginning + text.ids
        cache = DynamicCache()
        logits = self._read([ids], cache)[0]
        cache.batch_repeat_interleave(FIRST)
        for share in shares:
            common = self.common(share)
            removed = self.by_frequency[0, round(share * self.by_frequency.shape[1]) :]
            probs = self._probs(logits, removed)
            drafted = probs[common[0]]
            target = position.probs[common[1]]
            best = probs.topk(FIRST)
            continued = self._continued(best.indices, removed, cache)
            truncate_cache(cache, len(ids))
            psi, first = torch.zeros_like(position.probs), []
            psi.index_add_(0, common[1], drafted.masked_fill(torch.isin(common[0], best.indices), 0.0))
            for own, probability in zip(continued, best.values, strict=True):
                first.append(self._first_token(text.tail, own))
                psi[first[-1]] += probability
            found = (
                torch.minimum(target, drafted).sum(),
                (position.probs * psi).sum(),
                torch.minimum(position.probs, psi).sum(),
                torch.minimum(target, drafted / drafted.sum()).sum(),
                position.probs[first[0]],
            )
            yield dict(zip(RULES, map(float, found), strict=True)) | {COVERED: float(drafted.sum())}

    def _read(self, ids: Sequence[Sequence[int]], cache: DynamicCache) -> Tensor:
        """Return logits [B, V'] after B equally long texts."""
        read = self.model(input_ids=torch.tensor(ids, device=self.model.device), past_key_values=cache)
        logits: Tensor = read.logits[:, -1].float().cpu()
        return logits

    def _probs(self, logits: Tensor, removed: Tensor) -> Tensor:
        """Return the distribution over the vocabulary without the removed tokens, float64."""
        return (
            logits.index_fill(-1, self.unwritable, -torch.inf).index_fill(-1, removed, -torch.inf).double().softmax(-1)
        )

    def _continued(self, first: Tensor, removed: Tensor, cache: DynamicCache) -> list[list[int]]:
        """Return each first token with its most probable continuation."""
        rows = first[:, None]
        for _ in range(AHEAD):
            logits = self._read(rows[:, -1:].tolist(), cache)
            rows = torch.cat([rows, self._probs(logits, removed).argmax(-1, keepdim=True)], 1)
        return rows.tolist()

    def _first_token(self, tail: Sequence[int], own: Sequence[int]) -> int:
        """Return the first token of a draft in the target's vocabulary; a draft ends at its first special token."""
        length = next((i for i, token in enumerate(own) if token in self.pair.ends), len(own))
        if not length:
            return self.pair.ends[own[0]]
        return continuation(self.pair.target, tail, self.pair.own.tokens.text_of(own[:length]))[0]


def positions(target: FrozenTarget, prompts: Sequence[list[int]], length: int, every: int) -> Iterator[Position]:
    """Sample a text after each prompt, and yield every n-th position of it.

    Args:
        target: The target.
        prompts: Token ids of the prompts.
        length: Largest number of tokens of a text.
        every: Tokens between two positions.
    """
    for prompt in prompts:
        ids = torch.tensor([prompt], device=target.device)
        drawn = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}
        drawn |= {"max_new_tokens": length}
        text = target.model.generate(ids, attention_mask=torch.ones_like(ids), **drawn)
        with torch.inference_mode():
            probs = target.model(input_ids=text).logits[0].double().softmax(-1).cpu()
        for place in range(len(prompt) + 1, text.shape[1], every):
            yield Position(text[0, :place].tolist(), probs[place - 1])


def table(found: dict[float, list[dict[str, float]]]) -> Table:
    """Return mean acceptance of each rule, and relative to the union, by overlap; rows are ordered as in table 3."""
    means = {share: {name: mean(one[name] for one in each) for name in each[0]} for share, each in found.items()}
    rows = []
    for name in RULES:
        cells = [f"{of[name]:.3f} ({of[name] / of[RULES[0]]:.2f}x)" for of in means.values()]
        rows.append([name, *cells])
    rows.append([COVERED, *(f"{of[COVERED]:.1%}" for of in means.values())])
    columns = ["rule", *(f"{share:.0%} of the common tokens" for share in found)]
    count = len(next(iter(found.values())))
    return Table(f"Expected acceptance (relative to the union), {count} positions", columns, rows)


def picture(found: dict[float, list[dict[str, float]]]) -> Figure:
    """Plot one line for each rule."""
    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        axes = figure.subplots()
        for name in RULES:
            axes.plot([100 * share for share in found], [mean(one[name] for one in each) for each in found.values()],
                      marker="o", label=name)  # fmt: skip
        axes.set_xlabel("common tokens that the draft model keeps (%)")
        axes.set_ylabel("expected acceptance")
        axes.set_ylim(bottom=0)
        axes.legend()
    return figure


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", type=Path, required=True, help="folder of the target")
    add("--drafter", type=Path, required=True, help="checkpoint of `mtpc convert pair`")
    add("--prompts", type=Path, required=True, help="JSON Lines file, as for `mtpc bench`")
    add("--count", type=int, default=1, help="limit the prompts of each category (default: %(default)s)")
    add("--longest", type=int, default=300, help="skip prompts of more tokens (default: %(default)s)")
    add("--max-tokens", type=int, default=48, help="limit the tokens of a text (default: %(default)s)")
    add("--every", type=int, default=6, help="tokens between two positions (default: %(default)s)")
    shares = "shares of the common tokens that the draft model keeps, comma-separated (default: %(default)s)"
    add("--shares", type=listed(float), default="0.25,0.5,0.75,0.87,1", help=shares)
    add("--dtype", default="bfloat16", help="dtype of both models (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of the target's texts (default: %(default)s)")
    out = "write results.json and overlap.png to this folder (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/overlap"), help=out)
    return parser.parse_args(given)


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write results.json and overlap.png."""
    asked = read_arguments(given)
    dtype = getattr(torch, asked.dtype)
    target = FrozenTarget(asked.target, device=default_device(), dtype=dtype)
    config = load_drafter(asked.drafter, target.facts).config
    if not isinstance(config, PairConfig):
        raise MTPCError(f"--drafter is {asked.drafter}, but must be a checkpoint of mtpc convert pair.")
    folder = local_folder(config.model, config.revision)
    drafter = RealDrafter(folder, asked.target, str(target.device), dtype)
    by_kind = prompts_of_file(asked.prompts, asked.target, sys.maxsize).by_kind.values()
    prompts = [each for kind in by_kind for each in [one for one in kind if len(one) <= asked.longest][: asked.count]]
    torch.manual_seed(asked.seed)
    found: dict[float, list[dict[str, float]]] = {share: [] for share in asked.shares}
    for position in positions(target, prompts, asked.max_tokens, asked.every):
        for share, rates in zip(asked.shares, drafter.acceptance(position, asked.shares), strict=True):
            found[share].append(rates)
    asked.out.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = provenance.collect(seed=asked.seed, prompts=asked.prompts.name)
    results = [{"share": share, "positions": each} for share, each in found.items()]
    (asked.out / "results.json").write_text(json.dumps({"results": results, **facts}, indent=1) + "\n")
    picture(found).savefig(asked.out / "overlap.png", dpi=150)
    CONSOLE.print(table(found).to_rich())
    CONSOLE.print(f"written to {asked.out}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
