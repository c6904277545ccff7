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
from mtpc.lab.distill.client import Completion, Sampling, complete
from mtpc.lab.distill.documents import Documents
from mtpc.lab.distill.filters import NearDuplicates, is_repetitive
from mtpc.lab.distill.questions import Question
from mtpc.lab.distill.source import ask_about_source
from mtpc.lab.distill.topics import choose_opening
from mtpc.lab.servers.connection import Connection
from mtpc.lab.text.chat_template import ChatTemplate
from mtpc.lab.text.conversations import FILE, Conversation, mend, read_conversations

LEAST_CHARACTERS = 12  # of a user turn
LEAST_TOKENS = 16  # of an answer
RETRIES = 6  # of a request: within half a minute
PROMPT_TOKENS = 768  # of a question at most: room for the template and one about source code or a text

Ask = Callable[[list[int], Sampling, int], Awaitable[Completion]]  # (prompt, how, seed)


class LeftOut(Exception):  # noqa: N818 (not an error)
    """A conversation is of no use; the message is the reason that is counted."""


@dataclass(frozen=True)
class Plan:
    """How much is written, and how."""

    tokens: int = 600_000  # of answers, those of earlier runs included
    minutes: float | None = None
    concurrency: int = 32
    seed: int = 0
    user: Sampling = field(default_factory=lambda: Sampling(128, temperature=0.8, top_k=50))
    answer: Sampling = field(default_factory=lambda: Sampling(512))

    @property
    def longest(self) -> int:
        """Tokens of the longest conversation."""
        return self.user.max_tokens + self.answer.max_tokens + PROMPT_TOKENS


class Distillation:
    """Conversations in a folder, and what was left out by reason.

    The folder may hold those of an earlier run: they count, and nothing like them is added.  questions: answered first,
    those that the folder does not hold yet; after them the target asks itself.

    Errors: `MTPCError` for a folder whose file cannot be read.
    """

    def __init__(self, template: ChatTemplate, folder: Path, plan: Plan, questions: Sequence[Question] = ()) -> None:
        self.template, self.plan, self.folder = template, plan, folder
        self._given, self._documents = iter(questions), Documents()
        self._started = time.monotonic()
        self.tokens: Counter[str] = Counter()  # of answers, by kind
        self.conversations: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self._questions, self._answers = NearDuplicates(), NearDuplicates()
        self._next = 0
        folder.mkdir(parents=True, exist_ok=True)
        mend(folder)
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
    def enough(self) -> bool:
        """Whether the plan's tokens are there."""
        return self.tokens.total() >= self.plan.tokens

    @property
    def late(self) -> bool:
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

                async def ask(prompt: list[int], sampling: Sampling, seed: int) -> Completion:
                    nonlocal failed
                    try:
                        completion = await complete(connection, model, prompt, self.template.end, sampling, seed)
                    except MTPCError:
                        failed += 1
                        if failed > self.plan.concurrency:
                            raise
                        raise LeftOut("request failed") from None
                    failed = 0
                    return completion

                async def work() -> None:
                    while not self.enough and not self.late:
                        index, self._next = self._next, self._next + 1
                        try:
                            conversation = await self._converse(index, ask)
                        except LeftOut as reason:
                            self.left_out[str(reason)] += 1
                            continue
                        self._count(conversation)
                        file.write(conversation.to_json() + "\n")
                        file.flush()
                        progress(self.tokens.total())

                await asyncio.gather(*(work() for _ in range(self.plan.concurrency)))

    async def _converse(self, index: int, ask: Ask) -> Conversation:
        """One conversation.

        Errors: `LeftOut` where it is of no use.
        """
        generator = np.random.default_rng((self.plan.seed, index))
        seed = int(generator.integers(1 << 31))
        given = next(self._given, None)
        if given is None:
            kind, user = await self._asked_by_itself(generator, seed, ask)
        else:
            kind, user = given.kind_of_conversation, given.text.strip()
        if len(user) < LEAST_CHARACTERS:
            raise LeftOut("question too short")
        if not self._questions.add(user):
            raise LeftOut("question seen before")
        prompt = self.template.question(user)
        if len(prompt) > PROMPT_TOKENS:
            raise LeftOut("question too long")
        answer = await ask(prompt, self.plan.answer, seed)
        if answer.finish not in ("stop", "length"):
            raise LeftOut("answer broken off")
        ids = answer.ids or (*self.template.encode(answer.text), *(self.template.end,) * (answer.finish == "stop"))
        if len(ids) < LEAST_TOKENS:
            raise LeftOut("answer too short")
        if is_repetitive(ids):
            raise LeftOut("answer repeats itself")
        if not self._answers.add(answer.text):
            raise LeftOut("answer seen before")
        return Conversation(index, kind, user, answer.text, (*prompt, *ids), len(prompt), answer.finish)

    async def _asked_by_itself(self, generator: np.random.Generator, seed: int, ask: Ask) -> tuple[str, str]:
        """The kind of a question and the question.

        Errors: `LeftOut` where it is of no use.
        """
        kind, words = choose_opening(generator, self.tokens)
        if kind == "source":
            return kind, ask_about_source(generator)
        if kind == "document":
            question = self._documents.ask(generator)
            if question is None:
                raise LeftOut("no text to ask about yet")
            return kind, question
        turn = await ask(self.template.opened_turn(words), self.plan.user, seed)
        if turn.finish != "stop":
            raise LeftOut("question without an end")
        return kind, (words + turn.text).strip()
