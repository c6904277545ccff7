"""Compare circuits and Markov heads of a chat model: acceptance, weights read, and dead components.

    python -m benchmarks.subword_circuits DIR... --target DIR (--data DIR | --prompts FILE | --corpus DIR)
        [--vocabulary FILE]

Nothing is trained.  The target completes held-out prompts, and the expected acceptance of each checkpoint along the
outputs is computed in closed form, as `mtpc evaluate` does.

Bytes are those of the weights that one draft reads, in bfloat16.  All matrices of the drafter count once.  Tables with
a row for each token count by the rows that are used, and the output head by the rows of the draft vocabulary.  Layers
of the target that run again with adapters count as well.

A Markov head is listed twice.  The second row drafts from the --candidates tokens of each position that are most
probable without the bias, as block drafters with a candidate lattice do (LiLiCorr, arXiv 2608.20530).  It reads the
bias of the candidates only, and never drafts another token.

Columns along the context are positions of the text, from one border to the next.  --corpus measures them on one kind of
text: held-out documents, each with its last tokens before one place as a prompt, to each border (--length 60).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from benchmarks.arguments import one_sentence, output_file
from mtpc.autoregressive.adapted_layers import AdaptedLayers
from mtpc.autoregressive.lora import ADAPTED_MODULES
from mtpc.draft import DraftContext
from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.lab.evaluation.acceptance import counts_along
from mtpc.lab.evaluation.prompts import Prompts, check_prompts, heldout_questions, prompts_of_file
from mtpc.lab.evaluation.scorer import step_acceptance
from mtpc.lab.evaluation.texts import TextFeatures, generate_texts, text_features
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import FrozenTarget, check_state, state_below
from mtpc.lab.text.chat_template import load_tokenizer
from mtpc.lab.text.conversations import read_conversations
from mtpc.lab.text.corpus import Corpus
from mtpc.lab.training.load_balance import ComponentUsage
from mtpc.lab.training.recipes.conversation_circuit_loss import WindowBatch, component_usage
from mtpc.methods.drafter import Drafter
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.parallel.markov_part import MarkovPart
from mtpc.target_head.shared import SharedHead
from mtpc.vocabulary.formats import read_rankings

BYTES, MEGA = 2, 1e6
BORDERS = (128, 512, 1024, 2048)  # of the context, in tokens
SKIPPED = 1000  # bytes at the start of a document: title and license
MIN_PROMPT = 2  # tokens
BYTES_PER_TOKEN = 8  # at most, over a long text


class Contestant(NamedTuple):
    """A checkpoint and the output head that it drafts through."""

    name: str
    drafter: Drafter
    head: SharedHead


class CandidateMarkovPart(MarkovPart):
    """Markov head over the tokens of each position that are most probable without the bias.

    Attributes:
        candidates: Tokens of each position.
    """

    candidates: int

    @classmethod
    def of(cls, part: MarkovPart, candidates: int) -> CandidateMarkovPart:
        """Return a part with the weights of another one."""
        found = cls(part.config, part.markov_rank).to(part.after.device, part.after.dtype)
        found.load_state_dict(part.state_dict())
        found.candidates = candidates
        return found.requires_grad_(False)

    def position_logits(self, context: DraftContext, count: int) -> Tensor:
        """See `MarkovPart.position_logits`; all tokens but the candidates are impossible."""
        logits = super().position_logits(context, count)
        least = logits.topk(min(self.candidates, logits.shape[-1])).values[..., -1:]
        return logits.masked_fill(logits < least, -torch.inf)


def contestants_of(folder: Path, target: FrozenTarget, head: SharedHead, candidates: int) -> list[Contestant]:
    """Return a checkpoint; a Markov head also with its candidates only."""
    drafter = target.load_drafter(folder)
    check_state(folder.name, drafter)
    found = [Contestant(folder.name, drafter, drafter.head(head))]
    if isinstance(drafter.parallel, MarkovPart):
        drafter = target.load_drafter(folder)
        drafter.parallel = CandidateMarkovPart.of(cast("MarkovPart", drafter.parallel), candidates)
        found.append(Contestant(f"{folder.name}, top {candidates}", drafter, drafter.head(head)))
    return found


def draft_bytes(drafter: Drafter, head: SharedHead) -> int:
    """Return the bytes of weights that a draft of one request reads.

    Args:
        drafter: The drafter; an autoregressive part reads its layers and the head once for each of its tokens.
        head: The output head that it drafts through.
    """
    size, rows = drafter.config.vocab_size, len(head.rows)
    autoregressive = drafter.autoregressive
    adapts = isinstance(autoregressive, AdaptedLayers)  # one pass through adapters and the target's own layers
    steps, part = drafter.split(drafter.config.num_drafts)[0], drafter.parallel
    read = 0
    if isinstance(autoregressive, AdaptedLayers):
        shapes = (autoregressive.config.shape(module) for module in ADAPTED_MODULES)
        read += len(autoregressive.layers) * sum(outputs * inputs for outputs, inputs in shapes)
    for name, weight in drafter.named_parameters():
        if weight.ndim == 2 and len(weight) == size:
            # The embedding of the token before each draft token, that of x_{t+1}, or an output head.
            by_end = {"before.weight": drafter.config.num_drafts, "token.weight": 1}
            if isinstance(part, CandidateMarkovPart):
                by_end["after"] = min(rows, drafter.config.num_drafts * part.candidates)
            read += weight.shape[1] * next((count for end, count in by_end.items() if name.endswith(end)), rows)
        else:
            read += weight.numel() * (steps if name.startswith("autoregressive") and not adapts else 1)
    through_head = steps + int(part is not None and part.reads_head)
    return BYTES * (read + through_head * head.rows.numel())


def context_prompts(corpus: Corpus, target: Path, count: int, length: int) -> Prompts:
    """Return the last tokens before one place of held-out documents, so that an output ends at each border.

    Args:
        corpus: Corpus of `mtpc corpus`.
        target: Folder of the target, whose tokenizer reads the documents.
        count: Documents of each kind, the first that are long enough.
        length: Tokens of the output that follows.

    Raises:
        MTPCError: The output is too long for the first border, or no document is long enough.
    """
    tokenizer, tokens = load_tokenizer(target), corpus.tokens("heldout")
    sizes, by_kind = [border - length for border in BORDERS], dict[str, list[list[int]]]()
    if sizes[0] < MIN_PROMPT:
        raise MTPCError(f"--length must be at most {BORDERS[0] - MIN_PROMPT} with --corpus, but is {length}.")
    for kind in corpus.kinds():
        found: list[list[int]] = []
        for document in corpus.documents:
            if document.split != "heldout" or document.kind != kind or len(found) == count:
                continue
            read = tokens[document.offset + SKIPPED : document.offset + document.length]
            text = read[: BYTES_PER_TOKEN * sizes[-1]].astype(np.uint8).tobytes().decode("utf-8", "ignore")
            ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids[: sizes[-1]]
            if len(ids) == sizes[-1]:
                found.append(ids)
        for size in sizes:
            by_kind[f"{kind}, {size}"] = [ids[-size:] for ids in found]
    if not any(by_kind.values()):
        raise MTPCError(f"{corpus.folder} holds out no document of {sizes[-1]} tokens; use a larger corpus.")
    return Prompts(by_kind, stop_at_end=False)


def acceptance_by_context(texts: Sequence[TextFeatures], accept: Sequence[Tensor]) -> dict[str, float | None]:
    """Return the acceptance length of steps that start at each range of positions, all equally weighted.

    Args:
        texts: Texts of the target.
        accept: Conditional acceptance probabilities of each text, [L', K], see `step_acceptance`.
    """
    found: dict[str, float | None] = {}
    for low, high in zip((0, *BORDERS), BORDERS, strict=False):
        lengths = [
            1.0 + of_text[max(0, low - text.start + 1) : max(0, high - text.start + 1)].cumprod(-1).sum(-1)
            for text, of_text in zip(texts, accept, strict=True)
        ]
        joined = torch.cat(lengths)
        found[f"to {high}"] = float(joined.mean()) if len(joined) else None
    return found


def usage_along(contestant: Contestant, texts: Sequence[TextFeatures]) -> dict[str, Any] | None:
    """Return how a circuit's components are used along texts; None for a drafter without components."""
    part = contestant.drafter.parallel
    if not isinstance(part, CircuitPart) or part.config.rank == 1 or not part.reads_head:
        return None
    usage: ComponentUsage | None = None
    for text in texts:
        positions, following = text.steps(part.max_drafts)
        held = following if contestant.head.index_by_token is None else contestant.head.index_by_token[following]
        kept = (held >= 0).all(1)
        if not kept.any():
            continue
        given = DraftContext(text.hidden[positions][kept][:, None], following[kept][:, :1])
        windows = WindowBatch(with_head_inputs(given, None, contestant.head), following[kept], None, following[kept])
        found = component_usage(part, windows)
        usage = found if usage is None else usage.plus(found)
    return None if usage is None else usage.to_json()


@torch.inference_mode()
def measure(
    target: FrozenTarget,
    contestants: Sequence[Contestant],
    prompts: Prompts,
    length: int,
    temperatures: Sequence[float],
) -> list[dict[str, Any]]:
    """Return the figures of each checkpoint."""
    check_prompts(prompts, target.facts.vocab_size)
    rows: list[dict[str, Any]] = [
        {
            "drafter": each.name,
            "K": each.drafter.config.num_drafts,
            "parameters": sum(weight.numel() for weight in each.drafter.parameters()),
            "bytes_per_draft": draft_bytes(each.drafter, each.head),
        }
        for each in contestants
    ]
    below = {layer for each in contestants if (layer := state_below(each.drafter)) is not None}
    for temperature in temperatures:
        generated = generate_texts(target, prompts, length, temperature, 0)
        features = [text_features(target, text, below) for of_kind in generated.values() for text in of_kind]
        for row, each in zip(rows, contestants, strict=True):
            texts = [text.read_by(each.drafter) for text in features]
            drafts = each.drafter.config.num_drafts
            accept = [step_acceptance(each.drafter, each.head, text, drafts, temperature) for text in texts]
            row[f"T={temperature:g}"] = counts_along(accept).to_json()
            row[f"context, T={temperature:g}"] = acceptance_by_context(texts, accept)
            if temperature == max(temperatures):
                row["components"] = usage_along(each, texts)
    return rows


def prompts_of(chosen: argparse.Namespace) -> Prompts:
    """Return the prompts that the arguments name."""
    if chosen.data is not None:
        return heldout_questions(list(read_conversations(chosen.data)), chosen.count)
    if chosen.corpus is not None:
        return context_prompts(Corpus(chosen.corpus), chosen.target, chosen.count, chosen.length)
    return prompts_of_file(chosen.prompts, chosen.target, chosen.count)


def table(rows: Sequence[dict[str, Any]], temperatures: Sequence[float]) -> Table:
    """Return one row for each checkpoint."""
    contexts = [f"to {border}" for border in BORDERS]
    lengths = [f"T={temperature:g}" for temperature in temperatures]
    columns = ["drafter", "K", *lengths, "parameters, M", "read per draft, MB", "dead components"]
    columns += [f"{name}, {label}" for label in lengths for name in contexts]
    found = []
    for row in rows:
        usage = row["components"]
        dead = "-" if usage is None else f"{sum(usage['dead_share']) / len(usage['dead_share']):.0%}"
        cells = [row["drafter"], str(row["K"]), *(f"{row[label]['acceptance_length']:.3f}" for label in lengths)]
        cells += [f"{row['parameters'] / MEGA:.1f}", f"{row['bytes_per_draft'] / MEGA:.1f}", dead]
        along = [row[f"context, {label}"][name] for label in lengths for name in contexts]
        found.append([*cells, *("-" if length is None else f"{length:.3f}" for length in along)])
    return Table("Expected acceptance length, and by position in the text", columns, found)


@one_sentence
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("drafters", nargs="+", type=Path, help="drafter checkpoints of one target")
    parser.add_argument("--target", type=Path, required=True)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="held-out questions of these conversations")
    source.add_argument("--prompts", type=Path, help="a JSON Lines file of prompts")
    source.add_argument("--corpus", type=Path, help="held-out documents of `mtpc corpus`, cut for each border")
    parser.add_argument("--count", type=int, default=16, help="prompts of each kind; with --corpus, documents")
    parser.add_argument("--length", type=int, default=128, help="most tokens of an answer")
    parser.add_argument("--temperatures", type=lambda text: [float(each) for each in text.split(",")], default="1,0")
    parser.add_argument("--vocabulary", type=Path, help="rankings to draft from, see `mtpc vocab build`")
    parser.add_argument("--language", default="english", help="language of the rankings")
    parser.add_argument("--size", type=int, default=8192, help="tokens of the draft vocabulary")
    parser.add_argument("--candidates", type=int, default=16, help="tokens of each position of a Markov head's lattice")
    parser.add_argument("--out", type=output_file, help="where the JSON is written")
    chosen = parser.parse_args(arguments)
    if chosen.candidates < 1:
        parser.error("--candidates must be at least 1")
    target = FrozenTarget(chosen.target)
    head = SharedHead.of(target.model)
    if chosen.vocabulary is not None:
        rankings = read_rankings(chosen.vocabulary, target.facts.vocab_size)
        head = head.restricted(torch.from_numpy(rankings.cut(chosen.language, chosen.size)))
    contestants = [
        each for folder in chosen.drafters for each in contestants_of(folder, target, head, chosen.candidates)
    ]
    prompts = prompts_of(chosen)
    rows = measure(target, contestants, prompts, chosen.length, chosen.temperatures)
    Console(width=200).print(table(rows, chosen.temperatures).to_markdown(), markup=False)
    if chosen.out is not None:
        facts = provenance.collect(seed=0, head_rows=len(head.rows), length=chosen.length)
        chosen.out.write_text(json.dumps({"provenance": facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
