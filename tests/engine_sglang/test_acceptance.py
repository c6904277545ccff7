"""As many drafts are accepted as in the plain decoding loop: greedy, step by step; sampled, within noise."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import pytest
import torch

from mtpc.drafter import Drafter
from tests.engine.conftest import Models
from tests.engine.prompts import prompts
from tests.engine_sglang.reference import JointReference
from tests.engine_sglang.server import Answer, SGLangServer
from tests.oracles.decoding import Decoded, decode_speculatively

pytestmark = [pytest.mark.engine, pytest.mark.parametrize("drafted", ["chain"], indirect=True)]
TOKENS = 64


def loop(models: Models, reference: JointReference, drafter: Drafter, prompt: str, temperature: float) -> Decoded:
    """The oracle's speculative decoding of one prompt."""
    with torch.inference_mode():
        return decode_speculatively(
            reference.states, drafter, list(prompt.encode()), TOKENS, models.drafts, temperature, seed=len(prompt)
        )


def test_greedy(drafted: SGLangServer, models: Models, reference: JointReference, drafter: Drafter) -> None:
    for prompt in prompts(8):
        answer = drafted.generate(prompt, max_new_tokens=TOKENS, ignore_eos=True)
        expected = loop(models, reference, drafter, prompt, 0.0)
        assert answer["output_ids"] == expected.tokens
        assert answer["meta_info"]["spec_verify_ct"] == len(expected.accepted)
        assert answer["meta_info"]["spec_num_correct_drafts"] == sum(expected.accepted)


def accepted(answer: Answer) -> float:
    """Accepted drafts a step, of one request."""
    return answer["meta_info"]["spec_num_correct_drafts"] / answer["meta_info"]["spec_verify_ct"]


def test_sampled(drafted: SGLangServer, models: Models, reference: JointReference, drafter: Drafter) -> None:
    asked = prompts(24)
    served = [
        fmean(map(accepted, drafted.generate(prompt, max_new_tokens=TOKENS, ignore_eos=True, temperature=1.0, n=8)))
        for prompt in asked
    ]
    looped = [fmean(loop(models, reference, drafter, prompt, 1.0).accepted) for prompt in asked]
    differences = [a - b for a, b in zip(served, looped, strict=True)]
    assert abs(fmean(differences)) < 4 * stdev(differences) / math.sqrt(len(asked))
