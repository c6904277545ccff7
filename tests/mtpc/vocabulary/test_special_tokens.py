"""Special tokens are mapped by spelling first, then by meaning."""

from __future__ import annotations

from mtpc.vocabulary.special_tokens import same_meaning

CHATML = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}


def test_meanings() -> None:
    cases = [
        ("the same spelling", {"<|im_end|>": 7, "<|endoftext|>": 9}, CHATML, {7: 2, 9: 0}),
        ("another spelling", {"<|eot_id|>": 7, "<|begin_of_text|>": 8}, CHATML, {7: 2}),
        ("Gemma's", CHATML, {"<eos>": 1, "<start_of_turn>": 106, "<end_of_turn>": 107}, {0: 1, 1: 106, 2: 107}),
        ("no end of a turn", CHATML, {"<s>": 1, "</s>": 2}, {0: 2, 2: 2}),
        ("a meaning twice", {"<|eot_id|>": 3, "<|im_end|>": 4}, {"<|im_end|>": 5, "<end_of_turn>": 6}, {3: 5, 4: 5}),
        ("nothing in common", {"<|fim_prefix|>": 3}, CHATML, {}),
    ]  # fmt: skip
    for name, target, draft, expected in cases:
        assert same_meaning(target, draft) == expected, name
