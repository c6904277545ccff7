"""Lets the served target write conversations until there are enough of them or the time is up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mtpc.errors import MTPCError
from mtpc.lab.distill.client import SampledCompletion, SamplingOptions, complete
from mtpc.lab.distill.documents import Documents
from mtpc.lab.distill.filters import NearDuplicates, is_repetitive
from mtpc.lab.distill.questions import Question
from mtpc.lab.distill.source import source_code_question
from mtpc.lab.distill.topics import choose_opening
from mtpc.lab.servers.connection import Connection
from mtpc.lab.text.chat_template import ChatTemplate
from mtpc.lab.text.conversations import FILE, Conversation, read_conversations, truncate_partial_line

MIN_QUESTION_CHARACTERS = 12  # of a user turn
MIN_ANSWER_TOKENS = 16  # of an answer
RETRIES = 6  # of a request: within half a minute
MAX_PROMPT_TOKENS = 768  # of a question at most: room for the template and one about source code or a text

Ask = Callable[[list[int], SamplingOptions, int], Awaitable[SampledCompletion]]  # (prompt, how, seed)


class ConversationRejected(Exception):  # noqa: N818 (not an error)
    """A conversation is of no use; the message is the reason that is counted."""


@dataclass(frozen=True)
class DistillationPlan:
    """How much is written, and how."""

    tokens: int = 600_000  # of answers, those of earlier runs included
    minutes: float | None = None
    concurrency: int = 32
    seed: int = 0
    user: SamplingOptions = field(default_factory=lambda: SamplingOptions(128, temperature=0.8, top_k=50))
    answer: SamplingOptions = field(default_factory=lambda: SamplingOptions(512))

    @property
    def longest(self) -> int:
        """Tokens of the longest conversation."""
        return self.user.max_tokens + self.answer.max_tokens + MAX_PROMPT_TOKENS


class Distillation:
    """Conversations in a folder, and what was left out by reason.

    The folder may hold those of an earlier run: they count, and nothing like them is added.  questions: answered first,
    those that the folder does not hold yet; after them the target asks itself.

    Errors: `MTPCError` for a folder whose file cannot be read.
    """

    def __init__(
        self, template: ChatTemplate, folder: Path, plan: DistillationPlan, questions: Sequence[Question] = ()
    ) -> None:
        self.template, self.plan, self.folder = template, plan, folder
        self._file_questions, self._documents = iter(questions), Documents()
        self._started = time.monotonic()
        self.tokens: Counter[str] = Counter()  # of answers, by kind
        self.conversations: Counter[str] = Counter()
        self.discarded: Counter[str] = Counter()
        self._questions, self._answers = NearDuplicates(), NearDuplicates()
        self._next = 0
        folder.mkdir(parents=True, exist_ok=True)
        truncate_partial_line(folder)
        if (folder / FILE).is_file():
            for conversation in read_conversations(folder):
                self._count(conversation)
                self._questions.add(conversation.user)
                self._answers.add(conversation.answer)
                self._next = max(self._next, conversation.index + 1)

    def _count(self, conversation: Conversation) -> None:
        self.tokens[conversation.kind] += len(conversation.answer_tokens)
        self.conversations[conversation.kind] += 1
        if not conversation.heldout:
            self._documents.add(conversation.answer, conversation.answer_tokens)

    @property
    def is_complete(self) -> bool:
        """Whether the plan's tokens are there."""
        return self.tokens.total() >= self.plan.tokens

    @property
    def is_out_of_time(self) -> bool:
        """Whether the plan's time is up; it began when this object was made, before any server was started."""
        return self.plan.minutes is not None and time.monotonic() - self._started > 60 * self.plan.minutes

    def run(self, url: str, model: str, progress: Callable[[int], None]) -> None:
        """Write until there is enough or the time is up; ``progress`` gets the tokens there are.

        A request that fails is sent again, and at last left out.

        Errors: `MTPCError` when more requests fail in a row than are sent at a time; what is written stays.
        """
        asyncio.run(self._run(url, model, progress))

    async def _run(self, url: str, model: str, progress: Callable[[int], None]) -> None:
        with (self.folder / FILE).open("a", encoding="utf-8") as file:
            async with Connection(url, RETRIES) as connection:
                failed = 0  # in a row

                async def ask(prompt: list[int], sampling: SamplingOptions, seed: int) -> SampledCompletion:
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
                            conversation = await self._converse(index, ask)
                        except ConversationRejected as reason:
                            self.discarded[str(reason)] += 1
                            continue
                        self._count(conversation)
                        file.write(conversation.to_json() + "\n")
                        file.flush()
                        progress(self.tokens.total())

                await asyncio.gather(*(work() for _ in range(self.plan.concurrency)))

    async def _converse(self, index: int, ask: Ask) -> Conversation:
        """One conversation.

        Errors: `ConversationRejected` where it is of no use.
        """
        generator = np.random.default_rng((self.plan.seed, index))
        seed = int(generator.integers(1 << 31))
        given = next(self._file_questions, None)
        if given is None:
            kind, user = await self._generate_question(generator, seed, ask)
        else:
            kind, user = given.kind_of_conversation, given.text.strip()
        if len(user) < MIN_QUESTION_CHARACTERS:
            raise ConversationRejected("question too short")
        if not self._questions.add(user):
            raise ConversationRejected("question seen before")
        prompt = self.template.question(user)
        if len(prompt) > MAX_PROMPT_TOKENS:
            raise ConversationRejected("question too long")
        answer = await ask(prompt, self.plan.answer, seed)
        if answer.finish not in ("stop", "length"):
            raise ConversationRejected("answer broken off")
        ids = answer.ids or (*self.template.encode(answer.text), *(self.template.end,) * (answer.finish == "stop"))
        if len(ids) < MIN_ANSWER_TOKENS:
            raise ConversationRejected("answer too short")
        if is_repetitive(ids):
            raise ConversationRejected("answer repeats itself")
        if not self._answers.add(answer.text):
            raise ConversationRejected("answer seen before")
        return Conversation(index, kind, user, answer.text, (*prompt, *ids), len(prompt), answer.finish)

    async def _generate_question(self, generator: np.random.Generator, seed: int, ask: Ask) -> tuple[str, str]:
        """The kind of a question and the question.

        Errors: `ConversationRejected` where it is of no use.
        """
        kind, words = choose_opening(generator, self.tokens)
        if kind == "source":
            return kind, source_code_question(generator)
        if kind == "document":
            question = self._documents.question(generator)
            if question is None:
                raise ConversationRejected("no text to ask about yet")
            return kind, question
        turn = await ask(self.template.opened_turn(words), self.plan.user, seed)
        if turn.finish != "stop":
            raise ConversationRejected("question without an end")
        return kind, (words + turn.text).strip()
