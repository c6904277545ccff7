"""Chooses this project's classes for its drafters: one model class, one proposer and one speculator for all methods."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

from mtpc.errors import MTPCError
from mtpc.files.hub import local_folder
from mtpc.methods import DrafterConfig, DraftMethod, draft_methods, method_of
from vllm_mtpc.additional_config import draft_settings

MODEL = "vllm_mtpc.model:DrafterForCausalLM"
RUNNER_V2 = "vllm.v1.worker.gpu.model_runner"


def architectures() -> set[str]:
    """Return the architecture of every draft method, as written in config.json of its drafters."""
    return {method.architecture for method in draft_methods()}


def served_method(vllm_config: Any) -> DraftMethod | None:
    """Return the draft method of the configured drafter; None: it is not one of this project.

    Args:
        vllm_config: vLLM's ``VllmConfig`` with a speculative configuration.
    """
    draft = vllm_config.speculative_config.draft_model_config
    served = () if draft is None else draft.architectures or ()
    return next((method for method in draft_methods() if method.architecture in served), None)


def serves(vllm_config: Any) -> bool:
    """Return whether the configured drafter is one of this project.

    Args:
        vllm_config: vLLM's ``VllmConfig`` with a speculative configuration.
    """
    return served_method(vllm_config) is not None


def folder_of(vllm_config: Any) -> Path:
    """Return the folder of the drafter checkpoint on this machine, downloaded from the Hub if necessary.

    Args:
        vllm_config: vLLM's ``VllmConfig`` with a drafter of this project.

    Raises:
        MTPCError: See `mtpc.files.hub.local_folder`.
    """
    draft = vllm_config.speculative_config.draft_model_config
    return local_folder(draft.model, draft.revision)


def drafter_of(vllm_config: Any) -> tuple[DraftMethod, DrafterConfig]:
    """Read the configuration of the drafter checkpoint.

    Args:
        vllm_config: vLLM's ``VllmConfig`` with a drafter of this project.

    Returns:
        The draft method and the drafter's configuration.

    Raises:
        MTPCError: See `mtpc.methods.method_of` and `DraftMethod.read_config`.
    """
    folder = folder_of(vllm_config)
    method = method_of(folder)
    return method, method.read_config(folder)


def state_below(vllm_config: Any) -> int | None:
    """Return the target layer whose input state the drafter reads, or None: see `TargetInterface.state_below`."""
    autoregressive = drafter_of(vllm_config)[1].autoregressive
    return None if autoregressive is None else autoregressive.state_below


def check_aux_hidden_states(target: Any, vllm_config: Any) -> None:
    """Check that vLLM's target model can return the hidden state between two of its layers.

    Args:
        target: vLLM's model of the target.
        vllm_config: vLLM's ``VllmConfig``, for the message.

    Raises:
        MTPCError: The model class does not support auxiliary hidden states.
    """
    from vllm.model_executor.models.interfaces import supports_eagle3

    if not supports_eagle3(target):
        folder = vllm_config.speculative_config.draft_model_config.model
        raise MTPCError(
            f"{folder} reads a hidden state between the target's layers, which vLLM's {type(target).__name__} does not "
            f"return: choose a drafter that reads the last hidden state."
        )


def install_v1(eagle: Any) -> None:
    """Make ``EagleProposer(...)`` create this project's proposer for its drafters, wherever the class was imported.

    Args:
        eagle: vLLM's module ``vllm.v1.spec_decode.eagle``.
    """

    def choose(cls: type, vllm_config: Any, *_: Any, **__: Any) -> Any:
        if cls is not eagle.EagleProposer or (method := served_method(vllm_config)) is None:
            return object.__new__(cls)
        from vllm_mtpc.v1.proposer import Proposer
        from vllm_mtpc.v1.text_proposer import TextProposer

        return object.__new__(TextProposer if method.reads_text else Proposer)

    eagle.EagleProposer.__new__ = staticmethod(choose)


def install_native_v1(base_proposer: Any) -> None:
    """Wrap ``SpecDecodeBaseProposer.load_model``, after which a proposer of vLLM's becomes a `NativeProposer` as well.

    Args:
        base_proposer: vLLM's module ``vllm.v1.spec_decode.llm_base_proposer``.
    """
    base = base_proposer.SpecDecodeBaseProposer
    original = base.load_model

    @functools.wraps(original)
    def load_model(self: Any, target_model: Any, *others: Any, **named: Any) -> None:
        original(self, target_model, *others, **named)
        if draft_settings(self.vllm_config.additional_config).model_fields_set and not serves(self.vllm_config):
            from vllm_mtpc.native.v1 import NativeProposer

            NativeProposer.begin(self)

    base.load_model = load_model


def install_runner_v2(runner: Any) -> None:
    """Wrap ``GPUModelRunner.load_model``: request auxiliary hidden states from the target if the drafter reads one.

    Args:
        runner: vLLM's module ``vllm.v1.worker.gpu.model_runner``.
    """
    original = runner.GPUModelRunner.load_model

    @functools.wraps(original)
    def load_model(self: Any, *others: Any, **named: Any) -> Any:
        if self.speculative_config is not None and serves(self.vllm_config):
            self.use_aux_hidden_state_outputs |= state_below(self.vllm_config) is not None
        return original(self, *others, **named)

    runner.GPUModelRunner.load_model = load_model


def install_requests_v2(runner: Any) -> None:
    """Wrap ``GPUModelRunner.add_requests``: tell this project's speculators about each new request.

    Args:
        runner: vLLM's module ``vllm.v1.worker.gpu.model_runner``.
    """
    original = runner.GPUModelRunner.add_requests

    @functools.wraps(original)
    def add_requests(self: Any, scheduler_output: Any, *others: Any, **named: Any) -> Any:
        result = original(self, scheduler_output, *others, **named)
        new = scheduler_output.scheduled_new_reqs
        if hasattr(self.speculator, "begin_request"):  # not a speculator of vLLM's alone
            for request in new:
                self.speculator.begin_request(self.req_states.req_id_to_index[request.req_id], request)
        return result

    runner.GPUModelRunner.add_requests = add_requests


def install_v2(spec_decode: Any) -> None:
    """Replace ``init_speculator``, also in the runner's module if that has imported the name already.

    A speculator of vLLM's becomes a `NativeSpeculator` as well where additional-config has a section for it.

    Args:
        spec_decode: vLLM's module ``vllm.v1.worker.gpu.spec_decode``.
    """
    original = spec_decode.init_speculator

    @functools.wraps(original)
    def init_speculator(vllm_config: Any, device: Any, req_states: Any) -> Any:
        if not serves(vllm_config):
            speculator = original(vllm_config, device, req_states)
            if draft_settings(vllm_config.additional_config).model_fields_set:
                from vllm_mtpc.native.v2 import NativeSpeculator

                NativeSpeculator.begin(speculator, req_states)
            return speculator
        from vllm_mtpc.v2.speculator import Speculator

        return Speculator(vllm_config, device, req_states)

    spec_decode.init_speculator = init_speculator
    runner: Any = sys.modules.get(RUNNER_V2)
    if hasattr(runner, "init_speculator"):
        runner.init_speculator = init_speculator
