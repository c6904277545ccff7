"""The one table of everything in vLLM that this adapter registers, replaces, extends or calls by its shape.

Every line holds in every release of `VERSIONS`, see `tests/integration_points`.  A drafter is refused, in one sentence,
where a line that it needs does not hold: those of its parts, of the runners that may serve it and of this device.  A
patch is left out, and one sentence is logged, where a line does not hold that is of its module and serves nothing but
what the patch serves: all that ask for that are refused then.  vLLM stays usable without a drafter.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from mtpc.serving.after_import import after_import
from mtpc.serving.check_result import Finding
from mtpc.serving.integration_point import IntegrationPoint, findings, sentences

VERSIONS = ">=0.32,<0.34"
MEND = f"install a vLLM version {VERSIONS}, or a release of mtpc-plugins made for the installed one"
logger = logging.getLogger(f"vllm.{__name__}")  # below vLLM's logger, so that its handlers show it

# What a line serves: start-up, a part of a drafter, copying, a runner, a device, or several of these at once.
START, AUTOREGRESSIVE, WINDOW, COPYING = "start-up", "autoregressive part", "parallel part", "copying"
STATE = "a state between the target's layers"
NATIVE = "draft vocabularies of vLLM's own drafters"
V1, V2, CPU = "V1 runner", "V2 runner", "CPU"
OFFLINE = "the engine alone in a process"
JOIN = ", "
V1_SERIAL, V1_WINDOW, V1_CPU = (JOIN.join((V1, other)) for other in (AUTOREGRESSIVE, WINDOW, CPU))
V2_SERIAL, V2_WINDOW, V2_COPYING = (JOIN.join((V2, other)) for other in (AUTOREGRESSIVE, WINDOW, COPYING))
V1_STATE, V2_STATE = (JOIN.join((runner, STATE)) for runner in (V1, V2))
V1_NATIVE, V2_NATIVE = (JOIN.join((runner, NATIVE)) for runner in (V1, V2))
_EAGLE, _V2 = "vllm.v1.spec_decode.eagle", "vllm.v1.worker.gpu.spec_decode"
_PROPOSER, _SPECULATOR = "vllm.v1.spec_decode.llm_base_proposer", f"{_V2}.speculator"
_LOOP_V2, _STATES = f"{_V2}.target_dependent_ar.speculator", "vllm.v1.worker.gpu.states"
_LAYERS, _MODELS = "vllm.model_executor.layers", "vllm.model_executor.models"
_EXECUTOR = "vllm.v1.executor.abstract"
_RUNNER, _CPU_WORKER = "vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.cpu_worker"
_RUNNER_V2 = "vllm.v1.worker.gpu.model_runner"
_CUDA, _SAMPLER = "vllm.v1.worker.gpu.cudagraph_utils", "vllm.v1.sample.rejection_sampler"
_PROPOSE_V1 = (
    "self * num_speculative_tokens target_token_ids target_positions target_hidden_states next_token_ids "
    "token_indices_to_sample common_attn_metadata sampling_metadata num_rejected_tokens_gpu"
)
_PROPOSE_V2 = (
    "self input_batch attn_metadata slot_mappings last_hidden_states aux_hidden_states num_sampled num_rejected "
    "last_sampled next_prefill_tokens temperature seeds * dummy_run is_profile num_speculative_tokens"
)
_ADD_REQUEST = "self req_id prompt_len all_token_ids"
TABLE = (
    IntegrationPoint(
        START, "vllm.model_executor.models.registry", "_ModelRegistry.register_model", "self model_arch model_cls",
        "called", "makes the architectures of drafter checkpoints known",
    ),
    IntegrationPoint(
        START, "vllm.engine.arg_utils", "EngineArgs.create_speculative_config",
        "self target_model_config target_parallel_config",
        "wrapped", "a wrong drafter checkpoint ends in one sentence before any engine process is started",
    ),
    IntegrationPoint(
        START, "vllm.engine.arg_utils", "EngineArgs.create_engine_config", "self",
        "wrapped", "so does a drafter as the model, and what vLLM decides itself and does not go with a drafter",
    ),
    IntegrationPoint(
        START, _EXECUTOR, "Executor.__init__", "self vllm_config",
        "wrapped", "what only the processes of ranks can know ends the engine's with their sentence alone",
    ),
    IntegrationPoint(
        START, "vllm.config", "VllmConfig",
        "* model_config cache_config parallel_config scheduler_config compilation_config kv_transfer_config "
        "speculative_config additional_config",
        "read", "the settings, complete",
    ),
    IntegrationPoint(
        START, "vllm.config", "SpeculativeConfig",
        "* method model num_speculative_tokens draft_sample_method enforce_eager",
        "read", "those of the drafter",
    ),
    IntegrationPoint(
        START, f"{_MODELS}.interfaces_base", "VllmModelForTextGeneration.compute_logits", "self hidden_states",
        "called", "may have the target's final norm in it, which its drafters' states must go through as well",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, "vllm.compilation.decorators", "support_torch_compile", "cls * dynamic_arg_dims",
        "called", "compiles the layer as vLLM compiles a model's",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.llama", "LlamaDecoderLayer.__init__", "self vllm_config prefix config",
        "called", "a layer of kind llama",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.llama", "LlamaDecoderLayer.get_quant_config", "self vllm_config",
        "replaced", "a drafter is not quantised, whatever its target is",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.qwen2", "Qwen2DecoderLayer.__init__", "self config cache_config * prefix",
        "called", "a layer of kind qwen2",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.qwen3", "Qwen3DecoderLayer.__init__", "self config cache_config * prefix",
        "called", "a layer of kind qwen3",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.linear", "ReplicatedLinear.__init__",
        "self input_size output_size bias * params_dtype prefix return_bias",
        "called", "the projection in front of the layer",
    ),
    IntegrationPoint(AUTOREGRESSIVE, f"{_LAYERS}.layernorm", "RMSNorm.__init__", "self hidden_size eps", "called", "the norms"),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.logits_processor", "LogitsProcessor.__init__", "self vocab_size",
        "called", "logits of the target's own head, where there is no draft vocabulary",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.logits_processor", "LogitsProcessor.forward", "self lm_head hidden_states",
        "called", "makes them",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.utils", "WeightsMapper.__init__", "self * orig_to_new_stacked",
        "called", "names the matrices that vLLM keeps as one",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.utils", "AutoWeightsLoader.__init__", "self module", "called", "loads the weights",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.utils", "AutoWeightsLoader.load_weights", "self weights * mapper",
        "called", "shares out the weights over tensor-parallel ranks",
    ),
    IntegrationPoint(
        START, "vllm.distributed", "tensor_model_parallel_all_gather", "input_ dim",
        "called", "logits of each rank's share of draft vocabularies; all draft from the first rank's states",
    ),
    IntegrationPoint(
        START, "vllm.distributed", "get_tp_group", "", "called", "ranks tell each other what they draft with",
    ),
    IntegrationPoint(
        V1, "vllm.v1.sample.metadata", "SamplingMetadata.__init__",
        "self * temperature all_greedy all_random generators",
        "read", "how a batch is sampled",
    ),
    IntegrationPoint(
        V1, "vllm.v1.attention.backend", "CommonAttentionMetadata.__init__",
        "self * query_start_loc seq_lens_cpu_upper_bound",
        "read", "where the last accepted token of each request is, and how long its text",
    ),
    IntegrationPoint(
        V1, _EAGLE, "EagleProposer.__init__", "self vllm_config device runner",
        "extended", "EagleProposer.__new__ is added: it chooses our proposer by the draft's architecture",
    ),
    IntegrationPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.propose", _PROPOSE_V1,
        "extended", "the autoregressive part by vLLM's loop, then the parallel part in one shot",
    ),
    IntegrationPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.load_model", "self target_model",
        "extended", "an autoregressive part shares the target's head, rows of which are gathered; a parallel part shares nothing",
    ),
    IntegrationPoint(V1, _PROPOSER, "SpecDecodeBaseProposer._get_model", "self", "called", "loads the drafter"),
    IntegrationPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.dummy_run", "self num_tokens",
        "extended", "the profiling run must see the drafter's memory",
    ),
    IntegrationPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.take_last_draft_probs", "self",
        "called", "the runner fetches the drafts' distributions with it",
    ),
    IntegrationPoint(
        V1_SERIAL, _PROPOSER, "SpecDecodeBaseProposer.prepare_next_token_ids_padded",
        "self sampled_token_ids requests gpu_input_batch discard_request_mask",
        "extended", "each request's draft vocabulary follows from what it has said",
    ),
    IntegrationPoint(
        V1_SERIAL, _PROPOSER, "SpecDecodeBaseProposer._sample_draft_tokens", "self hidden_states sampling_metadata",
        "replaced", "drafts from the request's vocabulary and seed; the parallel part reads the states",
    ),
    IntegrationPoint(
        V1_SERIAL, "vllm.v1.worker.gpu_input_batch", "CachedRequestState.__init__", "self * prompt_token_ids",
        "read", "a prompt, in which the language of a request is found",
    ),
    IntegrationPoint(
        V1_CPU, "vllm.v1.worker.gpu_input_batch", "CachedRequestState.get_token_id", "self idx",
        "called", "the last token of a text of which the target has said nothing",
    ),
    IntegrationPoint(
        V1, "vllm.v1.worker.gpu_input_batch", "InputBatch.update_req_spec_token_ids",
        "self request scheduled_spec_tokens",
        "read", "spec_token_ids, which are verified in a step; they are counted where metrics are shown",
    ),
    IntegrationPoint(
        V1_WINDOW, _PROPOSER, "SpecDecodeBaseProposer.initialize_attn_backend", "self kv_cache_config",
        "extended", "the base class requires a draft attention layer; a parallel part alone has none",
    ),
    IntegrationPoint(
        V1_WINDOW, "vllm.v1.kv_cache_interface", "KVCacheConfig.__init__", "self * kv_cache_groups",
        "read", "the size of a block of the target's",
    ),
    IntegrationPoint(
        V1_CPU, _CPU_WORKER, "CPUWorker.compile_or_warm_up_model", "self",
        "wrapped", "before it steps are timed, by which the lengths of drafts are chosen",
    ),
    IntegrationPoint(
        V1_CPU, _RUNNER, "GPUModelRunner._dummy_run", "self num_tokens * force_attention",
        "called", "a step that is timed",
    ),
    IntegrationPoint(
        V1, "vllm.v1.worker.gpu_input_batch", "CachedRequestState.__init__",
        "self * prompt_token_ids output_token_ids sampling_params",
        "read", "the text of a request, which is copied from",
    ),
    IntegrationPoint(
        V1, "vllm.sampling_params", "SamplingParams.from_optional", "* extra_args",
        "read", "a request's vllm_xargs, which name its tenant",
    ),
    IntegrationPoint(
        V2, _V2, "init_speculator", "vllm_config device req_states",
        "replaced", "chooses our speculator by the draft's architecture",
    ),
    IntegrationPoint(
        V2, "vllm.v1.worker.gpu.input_batch", "InputBatch.__init__",
        "self * num_reqs idx_mapping query_start_loc positions",
        "read", "the requests' slots, and where the last token of each is",
    ),
    IntegrationPoint(
        V2, _LOOP_V2, "TargetDependentARSpeculator.__init__", "self vllm_config device",
        "called", "buffers that never move",
    ),
    IntegrationPoint(
        V2, _LOOP_V2, "TargetDependentARSpeculator.propose", _PROPOSE_V2,
        "extended", "the autoregressive part by vLLM's loop, then the parallel part in one shot",
    ),
    IntegrationPoint(
        V2, _LOOP_V2, "TargetDependentARSpeculator.init_cudagraph_manager", "self cudagraph_mode",
        "extended", "graphs for both parts",
    ),
    IntegrationPoint(
        V2, _LOOP_V2, "TargetDependentARSpeculator.capture", "self", "extended", "captures both parts",
    ),
    IntegrationPoint(
        V2, f"{_V2}.eagle.speculator", "EagleSpeculator.load_draft_model", "self target_model target_attn_layer_names",
        "extended", "an autoregressive part shares the target's head, rows of which are gathered; a parallel part shares nothing",
    ),
    IntegrationPoint(
        V2_SERIAL, _SPECULATOR, "DraftModelSpeculator.compute_draft_logits", "self hidden_states spec_step_idx",
        "replaced", "logits of the draft vocabularies, mixed with what may be copied",
    ),
    IntegrationPoint(
        V2_SERIAL, _SPECULATOR, "DraftModelSpeculator.sample_draft", "self hidden_states",
        "extended", "the parallel part reads the states and drafts of the autoregressive part, copying the drafts",
    ),
    IntegrationPoint(
        V2_SERIAL, _LOOP_V2, "TargetDependentARSpeculator._configure_decode_metadata_update", "self",
        "extended", "no graph of the whole loop, which has a step for every draft, where a parallel part drafts the rest",
    ),
    IntegrationPoint(
        V2, _SPECULATOR, "DraftModelSpeculator._copy_request_inputs",
        "self num_reqs idx_mapping temperature seeds dummy_run",
        "called", "fills the buffers that a captured graph reads; padded rows get slot -1",
    ),
    IntegrationPoint(
        V2_WINDOW, "vllm.config.speculative", "SpeculativeConfig.apply_draft_overrides", "self vllm_config",
        "called", "loads the drafter",
    ),
    IntegrationPoint(
        V2_WINDOW, "vllm.model_executor.model_loader", "get_model", "* vllm_config model_config load_config",
        "called", "loads the drafter",
    ),
    IntegrationPoint(
        V2_WINDOW, "vllm.model_executor.model_loader.utils", "get_draft_load_config", "vllm_config",
        "called", "loads the drafter",
    ),
    IntegrationPoint(
        V2, _CUDA, "CudaGraphManager.__init__", "self vllm_config device cudagraph_mode decode_query_len",
        "called", "one CUDA graph of the window, and of copying, for each batch size",
    ),
    IntegrationPoint(
        V2, _CUDA, "BatchExecutionDescriptor.__init__", "self * cg_mode num_reqs",
        "read", "what a graph is captured for, and whether there is one",
    ),
    IntegrationPoint(
        V2, _CUDA, "CudaGraphManager.capture", "self create_forward_fn", "called", "captures both",
    ),
    IntegrationPoint(
        V2, _CUDA, "CudaGraphManager.run_fullgraph", "self desc", "called", "replays one",
    ),
    IntegrationPoint(
        V2, _CUDA, "CudaGraphManager.dispatch",
        "self num_reqs num_tokens uniform_token_count num_active_loras",
        "called", "finds the graph for a batch size",
    ),
    IntegrationPoint(
        V2_COPYING, _STATES, "RequestState.add_request", _ADD_REQUEST,
        "wrapped", "how well copying did in a slot is forgotten when a request comes into it",
    ),
    IntegrationPoint(
        V2_SERIAL, _STATES, "RequestState.add_request", _ADD_REQUEST,
        "wrapped", "the language of a request is found in its prompt when it comes into a slot",
    ),
    IntegrationPoint(
        V2_COPYING, "vllm.v1.worker.gpu.buffer_utils", "StagedWriteTensor.__init__", "self size dtype device",
        "called", "the requests' texts, which are read whole in every step, lie on the device",
    ),
    IntegrationPoint(
        NATIVE, f"{_LAYERS}.logits_processor", "LogitsProcessor.forward",
        "self lm_head hidden_states embedding_bias skip_gather",
        "replaced", "of a draft model: logits of each request's draft vocabulary",
    ),
    IntegrationPoint(
        NATIVE, f"{_LAYERS}.logits_processor", "LogitsProcessor._get_logits",
        "self hidden_states lm_head embedding_bias", "called", "logits of all tokens, where no language suits",
    ),
    IntegrationPoint(
        NATIVE, f"{_LAYERS}.vocab_parallel_embedding", "VocabParallelEmbedding.__init__",
        "self num_embeddings embedding_dim params_dtype org_num_embeddings",
        "read", "the head, rows of which are gathered",
    ),
    IntegrationPoint(
        V1_NATIVE, _PROPOSER, "SpecDecodeBaseProposer.load_model", "self target_model",
        "wrapped", "the draft model's head is restricted once it is shared",
    ),
    IntegrationPoint(
        V1_NATIVE, _PROPOSER, "SpecDecodeBaseProposer.prepare_next_token_ids_padded",
        "self sampled_token_ids requests gpu_input_batch discard_request_mask",
        "wrapped", "each request's draft vocabulary follows from what it has said",
    ),
    IntegrationPoint(
        V2_NATIVE, _SPECULATOR, "DraftModelSpeculator.load_model", "self target_model",
        "wrapped", "the draft model's head is restricted once it is shared",
    ),
    IntegrationPoint(
        V2_NATIVE, _SPECULATOR, "DraftModelSpeculator.compute_draft_logits", "self hidden_states",
        "wrapped", "logits of each request's draft vocabulary",
    ),
    IntegrationPoint(
        V2_NATIVE, _STATES, "RequestState.add_request", _ADD_REQUEST,
        "wrapped", "the language of a request is found in its prompt when it comes into a slot",
    ),
    IntegrationPoint(
        V2_NATIVE, f"{_V2}.standalone_ar.speculator", "StandaloneARSpeculator.propose", _PROPOSE_V2,
        "wrapped", "the language of each request is found before a step, here of a draft model",
    ),
    IntegrationPoint(
        V2_NATIVE, f"{_V2}.multi_module_mtp.speculator", "MultiModuleMTPSpeculator.propose", _PROPOSE_V2,
        "wrapped", "the same, of several MTP layers",
    ),
    IntegrationPoint(
        V1_STATE, _RUNNER, "GPUModelRunner._setup_eagle3_aux_hidden_state_outputs", "self",
        "read", "lets the target hand over the states that config.json names; the proposer asks for them",
    ),
    IntegrationPoint(
        V2_STATE, _RUNNER_V2, "GPUModelRunner.load_model", "self",
        "wrapped", "the runner must know before that the target is to hand over states between its layers",
    ),
    IntegrationPoint(
        V2_STATE, f"{_V2}.eagle.eagle3_utils", "set_eagle3_aux_hidden_state_layers", "model spec_config",
        "read", "lets the target hand over the states that config.json names",
    ),
    IntegrationPoint(
        STATE, f"{_MODELS}.interfaces", "supports_eagle3", "model", "called", "whether the target can hand them over",
    ),
    IntegrationPoint(
        V1_CPU, _SAMPLER, "expand_batch_to_tokens", "x cu_num_tokens num_tokens replace_from replace_to",
        "replaced", "returns uninitialised memory on a CPU; replaced only where that is seen",
    ),
    IntegrationPoint(
        V1_CPU, _SAMPLER, "apply_sampling_constraints", "logits",
        "wrapped", "fails on a CPU for a step without drafts and a top-k; caught only where that happens",
    ),
    IntegrationPoint(
        V1_CPU, _RUNNER, "GPUModelRunner.sample_tokens", "self",
        "wrapped", "a seeded request whose prompt is read in parts ends the engine on a CPU",
    ),
    IntegrationPoint(
        OFFLINE, "vllm.engine.arg_utils", "EngineArgs.add_cli_args", "parser", "called", "the arguments of vllm serve",
    ),
    IntegrationPoint(
        OFFLINE, "vllm.engine.arg_utils", "EngineArgs.from_cli_args", "args", "called", "the engine's settings",
    ),
    IntegrationPoint(
        OFFLINE, "vllm.v1.engine.llm_engine", "LLMEngine.from_engine_args", "engine_args", "called", "the engine",
    ),
    IntegrationPoint(
        OFFLINE, "vllm.v1.engine.llm_engine", "LLMEngine.add_request", "self request_id prompt params",
        "called", "a completion begins",
    ),
    IntegrationPoint(OFFLINE, "vllm.v1.engine.llm_engine", "LLMEngine.step", "self", "called", "and goes on"),
    IntegrationPoint(
        OFFLINE, "vllm.v1.engine.llm_engine", "LLMEngine.abort_request", "self request_ids", "called", "or is ended",
    ),
    IntegrationPoint(
        OFFLINE, "vllm.sampling_params", "SamplingParams",
        "* max_tokens temperature top_p top_k stop_token_ids ignore_eos output_kind",
        "called", "how it is sampled",
    ),
)  # fmt: skip


class Patch(NamedTuple):
    """What is done once a module has been imported: ``vllm_mtpc.<file>.<function>(module)``."""

    group: str
    module: str
    file: str
    function: str = "install"


PATCHES = (
    Patch(START, "vllm.engine.arg_utils", "start_up"),
    Patch(START, _EXECUTOR, "start_up", "install_executor"),
    Patch(V1, _EAGLE, "dispatch", "install_v1"),
    Patch(V2, _V2, "dispatch", "install_v2"),
    Patch(V2_STATE, _RUNNER_V2, "dispatch", "install_runner_v2"),
    Patch(V1_CPU, _CPU_WORKER, "v1.timing"),
    Patch(V1_NATIVE, _PROPOSER, "native.restrict", "install_v1"),
    Patch(V2_NATIVE, _SPECULATOR, "native.restrict", "install_v2"),
    Patch(V1_CPU, _SAMPLER, "cpu.fixes"),
    Patch(V1_CPU, _RUNNER, "cpu.seeds"),
)
_installed = False


def install() -> None:
    """Arrange for every patch to be applied once its module is imported; a second call does nothing."""
    global _installed
    if _installed:
        return
    _installed = True
    for patch in PATCHES:
        after_import(patch.module, lambda module, patch=patch: _apply(patch, module))  # type: ignore[misc]


def _apply(patch: Patch, module: ModuleType) -> None:
    if CPU in patch.group.split(JOIN) and not on_cpu():
        return
    # Only lines of the module at hand: importing the others here could close an import cycle of vLLM's.
    problem = next(_wrong(set(patch.group.split(JOIN)), patch.module), None)
    if problem is not None:
        logger.warning("drafters cannot be served (%s): %s", patch.group, problem)
        return
    getattr(import_module(f"vllm_mtpc.{patch.file}"), patch.function)(module)


def _wrong(served: set[str], module: str | None = None) -> Iterator[str]:
    """One sentence for each line that does not hold, of those that serve nothing else; module: whose, None: anyone's.

    What refuses a drafter serves all that its patches serve, so that none of them is left out unseen.
    """
    lines = (line for line in TABLE if module in (None, line.module) and served.issuperset(line.group.split(JOIN)))
    return sentences(lines, MEND)


def on_cpu() -> bool:
    """Whether the target runs on a CPU."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def runners() -> set[str]:
    """Those that may serve here: which of both it is, vLLM decides later, unless it is told to or lacks Triton."""
    from vllm import envs
    from vllm.triton_utils import HAS_TRITON

    second = envs.VLLM_USE_V2_MODEL_RUNNER
    if second is None and HAS_TRITON:
        return {V1, V2}
    return {V2 if second else V1}


def problems(
    *,
    autoregressive: bool = False,
    parallel: bool = False,
    copying: bool = False,
    native: bool = False,
    state: bool = False,
) -> Iterator[str]:
    """One sentence for each line that does not hold in the installed vLLM, of those that such a drafter needs here."""
    parts = [
        *[AUTOREGRESSIVE] * autoregressive,
        *[WINDOW] * parallel,
        *[COPYING] * copying,
        *[NATIVE] * native,
        *[STATE] * state,
    ]
    return _wrong({START, *runners(), *parts, *[CPU] * on_cpu()})


def check() -> list[Finding]:
    """Every line of the table against the installed vLLM, for `mtpc doctor`."""
    return findings("vllm", TABLE, MEND)
