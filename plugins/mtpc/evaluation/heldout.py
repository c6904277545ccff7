"""Acceptance on held-out text: the target continues held-out prompts, drafters are scored on what it wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mtpc.circuits.params import token_evidence
from mtpc.data.corpus import Corpus
from mtpc.drafter import Drafter
from mtpc.evaluation.acceptance import decode_acceptance
from mtpc.targets.frozen import FrozenTarget
from mtpc.verify import Rates

CHUNK = 64


@dataclass(frozen=True)
class Continuations:
    """Texts by the target with its own view of them.

    tokens: int64 [S, P + L]; hidden [S, P + L, d]; logits [S, P + L, V]; start: P, the prompt's length.
    """

    tokens: Tensor
    hidden: Tensor
    logits: Tensor
    start: int
    temperature: float


def heldout_prompts(corpus: Corpus, kind: str, count: int, length: int) -> Tensor:
    """Evenly spaced prompts of the held-out split, int64 [count, length]."""
    tokens = corpus.heldout(kind)
    starts = np.linspace(0, len(tokens) - length - 1, count).astype(int)
    return torch.from_numpy(np.stack([tokens[s : s + length] for s in starts]).astype(np.int64))


def write_continuations(target: FrozenTarget, prompts: Tensor, length: int, temperature: float) -> Continuations:
    """Let the target write ``length`` tokens after each prompt and look at them once more in one pass."""
    tokens = target.generate(prompts, length, temperature)
    passes = [target.features(part) for part in tokens.split(CHUNK)]
    return Continuations(
        tokens.cpu(),
        torch.cat([each.hidden.float().cpu() for each in passes]),
        torch.cat([each.logits.cpu() for each in passes]),
        prompts.shape[1],
        temperature,
    )


@torch.inference_mode()
def evaluate(drafter: Drafter, texts: Continuations, *, condition: bool = True) -> Rates:
    """Expected acceptance of K = n - 1 drafts per step.

    condition: use the target's own token as evidence; without, drafts come from the circuit with that
    token summed out, which is what a drafter that ignores it would do (impossible where the head reads it).
    """
    drafter = drafter.to("cpu", torch.float32)
    window, start = drafter.config.window, texts.start
    length = texts.tokens.shape[1] - start - window + 1
    rows = []
    for tokens, hidden, logits in zip(texts.tokens, texts.hidden, texts.logits, strict=True):
        # A step after position t knows h_t and x_{t+1}; its drafts are compared with x_{t+2}..x_{t+n}.
        windows = tokens.unfold(0, window, 1)[start : start + length]  # [L, n], x_{t+1}..x_{t+n}
        if texts.temperature == 0:
            rows.append(_greedy_matches(drafter, hidden[start - 1 : start - 1 + length], windows))
        else:
            log_p = torch.log_softmax(logits / texts.temperature, -1)
            own = log_p[:-1].gather(1, tokens[1:, None])[:, 0]  # log p(x_{t+1} | x_<=t) at t
            p = own.unfold(0, window, 1)[start - 1 : start - 1 + length]
            rows.append(
                _accept(drafter, hidden[start - 1 : start - 1 + length], windows, p, texts.temperature, condition)
            )
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
) -> dict[str, dict[str, Any]]:
    """Acceptance of each drafter by kind of text and temperature.

    Returns, by drafter and column ("prose T=1", "code T=0", ...), `Rates.to_json`.  The column
    "no evidence" is temperature 1 on both kinds without conditioning on the target's own token; a drafter
    whose head reads that token has no such figure.
    """
    results: dict[str, dict[str, Any]] = {name: {} for name in drafters}
    for temperature in (1.0, 0.5, 0.0):
        torch.manual_seed(seed)
        texts = {}
        for kind in ("prose", "code"):
            batch = heldout_prompts(corpus, kind, prompts, prompt_length)
            texts[kind] = write_continuations(target, batch, length, temperature)
        texts["all"] = concatenate(list(texts.values()))
        for name, drafter in drafters.items():
            for kind, continuations in texts.items():
                results[name][f"{kind} T={temperature:g}"] = evaluate(drafter, continuations).to_json()
            if temperature == 1.0 and drafter.given:
                blind = evaluate(drafter, texts["all"], condition=False)
                results[name]["all T=1, no evidence"] = blind.to_json()
    return results


def concatenate(parts: list[Continuations]) -> Continuations:
    """Several sets of equally long texts as one."""
    return Continuations(
        torch.cat([part.tokens for part in parts]),
        torch.cat([part.hidden for part in parts]),
        torch.cat([part.logits for part in parts]),
        parts[0].start,
        parts[0].temperature,
    )
