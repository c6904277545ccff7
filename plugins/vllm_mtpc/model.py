"""The class that vLLM's model loader builds for a drafter checkpoint of any draft method."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

from torch import Tensor, nn
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.models.utils import AutoWeightsLoader

from mtpc.draft import DraftContext
from mtpc.draft_length.cost import StepCost
from mtpc.draw import at_temperature, choose, draw_tokens, most_probable
from mtpc.errors import MTPCError
from mtpc.memory import check_batch_memory
from mtpc.methods import method_of
from mtpc.methods.drafter import draft_vocabularies, load_drafter, split_drafts
from mtpc.prompt_lookup.mixture import Copying
from mtpc.serving.announcement import Shares, announced
from mtpc.target_head.draft_logits import DraftHead, DraftLogits
from mtpc.target_head.own import OwnLogits
from mtpc.target_head.rows import plain_weight
from mtpc.target_head.union import UnionLogits
from vllm_mtpc.additional import copies, vocabulary_values
from vllm_mtpc.dispatch import folder_of
from vllm_mtpc.draft_layers import STACKED, VLLMDraftLayers
from vllm_mtpc.ranks import head_ranks
from vllm_mtpc.settings import target_of

logger = logging.getLogger(f"vllm.{__name__}")
LARGE = 1 << 30


class DrafterForCausalLM(nn.Module):
    """Both parts of a drafter, as far as the drafts asked for need them.

    model: the autoregressive part, shared out over tensor-parallel ranks; None: there is none.  vLLM gives it the target's
    embedding, unless it has its own, and this module the target's output head.
    window: the parallel part, in the target's dtype, whole on every rank; None: there is none, or all drafts are the
    autoregressive part's.
    """

    lm_head: Any

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
        if copies(additional, not self.drafter.own_drafts):  # what goes beyond the drafter's own drafts is copied
            drafts = min(drafts, self.drafter.num_drafts)
        self.parallel = method.parallel(self.drafter) if self.split(drafts)[1] else None
        self.num_drafts = drafts
        self.model: VLLMDraftLayers | None = None
        self.vocabularies = None
        self.draft_logits: DraftLogits | None = None
        if self.drafter.autoregressive is not None:
            name = f"{prefix}.model" if prefix else "model"
            self.model = VLLMDraftLayers(
                vllm_config=vllm_config, autoregressive=self.drafter.autoregressive, prefix=name
            )
            self.logits_processor = LogitsProcessor(self.target.vocab_size)
            values = vocabulary_values(additional)
            tokenizer = vllm_config.model_config.tokenizer
            self.vocabularies = draft_vocabularies(values, self.folder, self.drafter, tokenizer)
            if self.drafter.autoregressive.has_own_embedding:
                self.has_own_embed_tokens = True  # vLLM then leaves it

    def split(self, num_drafts: int) -> tuple[int, int]:
        """How many of K drafts are the autoregressive part's, and how many the parallel part's."""
        return split_drafts(self.drafter, num_drafts)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load the directory strictly; vLLM's own iterator over its tensors would not see what is missing.

        Positions of the window that are never drafted are left out.  Returns the names of all tensors.
        Errors: `MTPCError`, see `mtpc.methods.drafter.load_drafter`.
        """
        placed = next(self.parameters(), None)
        drafter, loaded = load_drafter(self.folder, self.target), set()
        if self.parallel is not None:
            assert drafter.parallel is not None
            self.parallel = drafter.parallel.shortened(self.split(self.num_drafts)[1])
            if placed is not None:
                self.parallel = self.parallel.to(device=placed.device, dtype=placed.dtype)
            loaded |= {f"parallel.{name}" for name in self.parallel.state_dict()}
        if drafter.autoregressive is not None:
            assert self.model is not None
            own = drafter.autoregressive.own
            if self.model.own is not None and own is not None:
                self.model.own.load_state_dict(own.state_dict())
                loaded |= {f"model.own.{name}" for name in own.state_dict()}
            tensors = drafter.autoregressive.state_dict().items()
            named = ((f"model.{name}", tensor) for name, tensor in tensors if not name.startswith("own."))
            loaded |= AutoWeightsLoader(self).load_weights(named, mapper=STACKED)
        return loaded

    def gather_rows(self, static: bool) -> None:
        """Gather the output head's rows of the draft vocabularies, once the head is shared: each rank a share of them.

        Of a drafter with an output head of its own these are all of its rows.

        static: whether shapes must be the same for all batches of a size, as in a CUDA graph, see `UnionLogits`.

        Errors: `MTPCError` for a head whose rows are no plain numbers.
        """
        own = None if self.model is None else self.model.own
        if own is not None and own.rows is not None and own.tokens is not None:
            self.draft_logits = OwnLogits(own.rows.detach(), own.tokens, self.target.vocab_size, head_ranks())
        if static and self.vocabularies is not None and self.vocabularies.together() is None:
            self.vocabularies = None
        if self.vocabularies is None:
            return
        weight = plain_weight(self.lm_head, self.target.hidden_size)
        if weight is None:
            raise MTPCError(
                "a draft vocabulary needs an output head that is not quantised; set its language to 'none'."
            )
        if static:
            self.draft_logits = UnionLogits(self.vocabularies, weight, head_ranks())
        else:
            whole = partial(self.logits_processor, self.lm_head)
            self.draft_logits = DraftLogits(self.vocabularies, weight, whole, head_ranks())

    def announce(self, vllm_config: Any, copies: bool, runner: str, kept: int | None = None) -> None:
        """Say in the log what drafts, once the head is shared.

        kept: see `check_batch_memory`; from `LARGE` on it is also a warning.
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
        more = ["copying from the request's own text"] * copies + [memory] * bool(autoregressive + parallel) + [runner]
        logger.info(announced(self.folder, self.method, shares, from_what, *more))
        if kept is not None and kept >= LARGE:
            logger.warning(
                "--max-num-seqs %d: draft distributions of so many requests take %.1f GB that the KV cache then lacks. "
                'Lower it, or set "draft_sample_method": "greedy", which keeps none of them but has fewer drafts '
                "accepted above temperature 0.",
                requests,
                kept / 1e9,
            )

    def announce_cost(self, cost: StepCost) -> None:
        """Say in the log what steps cost, by which the lengths of drafts are chosen."""
        logger.info("%s: %s.", self.folder, cost.summary)

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Embeddings of tokens: int [T] -> [T, d]."""
        assert self.model is not None
        embeddings: Tensor = self.model.embed_tokens(input_ids)
        return embeddings

    def forward(
        self, input_ids: Tensor, positions: Tensor, hidden_states: Tensor, inputs_embeds: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """One step of the autoregressive part: the states [T, d] that the logits are made of, and those that go into the next.

        Both are the same.
        """
        if self.model is None or inputs_embeds is not None:
            raise RuntimeError("only an autoregressive part is run token by token, and it reads tokens, not embeddings")
        states = self.model(input_ids, positions, hidden_states)
        return states, states

    def compute_logits(self, hidden_states: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Logits of the autoregressive part over the target's vocabulary, [n, V]; -inf for a token that cannot be drafted.

        numbers: int64 [n], of each row's draft vocabulary; None: the first for all.
        """
        if self.draft_logits is None:
            logits: Tensor = self.logits_processor(self.lm_head, hidden_states)
            return logits
        return self.draft_logits(hidden_states, numbers).to(self.logits_processor.head_dtype)

    def completed(self, known: DraftContext, numbers: Tensor | None = None) -> DraftContext:
        """What is known when the window drafts, with what only some windows read.

        numbers: int64 [B], of the requests' draft vocabularies; None: the first for all.
        """
        if self.parallel is None or not self.parallel.reads_autoregressive:
            return known
        assert self.model is not None  # part of the contract: such a window goes on from an autoregressive part
        inputs = self.model.inputs(known.tokens.flatten(), known.states.flatten(0, 1)).unflatten(0, known.tokens.shape)
        if self.draft_logits is None:
            return known._replace(inputs=inputs, head=DraftHead(self.compute_logits, self.target.vocab_size))
        return known._replace(inputs=inputs, head=self.draft_logits.head(numbers))

    def greedy(self, hidden_states: Tensor, numbers: Tensor | None) -> Tensor:
        """The autoregressive part's most probable tokens, int64 [n], of states [n, d]."""
        if self.draft_logits is None:
            return self.compute_logits(hidden_states).argmax(-1)
        return self.draft_logits.greedy(hidden_states, numbers)

    def most_probable(
        self, hidden_states: Tensor, copied: Tensor | None, numbers: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The autoregressive part's most probable tokens, their probabilities and those of the tokens ``copied``, [n] each."""
        if self.draft_logits is None:
            return most_probable(self.compute_logits(hidden_states), copied)
        return self.draft_logits.most_probable(hidden_states, copied, numbers)

    def drawn(
        self, hidden_states: Tensor, temperature: Tensor, uniforms: Tensor, numbers: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Tokens drawn by the autoregressive part, int64 [n], and the probabilities that they were drawn from, float32 [n, V].

        hidden_states: [n, d].  temperature, uniforms: [n] both, see `mtpc.draw.draw_tokens`.
        """
        if self.draft_logits is None:
            return draw_tokens(self.compute_logits(hidden_states), temperature, uniforms)
        return self.draft_logits.drawn(hidden_states, temperature, uniforms, numbers)

    def drawn_mixed(
        self, hidden_states: Tensor, temperature: Tensor, uniforms: Tensor, copying: Copying, numbers: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `drawn`, from the mixture with copying; and the autoregressive part's probability of what would be copied, [n]."""
        if self.draft_logits is None:
            own = at_temperature(self.compute_logits(hidden_states), temperature)
            mixed = copying.mixed(own)
            return choose(mixed, temperature, uniforms), mixed, copying.of(own)
        copied = copying.token, copying.weight
        return self.draft_logits.drawn_mixed(hidden_states, temperature, uniforms, *copied, numbers)
