"""Training of the bundled byte-level target: a small Llama on English prose and Python source.

The loss is next-byte cross-entropy plus an auxiliary multi-token loss of linear heads, as in EvaByte's pre-training
(MTPC paper, section 4). The heads are discarded afterwards. The auxiliary loss trains the hidden states to predict
several bytes ahead, which drafters rely on.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.lab.console import console
from mtpc.lab.targets.frozen import FrozenTarget, default_device
from mtpc.lab.targets.widening import widen_mlps
from mtpc.lab.text.byte_tokenizer import END_OF_TEXT, PAD, VOCAB_SIZE, save_byte_tokenizer
from mtpc.lab.text.corpus import Corpus
from mtpc.lab.training.optimizers import make_optimizers
from mtpc.lab.training.recipe import Recipe, TrainingBatch
from mtpc.lab.training.schedule import Schedule
from mtpc.lab.training.settings import ByteTargetConfig
from mtpc.lab.training.trainer import Trainer, train_on
from mtpc.memory import check_training_memory


def build_byte_llama(config: ByteTargetConfig) -> LlamaForCausalLM:
    """Return a randomly initialized Llama over bytes."""
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
    """Linear heads for bytes 2..n after a position, used only while the target is trained."""

    def __init__(self, config: ByteTargetConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.zeros(config.future_bytes - 1, VOCAB_SIZE, config.hidden_size))

    def loss(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        """Return the discounted cross-entropy of bytes 2..n, in nats.

        Args:
            hidden: Hidden states after the final norm, [B, T, d].
            tokens: Bytes, int64 [B, T + future_bytes].
        """
        length, stride = hidden.shape[1], self.config.future_stride
        start = int(torch.randint(stride, ()))
        chosen = hidden[:, start::stride]  # [B, S, d]
        futures = tokens.unfold(1, self.config.future_bytes + 1, 1)[:, start:length:stride, 2:]  # [B, S, n-1]
        logits = torch.einsum("bsd,nvd->bsnv", chosen, self.weight)
        losses = F.cross_entropy(logits.float().flatten(0, 2), futures.flatten(), reduction="none")
        ahead = torch.arange(1, self.config.future_bytes, dtype=torch.float32, device=losses.device)
        discounts = self.config.future_discount**ahead
        return (losses.view(-1, self.config.future_bytes - 1).mean(0) * discounts).sum()


def sample_batch(tokens: np.ndarray, rows: int, length: int, generator: np.random.Generator) -> Tensor:
    """Return random windows of the token stream, int64 [rows, length]."""
    starts = generator.integers(0, len(tokens) - length, rows)
    return torch.from_numpy(np.stack([tokens[s : s + length] for s in starts]).astype(np.int64))


@torch.inference_mode()
def heldout_loss(model: LlamaForCausalLM, tokens: np.ndarray, context: int, windows: int = 32) -> float:
    """Return the next-byte cross-entropy, in nats per byte, over evenly spaced windows of held-out text.

    Args:
        model: Byte-level model. It is left in training mode.
        tokens: Held-out bytes.
        context: Length of a window, in bytes. The first 64 bytes of each do not count.
        windows: Number of windows.
    """
    model.eval()
    starts = np.linspace(0, len(tokens) - context - 1, windows).astype(int)
    total = 0.0
    for start in starts:
        window = torch.from_numpy(tokens[start : start + context].astype(np.int64))[None].to(model.device)
        with torch.autocast(model.device.type, torch.bfloat16):
            logits = model(input_ids=window, use_cache=False).logits
        total += F.cross_entropy(logits[0, 64:-1].float(), window[0, 65:]).item()
    model.train()
    return total / windows


class ByteTarget(nn.Module):
    """Model with its auxiliary heads, which are discarded after training."""

    def __init__(self, config: ByteTargetConfig) -> None:
        super().__init__()
        self.llama, self.heads = build_byte_llama(config), FutureHeads(config)


class ByteRecipe(Recipe[ByteTarget]):
    """Recipe of the byte-level target, with the next-byte loss and the auxiliary loss.

    Args:
        corpus: Text to train on.
        settings: Architecture and training.
        widen: Folder of a trained model with narrower MLPs to start from. None starts from random weights.

    Raises:
        MTPCError: The corpus is too small, the model does not fit into memory, or ``widen`` is not a model folder.
    """

    def __init__(self, corpus: Corpus, settings: ByteTargetConfig, widen: Path | None = None) -> None:
        self.corpus, self.settings = corpus, settings
        self.tokens = corpus.training_tokens(settings.context + settings.future_bytes, VOCAB_SIZE)
        least = min((len(corpus.heldout(kind)) for kind in corpus.kinds()), default=0)
        if least <= settings.context:
            raise MTPCError(
                f"{corpus.folder} holds out only {least} tokens of one kind, but a context has {settings.context}; "
                "use a larger corpus or a smaller --context."
            )
        with torch.device("meta"):
            check_training_memory((ByteTarget(settings),), "this model")
        self.narrow = None if widen is None else FrozenTarget(widen)
        self.device = torch.device(default_device())

    @property
    def schedule(self) -> Schedule:
        """Warm-up, plateau, then linear decay to 2%."""
        return self.settings.schedule

    def models(self) -> dict[str, ByteTarget]:
        """Return one model with random or widened weights."""
        torch.manual_seed(self.settings.seed)
        model = ByteTarget(self.settings).to(self.device)
        if self.narrow is not None:
            widen_mlps(self.narrow.model, model.llama)
        return {"byte target": model}

    def optimizers(self, model: ByteTarget) -> list[torch.optim.Optimizer]:
        """Return Muon for the matrices of the layers, and AdamW for embeddings, output heads and norms."""
        matrices = [p for name, p in model.llama.named_parameters() if p.ndim == 2 and ".layers." in name]
        in_layers = {id(p) for p in matrices}
        others = [p for p in model.parameters() if id(p) not in in_layers]
        return make_optimizers(matrices, others, "muon", self.settings.learning_rate, weight_decay=0.1)

    def weights(self, model: ByteTarget) -> Tensor:
        """Return the weights of the next-byte loss and the auxiliary loss."""
        return torch.tensor([1.0, self.settings.future_weight], device=self.device)

    def batch(self, update: int) -> TrainingBatch:
        """Return random windows of the corpus, longer ones towards the end; it counts as one example."""
        settings = self.settings
        length = settings.context if update >= settings.long_context_from * settings.updates else settings.context // 2
        rows, generator = settings.tokens_per_update // length, np.random.default_rng((settings.seed, update))
        return TrainingBatch(
            1, [sample_batch(self.tokens, rows, length + settings.future_bytes, generator).to(self.device)]
        )

    def losses(self, model: ByteTarget, tokens: Tensor) -> Tensor:
        """Return the mean next-byte loss and the auxiliary loss: windows int64 [B, T + future_bytes] -> [2]."""
        length = tokens.shape[1] - self.settings.future_bytes
        with torch.autocast(self.device.type, torch.bfloat16):
            hidden = model.llama.model(input_ids=tokens[:, :length], use_cache=False).last_hidden_state
            logits = model.llama.lm_head(hidden)
            future = model.heads.loss(hidden, tokens)
        next_byte = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1 : length + 1].flatten())
        return torch.stack([next_byte, future])

    def measure(self, model: ByteTarget) -> dict[str, float]:
        """Measure the loss on held-out text, in nats per byte."""
        return {"heldout": heldout_loss(model.llama, self.corpus.tokens("heldout"), self.settings.context)}

    def data(self) -> dict[str, Any]:
        """Return the digests of the corpus and of the model to widen."""
        widened = None if self.narrow is None else self.narrow.digest()
        return {"corpus_sha256": self.corpus.digest(), "widened": widened}


def train_byte_target(
    corpus: Corpus, out: Path, config: ByteTargetConfig, resume: Path | None = None, widen: Path | None = None
) -> None:
    """Train a byte-level target and write it as a Hugging Face folder.

    Args:
        corpus: Text to train on.
        out: Folder to write: bfloat16 weights, tokenizer and ``provenance.json``.
        config: Architecture and training.
        resume: State file to resume from and to write, see `Trainer`.
        widen: Folder of a narrower model to start from, see `ByteRecipe`.

    Raises:
        MTPCError: As `Trainer` and `ByteRecipe`.
    """
    trainer = Trainer(ByteRecipe(corpus, config, widen), resume=resume)
    train_on(console(), trainer)
    (learner,) = trainer.learners
    history = [{**figures, "train": learner.losses[int(figures["update"]) - 1][0]} for figures in learner.history]
    origin = None if widen is None else provenance.read(widen)
    save_byte_target(learner.model.llama, corpus, out, config, history, origin)


def save_byte_target(
    model: LlamaForCausalLM,
    corpus: Corpus,
    out: Path,
    config: ByteTargetConfig,
    history: list[dict[str, float]],
    origin: dict[str, object] | None = None,
) -> None:
    """Write the model in bfloat16 with its tokenizer and ``provenance.json``.

    Args:
        model: Trained model.
        corpus: Corpus, whose held-out loss is recorded by kind of text.
        out: Folder to write.
        config: Architecture and training.
        history: Measured losses.
        origin: Provenance of the model that was widened, if any.
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
