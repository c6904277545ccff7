"""The class that vLLM's model loader builds for a drafter checkpoint of any draft method."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.models.utils import AutoWeightsLoader

from mtpc.draft import DraftContext
from mtpc.draft_length.cost import StepCost
from mtpc.errors import MTPCError
from mtpc.memory import check_batch_memory
from mtpc.methods import method_of
from mtpc.methods.drafter import draft_vocabularies, load_drafter, split_drafts
from mtpc.prompt_lookup.mixture import Copying
from mtpc.serving.announcement import Shares, startup_line
from mtpc.target_head.draft_logits import DraftHead, DraftLogits
from mtpc.target_head.drafter_head import DrafterHeadLogits
from mtpc.target_head.shard import head_shard
from mtpc.target_head.union import UnionLogits
from vllm_mtpc.adapted_layers import VLLMAdaptedLayers
from vllm_mtpc.additional_config import uses_prompt_lookup, vocabulary_values
from vllm_mtpc.dispatch import folder_of
from vllm_mtpc.draft_layers import STACKED, VLLMDraftLayers, draft_layers
from vllm_mtpc.lora import without_lora
from vllm_mtpc.ranks import head_ranks
from vllm_mtpc.settings import target_of
from vllm_mtpc.weight_updates import FIX
from vllm_mtpc.whole_logits import WholeLogits

if TYPE_CHECKING:
    from mtpc.autoregressive.adapted_layers import AdaptedLayers

logger = logging.getLogger(f"vllm.{__name__}")
LARGE_BYTES = 1 << 30  # draft distributions of this size are worth a warning


class DrafterForCausalLM(nn.Module):
    """Both parts of a drafter, each only if K draft tokens need it.

    Protocol: vLLM builds the module, calls `load_weights` and, with an autoregressive part, assigns the target's
    embedding and output head.  Then the proposer or speculator calls `share_target`, `gather_rows` and `announce`.

    Attributes:
        lm_head: The target's output head, where the drafter reads it.
        embed_tokens: The target's embedding, where a parallel part without an autoregressive one reads the head.
        model: The autoregressive part, sharded over tensor-parallel ranks; None if the drafter has none.  It uses the
            target's embedding unless the drafter has one.
        parallel: The parallel part, in the target's dtype, replicated on every rank.  None if the drafter has none or
            the autoregressive part makes all draft tokens.
        vocabularies: Draft vocabularies of a drafter that drafts through the target's head; None for all its tokens.
        num_drafts: Draft tokens of both parts together; prompt lookup may add more.
        is_loaded: Whether `load_weights` has been called.
    """

    lm_head: Any
    embed_tokens: Any
    is_loaded = False

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        draft = vllm_config.speculative_config.draft_model_config
        additional = vllm_config.additional_config
        self.config = draft.hf_config
        self.folder = folder_of(vllm_config)
        self.target = target_of(vllm_config.model_config)
        self.method = method = method_of(self.folder)
        self.drafter = method.read_config(self.folder)
        drafts = vllm_config.num_speculative_tokens
        if uses_prompt_lookup(additional, not self.drafter.own_drafts):  # prompt lookup makes further tokens
            drafts = min(drafts, self.drafter.num_drafts)
        self.parallel = method.parallel(self.drafter) if self.split(drafts)[1] else None
        self.num_drafts = drafts
        self.model: VLLMDraftLayers | VLLMAdaptedLayers | None = None
        self.vocabularies = None
        self.draft_logits: DraftLogits | None = None
        if self.drafter.autoregressive is not None:
            name = f"{prefix}.model" if prefix else "model"
            self.model = draft_layers(vllm_config, self.drafter.autoregressive, name)
            if self.drafter.autoregressive.has_own_embedding:
                self.has_own_embed_tokens = True  # vLLM then does not replace it
        if self.model is not None or self.reads_head:
            self.logits_processor = LogitsProcessor(self.target.vocab_size)
            values, tokenizer = vocabulary_values(additional), vllm_config.model_config.tokenizer
            self.vocabularies = draft_vocabularies(values, self.folder, method, self.drafter, tokenizer)

    @property
    def reads_head(self) -> bool:
        """Whether the parallel part drafts through the output head."""
        return self.parallel is not None and self.parallel.reads_head

    def split(self, num_drafts: int) -> tuple[int, int]:
        """Split draft tokens between both parts.

        Args:
            num_drafts: Draft tokens of the drafter.

        Returns:
            The number of tokens of the autoregressive part and of the parallel part.
        """
        return split_drafts(self.drafter, num_drafts)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load the checkpoint folder strictly, with positions of the parallel part that are never drafted left out.

        Args:
            weights: Begun, because vLLM takes the time of loading from then on, and ignored: the iterator over the
                tensors would not reveal missing ones.

        Returns:
            The names of all loaded tensors.

        Raises:
            MTPCError: They have been loaded before, or see `mtpc.methods.drafter.load_drafter`.
        """
        if self.is_loaded:
            raise MTPCError(f"the weights of {self.folder} have been loaded already: {FIX}.")
        self.is_loaded = True
        next(iter(weights), None)
        placed = next(self.parameters(), None)
        drafter, loaded = load_drafter(self.folder, self.target), set()
        if self.parallel is not None:
            assert drafter.parallel is not None
            self.parallel = drafter.parallel.shortened(self.split(self.num_drafts)[1])
            if placed is not None:
                self.parallel = self.parallel.to(device=placed.device, dtype=placed.dtype)
            loaded |= {f"parallel.{name}" for name in self.parallel.state_dict()}
        if drafter.autoregressive is not None:
            if isinstance(self.model, VLLMAdaptedLayers):
                self.model.load(cast("AdaptedLayers", drafter.autoregressive))
                return loaded | {name for name, _ in self.named_parameters()}
            assert self.model is not None
            own = drafter.autoregressive.own
            if self.model.own is not None and own is not None:
                self.model.own.load_state_dict(own.state_dict())
                loaded |= {f"model.own.{name}" for name in own.state_dict()}
            tensors = drafter.autoregressive.state_dict().items()
            dtype = next(self.model.parameters()).dtype  # vLLM warns of other ones
            named = ((f"model.{name}", tensor.to(dtype)) for name, tensor in tensors if not name.startswith("own."))
            loaded |= AutoWeightsLoader(self).load_weights(named, mapper=STACKED)
        return loaded

    def share_target(self, target: nn.Module) -> None:
        """Take what the drafter reads of the target, where vLLM does not assign it, all without LoRA adapters.

        These are the layers that an autoregressive part adapts.  Without an autoregressive part they are the embedding
        and the output head.

        Args:
            target: vLLM's model of the target.

        Raises:
            MTPCError: The model has none, and see `VLLMAdaptedLayers.share`.
        """
        if isinstance(self.model, VLLMAdaptedLayers):
            self.model.share(target)
        if self.model is not None:  # vLLM has assigned both, on the V1 runner with the wrappers of LoRA
            self.model.embed_tokens = without_lora(self.model.embed_tokens)
            self.lm_head = without_lora(self.lm_head)
            return
        if not self.reads_head:
            return
        model: Any = target
        if hasattr(model, "get_language_model"):
            model = model.get_language_model()
        inner = getattr(model, "model", None)
        embedding = getattr(inner, "embed_tokens", None) or getattr(inner, "embedding", None)
        head = getattr(model, "lm_head", None) or getattr(target, "lm_head", None)
        if embedding is None or head is None:
            raise MTPCError(
                f"{self.folder} drafts through the target's embedding and output head, which vLLM's "
                f"{type(target).__name__} does not offer: choose a drafter with its own leaves."
            )
        self.embed_tokens, self.lm_head = without_lora(embedding), without_lora(head)

    def gather_rows(self, static: bool) -> None:
        """Gather this rank's share of the output head's rows that the draft vocabularies use, dequantized.

        Call it once the target's head is assigned.  For a drafter with an output head, these are all of its rows.

        Args:
            static: Whether shapes must depend on the batch size alone, as in a CUDA graph; see `UnionLogits`.

        Raises:
            MTPCError: There is no such head, or its rows cannot be read, see `DraftLogits`.
        """
        own = None if self.model is None else self.model.own
        if own is not None and own.rows is not None and own.tokens is not None:
            self.draft_logits = DrafterHeadLogits(own.rows.detach(), own.tokens, self.target.vocab_size, head_ranks())
        if static and self.vocabularies is not None and self.vocabularies.union() is None:
            self.vocabularies = None
        if self.vocabularies is None:
            return
        shard = head_shard(self.lm_head, self.logits_processor.head_dtype, self.target.hidden_size)
        if shard is None:
            raise MTPCError(
                f"a draft vocabulary needs an output head for states of {self.target.hidden_size} numbers, which the "
                f"target lacks; set its language to 'none'."
            )
        if static:
            self.draft_logits = UnionLogits(self.vocabularies, shard, head_ranks())
        else:
            whole = partial(self.logits_processor, self.lm_head)
            self.draft_logits = DraftLogits(self.vocabularies, shard, whole, head_ranks())

    def announce(self, vllm_config: Any, copies: bool, runner: str, kept: int | None = None) -> None:
        """Log what drafts, from which tokens and with how much memory.  Call it after `gather_rows`.

        Args:
            vllm_config: vLLM's ``VllmConfig``.
            copies: Whether prompt lookup drafts as well.
            runner: The model runner's name.
            kept: Bytes of draft distributions that stay allocated, see `check_batch_memory`; a warning from
                `LARGE_BYTES` on.
        """
        drafts = vllm_config.num_speculative_tokens
        autoregressive, parallel = self.split(self.num_drafts)
        shares = Shares(autoregressive, parallel, drafts - autoregressive - parallel)
        whole = f"drafting from all {self.target.vocab_size} tokens"
        from_what = whole if self.draft_logits is None else self.draft_logits.summary
        requests = vllm_config.scheduler_config.max_num_seqs
        memory = check_batch_memory(
            requests, autoregressive + parallel, self.target.vocab_size, kept, autoregressive > 0
        )
        more = ["prompt lookup"] * copies + [memory] * bool(autoregressive + parallel) + [runner]
        logger.info(startup_line(self.folder, self.method, shares, from_what, *more))
        if kept is not None and kept >= LARGE_BYTES:
            logger.warning(
                "--max-num-seqs %d: draft distributions of this many requests take %.1f GB from the KV cache. "
                'Lower it, or set "draft_sample_method": "greedy", which stores none of them but lowers the acceptance '
                "rate above temperature 0.",
                requests,
                kept / 1e9,
            )

    def announce_cost(self, cost: StepCost) -> None:
        """Log the measured costs of decoding steps, from which draft lengths are chosen."""
        logger.info("%s: %s.", self.folder, cost.summary)

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Return the embeddings [T, d] of tokens, int [T]."""
        embed = self.embed_tokens if self.model is None else self.model.embed_tokens
        embeddings: Tensor = embed(input_ids)
        return embeddings

    def forward(
        self, input_ids: Tensor, positions: Tensor, hidden_states: Tensor, inputs_embeds: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run one draft step of the autoregressive part; see `VLLMDraftLayers.forward`.

        Args:
            input_ids: [T], the token after each position.
            positions: int64 [T].
            hidden_states: [T, d], the state at each position.
            inputs_embeds: Must be None.

        Returns:
            The states [T, d] for `compute_logits`, and the same tensor as input of the next draft step.

        Raises:
            RuntimeError: There is no autoregressive part, or embeddings are passed.
        """
        if self.model is None or inputs_embeds is not None:
            raise RuntimeError("forward() requires an autoregressive part and token ids, not embeddings")
        states = self.model(input_ids, positions, hidden_states)
        return states, states

    def compute_logits(self, hidden_states: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Compute logits over the target's vocabulary.

        Args:
            hidden_states: [n, d].
            numbers: int64 [n], the draft vocabulary of each row; None for the first one.

        Returns:
            Logits [n, V], -inf for tokens outside the draft vocabulary.
        """
        if self.draft_logits is None:
            logits: Tensor = self.logits_processor(self.lm_head, hidden_states)
            return logits
        return self.draft_logits(hidden_states, numbers).to(self.logits_processor.head_dtype)

    def with_head_inputs(self, known: DraftContext, numbers: Tensor | None = None) -> DraftContext:
        """Add to the draft context what only some parallel parts read: layer inputs and the output head.

        Args:
            known: States and tokens when the parallel part drafts.
            numbers: int64 [B], the draft vocabulary of each request; None for the first one.

        Returns:
            The context for `ParallelPart.draft`.
        """
        if not self.reads_head:
            return known
        tokens = known.tokens.flatten()
        if self.model is None:
            inputs = self.embed_input_ids(tokens).to(known.states.dtype)
        else:
            inputs = self.model.inputs(tokens, known.states.flatten(0, 1))
        inputs = inputs.unflatten(0, known.tokens.shape)
        if self.draft_logits is None:
            return known._replace(inputs=inputs, head=DraftHead(self.compute_logits, self.target.vocab_size))
        return known._replace(inputs=inputs, head=self.draft_logits.head(numbers))

    @property
    def _whole_logits(self) -> WholeLogits:
        """Draws from all tokens, without draft vocabularies."""
        return WholeLogits(self.compute_logits)

    def greedy(self, hidden_states: Tensor, numbers: Tensor | None) -> Tensor:
        """Return the autoregressive part's most probable tokens.

        Args:
            hidden_states: [n, d].
            numbers: int64 [n], the draft vocabulary of each row; None for the first one.

        Returns:
            Tokens, int64 [n].
        """
        if self.draft_logits is None:
            return self._whole_logits.greedy(hidden_states)
        return self.draft_logits.greedy(hidden_states, numbers)

    def most_probable(
        self, hidden_states: Tensor, copied: Tensor, numbers: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the autoregressive part's most probable tokens with probabilities at temperature 1.

        Args:
            hidden_states: [n, d].
            copied: int64 [n], tokens of prompt lookup, whose probabilities are returned as well.
            numbers: int64 [n], the draft vocabulary of each row; None for the first one.

        Returns:
            The tokens, their probabilities and the probabilities of ``copied``, [n] each.
        """
        if self.draft_logits is None:
            return self._whole_logits.most_probable(hidden_states, copied)
        return self.draft_logits.most_probable(hidden_states, copied, numbers)

    def drawn(
        self, hidden_states: Tensor, temperature: Tensor, uniforms: Tensor, numbers: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Draw tokens from the autoregressive part's distributions.

        Args:
            hidden_states: [n, d].
            temperature: [n], see `mtpc.draw.draw_tokens`.
            uniforms: float64 [n] in [0, 1), the noise of each draw.
            numbers: int64 [n], the draft vocabulary of each row; None for the first one.

        Returns:
            Tokens, int64 [n], and the distributions that they were drawn from, float32 [n, V].
        """
        if self.draft_logits is None:
            return self._whole_logits.drawn(hidden_states, temperature, uniforms)
        return self.draft_logits.drawn(hidden_states, temperature, uniforms, numbers)

    def drawn_mixed(
        self, hidden_states: Tensor, temperature: Tensor, uniforms: Tensor, copying: Copying, numbers: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw tokens from the mixture of the autoregressive part and prompt lookup.

        Args:
            hidden_states: [n, d].
            temperature: [n], see `mtpc.draw.draw_tokens`.
            uniforms: float64 [n] in [0, 1), the noise of each draw.
            copying: The tokens of prompt lookup and their weights.
            numbers: int64 [n], the draft vocabulary of each row; None for the first one.

        Returns:
            Tokens, int64 [n]; the mixtures that they were drawn from, float32 [n, V]; and the autoregressive part's
            probabilities of the tokens of prompt lookup, [n].
        """
        if self.draft_logits is None:
            return self._whole_logits.drawn_mixed(hidden_states, temperature, uniforms, copying)
        copied = copying.token, copying.weight
        return self.draft_logits.drawn_mixed(hidden_states, temperature, uniforms, *copied, numbers)
