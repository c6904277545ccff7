"""A circuit over bytes as the parallel part of a drafter whose target has a vocabulary of subwords."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from mtpc.circuits import CircuitParams, build_circuit
from mtpc.circuits.params import token_evidence
from mtpc.draft import Draft, DraftContext, Mode
from mtpc.draw import choose, renormalized
from mtpc.parallel.byte_vocabulary import SYMBOLS, ByteVocabulary
from mtpc.parallel.circuit_head import CircuitHead, to_circuit_params
from mtpc.parallel.config import ByteCircuitConfig
from mtpc.parallel.part import ParallelPart, draft_in_parts, in_parts
from mtpc.prompt_lookup.mixture import Copying

UNIFORM = 1e-6  # share of the uniform distribution in every leaf: no symbol is impossible, whatever is rounded
MAX_MESSAGES = 1 << 21  # numbers at the nodes of the widest level that are computed at once, of some requests


class ByteCircuitPart(ParallelPart):
    """A circuit over the next n symbols of the text, see `ByteVocabulary`, and the head that parameterizes it.

    The circuit is conditioned exactly on the symbols of x_{t+1}. Each draft token is then drawn from its exact
    distribution over all tokens, a product of conditionals renormalized over the branches of the vocabulary's trie. The
    circuit is conditioned on its symbols in turn. After the n symbols of its window all symbols have the same
    probability. Its unembedding has 257 rows.

    Attributes:
        config: Sizes and circuit type.
        circuit: The structure.
        head: The weights.
        byte_vocabulary: The target's tokens.
    """

    compiles: ClassVar[bool] = False

    def __init__(self, config: ByteCircuitConfig) -> None:
        super().__init__()
        self.config, self.vocab_size = config, config.vocab_size
        self.circuit = build_circuit(config.circuit, config.window, config.rank)
        self.head = CircuitHead(config.model_copy(update={"vocab_size": SYMBOLS}), self.circuit)
        self.byte_vocabulary = ByteVocabulary(config.vocab_size, config.text_bytes, config.window)

    def loaded(self, path: Path) -> None:
        """See `ParallelPart.loaded`."""
        self.byte_vocabulary.loaded(path, self.config.target_tokens)

    @property
    def num_evidence(self) -> int:
        """x_{t+1}."""
        return 1

    @property
    def max_drafts(self) -> int:
        """See `ByteCircuitConfig.max_drafts`; of longer tokens the last ones lie beyond the window."""
        return self.config.max_drafts

    @property
    def leaf_shape(self) -> tuple[int, int, int]:
        """Shape of the leaves of one request: (n, R, 257)."""
        return self.config.window, self.config.rank, SYMBOLS

    def draft(
        self,
        context: DraftContext,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Mode,
        copying: Copying | None = None,
    ) -> Draft:
        """See `ParallelPart.draft`; some requests are drafted at a time (see `MAX_MESSAGES`)."""
        if mode == "greedy":
            temperature = noise = None
        parts = self._requests(len(context.tokens))
        return draft_in_parts(self._draft, parts, context, temperature, noise, num_drafts, copying)

    def _draft(
        self,
        context: DraftContext,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        copying: Copying | None,
    ) -> Draft:
        spelling = _Spelling(self, context, temperature)
        tokens: list[Tensor] = []
        rows: list[Tensor] = []
        for drafted in range(num_drafts):
            row, uniforms = spelling.probs(), None if noise is None else noise[:, drafted]
            drafter = row
            if copying is not None:
                row = copying.mixed(drafter)
            token = choose(row, temperature, uniforms)
            if copying is not None:
                copying = copying.drafted(token, copying.drafter_probability(drafter))
            spelling.follow(token)
            tokens.append(token)
            rows.append(row)
        return Draft(torch.stack(tokens, 1), None if temperature is None else torch.stack(rows, 1))

    def log_probs(self, context: DraftContext, tokens: Tensor, temperature: float, conditioned: bool = True) -> Tensor:
        """See `ParallelPart.log_probs`; without its evidence the length of x_{t+1} is known all the same."""
        temperatures = context.states.new_full((len(tokens),), temperature, dtype=torch.float32)

        def log_prob(probs: Tensor, token: Tensor) -> Tensor:
            return probs.gather(1, token[:, None])[:, 0].log()

        return self._along(context, tokens, temperatures, log_prob, conditioned)

    def most_probable_tokens(self, context: DraftContext, tokens: Tensor) -> Tensor:
        """See `ParallelPart.most_probable_tokens`."""
        return self._along(context, tokens, None, lambda probs, _: probs.argmax(1))

    def _along(
        self,
        context: DraftContext,
        tokens: Tensor,
        temperature: Tensor | None,
        read: Callable[[Tensor, Tensor], Tensor],
        conditioned: bool = True,
    ) -> Tensor:
        """Return what is read from q at each position and the token there, [B, k]."""
        parts = []
        for part in self._requests(len(tokens)):
            some = None if temperature is None else temperature[part]
            spelling, columns = _Spelling(self, context.of_rows(part), some, conditioned), []
            for token in tokens[part].unbind(1):
                columns.append(read(spelling.probs(), token))
                spelling.follow(token)
            parts.append(torch.stack(columns, 1))
        return torch.cat(parts)

    def _requests(self, rows: int) -> Iterator[slice]:
        """Return which requests to compute at a time, see `MAX_MESSAGES`."""
        nodes = max(level.end - level.start for level in self.byte_vocabulary.levels)
        return in_parts(rows, max(1, MAX_MESSAGES // (nodes * self.config.rank)))

    def params(self, context: DraftContext, temperature: Tensor | None = None) -> CircuitParams:
        """Compute the circuits' parameters, float32, in which every symbol has a positive probability.

        Args:
            context: States and tokens of B requests.
            temperature: [B]; 0 counts as 1, as does None for all.
        """
        if temperature is not None:
            temperature = temperature.masked_fill(temperature <= 0, 1.0)
        params = to_circuit_params(*self.head.logits(context.states[:, -1], context.tokens[:, -1]), temperature)
        leaves = params.leaves.exp().mul(1.0 - UNIFORM).add(UNIFORM / SYMBOLS).log()
        return params._replace(leaves=leaves)


class _Spelling:
    """Drafts of B requests token by token: call `probs`, then `follow` with the tokens that were chosen."""

    def __init__(
        self, part: ByteCircuitPart, context: DraftContext, temperature: Tensor | None, conditioned: bool = True
    ) -> None:
        self.circuit, self.vocabulary = part.circuit, part.byte_vocabulary
        self.params = part.params(context, temperature)
        self.text = self.vocabulary.begin(context.tokens[:, -1])
        self.ignored = None if conditioned else self.text.known  # bool [B, n]
        depths = len(self.vocabulary.levels)
        symbols = self.params.leaves.exp().transpose(2, 3)  # [B, n, 257, R]
        self.symbols = F.pad(symbols, (0, 0, 0, 0, 0, depths), value=1.0 / SYMBOLS)
        self.depths = torch.arange(depths, device=symbols.device)
        self.rows = torch.arange(len(symbols), device=symbols.device)[:, None]

    def probs(self) -> Tensor:
        """Return q of every token after the text so far, [B, V]."""
        transitions = self.circuit.transitions(self.params.sums)
        ahead, last = self.text.length[:, None] + self.depths, self.circuit.window - 1  # [B, D]
        if transitions is not None:
            transitions = transitions[self.rows, ahead.clamp_max(last - 1)].exp()  # [B, D, R, R]
        belief = self._beliefs()[self.rows[:, 0], self.text.length.clamp_max(last)].softmax(-1)
        return renormalized(self.vocabulary.probs(belief, self.symbols[self.rows, ahead], transitions))

    def _beliefs(self) -> Tensor:
        """Return log q(component of a position | known symbols before it), up to a constant, [B, n, R]."""
        counted = self.text.known if self.ignored is None else self.text.known & ~self.ignored
        evidence = token_evidence(self.params.leaves, self.text.symbols).masked_fill(~counted[..., None], 0.0)
        state = self.circuit.start(self.params)
        beliefs = [state[-1]]
        for position in range(self.circuit.window - 1):
            state = self.circuit.advance(self.params.sums, position, state, evidence[:, position, None])
            beliefs.append(state[-1])
        return torch.cat(beliefs, 1)

    def follow(self, tokens: Tensor) -> None:
        """Add one token to each text, int64 [B]."""
        self.text = self.vocabulary.follow(self.text, tokens)
