"""Tokens of a chat template, distinguished from the content of messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mtpc.lab.text.chat_template import ChatTemplate
from mtpc.vocabulary.template import Template, read_template
from tests.mtpc.lab.chat_folder import END, make_chat_folder

TEMPLATE = Template(((1, 2, 3), (9, 2), (7,)), special=(0,))


def content_of(template: Template, tokens: list[int]) -> list[int]:
    """What is left of the tokens."""
    text = np.array(tokens, dtype=np.int64)
    content: list[int] = text[template.content_mask(text)].tolist()
    return content


@pytest.mark.parametrize(
    ("tokens", "content"),
    [
        ([1, 2, 3, 4, 5, 9, 2, 6], [4, 5, 6]),
        ([1, 2, 4, 1, 2, 3, 7, 1, 2, 3], [1, 2, 4]),  # a piece of which a part is there is not
        ([0, 4, 0, 0, 5, 7], [4, 5]),
        ([9, 2], []),
        ([1], [1]),
        ([], []),
    ],
)
def test_what_is_said(tokens: list[int], content: list[int]) -> None:
    assert content_of(TEMPLATE, tokens) == content


def test_a_conversation(tmp_path: Path) -> None:
    template = read_template(str(make_chat_folder(tmp_path)))
    chat = ChatTemplate(tmp_path)
    assert END in template.special
    asked = chat.question("Why?")
    assert content_of(template, asked) == list(b"Why?")
    again = [*asked, *b"So.", *chat.encode("<|endoftext|>\nuser: "), *b"Oh", *chat.encode("<|endoftext|>\nassistant: ")]
    assert content_of(template, again) == list(b"Why?So.Oh")


def test_no_template_and_no_tokenizer(tmp_path: Path) -> None:
    assert read_template(str(tmp_path)) == Template()
    only_special = read_template(str(make_chat_folder(tmp_path, None)))
    assert only_special == Template((), only_special.special)
    assert END in only_special.special


def test_a_template_that_refuses_a_role(tmp_path: Path) -> None:
    refusing = "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}"
    make_chat_folder(tmp_path, refusing + "[{{ m['content'] }}]{% endfor %}")
    assert read_template(str(tmp_path)).pieces == ((91,), tuple(b"]["), (93,))
