"""vLLM's own rejection kernels of the V1 runner, which a CPU does without, with drafts and what we state of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INTERPRETED = """
from types import SimpleNamespace
import torch
import v2_on_cpu.interpreter
from vllm.v1.sample import rejection_sampler as vllm
from mtpc.draft import DraftContext
from mtpc.verify import verify_greedy, verify_rejection
from tests.support.tiny_methods import scaled
from tests.support.tiny_models import make_part

v2_on_cpu.interpreter.register()
assert type(vllm.rejection_random_sample_kernel).__name__ == "InterpretedFunction"
torch.manual_seed(0)
REQUESTS, DRAFTS, VOCABULARY = 24, 4, 23
window = scaled(make_part("hmm", DRAFTS + 1, 3, 16, VOCABULARY))
known = DraftContext.of_target(torch.randn(REQUESTS, 16), torch.randint(VOCABULARY, (REQUESTS,)))
temperature = torch.tensor([1.0, 0.0, 0.6]).repeat(REQUESTS // 3)
draft = window.draft(known, temperature, torch.rand(REQUESTS, DRAFTS).double(), DRAFTS, "mixed")
lengths = torch.arange(REQUESTS) % DRAFTS + 1  # as drafts are cut short
kept = torch.arange(DRAFTS) < lengths[:, None]
likely = draft.probs.clamp_min(1e-9).log() + torch.randn(REQUESTS, DRAFTS, VOCABULARY)
logits = torch.cat([likely, torch.randn(REQUESTS, 1, VOCABULARY)], 1)
bonus, uniforms = torch.randint(VOCABULARY, (REQUESTS, 1)), torch.rand(REQUESTS, DRAFTS).double()
vllm.generate_uniform_probs = lambda *_: uniforms[kept]
sampling = SimpleNamespace(all_greedy=False, all_random=False, temperature=temperature, generators={})
torch.manual_seed(1)
drafted = draft.tokens[kept].int(), lengths.tolist(), DRAFTS, lengths.cumsum(0).int()
found = vllm.rejection_sample(*drafted, draft.probs[kept], logits[:, :-1][kept], bonus, sampling)
torch.manual_seed(1)
race = 1 / torch.empty(REQUESTS, VOCABULARY).exponential_()
accepted = 0
for row, length in enumerate(lengths.tolist()):
    one, p = slice(row, row + 1), logits[row : row + 1, : length + 1].softmax(-1)
    tokens, q = draft.tokens[one, :length], draft.probs[one, :length]
    if temperature[row]:
        ours = verify_rejection(tokens, q, p, uniforms[one, :length], torch.zeros(1).double())
    else:
        ours = verify_greedy(tokens, p)
    emitted, number = ours.tokens[0, : ours.accepted + 1], int(ours.accepted)
    if number == length:
        emitted[-1] = bonus[row]
    elif temperature[row]:  # from what is left of p, by the race of exponentials that the kernel runs
        emitted[-1] = ((p[0, number] - q[0, number]).clamp_min(0) * race[row]).argmax()
    assert found[row, : number + 1].tolist() == emitted.tolist(), row
    assert (found[row, number + 1 :] == -1).all()
    accepted += number
assert 8 < accepted < lengths.sum() - 8
"""


def test_the_kernels_decide_as_the_plain_rule() -> None:
    """With its uniforms, token by token; greedy, sampled and cut drafts in one batch."""
    pytest.importorskip("triton")
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support" / "v2_on_cpu"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", INTERPRETED], env=environment, check=True)
