"""Which method fits two tokenizers."""

from __future__ import annotations

import json
import math

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from mtpc.lab.cli.main import app
from mtpc.lab.text.overlap import SAME, SLEM, SLRS, TLI, overlap
from tests.support.random_pair import with_beginning
from tests.support.small_tokenizers import BYTE_TARGET, TEXTS, byte_level, byte_target, sentence_piece


def without_a_token() -> PreTrainedTokenizerFast:
    """A tokenizer with other ids and one token less, which is rare in texts."""
    described = json.loads(byte_level().backend_tokenizer.to_str())
    described["added_tokens"] = [each for each in described["added_tokens"] if each["special"]]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(described)), eos_token="<end>")
    assert tokenizer.eos_token_id == byte_level().eos_token_id - 1
    return tokenizer


def test_the_method_that_fits() -> None:
    common = byte_level()("the the", add_special_tokens=False).input_ids
    rare = byte_level()(TEXTS[0], add_special_tokens=False).input_ids
    for draft, target, ids, method in (
        (byte_level(), byte_level(), rare, SAME),
        (byte_level(), with_beginning(byte_level()), rare, SAME),
        (without_a_token(), byte_level(), rare, SAME),
        (byte_level(), without_a_token(), rare, TLI),  # the drafter would lose a token
        (byte_target(), byte_level(), rare, SLRS),
        (sentence_piece(), byte_level(), byte_level().convert_tokens_to_ids(["A"]) * 9, TLI),
        (sentence_piece(), byte_level(), rare, SLEM),
        (byte_level(), byte_target(), byte_target()("the fox", add_special_tokens=False).input_ids, SLEM),
        (sentence_piece(), byte_level(), [], SLEM),  # of no text nothing is known
    ):
        assert overlap(draft, target, ids).method == method
    found = overlap(byte_target(), byte_level(), common)
    single = [each for each in common if len(byte_level().decode(each)) == 1]
    assert (found.draft_tokens, found.common, found.text_tokens) == (256, 256, len(common))
    assert found.text_share == pytest.approx(len(single) / len(common))
    assert found.draft_share == 1  # all bytes are tokens of the target
    back = overlap(byte_level(), byte_target(), byte_target()("the the", add_special_tokens=False).input_ids)
    assert back.text_share == 1
    assert back.draft_share == pytest.approx(len(single) / len(common))
    assert math.isnan(overlap(byte_target(), byte_level(), []).text_share)


def test_the_command_says_which() -> None:
    shown = CliRunner().invoke(app, ["vocab", "overlap", str(BYTE_TARGET), str(BYTE_TARGET)])
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("100.0%") == 4  # shares of both vocabularies, and of the text in both
    assert "256 (100.0%)" in shown.output and "Method that fits: same" in shown.output
