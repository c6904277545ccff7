"""The byte tokenizer: token id = byte value, lossless, and what an engine asks of it."""

from pathlib import Path

from transformers import AutoTokenizer

from mtpc.lab.text.byte_tokenizer import END_OF_TEXT, PAD, VOCAB_SIZE, build_byte_tokenizer, save_byte_tokenizer

TEXT = "  To be, or not — das ist hier die Frage\n\tΣx² 日本語 🙂\r\n"


def test_ids_are_bytes_and_decoding_is_lossless(tmp_path: Path):
    save_byte_tokenizer(tmp_path)
    for tokenizer in (build_byte_tokenizer(), AutoTokenizer.from_pretrained(tmp_path)):
        ids = tokenizer.encode(TEXT)
        assert ids == list(TEXT.encode())
        assert tokenizer.decode(ids) == TEXT
        assert len(tokenizer) == VOCAB_SIZE


def test_special_tokens():
    tokenizer = build_byte_tokenizer()
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (END_OF_TEXT, PAD)
    assert tokenizer.encode("a<|endoftext|>") == [97, END_OF_TEXT]
    assert tokenizer.decode([97, END_OF_TEXT], skip_special_tokens=True) == "a"
