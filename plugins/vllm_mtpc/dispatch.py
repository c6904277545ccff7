"""What serves a drafter: one model class, one proposer and one speculator for every architecture of the registry."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

from mtpc.errors import MTPCError
from mtpc.files.hub import local_folder
from mtpc.methods import DrafterConfig, DraftMethod, draft_methods, method_of
from vllm_mtpc.additional import vocabulary_values

MODEL = "vllm_mtpc.model:DrafterForCausalLM"
RUNNER_V2 = "vllm.v1.worker.gpu.model_runner"


def architectures() -> set[str]:
    """Of all draft methods, as their drafters' config.json names them."""
    return {method.architecture for method in draft_methods()}


def serves(vllm_config: Any) -> bool:
    """Whether vLLM's configuration asks for one of our drafters."""
    draft = vllm_config.speculative_config.draft_model_config
    return draft is not None and not architectures().isdisjoint(draft.architectures or ())


def folder_of(vllm_config: Any) -> Path:
    """Return the drafter's folder on this machine; each machine downloads a drafter from the Hub by itself.

    Raises:
        MTPCError: See `mtpc.files.hub.local_folder`.
    """
    draft = vllm_config.speculative_config.draft_model_config
    return local_folder(draft.model, draft.revision)


def drafter_of(vllm_config: Any) -> tuple[DraftMethod, DrafterConfig]:
    """The drafter that vLLM's configuration asks for.

    Errors: `MTPCError`, see `mtpc.methods.method_of` and `DraftMethod.read_config`.
    """
    folder = folder_of(vllm_config)
    method = method_of(folder)
    return method, method.read_config(folder)


def state_below(vllm_config: Any) -> int | None:
    """Which state of the target the drafter reads, see `TargetInterface.state_below`."""
    autoregressive = drafter_of(vllm_config)[1].autoregressive
    return None if autoregressive is None else autoregressive.state_below


def check_hands_over(target: Any, vllm_config: Any) -> None:
    """Check that vLLM's model of the target hands over the states between its layers, of which the drafter reads one.

    Raises:
        MTPCError: Where it does not.
    """
    from vllm.model_executor.models.interfaces import supports_eagle3

    if not supports_eagle3(target):
        folder = vllm_config.speculative_config.draft_model_config.model
        raise MTPCError(
            f"{folder} reads a state between the target's layers, which vLLM's {type(target).__name__} does not offer."
        )


def install_v1(eagle: Any) -> None:
    """Let ``EagleProposer(...)`` become ours for our drafters; all import sites keep their name."""

    def choose(cls: type, vllm_config: Any, *_: Any, **__: Any) -> Any:
        if cls is not eagle.EagleProposer or not serves(vllm_config):
            return object.__new__(cls)
        from vllm_mtpc.v1.proposer import Proposer

        return object.__new__(Proposer)

    eagle.EagleProposer.__new__ = staticmethod(choose)


def install_runner_v2(runner: Any) -> None:
    """Wrap ``load_model``, before which the runner must know that the target is to hand over states between layers."""
    original = runner.GPUModelRunner.load_model

    @functools.wraps(original)
    def load_model(self: Any, *others: Any, **named: Any) -> Any:
        if self.speculative_config is not None and serves(self.vllm_config):
            self.use_aux_hidden_state_outputs |= state_below(self.vllm_config) is not None
        return original(self, *others, **named)

    runner.GPUModelRunner.load_model = load_model


def install_v2(spec_decode: Any) -> None:
    """Wrap ``init_speculator``, also under the name by which the runner may already have imported it."""
    original = spec_decode.init_speculator

    @functools.wraps(original)
    def init_speculator(vllm_config: Any, device: Any, req_states: Any) -> Any:
        if not serves(vllm_config):
            speculator = original(vllm_config, device, req_states)
            if vocabulary_values(vllm_config.additional_config):
                speculator.req_states = req_states  # `vllm_mtpc.native.restrict` finds the requests' languages there
            return speculator
        from vllm_mtpc.v2.speculator import Speculator

        return Speculator(vllm_config, device, req_states)

    spec_decode.init_speculator = init_speculator
    runner: Any = sys.modules.get(RUNNER_V2)
    if hasattr(runner, "init_speculator"):
        runner.init_speculator = init_speculator
