"""Generation of conversations with a served target, up to a number of tokens or a time limit."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import numpy as np

from mtpc.errors import MTPCError
from mtpc.lab.distill.client import SampledCompletion, complete
from mtpc.lab.distill.documents import Documents
from mtpc.lab.distill.filters import NearDuplicates, is_repetitive
from mtpc.lab.distill.questions import Question
from mtpc.lab.distill.settings import MAX_PROMPT_TOKENS, DistillationPlan, SamplingOptions
from mtpc.lab.distill.source import source_code_question
from mtpc.lab.distill.topics import choose_opening
from mtpc.lab.servers.connection import Connection, run_requests
from mtpc.lab.text.chat_template import ChatTemplate
from mtpc.lab.text.conversations import FILE, Conversation, read_conversations, truncate_partial_line

MIN_QUESTION_CHARACTERS = 12
MIN_ANSWER_TOKENS = 16
RETRIES = 6  # of a failed request, within half a minute

Generate = Callable[[list[int], SamplingOptions, int], Awaitable[SampledCompletion]]  # (prompt, sampling, seed)


class ConversationRejected(Exception):  # noqa: N818 (not an error)
    """A conversation was discarded. The message is the reason that is counted."""


class Distillation:
    """Generation of conversations into a folder, resumable.

    The constructor reads the conversations of earlier runs. They count towards the plan, and near duplicates of them
    are discarded. Call ``run`` unless ``is_complete``.

    Args:
        template: Chat template of the target.
        folder: Folder of the conversations. It is created if needed.
        plan: Amount and sampling.
        questions: Questions to answer first. After them, the target generates its own.

    Attributes:
        tokens: Answer tokens by kind.
        conversations: Number of conversations by kind.
        discarded: Number of discarded conversations of this run, by reason.

    Raises:
        MTPCError: The file of an earlier run cannot be read, or is of a target with another tokenizer.
    """

    def __init__(
        self, template: ChatTemplate, folder: Path, plan: DistillationPlan, questions: Sequence[Question] = ()
    ) -> None:
        self.template, self.plan, self.folder = template, plan, folder
        self._file_questions, self._documents = iter(questions), Documents()
        self._started = time.monotonic()
        self.tokens: Counter[str] = Counter()
        self.conversations: Counter[str] = Counter()
        self.discarded: Counter[str] = Counter()
        self._questions, self._answers = NearDuplicates(), NearDuplicates()
        self._next = 0
        folder.mkdir(parents=True, exist_ok=True)
        truncate_partial_line(folder)
        if (folder / FILE).is_file():
            for conversation in read_conversations(folder):
                if not self._next:
                    self._check_prompt(conversation)
                self._count(conversation)
                self._questions.add(conversation.user)
                self._answers.add(conversation.answer)
                self._next = max(self._next, conversation.index + 1)

    def _check_prompt(self, conversation: Conversation) -> None:
        """Check that an earlier run had the same tokenizer and chat template.

        Only the end of the prompt is compared, from about the question on: templates may put the date before it.
        """
        last = slice(-len(self.template.encode(conversation.user)) or None, None)
        found, expected = conversation.tokens[: conversation.start], self.template.question(conversation.user)
        if list(found[last]) != expected[last]:
            raise MTPCError(
                f"{self.folder} holds conversations of a target with another tokenizer or chat template; "
                "choose another folder."
            )

    def _count(self, conversation: Conversation) -> None:
        self.tokens[conversation.kind] += len(conversation.answer_tokens)
        self.conversations[conversation.kind] += 1
        if not conversation.heldout:
            self._documents.add(conversation.answer, conversation.answer_tokens)

    @property
    def is_complete(self) -> bool:
        """Whether the planned number of tokens is reached."""
        return self.tokens.total() >= self.plan.tokens

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time limit is reached, counted from the construction of this object."""
        return self.plan.minutes is not None and time.monotonic() - self._started > 60 * self.plan.minutes

    def run(self, url: str, model: str, progress: Callable[[int], None]) -> None:
        """Generate conversations until the plan is complete or out of time.

        A failed request is retried, then discarded.

        Args:
            url: Address of the server.
            model: Name of the served model.
            progress: Called with the total number of answer tokens after every conversation.

        Raises:
            MTPCError: More requests in a row failed than are sent concurrently. Written conversations are kept.
        """
        run_requests(self._run(url, model, progress))

    async def _run(self, url: str, model: str, progress: Callable[[int], None]) -> None:
        with (self.folder / FILE).open("a", encoding="utf-8") as file:
            async with Connection(url, RETRIES) as connection:
                failed = 0  # failed requests in a row

                async def generate(prompt: list[int], sampling: SamplingOptions, seed: int) -> SampledCompletion:
                    nonlocal failed
                    try:
                        completion = await complete(connection, model, prompt, self.template.end, sampling, seed)
                    except MTPCError:
                        failed += 1
                        if failed > self.plan.concurrency:
                            raise
                        raise ConversationRejected("request failed") from None
                    failed = 0
                    return completion

                async def work() -> None:
                    while not self.is_complete and not self.is_out_of_time:
                        index, self._next = self._next, self._next + 1
                        try:
                            conversation = await self._converse(index, generate)
                        except ConversationRejected as reason:
                            self.discarded[str(reason)] += 1
                            continue
                        self._count(conversation)
                        file.write(conversation.to_json() + "\n")
                        file.flush()
                        progress(self.tokens.total())

                await asyncio.gather(*(work() for _ in range(self.plan.concurrency)))

    async def _converse(self, index: int, generate: Generate) -> Conversation:
        """Generate one conversation. Raise `ConversationRejected` if it is discarded."""
        generator = np.random.default_rng((self.plan.seed, index))
        seed = int(generator.integers(1 << 31))
        question, shortest = next(self._file_questions, None), 1
        if question is None:
            kind, user = await self._generate_question(generator, seed, generate)
            shortest = MIN_QUESTION_CHARACTERS
        else:
            kind, user = question.kind_of_conversation, question.text.strip()
        if len(user) < shortest:
            raise ConversationRejected("question too short")
        if not self._questions.add(user):
            raise ConversationRejected("question seen before")
        prompt = self.template.question(user)
        if len(prompt) > MAX_PROMPT_TOKENS:
            raise ConversationRejected("question too long")
        answer = await generate(prompt, self.plan.answer, seed)
        if answer.finish not in ("stop", "length"):
            raise ConversationRejected("answer broken off")
        if len(answer.ids) < MIN_ANSWER_TOKENS:
            raise ConversationRejected("answer too short")
        if is_repetitive(answer.ids):
            raise ConversationRejected("answer repeats itself")
        if not self._answers.add(answer.text):
            raise ConversationRejected("answer seen before")
        return Conversation(index, kind, user, answer.text, (*prompt, *answer.ids), len(prompt), answer.finish)

    async def _generate_question(
        self, generator: np.random.Generator, seed: int, generate: Generate
    ) -> tuple[str, str]:
        """Return the kind of a question and the question. Raise `ConversationRejected` if there is none."""
        kind, words = choose_opening(generator, self.tokens)
        if kind == "source":
            return kind, source_code_question(generator)
        if kind == "document":
            question = self._documents.question(generator)
            if question is None:
                raise ConversationRejected("no text for a question yet")
            return kind, question
        turn = await generate(self.template.opened_turn(words), self.plan.user, seed)
        if turn.finish != "stop":
            raise ConversationRejected("question without an end")
        return kind, (words + turn.text).strip()
