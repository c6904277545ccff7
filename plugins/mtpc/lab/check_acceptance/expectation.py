"""Acceptance that the reference implementation expects along the outputs of a server."""

from __future__ import annotations

from pathlib import Path

import torch

from mtpc.lab.evaluation.acceptance import ExpectedCounts, expected_counts
from mtpc.lab.evaluation.evaluate import DrafterScorer, EvaluationPlan, check_vocabulary
from mtpc.lab.evaluation.scorer import step_acceptance
from mtpc.lab.evaluation.texts import GeneratedText, features_for
from mtpc.lab.targets.frozen import FrozenTarget, default_device
from mtpc.lab.targets.generation import generate
from mtpc.target_head.shared import SharedHead


class AcceptanceReference:
    """A target and a drafter without an engine, in float32.

    Args:
        target: Folder of the target.
        drafter: Drafter checkpoint.
        num_drafts: Draft tokens per decoding step, K.
        temperature: Temperature of target and drafter; 0 is greedy.
        samples: Whether draft tokens are sampled above temperature 0, or always the most probable ones.

    Raises:
        MTPCError: A folder cannot be loaded, they do not fit together, or the drafter cannot draft K tokens or has no
            reference implementation.
    """

    def __init__(self, target: Path, drafter: Path, num_drafts: int, temperature: float, samples: bool) -> None:
        self.target = FrozenTarget(target, device=default_device(), dtype=torch.float32)
        loaded = self.target.load_drafter(drafter)
        check_vocabulary(str(drafter), loaded, target)
        plan = EvaluationPlan(num_drafts=num_drafts)
        self.scorer = DrafterScorer(str(drafter), loaded, SharedHead.of(self.target.model), plan)
        self.temperature, self.draft_temperature = temperature, temperature if samples else 0.0
        self.generator = torch.Generator(self.target.device).manual_seed(0)

    def counts(self, prompt: tuple[int, ...], output: tuple[int, ...]) -> ExpectedCounts:
        """Return the expected counts of the decoding steps of one request.

        A step begins after each token but the last. The last step may accept tokens beyond the end of the output, which
        engines count as well. The target therefore continues the output by K - 1 tokens.

        Args:
            prompt: Tokens of the prompt, at least two.
            output: Tokens that the server generated.
        """
        drafts, text = self.scorer.drafts, [*prompt, *output]
        (text,) = generate(self.target, [text], drafts - 1, self.temperature, generator=self.generator)
        features = features_for(self.target, self.scorer.drafter, GeneratedText(text, len(prompt)))
        accept = step_acceptance(self.scorer.drafter, self.scorer.head, features, drafts, self.draft_temperature)
        return expected_counts(accept[None])
