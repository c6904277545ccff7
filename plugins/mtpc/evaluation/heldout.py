"""Acceptance on held-out text: the target continues held-out prompts, drafters are scored on what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mtpc.circuits.params import token_evidence
from mtpc.data.corpus import Corpus
from mtpc.drafter import Drafter
from mtpc.evaluation.acceptance import decode_acceptance
from mtpc.evaluation.continuations import Continuations, concatenate, heldout_prompts, write_continuations
from mtpc.evaluation.trees import evaluate_trees
from mtpc.targets.frozen import FrozenTarget
from mtpc.verify import Rates


@torch.inference_mode()
def evaluate(drafter: Drafter, texts: Continuations, *, condition: bool = True) -> Rates:
    """Expected acceptance of K = n - 1 drafts per step.

    condition: use the target's own token as evidence; without, drafts come from the circuit with that
    token summed out, which is what a drafter that ignores it would do (impossible where the head reads it).
    """
    drafter = drafter.to("cpu", torch.float32)
    window = drafter.config.window
    rows = []
    for step, tokens, logits in zip(texts.steps(window), texts.tokens, texts.logits, strict=True):
        if texts.temperature == 0:
            rows.append(_greedy_matches(drafter, *step))
        else:
            log_p = torch.log_softmax(logits / texts.temperature, -1)
            own = log_p[:-1].gather(1, tokens[1:, None])[:, 0]  # log p(x_{t+1} | x_<=t) at t
            p = own.unfold(0, window, 1)[texts.start - 1 :]
            rows.append(_accept(drafter, *step, p, texts.temperature, condition))
    return decode_acceptance(torch.stack(rows).double())


def _accept(
    drafter: Drafter, hidden: Tensor, windows: Tensor, log_p: Tensor, temperature: float, condition: bool
) -> Tensor:
    """min(1, q/p) of each drafted token: [L, n - 1]."""
    params = drafter.head(hidden, windows[:, 0], torch.full((len(hidden),), temperature))
    evidence = token_evidence(params.leaves, windows[:, -drafter.config.circuit_window :])
    if not condition:
        evidence[:, : drafter.given] = 0.0
    prefixes = torch.logsumexp(drafter.circuit.beliefs(params.sums, evidence) + evidence, -1)
    log_q = torch.diff(prefixes, dim=1, prepend=torch.zeros_like(prefixes[:, :1]))[:, drafter.given :]
    return (log_q - log_p[:, 1:]).exp().clamp_max(1.0)


def _greedy_matches(drafter: Drafter, hidden: Tensor, windows: Tensor) -> Tensor:
    draft = drafter.draft(hidden, windows[:, 0], None, None, windows.shape[1] - 1, "greedy")
    return (draft.tokens == windows[:, 1:]).float()


def evaluate_kinds(
    target: FrozenTarget,
    corpus: Corpus,
    drafters: dict[str, Drafter],
    *,
    prompts: int = 64,
    prompt_length: int = 128,
    length: int = 128,
    seed: int = 0,
    trees: Sequence[int] = (),
    max_children: int | None = None,
) -> dict[str, dict[str, Any]]:
    """Acceptance of each drafter by kind of text and temperature, drafting chains and, for each size, trees.

    trees: numbers of nodes; max_children: of a node, see `mtpc.drafter.tree.grow_tree`.

    Returns, by drafter and column ("prose T=1", "code T=0", ...), `Rates.to_json`.  The column
    "no evidence" is temperature 1 on both kinds without conditioning on the target's own token; a drafter
    whose head reads that token has no such figure.  Trees follow as "NAME, tree of SIZE".
    """
    results: dict[str, dict[str, Any]] = {}
    for name in drafters:
        results |= {title: {} for title in (name, *(f"{name}, tree of {size}" for size in trees))}
    for temperature in (1.0, 0.5, 0.0):
        torch.manual_seed(seed)
        texts = {}
        for kind in ("prose", "code"):
            batch = heldout_prompts(corpus, kind, prompts, prompt_length)
            texts[kind] = write_continuations(target, batch, length, temperature)
        texts["all"] = concatenate(list(texts.values()))
        for name, drafter in drafters.items():
            for kind, continuations in texts.items():
                column = f"{kind} T={temperature:g}"
                results[name][column] = evaluate(drafter, continuations).to_json()
                for size, rates in evaluate_trees(drafter, continuations, trees, max_children).items():
                    results[f"{name}, tree of {size}"][column] = rates.to_json()
            if temperature == 1.0 and drafter.given:
                blind = evaluate(drafter, texts["all"], condition=False)
                results[name]["all T=1, no evidence"] = blind.to_json()
    return results
