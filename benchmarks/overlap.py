r"""Expected acceptance of the rules for a draft model with another tokenizer, by overlap, on real models.

    mtpc convert pair runs/smollm2 --target runs/qwen05 --out runs/pair
    python -m benchmarks.overlap --target runs/qwen05 --drafter runs/pair --prompts questions.jsonl --out runs/overlap

Table 3 of arXiv:2502.05202 for two real models, without an engine; `benchmarks.heterogeneous_rules` computes it for toy
models.  Both distributions are at temperature 1, along texts that the target has drawn.  A smaller overlap is made by
taking common tokens from the draft model, the rarest first: it writes them in smaller ones.  Of a BPE tokenizer that is
the order of its ids.

The rules of algorithms 2 and 3 need psi(t), the probability that the target's tokens of what the draft model writes
begin with t.  Each of its most probable first tokens counts with its exact probability, and decides t by its most
probable continuation; the others count as themselves where they are common.  "SLEM, as served" is the probability of
the first token of the most probable text alone, which is what this project drafts.
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
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import FrozenTarget, default_device
from mtpc.methods.drafter import load_drafter
from mtpc.methods.pair import PairConfig
from mtpc.methods.reference import truncate_cache

CONSOLE = Console(width=160)
FIRST = 32  # most probable first tokens of a draft whose continuations are looked at
AHEAD = 3  # tokens of a continuation
RULES = ("Alg 1 (union)", "Alg 2 (SLEM)", "Alg 3 (SLRS)", "Alg 4 (TLI)", "SLEM, as served")
COVERED = "draft model's probability of common tokens"


class Position(NamedTuple):
    """A position in a text that the target has drawn.

    Attributes:
        text: The target's tokens before it.
        probs: The target's distribution of the next token, float64 [V].
    """

    text: list[int]
    probs: Tensor


class RealDrafter:
    """A draft model whose vocabulary can be cut.

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
        """Return the common tokens that a share leaves, int64 [2, n]; special tokens always stay."""
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
            written = self._continued(best.indices, removed, cache)
            truncate_cache(cache, len(ids))
            psi, first = torch.zeros_like(position.probs), []
            psi.index_add_(0, common[1], drafted.masked_fill(torch.isin(common[0], best.indices), 0.0))
            for own, probability in zip(written, best.values, strict=True):
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
        """Return the distribution over the vocabulary without the tokens that are removed, float64."""
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
        """Return the target's first token of a draft, which ends at its first special token."""
        length = next((i for i, token in enumerate(own) if token in self.pair.ends), len(own))
        if not length:
            return self.pair.ends[own[0]]
        return continuation(self.pair.target, tail, self.pair.own.tokens.text_of(own[:length]))[0]


def positions(target: FrozenTarget, prompts: Sequence[list[int]], length: int, every: int) -> Iterator[Position]:
    """Draw a text after each prompt, and yield the positions in it that stand so far apart."""
    for prompt in prompts:
        ids = torch.tensor([prompt], device=target.device)
        drawn = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": length}
        text = target.model.generate(ids, attention_mask=torch.ones_like(ids), **drawn)
        with torch.inference_mode():
            probs = target.model(input_ids=text).logits[0].double().softmax(-1).cpu()
        for place in range(len(prompt) + 1, text.shape[1], every):
            yield Position(text[0, :place].tolist(), probs[place - 1])


def table(found: dict[float, list[dict[str, float]]]) -> Table:
    """Each rule's mean acceptance, relative to the union's, by overlap; the order is that of table 3."""
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
    """Draw one line for each rule."""
    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        axes = figure.subplots()
        for name in RULES:
            axes.plot([100 * share for share in found], [mean(one[name] for one in each) for each in found.values()],
                      marker="o", label=name)  # fmt: skip
        axes.set_xlabel("common tokens that the draft model has, %")
        axes.set_ylabel("expected acceptance")
        axes.set_ylim(bottom=0)
        axes.legend()
    return figure


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", type=Path, required=True)
    add("--drafter", type=Path, required=True, help="what `mtpc convert pair` has written")
    add("--prompts", type=Path, required=True, help="a file of JSON Lines, as for `mtpc bench`")
    add("--count", type=int, default=1, help="prompts of each kind (default: %(default)s)")
    add("--longest", type=int, default=300, help="tokens of the longest prompt that is used (default: %(default)s)")
    add("--max-tokens", type=int, default=48, help="of a text (default: %(default)s)")
    add("--every", type=int, default=6, help="tokens between two positions (default: %(default)s)")
    add("--shares", type=listed(float), default="0.25,0.5,0.75,0.87,1", help="default: %(default)s")
    add("--dtype", default="bfloat16", help="of both models (default: %(default)s)")
    add("--seed", type=int, default=0, help="of the target's texts (default: %(default)s)")
    add("--out", type=Path, default=Path("runs/overlap"))
    return parser.parse_args(given)


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write results.json and overlap.png."""
    asked = read_arguments(given)
    dtype = getattr(torch, asked.dtype)
    target = FrozenTarget(asked.target, device=default_device(), dtype=dtype)
    config = load_drafter(asked.drafter, target.facts).config
    if not isinstance(config, PairConfig):
        raise MTPCError(f"--drafter is {asked.drafter}, which is no draft model: run mtpc convert pair.")
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
