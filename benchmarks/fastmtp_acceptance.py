"""Acceptance of the setups along the target's own answers, each step with the draft vocabulary that it would take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from benchmarks.fastmtp_setups import DRAFTS, Setup
from mtpc.lab.evaluation.acceptance import counts_along
from mtpc.lab.evaluation.scorer import step_acceptance
from mtpc.lab.evaluation.texts import Text, view
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.drafter import Drafter
from mtpc.target_head.shared import SharedHead
from mtpc.verify import Rates
from mtpc.vocabulary.ranking import Rankings
from mtpc.vocabulary.requests import RequestLanguages
from mtpc.vocabulary.template import Template
from mtpc.vocabulary.vocabularies import NONE, DraftVocabularies, VocabularySettings


class Acceptance:
    """The acceptance of drafters along answers; what setups of other K share is computed once."""

    def __init__(
        self,
        target: FrozenTarget,
        drafters: dict[str, Drafter],
        rankings: Rankings | None,
        answers: dict[str, list[Text]],
        temperature: float,
        template: Template | None = None,
    ) -> None:
        self.target, self.drafters, self.rankings, self.template = target, drafters, rankings, template
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

    def _chances(self, setup: Setup) -> Callable[[Text], Tensor]:
        """What computes the acceptance probabilities along an answer, [L', K] for the largest K."""
        drafter = self.drafters[setup.drafter]

        def along(answer: Text, head: SharedHead) -> Tensor:
            return step_acceptance(drafter, head, view(self.target, answer), DRAFTS[-1], self.temperature)

        if setup.language == NONE:
            return lambda answer: along(answer, self.head)
        assert self.rankings is not None  # the setups were made for it
        vocabularies = DraftVocabularies(self.rankings, VocabularySettings(setup.size, setup.language), self.template)
        heads = [self.head.restricted(ids) for ids in vocabularies.ids]
        detector = vocabularies.detector
        if detector is None:
            return lambda answer: along(answer, heads[0])

        def mixed(answer: Text) -> Tensor:
            accept = torch.stack([along(answer, head) for head in heads])  # [M, L', K]
            languages = RequestLanguages(detector)
            # Row i is the step whose target has just emitted the answer's token i.
            steps = range(accept.shape[1])
            numbers = [languages.choose("", answer.tokens[: answer.start + step + 1]) for step in steps]
            return accept[torch.tensor(numbers, dtype=torch.int64), torch.arange(len(numbers))]

        return mixed


def rates_along(chances: Sequence[Tensor], num_drafts: int) -> Rates:
    """The rates of K drafts a step along several answers, of each [L', at least K] acceptance probabilities."""
    return counts_along(along[:, :num_drafts] for along in chances).rates
