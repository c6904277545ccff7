"""Distillation against a fake server: what is written, what is discarded, how it stops and continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mtpc.errors import MTPCError
from mtpc.lab.cli.main import app
from mtpc.lab.distill.run import Distillation
from mtpc.lab.distill.settings import DistillationPlan, SamplingOptions
from mtpc.lab.distill.topics import SHARES
from mtpc.lab.text.chat_template import ChatTemplate
from mtpc.lab.text.conversations import FILE, Conversation, read_conversations
from tests.mtpc.lab.chat_folder import ASKING, END, OPENING, TEMPLATE, make_chat_folder, text_of
from tests.mtpc.lab.distill.chatter import chatter
from tests.mtpc.lab.servers.fake_server import serving

ENOUGH = 3000


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make_chat_folder(tmp_path / "target")


def distill(
    target: Path, out: Path, plan: DistillationPlan, answer: Callable[[dict[str, Any]], dict[str, Any]] = chatter
) -> Any:
    """One run; the work and what the server saw."""
    with serving(answer=answer) as (url, state):
        work = Distillation(ChatTemplate(target), out, plan)
        work.run(url, "some-model", lambda tokens: None)
    return work, state


def test_conversations_hold_exactly_what_was_sampled(target: Path, tmp_path: Path) -> None:
    plan = DistillationPlan(tokens=ENOUGH, concurrency=6, answer=SamplingOptions(200, top_k=7))
    work, state = distill(target, tmp_path / "out", plan)
    found = list(read_conversations(tmp_path / "out"))
    assert work.tokens.total() == sum(len(each.answer_tokens) for each in found) >= ENOUGH
    assert work.conversations.total() == len(found)
    assert 1 < state.most <= 6
    for each in found:
        assert text_of(list(each.tokens[: each.start])) == OPENING + each.user + ASKING.replace("<|endoftext|>", "")
        assert text_of(list(each.answer_tokens)) == each.answer
        assert each.answer_tokens[-1] == END
        assert each.finish == "stop"
    assert {each.kind for each in found} == set(SHARES)
    answers = [body for body in state.bodies if body["max_tokens"] == 200]
    assert {(body["temperature"], body["top_p"], body["top_k"]) for body in answers} == {(0.6, 0.95, 7)}
    assert all(body["stop_token_ids"] == [END] for body in state.bodies)


def test_a_request_that_fails_for_a_while_ends_nothing(target: Path, tmp_path: Path) -> None:
    """The server is overloaded now and then: those requests are sent again, and nothing is left out for it."""
    asked = iter(range(10**6))

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        return {} if next(asked) % 20 == 10 else chatter(body)

    with serving(answer=answer) as (url, state):
        state.refusal = 503
        work = Distillation(ChatTemplate(target), tmp_path / "out", DistillationPlan(tokens=ENOUGH, concurrency=4))
        work.run(url, "some-model", lambda tokens: None)
    assert work.is_complete
    assert next(asked) > 20  # some have failed
    assert "request failed" not in work.discarded


def test_one_request_that_the_server_never_answers_ends_nothing(target: Path, tmp_path: Path) -> None:
    asked = iter(range(10**6))
    refused = (5, 17)
    answer = lambda body: {} if next(asked) in refused else chatter(body)  # noqa: E731
    work, _ = distill(target, tmp_path / "out", DistillationPlan(tokens=ENOUGH, concurrency=1), answer)
    assert work.is_complete
    assert work.discarded["request failed"] == len(refused)


def test_what_is_of_no_use_is_left_out_and_counted(target: Path, tmp_path: Path) -> None:
    # One at a time: what is asked next depends on what has been answered so far.
    work, _ = distill(target, tmp_path / "out", DistillationPlan(tokens=2 * ENOUGH, concurrency=1))
    assert {
        "question without an end",
        "answer too short",
        "answer repeats itself",
        "answer seen before",
    } <= set(work.discarded)
    answers = [each.answer for each in read_conversations(tmp_path / "out")]
    assert not any(answer == "no" or answer.startswith("again and") for answer in answers)
    assert sum(answer.startswith("the very same") for answer in answers) <= 1


def test_a_later_run_goes_on_where_the_first_one_ended(target: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    distill(target, out, DistillationPlan(tokens=ENOUGH, concurrency=4))
    first = (out / FILE).read_text()
    with (out / FILE).open("a") as file:
        file.write('{"index": 999, "kind": "ch')  # the process was ended while it wrote
    work, _ = distill(target, out, DistillationPlan(tokens=2 * ENOUGH, concurrency=4))
    assert (out / FILE).read_text().startswith(first)
    found = list(read_conversations(out))
    assert len({each.index for each in found}) == len({each.user for each in found}) == len(found)
    assert 2 * ENOUGH <= work.tokens.total() < 3 * ENOUGH
    again, state = distill(target, out, DistillationPlan(tokens=2 * ENOUGH, concurrency=4))
    assert state.bodies == []
    assert again.tokens == work.tokens


def test_the_time_may_be_up_before_there_is_enough(target: Path, tmp_path: Path) -> None:
    work, _ = distill(target, tmp_path / "out", DistillationPlan(tokens=10**9, minutes=0.01, concurrency=2))
    assert 0 < work.tokens.total() < 10**6


def test_conversations_of_another_tokenizer_or_template_are_not_continued(target: Path, tmp_path: Path) -> None:
    distill(target, tmp_path / "out", DistillationPlan(tokens=300))
    make_chat_folder(target, "Today is Monday. " + TEMPLATE)
    distill(target, tmp_path / "out", DistillationPlan(tokens=400))
    make_chat_folder(target, TEMPLATE.replace("assistant: ", "answer: "))
    with pytest.raises(MTPCError, match="conversations of a target with another tokenizer or chat template"):
        distill(target, tmp_path / "out", DistillationPlan(tokens=600))


def test_what_was_written_stays_when_the_server_breaks_off(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtpc.lab.distill.run.RETRIES", 0)
    asked = iter(range(10**6))
    with pytest.raises(MTPCError, match="answered a request with status 400"):
        distill(
            target,
            tmp_path / "out",
            DistillationPlan(tokens=ENOUGH, concurrency=1),
            lambda body: chatter(body) if next(asked) < 40 else {},
        )
    assert list(read_conversations(tmp_path / "out"))
    with pytest.raises(MTPCError, match="broke off a request"):
        Distillation(ChatTemplate(target), tmp_path / "out", DistillationPlan(tokens=ENOUGH)).run(
            "http://127.0.0.1:9", "some-model", lambda tokens: None
        )


def test_the_command_writes_where_its_text_comes_from(target: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with serving(answer=chatter) as (url, _):
        arguments = ["--target", str(target), "--out", str(out), "--url", f"{url}/", "--tokens", "500", "--top-p", "1"]
        result = CliRunner().invoke(app, ["distill", *arguments])
    assert result.exit_code == 0, result.output
    provenance = json.loads((out / "provenance.json").read_text())
    assert provenance["server"] == url
    assert provenance["plan"]["answer"]["top_p"] == 1.0
    assert provenance["plan"]["user"] == {"max_tokens": 128, "temperature": 0.8, "top_p": 1.0, "top_k": 50}
    assert sum(provenance["answer_tokens"].values()) >= 500
    assert "discarded" in result.output or "chat" in result.output


def test_a_file_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(MTPCError, match="holds no conversations"):
        list(read_conversations(tmp_path))
    good = Conversation(0, "chat", "question", "answer", (1, 2), 1, "stop").to_json()
    for line in ("[]", "{}", "{", good.replace('"index":0,', "")):
        (tmp_path / FILE).write_text(f"{good}\n{line}\n")
        with pytest.raises(MTPCError, match="line 2: expected a conversation"):
            list(read_conversations(tmp_path))


def test_the_held_out_part_depends_on_the_question_alone() -> None:
    one = [Conversation(i, "chat", f"question {i}", "a", (1,), 1, "stop") for i in range(2000)]
    other = [Conversation(0, "code", f"question {i}", "b", (2,), 1, "stop") for i in range(2000)]
    assert [each.heldout for each in one] == [each.heldout for each in other]
    assert 0.025 < sum(each.heldout for each in one) / 2000 < 0.055
