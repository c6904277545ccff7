"""Acceptance of the setups along the target's own answers, in closed form, with the map that each step would take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from benchmarks.fastmtp_setups import STEPS, Question, Setup
from mtpc.evaluation.acceptance import expected_counts
from mtpc.fastmtp.evaluation import Answer, step_acceptance
from mtpc.fastmtp.head import SharedHead
from mtpc.fastmtp.layer import MTPLayer
from mtpc.targets.answers import write_answers
from mtpc.targets.frozen import FrozenTarget
from mtpc.verify import Rates, rates_from_marginal
from mtpc.vocabulary.heads import NONE, DraftVocabularies, VocabularySettings
from mtpc.vocabulary.ranking import Rankings
from mtpc.vocabulary.requests import RequestLanguages


def answer_questions(
    target: FrozenTarget, questions: Sequence[Question], length: int, temperature: float, seed: int
) -> dict[str, list[Answer]]:
    """The target's answers by kind."""
    answers: dict[str, list[Answer]] = {}
    generator = torch.Generator(target.device).manual_seed(seed)
    for kind in dict.fromkeys(question.kind for question in questions):
        prompts = [question.tokens for question in questions if question.kind == kind]
        texts = write_answers(target, prompts, length, temperature, target.end, generator)
        answers[kind] = [Answer(text, len(prompt)) for text, prompt in zip(texts, prompts, strict=True)]
    return answers


class Acceptance:
    """The acceptance of drafters along answers; what setups of other K share is computed once."""

    def __init__(
        self,
        target: FrozenTarget,
        layers: dict[str, MTPLayer],
        rankings: Rankings | None,
        answers: dict[str, list[Answer]],
        temperature: float,
    ) -> None:
        self.target, self.layers, self.rankings = target, layers, rankings
        self.answers, self.temperature = answers, temperature
        self.head = SharedHead.of(target.model)
        self.known: dict[tuple[str, int | None, str], dict[str, list[Tensor]]] = {}

    def rates(self, setup: Setup) -> dict[str, Rates]:
        """By kind."""
        key = (setup.drafter, setup.size, setup.language)
        if key not in self.known:
            chances = self._chances(setup)
            self.known[key] = {kind: list(map(chances, answers)) for kind, answers in self.answers.items()}
        return {kind: rates_along(found, setup.num_drafts) for kind, found in self.known[key].items()}

    def _chances(self, setup: Setup) -> Callable[[Answer], Tensor]:
        """What computes the acceptance probabilities along an answer, [L', K] for the largest K."""
        layer = self.layers[setup.drafter]

        def along(answer: Answer, head: SharedHead) -> Tensor:
            if len(answer.tokens) - answer.start < STEPS[-1] + 1:  # too short for a step
                return torch.zeros(0, STEPS[-1], dtype=torch.float64)
            return step_acceptance(self.target, layer, head, answer, STEPS[-1], self.temperature)

        if setup.language == NONE:
            return lambda answer: along(answer, self.head)
        assert self.rankings is not None  # the setups were made for it
        vocabularies = DraftVocabularies(self.rankings, VocabularySettings(setup.size, setup.language))
        heads = [self.head.restricted(ids) for ids in vocabularies.ids]
        detector = vocabularies.detector
        if detector is None:
            return lambda answer: along(answer, heads[0])

        def mixed(answer: Answer) -> Tensor:
            by_map = torch.stack([along(answer, head) for head in heads])  # [M, L', K]
            languages = RequestLanguages(detector)
            # Row i is the step whose target has just emitted the answer's token i.
            steps = range(by_map.shape[1])
            maps = [languages.choose("", answer.tokens[: answer.start + step + 1]) for step in steps]
            return by_map[torch.tensor(maps, dtype=torch.int64), torch.arange(len(maps))]

        return mixed


def rates_along(chances: Sequence[Tensor], num_drafts: int) -> Rates:
    """The rates of K drafts a step along several answers, of each [L', at least K] acceptance probabilities."""
    steps, accepted = torch.zeros((), dtype=torch.float64), torch.zeros(num_drafts, dtype=torch.float64)
    for each in chances:
        if len(each):
            found = expected_counts(each[None, :, :num_drafts])
            steps, accepted = steps + found[0], accepted + found[1]
    return rates_from_marginal((accepted / steps.clamp_min(1)).tolist())
