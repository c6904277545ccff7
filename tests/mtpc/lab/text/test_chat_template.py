"""Chat templates seen from both ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtpc.errors import MTPCError
from mtpc.lab.text.chat_template import ChatTemplate
from tests.mtpc.lab.chat_folder import END, make_chat_folder, text_of


def test_a_turn_is_opened_asked_and_ended(tmp_path: Path) -> None:
    template = ChatTemplate(make_chat_folder(tmp_path))
    assert template.opening == "user: "
    assert template.end == END
    assert text_of(template.opened_turn("What")) == "user: What"
    asked = template.question("What is it?")
    assert text_of(asked) == "user: What is it?\nassistant: "
    assert asked.count(END) == 1


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "has no chat template"),
        ("{% for m in messages %}{{ m['content'] }}\n{% endfor %}", "does not end a user turn with a special token"),
        ("hello<|endoftext|>", "does not end a user turn with a special token"),
    ],
)
def test_a_template_that_cannot_be_used(template: str | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(MTPCError, match=message):
        ChatTemplate(make_chat_folder(tmp_path, template))


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(MTPCError, match="not a model folder with a tokenizer"):
        ChatTemplate(tmp_path)
