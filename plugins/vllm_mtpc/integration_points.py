"""Table of everything in vLLM that this adapter registers, calls, reads, extends or replaces.

Every line matches every release of `VERSIONS`, see `tests/integration_points`.  If a line does not match the installed
vLLM:

- A drafter that needs it is rejected with one sentence.  It needs the lines of its parts, of the runners that may serve
  it and of this device.
- A patch whose module and group have such a line is not applied, and one sentence is logged.  Every drafter that needs
  this patch is rejected as well.

vLLM stays usable without a drafter.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from mtpc.serving.after_import import after_import
from mtpc.serving.check_result import CheckResult
from mtpc.serving.integration_point import IntegrationPoint, check_results, mismatches

VERSIONS = ">=0.32,<0.34"
FIX = f"install a vLLM version {VERSIONS}, or a release of mtpc-plugins made for the installed one"
logger = logging.getLogger(f"vllm.{__name__}")  # below vLLM's logger, so that its handlers show it

# Groups of lines: start-up, a part of a drafter, prompt lookup, a runner or a device, joined where several apply.
START, AUTOREGRESSIVE, PARALLEL, PROMPT_LOOKUP = "start-up", "autoregressive part", "parallel part", "prompt lookup"
HEAD = "the target's output head"
STATE, TEXT = "a state between the target's layers", "text part"
NATIVE = "vLLM's own drafters"
V1, V2, CPU = "V1 runner", "V2 runner", "CPU"
OFFLINE = "--offline"
JOIN = ", "
V1_AUTOREGRESSIVE, V1_PARALLEL, V1_CPU = (JOIN.join((V1, other)) for other in (AUTOREGRESSIVE, PARALLEL, CPU))
V2_AUTOREGRESSIVE, V2_PARALLEL = (JOIN.join((V2, other)) for other in (AUTOREGRESSIVE, PARALLEL))
V2_PROMPT_LOOKUP = JOIN.join((V2, PROMPT_LOOKUP))
V1_TEXT = JOIN.join((V1, TEXT))
V1_STATE, V2_STATE = (JOIN.join((runner, STATE)) for runner in (V1, V2))
V1_NATIVE, V2_NATIVE = (JOIN.join((runner, NATIVE)) for runner in (V1, V2))
V1_NATIVE_PROMPT_LOOKUP, V2_NATIVE_PROMPT_LOOKUP = (JOIN.join((one, PROMPT_LOOKUP)) for one in (V1_NATIVE, V2_NATIVE))
_EAGLE, _V2 = "vllm.v1.spec_decode.eagle", "vllm.v1.worker.gpu.spec_decode"
_PROPOSER, _SPECULATOR = "vllm.v1.spec_decode.llm_base_proposer", f"{_V2}.speculator"
_LOOP_V2, _STATES = f"{_V2}.target_dependent_ar.speculator", "vllm.v1.worker.gpu.states"
_LAYERS, _MODELS = "vllm.model_executor.layers", "vllm.model_executor.models"
_EXECUTOR = "vllm.v1.executor.abstract"
_RUNNER, _CPU_WORKER = "vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.cpu_worker"
_RUNNER_V2 = "vllm.v1.worker.gpu.model_runner"
_TRANSFER = "vllm.distributed.weight_transfer.base"
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
        "called", "registers the architectures of drafter checkpoints",
    ),
    IntegrationPoint(
        START, "vllm.engine.arg_utils", "EngineArgs.create_speculative_config",
        "self target_model_config target_parallel_config",
        "wrapped", "checks the drafter checkpoint and its settings before any engine process starts",
    ),
    IntegrationPoint(
        START, "vllm.engine.arg_utils", "EngineArgs.create_engine_config", "self",
        "wrapped", "rejects a drafter as the target, and settings that do not fit what vLLM has decided",
    ),
    IntegrationPoint(
        START, _EXECUTOR, "Executor.__init__", "self vllm_config",
        "wrapped", "ends the engine with the error message of a worker process, without a stack trace",
    ),
    IntegrationPoint(
        START, "vllm.config", "VllmConfig",
        "* model_config cache_config parallel_config scheduler_config compilation_config kv_transfer_config "
        "speculative_config additional_config watermark_config",
        "read", "complete settings",
    ),
    IntegrationPoint(
        START, "vllm.config", "SpeculativeConfig",
        "* method model num_speculative_tokens draft_sample_method enforce_eager rejection_sample_method "
        "disable_eagle_block_drop",
        "read", "speculative settings",
    ),
    IntegrationPoint(
        START, _TRANSFER, "WeightTransferEngine.set_weight_update_target", "self model",
        "wrapped", "rejects updates of a drafter's weights in a running server",
    ),
    IntegrationPoint(
        START, f"{_MODELS}.interfaces_base", "VllmModelForTextGeneration.compute_logits", "self hidden_states",
        "called", "shows whether it applies the final norm, which drafters need in their input as well",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, "vllm.compilation.decorators", "support_torch_compile", "cls * dynamic_arg_dims",
        "called", "compiles the draft layers",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.llama", "LlamaDecoderLayer.__init__", "self vllm_config prefix config",
        "called", "draft layer of type llama",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.llama", "LlamaDecoderLayer.get_quant_config", "self vllm_config",
        "replaced", "draft layers are not quantized, even if the target is",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.qwen2", "Qwen2DecoderLayer.__init__", "self config cache_config * prefix",
        "called", "draft layer of type qwen2",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.qwen3", "Qwen3DecoderLayer.__init__", "self config cache_config * prefix",
        "called", "draft layer of type qwen3",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.linear", "ReplicatedLinear.__init__",
        "self input_size output_size bias * params_dtype prefix return_bias",
        "called", "projection before the first draft layer",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.layernorm", "RMSNorm.__init__", "self hidden_size eps",
        "called", "norms of the draft layers",
    ),
    IntegrationPoint(
        HEAD, f"{_LAYERS}.logits_processor", "LogitsProcessor.__init__", "self vocab_size",
        "called", "logits of the target's output head, without a draft vocabulary",
    ),
    IntegrationPoint(
        HEAD, f"{_LAYERS}.quantization.base_config", "QuantizeMethodBase.apply", "self layer",
        "called", "dequantizes rows of a quantized output head for draft vocabularies",
    ),
    IntegrationPoint(
        HEAD, f"{_LAYERS}.logits_processor", "LogitsProcessor.forward", "self lm_head hidden_states",
        "called", "computes these logits",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.utils", "WeightsMapper.__init__", "self * orig_to_new_stacked",
        "called", "names the matrices that vLLM fuses",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.utils", "AutoWeightsLoader.__init__", "self module",
        "called", "loads the drafter's weights",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_MODELS}.utils", "AutoWeightsLoader.load_weights", "self weights * mapper",
        "called", "shards the weights over tensor-parallel ranks",
    ),
    IntegrationPoint(
        START, "vllm.distributed", "tensor_model_parallel_all_gather", "input_ dim",
        "called", "gathers logits of a sharded draft vocabulary, and the first rank's states",
    ),
    IntegrationPoint(
        START, "vllm.distributed", "get_tp_group", "", "called", "compares the files and versions of all ranks",
    ),
    IntegrationPoint(
        V1, "vllm.v1.sample.metadata", "SamplingMetadata.__init__",
        "self * temperature all_greedy all_random generators",
        "read", "sampling parameters of a batch",
    ),
    IntegrationPoint(
        V1, "vllm.v1.attention.backend", "CommonAttentionMetadata.__init__",
        "self * query_start_loc seq_lens_cpu_upper_bound",
        "read", "index of each request's last accepted token, and its length",
    ),
    IntegrationPoint(
        V1, _EAGLE, "EagleProposer.__init__", "self vllm_config device runner",
        "extended", "EagleProposer.__new__ is added: it creates this project's proposer for its architectures",
    ),
    IntegrationPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.propose", _PROPOSE_V1,
        "extended", "drafts: the autoregressive part in vLLM's loop, then the parallel part in one pass",
    ),
    IntegrationPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.load_model", "self target_model",
        "extended", "loads the drafter; an autoregressive part shares the target's output head",
    ),
    IntegrationPoint(V1, _PROPOSER, "SpecDecodeBaseProposer._get_model", "self", "called", "loads the drafter"),
    IntegrationPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.dummy_run", "self num_tokens",
        "extended", "lets memory profiling see the drafter",
    ),
    IntegrationPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.take_last_draft_probs", "self",
        "called", "returns the distributions of draft tokens to the runner",
    ),
    IntegrationPoint(
        V1_AUTOREGRESSIVE, _PROPOSER, "SpecDecodeBaseProposer.prepare_next_token_ids_padded",
        "self sampled_token_ids requests gpu_input_batch discard_request_mask",
        "extended", "chooses each request's draft vocabulary from its tokens",
    ),
    IntegrationPoint(
        V1_AUTOREGRESSIVE, _PROPOSER, "SpecDecodeBaseProposer._sample_draft_tokens",
        "self hidden_states sampling_metadata",
        "replaced", "draws from the request's draft vocabulary with its seed, and keeps the states",
    ),
    IntegrationPoint(
        V1_AUTOREGRESSIVE, "vllm.v1.worker.gpu_input_batch", "CachedRequestState.__init__", "self * prompt_token_ids",
        "read", "prompt of a request, for language detection",
    ),
    IntegrationPoint(
        V1_TEXT, _PROPOSER, "SpecDecodeBaseProposer.prepare_next_token_ids_padded",
        "self sampled_token_ids requests gpu_input_batch discard_request_mask",
        "extended", "adds the emitted tokens to each request's text",
    ),
    IntegrationPoint(
        V1_TEXT, "vllm.distributed", "broadcast_tensor_dict", "tensor_dict",
        "called", "sends the first rank's draft to the others",
    ),
    IntegrationPoint(
        V1, "vllm.v1.worker.gpu_input_batch", "InputBatch.update_req_spec_token_ids",
        "self request scheduled_spec_tokens",
        "read", "spec_token_ids: number of verified draft tokens, for metrics",
    ),
    IntegrationPoint(
        V1_PARALLEL, _PROPOSER, "SpecDecodeBaseProposer.initialize_attn_backend", "self kv_cache_config",
        "extended", "a drafter without an autoregressive part has no attention layer",
    ),
    IntegrationPoint(
        V1_PARALLEL, "vllm.v1.kv_cache_interface", "KVCacheConfig.__init__", "self * kv_cache_groups",
        "read", "KV cache block size of the target",
    ),
    IntegrationPoint(
        V1_CPU, _CPU_WORKER, "CPUWorker.compile_or_warm_up_model", "self",
        "wrapped", "times decoding steps, for adaptive draft lengths",
    ),
    IntegrationPoint(
        V1_CPU, _RUNNER, "GPUModelRunner._dummy_run", "self num_tokens * force_attention",
        "called", "runs a step to time",
    ),
    IntegrationPoint(
        V1_CPU, _RUNNER, "GPUModelRunner.maybe_select_dummy_loras", "self lora_config num_scheduled_tokens",
        "called", "lets the logits of a step to time pass where the server has LoRA adapters",
    ),
    IntegrationPoint(
        V1_CPU, "vllm.v1.sample.sampler", "Sampler.forward", "self logits sampling_metadata",
        "called", "sampling, timed for the choice of draft lengths",
    ),
    IntegrationPoint(
        V1_CPU, _SAMPLER, "RejectionSampler.forward", "self metadata draft_probs logits sampling_metadata",
        "called", "rejection sampling, timed for the choice of draft lengths",
    ),
    IntegrationPoint(
        V1_CPU, "vllm.v1.spec_decode.metadata", "SpecDecodeMetadata.make_dummy", "draft_token_ids device",
        "called", "drafts that are verified for nobody, timed",
    ),
    IntegrationPoint(
        V1, "vllm.v1.worker.gpu_input_batch", "CachedRequestState.__init__",
        "self * prompt_token_ids output_token_ids sampling_params",
        "read", "tokens of a request, for prompt lookup",
    ),
    IntegrationPoint(
        START, "vllm.sampling_params", "SamplingParams.from_optional", "* structured_outputs extra_args",
        "read", "whether a request has a grammar, and vllm_xargs: its tenant, its predicted output, its draft limit",
    ),
    IntegrationPoint(
        V2, _V2, "init_speculator", "vllm_config device req_states",
        "replaced", "creates this project's speculator for its architectures, and extends the class of vLLM's own",
    ),
    IntegrationPoint(
        V2, _RUNNER_V2, "GPUModelRunner.add_requests", "self scheduler_output",
        "wrapped", "tells the speculator the sampling parameters of new requests",
    ),
    IntegrationPoint(
        V2, "vllm.v1.core.sched.output", "NewRequestData", "* req_id sampling_params",
        "read", "sampling parameters of a new request",
    ),
    IntegrationPoint(
        V2, "vllm.v1.worker.gpu.input_batch", "InputBatch.__init__",
        "self * num_reqs idx_mapping idx_mapping_np query_start_loc positions",
        "read", "slots of the requests, and index of their last tokens",
    ),
    IntegrationPoint(
        V2, _LOOP_V2, "TargetDependentARSpeculator.__init__", "self vllm_config device",
        "called", "buffers with fixed addresses",
    ),
    IntegrationPoint(
        V2, _LOOP_V2, "TargetDependentARSpeculator.propose", _PROPOSE_V2,
        "extended", "drafts: the autoregressive part in vLLM's loop, then the parallel part in one pass",
    ),
    IntegrationPoint(
        V2, _LOOP_V2, "TargetDependentARSpeculator.init_cudagraph_manager", "self cudagraph_mode",
        "extended", "creates managers of CUDA graphs for both parts",
    ),
    IntegrationPoint(
        V2, _LOOP_V2, "TargetDependentARSpeculator.capture", "self", "extended", "captures CUDA graphs of both parts",
    ),
    IntegrationPoint(
        V2, f"{_V2}.eagle.speculator", "EagleSpeculator.load_draft_model", "self target_model target_attn_layer_names",
        "extended", "loads the drafter; an autoregressive part shares the target's output head",
    ),
    IntegrationPoint(
        V2_AUTOREGRESSIVE, _SPECULATOR, "DraftModelSpeculator.compute_draft_logits", "self hidden_states spec_step_idx",
        "replaced", "computes logits of draft vocabularies, mixed with prompt lookup",
    ),
    IntegrationPoint(
        V2_AUTOREGRESSIVE, _SPECULATOR, "DraftModelSpeculator.sample_draft", "self hidden_states",
        "extended", "keeps states and draft tokens for the parallel part and prompt lookup",
    ),
    IntegrationPoint(
        V2_AUTOREGRESSIVE, _LOOP_V2, "TargetDependentARSpeculator._configure_decode_metadata_update", "self",
        "extended", "disables the CUDA graph of the whole draft loop where a parallel part follows",
    ),
    IntegrationPoint(
        V2, _SPECULATOR, "DraftModelSpeculator._copy_request_inputs",
        "self num_reqs idx_mapping temperature seeds dummy_run",
        "called", "fills the buffers that CUDA graphs read",
    ),
    IntegrationPoint(
        V2_PARALLEL, "vllm.config.speculative", "SpeculativeConfig.apply_draft_overrides", "self vllm_config",
        "called", "loads the drafter",
    ),
    IntegrationPoint(
        V2_PARALLEL, "vllm.model_executor.model_loader", "get_model", "* vllm_config model_config load_config",
        "called", "loads the drafter",
    ),
    IntegrationPoint(
        V2_PARALLEL, "vllm.model_executor.model_loader.utils", "get_draft_load_config", "vllm_config",
        "called", "loads the drafter",
    ),
    IntegrationPoint(
        V2, _CUDA, "CudaGraphManager.__init__", "self vllm_config device cudagraph_mode decode_query_len",
        "called", "manages CUDA graphs of the parallel part and prompt lookup",
    ),
    IntegrationPoint(
        V2, _CUDA, "BatchExecutionDescriptor.__init__", "self * cg_mode num_reqs",
        "read", "batch size of a CUDA graph",
    ),
    IntegrationPoint(
        V2, _CUDA, "CudaGraphManager.capture", "self create_forward_fn", "called", "captures a CUDA graph",
    ),
    IntegrationPoint(
        V2, _CUDA, "CudaGraphManager.run_fullgraph", "self desc", "called", "replays a CUDA graph",
    ),
    IntegrationPoint(
        V2, _CUDA, "CudaGraphManager.dispatch",
        "self num_reqs num_tokens uniform_token_count num_active_loras",
        "called", "finds the CUDA graph for a batch size",
    ),
    IntegrationPoint(
        V2_PROMPT_LOOKUP, _STATES, "RequestState.add_request", _ADD_REQUEST,
        "wrapped", "resets the statistics of prompt lookup for a new request",
    ),
    IntegrationPoint(
        V2_AUTOREGRESSIVE, _STATES, "RequestState.add_request", _ADD_REQUEST,
        "wrapped", "detects the language of a new request in its prompt",
    ),
    IntegrationPoint(
        V2_PROMPT_LOOKUP, "vllm.v1.worker.gpu.buffer_utils", "StagedWriteTensor.__init__", "self size dtype device",
        "called", "keeps the tokens of all requests on the device, for prompt lookup",
    ),
    IntegrationPoint(
        NATIVE, f"{_LAYERS}.logits_processor", "LogitsProcessor.forward",
        "self lm_head hidden_states embedding_bias skip_gather",
        "replaced", "computes a draft model's logits from each request's draft vocabulary",
    ),
    IntegrationPoint(
        NATIVE, f"{_LAYERS}.logits_processor", "LogitsProcessor._get_logits",
        "self hidden_states lm_head embedding_bias", "called", "logits of all tokens, if no language is detected",
    ),
    IntegrationPoint(
        NATIVE, f"{_LAYERS}.quantization.base_config", "QuantizeMethodBase.apply", "self layer",
        "called", "dequantizes rows of a quantized output head for draft vocabularies",
    ),
    IntegrationPoint(
        NATIVE, f"{_LAYERS}.vocab_parallel_embedding", "VocabParallelEmbedding.__init__",
        "self num_embeddings embedding_dim params_dtype org_num_embeddings",
        "read", "output head, rows of which are gathered",
    ),
    IntegrationPoint(
        V1_NATIVE, _PROPOSER, "SpecDecodeBaseProposer.load_model", "self target_model",
        "wrapped", "extends the class of the proposer, and restricts the draft model's output head",
    ),
    IntegrationPoint(
        V1_NATIVE, _PROPOSER, "SpecDecodeBaseProposer.prepare_next_token_ids_padded",
        "self sampled_token_ids requests gpu_input_batch discard_request_mask",
        "extended", "chooses each request's draft vocabulary from its tokens, and looks up what to copy",
    ),
    IntegrationPoint(
        V1_NATIVE_PROMPT_LOOKUP, _PROPOSER, "SpecDecodeBaseProposer.propose", _PROPOSE_V1,
        "extended", "chooses how many tokens vLLM's loop drafts, and continues them with prompt lookup",
    ),
    IntegrationPoint(
        V1_NATIVE_PROMPT_LOOKUP, _PROPOSER, "SpecDecodeBaseProposer._sample_draft_tokens",
        "self hidden_states sampling_metadata",
        "replaced", "draws from the mixture of the draft model and prompt lookup, with the request's seed",
    ),
    IntegrationPoint(
        V1_NATIVE_PROMPT_LOOKUP, _PROPOSER, "SpecDecodeBaseProposer.dummy_run", "self num_tokens",
        "extended", "is left out while the target's steps are timed",
    ),
    IntegrationPoint(
        V2_NATIVE, f"{_V2}.standalone_ar.speculator", "StandaloneARSpeculator.propose", _PROPOSE_V2,
        "extended", "detects languages and looks up what to copy before a draft model drafts",
    ),
    IntegrationPoint(
        V2_NATIVE, f"{_V2}.multi_module_mtp.speculator", "MultiModuleMTPSpeculator.propose", _PROPOSE_V2,
        "extended", "detects languages and looks up what to copy before several MTP layers draft",
    ),
    IntegrationPoint(
        V2_NATIVE, _SPECULATOR, "DraftModelSpeculator.load_model", "self target_model",
        "extended", "restricts the draft model's output head",
    ),
    IntegrationPoint(
        V2_NATIVE, _SPECULATOR, "DraftModelSpeculator.compute_draft_logits", "self hidden_states",
        "extended", "passes each request's draft vocabulary to the output head, and mixes with prompt lookup",
    ),
    IntegrationPoint(
        V2_NATIVE_PROMPT_LOOKUP, _SPECULATOR, "DraftModelSpeculator.sample_draft", "self hidden_states",
        "extended", "updates the weight of prompt lookup with the token that was drawn",
    ),
    IntegrationPoint(
        V2_NATIVE, _STATES, "RequestState.add_request", _ADD_REQUEST,
        "wrapped", "detects the language of a new request in its prompt",
    ),
    IntegrationPoint(
        V1_STATE, _RUNNER, "GPUModelRunner._setup_eagle3_aux_hidden_state_outputs", "self",
        "read", "makes the target return the hidden state that config.json names",
    ),
    IntegrationPoint(
        V2_STATE, _RUNNER_V2, "GPUModelRunner.load_model", "self",
        "wrapped", "requests hidden states between layers before the target is loaded",
    ),
    IntegrationPoint(
        V2_STATE, f"{_V2}.eagle.eagle3_utils", "set_eagle3_aux_hidden_state_layers", "model spec_config",
        "read", "makes the target return the hidden state that config.json names",
    ),
    IntegrationPoint(
        STATE, f"{_MODELS}.interfaces", "supports_eagle3", "model",
        "called", "checks that the target can return hidden states between layers",
    ),
    IntegrationPoint(
        V1_CPU, _SAMPLER, "expand_batch_to_tokens", "x cu_num_tokens num_tokens replace_from replace_to",
        "replaced", "returns uninitialized memory on a CPU; replaced only if this vLLM has the bug",
    ),
    IntegrationPoint(
        V1_CPU, _SAMPLER, "apply_sampling_constraints", "logits",
        "wrapped", "fails on a CPU for a step without draft tokens and with top-k",
    ),
    IntegrationPoint(
        V1_CPU, _SAMPLER, "sample_recovered_tokens",
        "max_spec_len num_draft_tokens cu_num_draft_tokens draft_token_ids",
        "wrapped", "a step without drafts draws random numbers that nothing reads",
    ),
    IntegrationPoint(
        V1_TEXT, _SAMPLER, "rejection_sample",
        "draft_token_ids num_draft_tokens max_spec_len cu_num_draft_tokens draft_probs target_logits bonus_token_ids "
        "sampling_metadata",
        "wrapped", "verifies drafts whose distributions are computed when needed",
    ),
    IntegrationPoint(
        V1_TEXT, _SAMPLER, "generate_uniform_probs", "num_tokens num_draft_tokens generators device",
        "called", "random numbers of the requests",
    ),
    IntegrationPoint(
        V1_CPU, _RUNNER, "GPUModelRunner.sample_tokens", "self",
        "wrapped", "chunked prefill of a seeded request ends the engine on a CPU",
    ),
    IntegrationPoint(
        OFFLINE, "vllm.engine.arg_utils", "EngineArgs.add_cli_args", "parser",
        "called", "adds the arguments of vllm serve",
    ),
    IntegrationPoint(
        OFFLINE, "vllm.engine.arg_utils", "EngineArgs.from_cli_args", "args", "called", "parses the engine's settings",
    ),
    IntegrationPoint(
        OFFLINE, "vllm.v1.engine.llm_engine", "LLMEngine.from_engine_args", "engine_args",
        "called", "builds the engine",
    ),
    IntegrationPoint(
        OFFLINE, "vllm.v1.engine.llm_engine", "LLMEngine.add_request", "self request_id prompt params",
        "called", "starts a completion",
    ),
    IntegrationPoint(OFFLINE, "vllm.v1.engine.llm_engine", "LLMEngine.step", "self", "called", "runs a decoding step"),
    IntegrationPoint(
        OFFLINE, "vllm.v1.engine.llm_engine", "LLMEngine.abort_request", "self request_ids",
        "called", "aborts completions",
    ),
    IntegrationPoint(
        OFFLINE, "vllm.sampling_params", "SamplingParams",
        "* max_tokens temperature top_p top_k stop_token_ids ignore_eos output_kind",
        "called", "sampling parameters of a completion",
    ),
)  # fmt: skip


class Patch(NamedTuple):
    """Function that changes a module of vLLM after its import: ``vllm_mtpc.<file>.<function>(module)``.

    Attributes:
        group: Group of the lines in `TABLE` that the patch serves.
        module: vLLM's module.
        file: Module of this package.
        function: Its function, which receives vLLM's module.
    """

    group: str
    module: str
    file: str
    function: str = "install"


PATCHES = (
    Patch(START, "vllm.engine.arg_utils", "start_up"),
    Patch(START, _EXECUTOR, "start_up", "install_executor"),
    Patch(START, _TRANSFER, "weight_updates"),
    Patch(V1, _EAGLE, "dispatch", "install_v1"),
    Patch(V2, _V2, "dispatch", "install_v2"),
    Patch(V2, _RUNNER_V2, "dispatch", "install_requests_v2"),
    Patch(V2_STATE, _RUNNER_V2, "dispatch", "install_runner_v2"),
    Patch(V1_CPU, _CPU_WORKER, "v1.timing"),
    Patch(V1_NATIVE, _PROPOSER, "dispatch", "install_native_v1"),
    Patch(V1_CPU, _SAMPLER, "cpu.fixes"),
    Patch(V1_TEXT, _SAMPLER, "v1.lazy_verification"),
    Patch(V1_CPU, _RUNNER, "cpu.seeds"),
)
_installed = False


def install() -> None:
    """Apply every patch once its module has been imported; a second call does nothing."""
    global _installed
    if _installed:
        return
    _installed = True
    for patch in PATCHES:
        after_import(patch.module, lambda module, patch=patch: _apply(patch, module))  # type: ignore[misc]


def _apply(patch: Patch, module: ModuleType) -> None:
    if CPU in patch.group.split(JOIN) and not on_cpu():
        return
    # Only lines of this module: importing others here could close an import cycle in vLLM.
    problem = next(_mismatches(set(patch.group.split(JOIN)), patch.module), None)
    if problem is not None:
        logger.warning("drafters cannot be served (%s): %s", patch.group, problem)
        return
    getattr(import_module(f"vllm_mtpc.{patch.file}"), patch.function)(module)


def _mismatches(groups: set[str], module: str | None = None) -> Iterator[str]:
    """Yield one sentence for each line that does not match, among lines whose groups are all in ``groups``.

    With ``module``, only lines of that module are checked.  A drafter is checked with the groups of all patches that it
    needs, so no patch is missing unnoticed.
    """
    lines = (line for line in TABLE if module in (None, line.module) and groups.issuperset(line.group.split(JOIN)))
    return mismatches(lines, FIX)


def on_cpu() -> bool:
    """Return whether the target runs on a CPU."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def runners() -> set[str]:
    """Return the model runners that vLLM may choose: one if it is set or Triton is missing, else both."""
    from vllm import envs
    from vllm.triton_utils import HAS_TRITON

    second = envs.VLLM_USE_V2_MODEL_RUNNER
    if second is None and HAS_TRITON:
        return {V1, V2}
    return {V2 if second else V1}


def problems(
    *,
    autoregressive: bool = False,
    head: bool = False,
    parallel: bool = False,
    prompt_lookup: bool = False,
    native: bool = False,
    state: bool = False,
    text: bool = False,
) -> Iterator[str]:
    """Check the lines that a drafter needs on this machine against the installed vLLM.

    Args:
        autoregressive: Whether it has an autoregressive part.
        head: Whether it drafts through the target's output head.
        parallel: Whether it has a parallel part.
        prompt_lookup: Whether prompt lookup drafts as well.
        native: Whether it is one of vLLM's own drafters, with draft vocabularies or prompt lookup.
        state: Whether it reads a hidden state between the target's layers.
        text: Whether it has a text part.

    Yields:
        One sentence for each line that does not match.
    """
    parts = [
        *[AUTOREGRESSIVE] * autoregressive,
        *[HEAD] * head,
        *[PARALLEL] * parallel,
        *[PROMPT_LOOKUP] * prompt_lookup,
        *[NATIVE] * native,
        *[STATE] * state,
        *[TEXT] * text,
    ]
    return _mismatches({START, *runners(), *parts, *[CPU] * on_cpu()})


def check() -> list[CheckResult]:
    """Check every line of the table against the installed vLLM, for `mtpc doctor`."""
    return check_results("vllm", TABLE, FIX)
