"""A Markov head as the parallel part of a drafter: independent positions with a low-rank bias by the previous token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from mtpc.circuits import build_circuit
from mtpc.draft import Draft, DraftContext, Mode
from mtpc.draw import choose, renormalized
from mtpc.parallel.circuit_head import CircuitHead, tempered
from mtpc.parallel.part import ParallelPart
from mtpc.prompt_lookup.mixture import Copying
from mtpc.target_head.shared import Head

if TYPE_CHECKING:
    from mtpc.parallel.config import CircuitConfig


class MarkovPart(ParallelPart):
    """Positions that depend on the token before them only: logits H f_i + B A[x_{i-1}] (DSpark, arXiv 2607.05147).

    H is the target's output head and f_i the state of position i, computed as in an FF circuit. A draft token is drawn
    from the softmax of its logits, so each conditional is exact by construction. Unlike a circuit it has no marginals:
    the distribution of a position is known once the token before it is.

    Attributes:
        config: Sizes of the head.
        markov_rank: r.
        circuit: The FF circuit.
        head: The states of the positions.
        before: A, the features of each previous token, [V, r].
        after: B, the bias of each token, [V, r].
    """

    reads_head = True

    def __init__(self, config: CircuitConfig, markov_rank: int) -> None:
        super().__init__()
        self.config, self.markov_rank, self.vocab_size = config, markov_rank, config.vocab_size
        self.circuit = build_circuit(config.circuit, config.circuit_window, config.rank)
        self.head = CircuitHead(config, self.circuit)
        self.before = nn.Embedding(config.vocab_size, markov_rank)
        self.after = nn.Parameter(torch.zeros(config.vocab_size, markov_rank))

    @property
    def max_drafts(self) -> int:
        """Most tokens of one draft: the window without x_{t+1}."""
        return self.config.window - 1

    @property
    def leaf_shape(self) -> tuple[int, int, int]:
        """One distribution per position."""
        return self.max_drafts, 1, self.vocab_size

    def states(self, context: DraftContext) -> Tensor:
        """Compute the state of each position, [B, n - 1, d]."""
        embedding = None if context.inputs is None else context.inputs[:, -1]
        return self.head.states(context.states[:, -1], context.tokens[:, -1], embedding)[0][:, :, 0]

    def position_logits(self, context: DraftContext, count: int) -> Tensor:
        """Return the logits of the first positions without the bias, [B, count, R]."""
        assert context.head is not None  # part of the contract, see `reads_head`
        return context.head.logits(self.states(context)[:, :count])

    def bias_rows(self, head: Head) -> Tensor:
        """Return the rows of B for the tokens of a head, [R, r]."""
        return self.after if head.ids is None else self.after[head.ids]

    def draft(
        self,
        context: DraftContext,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Mode,
        copying: Copying | None = None,
    ) -> Draft:
        """See `ParallelPart.draft`: token by token, each biased by the one before."""
        if mode == "greedy":
            temperature = noise = None
        head = context.head
        assert head is not None  # part of the contract, see `reads_head`
        positive = None if temperature is None else temperature.masked_fill(temperature <= 0, 1.0)
        whole, bias, token = (
            self.position_logits(context, num_drafts),
            self.bias_rows(head),
            context.tokens[:, -1],
        )
        tokens: list[Tensor] = []
        rows: list[Tensor] = []
        for position in range(num_drafts):
            logits = whole[:, position] + (self.before(token) @ bias.T).float()  # [B, R]
            row = renormalized(tempered(logits, positive).softmax(-1))
            uniforms = None if noise is None else noise[:, position]
            if copying is None:
                token = head.tokens_of(choose(row, temperature, uniforms))
            else:
                drafter = head.spread(row)  # [B, V]
                row = copying.mixed(drafter)
                token = choose(row, temperature, uniforms)
                copying = copying.drafted(token, copying.drafter_probability(drafter))
            tokens.append(token)
            rows.append(row)
        if temperature is None:
            return Draft(torch.stack(tokens, 1), None)
        probs = torch.stack(rows, 1)
        return Draft(torch.stack(tokens, 1), head.spread(probs) if copying is None else probs)

    def log_probs(self, context: DraftContext, tokens: Tensor, temperature: float, conditioned: bool = True) -> Tensor:
        """See `ParallelPart.log_probs`."""
        head, logits = context.head, self._logits_along(context, tokens)
        assert head is not None
        log_q = (logits / temperature).log_softmax(-1)
        places = tokens if head.index_by_token is None else head.index_by_token[tokens]
        found = log_q.gather(2, places.clamp_min(0)[..., None])[..., 0]
        return found.masked_fill(places < 0, -torch.inf)

    def most_probable_tokens(self, context: DraftContext, tokens: Tensor) -> Tensor:
        """See `ParallelPart.most_probable_tokens`."""
        assert context.head is not None
        return context.head.tokens_of(self._logits_along(context, tokens).argmax(-1))

    def _logits_along(self, context: DraftContext, tokens: Tensor) -> Tensor:
        """Return the logits of each position, given the tokens before it: tokens [B, k] -> [B, k, R]."""
        head, count = context.head, tokens.shape[1]
        assert head is not None
        previous = torch.cat([context.tokens[:, -1:], tokens[:, :-1]], 1)  # [B, k]
        return self.position_logits(context, count) + (self.before(previous) @ self.bias_rows(head).T).float()

    def shortened(self, num_drafts: int) -> Self:
        """Return a part with the states of the first positions only."""
        if num_drafts == self.max_drafts:
            return self
        like = next(self.parameters())
        config = self.config.model_copy(update={"window": num_drafts + 1})
        short = type(self)(config, self.markov_rank).to(like.device, like.dtype)
        short.head.load_state_dict(self.head.leading(short.circuit, config.circuit_window))
        short.before.load_state_dict(self.before.state_dict())
        short.after.data.copy_(self.after)
        return short.requires_grad_(like.requires_grad).train(self.training)

    @torch.no_grad()
    def initialize(self, unembedding: Tensor) -> None:
        """Initialize for training: as an FF circuit, whose bias is zero.

        Args:
            unembedding: See `CircuitHead.initialize`.
        """
        self.head.initialize(unembedding)
        self.before.weight.normal_(std=self.markov_rank**-0.5)
        self.after.zero_()
