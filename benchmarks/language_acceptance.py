"""Acceptance along the target's greedy answers, by how the tokens that are drafted from are chosen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from mtpc.lab.evaluation.acceptance import counts_along
from mtpc.lab.evaluation.scorer import step_acceptance
from mtpc.lab.evaluation.texts import Text, view
from mtpc.lab.table import Table
from mtpc.lab.targets.answers import write_answers
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.drafter import Drafter
from mtpc.target_head.shared import SharedHead
from mtpc.vocabulary.ranking import Rankings
from mtpc.vocabulary.settings import OWN_SIZE
from mtpc.vocabulary.vocabularies import ALL, DraftVocabularies, VocabularySettings

TOGETHER = "all languages together"  # where shapes are static

Along = Callable[[Sequence[int], Sequence[int]], Iterator[str]]  # see `benchmarks.languages.Choice.along`


@torch.inference_mode()
def acceptance(
    target: FrozenTarget,
    drafter: Drafter,
    rankings: Rankings,
    prompts: Mapping[str, list[list[int]]],
    choices: Mapping[str, Along],
    length: int,
) -> Table:
    """Of answers to the prompts of each kind: a row of acceptance lengths, of the last choice also its share of all."""
    vocabularies, whole = DraftVocabularies(rankings, VocabularySettings(OWN_SIZE)), SharedHead.of(target.model)
    heads = {name: whole.restricted(ids) for name, ids in zip(vocabularies.names, vocabularies.ids, strict=True)}
    together = vocabularies.together()
    heads |= {ALL: whole, TOGETHER: whole if together is None else whole.restricted(together.ids[0])}
    rows, drafts = [], drafter.config.num_drafts
    for kind, asked in prompts.items():
        answers = write_answers(target, asked, length, 0.0, target.ends)
        found: dict[str, list[Tensor]] = defaultdict(list)
        from_all: list[bool] = []
        for tokens, prompt in zip(answers, asked, strict=True):
            seen = view(target, Text(tokens, len(prompt)))
            # Row i is the step whose target has just said the answer's token i.
            said = tokens[: len(prompt) + 1], tokens[len(prompt) + 1 :]
            chosen = {name: list(choose(*said)) for name, choose in choices.items()}
            names = {ALL, TOGETHER}.union(*chosen.values())
            along = {name: step_acceptance(drafter, heads[name], seen, drafts, 0.0) for name in names}
            steps = range(len(along[ALL]))
            for name, own in chosen.items():
                found[name].append(torch.stack([along[own[step]][step] for step in steps]) if steps else along[ALL])
            from_all += [own[step] == ALL for step in steps]
            for name in (ALL, TOGETHER):
                found[name].append(along[name])
        lengths = [counts_along(found[name]).rates.length for name in (ALL, *choices, TOGETHER)]
        share = 100 * sum(from_all) / max(1, len(from_all))
        rows.append([kind, *(f"{one:.2f}" for one in lengths), f"{share:.0f} %"])
        print(", ".join(rows[-1]), flush=True)
    columns = ["text", "all tokens", *choices, TOGETHER, "steps from all tokens"]
    return Table("Acceptance length", columns, rows)
