r"""Compare outputs and vocabularies of SLEM and TLI with those of transformers' assisted generation.

    mtpc convert pair runs/smollm2 --target runs/qwen05 --out runs/pair
    python -m benchmarks.assisted_generation --target runs/qwen05 --drafter runs/pair --prompts questions.jsonl

For a draft model with another tokenizer, transformers has two algorithms of arXiv:2502.05202, at batch size 1.  UAG is
SLEM and serves greedy generation; USD is TLI and serves sampling.  USD is made greedy by a top-k of 1.  Greedy float32
outputs are compared token by token with those of SLEM and TLI of this project.  At the first difference the gap of the
target's two logits is printed: a tiny gap is rounding, any other gap is an error of one implementation.

USD matches tokens by their names, this project by their bytes.  The second table counts the draft model's tokens that
each of them translates.  They differ where two types of tokenizers write the same byte under different names.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from benchmarks.arguments import one_sentence
from mtpc.draft_model.pair import PairPart, load_tokenizer
from mtpc.draft_model.translation import TokenizerPair
from mtpc.errors import MTPCError
from mtpc.files.hub import local_folder
from mtpc.lab.evaluation.decoding import speculate_text
from mtpc.lab.evaluation.prompts import prompts_of_file
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.drafter import load_drafter
from mtpc.methods.pair import PairConfig, Rule

CONSOLE = Console(width=140)
GREEDY: dict[Rule, dict[str, Any]] = {"slem": {"do_sample": False}, "tli": {"do_sample": True, "top_k": 1}}
NAMES: dict[Rule, str] = {"slem": "SLEM and UAG", "tli": "TLI and USD"}


def assisted(
    target: FrozenTarget, draft: Path, rule: Rule, prompts: Sequence[list[int]], length: int
) -> list[list[int]]:
    """Return transformers' greedy outputs with a draft model, which do not stop at an end token.

    Args:
        target: The target.
        draft: Folder of the draft model. It is loaded again, because transformers modifies it.
        rule: "slem" for UAG, "tli" for USD.
        prompts: Token ids of the target.
        length: Largest number of tokens of an output.
    """
    from transformers import AutoModelForCausalLM

    assistant = {
        "assistant_model": AutoModelForCausalLM.from_pretrained(draft, dtype=torch.float32).eval(),
        "tokenizer": load_tokenizer(target.folder),
        "assistant_tokenizer": load_tokenizer(draft),
    }
    outputs = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        options = {"max_new_tokens": length, "eos_token_id": None, **GREEDY[rule]}
        (text,) = target.model.generate(ids, attention_mask=torch.ones_like(ids), **options, **assistant).tolist()
        outputs.append(text[len(prompt) :])
    return outputs


class Compared(NamedTuple):
    """Outputs of transformers and of this project.

    Attributes:
        outputs: Number of outputs.
        equal: Number of those that are equal.
        tokens: Number of tokens up to the first difference.
        accepted: Draft tokens that this project's verification accepted.
        gaps: Difference of the target's logits of both tokens, at the first difference of two outputs.
    """

    outputs: int
    equal: int
    tokens: int
    accepted: int
    gaps: list[float]


def compare_outputs(
    target: FrozenTarget, part: PairPart, draft: Path, rule: Rule, prompts: Sequence[list[int]], length: int
) -> Compared:
    """Compare greedy outputs, up to the length of those of transformers, which may end a few tokens early."""
    part.rule, drafts = rule, 4
    equal, tokens, accepted, gaps = 0, 0, 0, []
    theirs = assisted(target, draft, rule, prompts, length)
    for prompt, expected in zip(prompts, theirs, strict=True):
        decoded = speculate_text(target, part, prompt, len(expected), drafts)
        accepted += sum(decoded.accepted)
        pairs = enumerate(zip(decoded.tokens, expected, strict=True))
        position = next((position for position, (own, other) in pairs if own != other), len(expected))
        tokens += position
        equal += position == len(expected)
        if position < len(expected):
            text = torch.tensor([prompt + expected[:position]], device=target.device)
            with torch.inference_mode():
                logits = target.model(input_ids=text).logits[0, -1].float()
            gaps.append(float((logits[decoded.tokens[position]] - logits[expected[position]]).abs()))
    return Compared(len(theirs), equal, tokens, accepted, gaps)


def compare_vocabularies(draft: Any, target: Any, vocab_size: int) -> Counter[tuple[str, str]]:
    """Count the draft model's tokens by the algorithm that translates them, and by their type.

    Args:
        draft: Tokenizer of the draft model.
        target: Tokenizer of the target.
        vocab_size: V of the target.

    Returns:
        Number of translated tokens by algorithm ("both alike", "both differently", "TLI only" or "USD only") and type
        ("special", "one byte" or "longer").
    """
    from transformers.generation.candidate_generator import AssistantToTargetTranslator

    pair = TokenizerPair.of(draft, target)
    own, known = dict(pair.common.T.tolist()), pair.own.tokens.tokens
    translator = AssistantToTargetTranslator(target, draft, vocab_size)
    theirs = {mine: token for token, mine in translator.target_to_assistant_input_ids.items()}
    who = {
        token: ("both alike" if own[token] == theirs[token] else "both differently")
        if token in own and token in theirs
        else "TLI only"
        if token in own
        else "USD only"
        for token in own | theirs
    }
    lengths = {token: len(known[token] or b"") for token in who}
    return Counter((name, ("special", "one byte", "longer")[min(lengths[token], 2)]) for token, name in who.items())


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", type=Path, required=True, help="folder of the target")
    add("--drafter", type=Path, required=True, help="checkpoint of `mtpc convert pair`, with any --method but slrs")
    add("--prompts", type=Path, required=True, help="JSON Lines file, as for `mtpc bench`")
    add("--count", type=int, default=1, help="limit the prompts of each category (default: %(default)s)")
    add("--longest", type=int, default=300, help="skip prompts of more tokens (default: %(default)s)")
    add("--max-tokens", type=int, default=48, help="limit the tokens of an output (default: %(default)s)")
    return parser.parse_args(given)


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Compare, and print both tables."""
    asked = read_arguments(given)
    target = FrozenTarget(asked.target)
    drafter = load_drafter(asked.drafter, target.facts)
    config = drafter.config
    if not isinstance(config, PairConfig) or config.translation == "slrs":
        raise MTPCError(f"--drafter is {asked.drafter}, but only pairs of --method tli or slem can be compared.")
    part = drafter.method.text(asked.drafter, config, str(asked.target), target.device)
    assert isinstance(part, PairPart)
    draft = local_folder(config.model, config.revision)
    by_kind = prompts_of_file(asked.prompts, asked.target, sys.maxsize).by_kind.values()
    prompts = [each for kind in by_kind for each in [one for one in kind if len(one) <= asked.longest][: asked.count]]
    rows = []
    for rule, name in NAMES.items():
        found = compare_outputs(target, part, draft, rule, prompts, asked.max_tokens)
        gaps = ", ".join(f"{gap:.1e}" for gap in found.gaps) or "-"
        rows.append([name, *map(str, found[:-1]), gaps])
        print(*rows[-1], flush=True)
    columns = ["rules", "outputs", "equal", "equal tokens", "accepted draft tokens", "gaps of logits"]
    CONSOLE.print(Table("Greedy outputs of this project and of transformers, float32", columns, rows).to_rich())
    tokenizers = load_tokenizer(draft), load_tokenizer(asked.target)
    counts = compare_vocabularies(*tokenizers, target.facts.vocab_size)
    lines = [[*kind, f"{number:,}"] for kind, number in sorted(counts.items())]
    title = "Tokens of the draft model with a translation"
    CONSOLE.print(Table(title, ["translated by", "type", "tokens"], lines).to_rich())


if __name__ == "__main__":
    sys.exit(main())
