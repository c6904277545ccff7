"""Trains the byte-level target that ships: a small Llama on English prose and Python source.

The training loss is next-byte cross-entropy plus an auxiliary multi-token loss from linear heads
that are thrown away afterwards, as EvaByte was pre-trained (MTPC paper, section 4): it teaches the
hidden states to look ahead, which is what every drafter on top of them lives on.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.files.config_model import declared
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.targets.widening import widen_mlps
from mtpc.lab.text.byte_tokenizer import END_OF_TEXT, PAD, VOCAB_SIZE, save_byte_tokenizer
from mtpc.lab.text.corpus import Corpus
from mtpc.lab.training.held import OptimizerState, Reached, Tensors
from mtpc.lab.training.optimizers import make_optimizers, take_up
from mtpc.lab.training.settings import ByteTargetConfig
from mtpc.lab.training.state import StateFile
from mtpc.memory import must_train

SAVE_EVERY = 100  # updates


class ByteState(Reached):
    """What a state on disk holds."""

    model: Tensors
    heads: Tensors
    optimizers: list[OptimizerState]
    history: list[dict[str, float]]


def build_byte_llama(config: ByteTargetConfig) -> LlamaForCausalLM:
    """A randomly initialised Llama over bytes."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=config.hidden_size,
            intermediate_size=config.mlp_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            head_dim=64,
            max_position_embeddings=config.context,
            rope_theta=10_000.0,
            rms_norm_eps=1e-5,
            tie_word_embeddings=False,
            bos_token_id=END_OF_TEXT,
            eos_token_id=END_OF_TEXT,
            pad_token_id=PAD,
        )
    )


class FutureHeads(nn.Module):
    """Linear heads for the bytes 2..n after a position; only the training of the target uses them."""

    def __init__(self, config: ByteTargetConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.zeros(config.future_bytes - 1, VOCAB_SIZE, config.hidden_size))

    def loss(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        """Discounted cross-entropy of the bytes further ahead.

        hidden: [B, T, d] after the final norm; tokens: [B, T + future_bytes].
        """
        length, stride = hidden.shape[1], self.config.future_stride
        start = int(torch.randint(stride, ()))
        chosen = hidden[:, start::stride]  # [B, S, d]
        futures = tokens.unfold(1, self.config.future_bytes + 1, 1)[:, start:length:stride, 2:]  # [B, S, n-1]
        logits = torch.einsum("bsd,nvd->bsnv", chosen, self.weight)
        losses = F.cross_entropy(logits.float().flatten(0, 2), futures.flatten(), reduction="none")
        discounts = self.config.future_discount ** torch.arange(1, self.config.future_bytes, dtype=torch.float32)
        return (losses.view(-1, self.config.future_bytes - 1).mean(0) * discounts).sum()


def build_optimizers(model: nn.Module, heads: nn.Module, config: ByteTargetConfig) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings, output tables and norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name]
    known = {id(p) for p in matrices}
    others = [p for p in (*model.parameters(), *heads.parameters()) if id(p) not in known]
    return make_optimizers(matrices, others, "muon", config.learning_rate, weight_decay=0.1)


def sample_batch(tokens: np.ndarray, rows: int, length: int, generator: np.random.Generator) -> Tensor:
    """Random windows of the token stream, int64 [rows, length]."""
    starts = generator.integers(0, len(tokens) - length, rows)
    return torch.from_numpy(np.stack([tokens[s : s + length] for s in starts]).astype(np.int64))


@torch.inference_mode()
def heldout_loss(model: LlamaForCausalLM, tokens: np.ndarray, context: int, windows: int = 32) -> float:
    """Next-byte cross-entropy in nats over evenly spaced windows, after the first 64 bytes of each."""
    model.eval()
    starts = np.linspace(0, len(tokens) - context - 1, windows).astype(int)
    total = 0.0
    for start in starts:
        window = torch.from_numpy(tokens[start : start + context].astype(np.int64))[None]
        with torch.autocast("cpu", torch.bfloat16, enabled=window.device.type == "cpu"):
            logits = model(input_ids=window.to(model.device), use_cache=False).logits
        total += F.cross_entropy(logits[0, 64:-1].float().cpu(), window[0, 65:]).item()
    model.train()
    return total / windows


def train_byte_target(
    corpus: Corpus, out: Path, config: ByteTargetConfig, resume: Path | None = None, widen: Path | None = None
) -> None:
    """Train and write a Hugging Face folder (bfloat16 weights, tokenizer, provenance).

    ``resume`` names a state file that is written every 100 updates and, if it exists, continued from. ``widen`` names a
    trained folder with narrower MLPs to start from instead of random weights.

    Errors: `MTPCError` for a corpus with too little text, a model that is too large for this machine, a folder to widen
    that is none or does not fit, the state of another training, or a loss that is no longer finite.
    """
    tokens = corpus.training_tokens(config.context + config.future_bytes, VOCAB_SIZE)
    least = min((len(corpus.heldout(kind)) for kind in corpus.kinds()), default=0)
    if least <= config.context:
        raise MTPCError(f"{corpus.folder} holds out {least} tokens of a kind, but a context has {config.context}.")
    with torch.device("meta"):
        must_train((build_byte_llama(config), FutureHeads(config)), "this model")
    torch.manual_seed(config.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, heads = build_byte_llama(config).to(device), FutureHeads(config).to(device)
    identity = {"recipe": asdict(config), "corpus": corpus.digest(), "widened": None}
    if widen is not None:
        narrow = FrozenTarget(widen)
        identity["widened"] = narrow.digest()
        widen_mlps(narrow.model, model)
    optimizers = build_optimizers(model, heads, config)
    file = None if resume is None else StateFile(resume, identity)
    first, seconds, history = _taken_up(file, model, heads, optimizers)

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    started = time.monotonic() - seconds
    with Progress(*columns) as progress:
        bar = progress.add_task("byte target", total=config.updates, completed=first)
        for update in range(first, config.updates):
            length = config.context if update >= config.long_context_from * config.updates else config.context // 2
            generator = np.random.default_rng((config.seed, update))
            rows = config.tokens_per_update // length
            batch = sample_batch(tokens, rows, length + config.future_bytes, generator).to(device)
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = config.schedule.rate(update)
            with torch.autocast(device.type, torch.bfloat16):
                hidden = model.model(input_ids=batch[:, :length], use_cache=False).last_hidden_state
                logits = model.lm_head(hidden)
                future = heads.loss(hidden, batch)
            next_byte = F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1 : length + 1].flatten())
            (next_byte + config.future_weight * future).backward()
            nn.utils.clip_grad_norm_([*model.parameters(), *heads.parameters()], 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            loss = next_byte.item()
            if not math.isfinite(loss):
                raise MTPCError(
                    f"the loss became {loss} at update {update + 1}; a smaller learning rate may keep it finite."
                )
            progress.update(bar, advance=1, description=f"byte target  loss {loss:.3f}")
            if (update + 1) % SAVE_EVERY == 0 or update + 1 == config.updates:
                seconds = time.monotonic() - started
                held = heldout_loss(model, corpus.tokens("heldout"), config.context)
                history.append({"update": update + 1, "train": loss, "heldout": held, "seconds": seconds})
                progress.console.print(json.dumps(history[-1]))
                if file is not None:
                    file.write(
                        {
                            "model": model.state_dict(),
                            "heads": heads.state_dict(),
                            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
                            "update": update + 1,
                            "seconds": seconds,
                            "history": history,
                        }
                    )
    origin = None if widen is None else provenance.read(widen)
    save_byte_target(model, corpus, out, config, history, origin)


def _taken_up(
    file: StateFile | None, model: nn.Module, heads: nn.Module, optimizers: list[torch.optim.Optimizer]
) -> tuple[int, float, list[dict[str, float]]]:
    """Go on from a state file, where there is one: the updates that are done, their seconds and what they brought."""
    state = None if file is None else file.read()
    if file is None or state is None:
        return 0, 0.0, []
    held = declared(ByteState, state, str(file.path))
    try:
        model.load_state_dict(held.model)
        heads.load_state_dict(held.heads)
        take_up(optimizers, held.optimizers, held.update)
    except (RuntimeError, ValueError):
        raise file.foreign("does not hold the weights of this model") from None
    return held.update, held.seconds, held.history


def save_byte_target(
    model: LlamaForCausalLM,
    corpus: Corpus,
    out: Path,
    config: ByteTargetConfig,
    history: list[dict[str, float]],
    origin: dict[str, object] | None = None,
) -> None:
    """Write the model in bfloat16 with its tokenizer and ``provenance.json``.

    origin: the provenance of the model that it was widened from.
    """
    out.mkdir(parents=True, exist_ok=True)
    kinds = {kind: heldout_loss(model, corpus.heldout(kind), config.context) for kind in corpus.kinds()}
    model.to(torch.bfloat16).save_pretrained(out)
    save_byte_tokenizer(out)
    provenance.write(
        out,
        recipe=asdict(config),
        corpus_sha256=corpus.digest(),
        heldout_nats_per_byte=kinds,
        history=history,
        widened_from=origin,
    )
