"""The one table of everything in vLLM that this adapter registers, replaces, extends or calls by its shape.

Each line is checked by signature before the group of lines that it belongs to is applied.  Where a line does
not hold, its group is left out and one sentence is logged; vLLM stays usable without a drafter.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from mtpc.after_import import after_import
from mtpc.doctor.finding import Finding
from mtpc.doctor.touch_point import TouchPoint, findings, sentences

VERSIONS = ">=0.32,<0.34"
MEND = f"install a vLLM version {VERSIONS}, or a release of mtpc-plugins made for the installed one"
logger = logging.getLogger(f"vllm.{__name__}")  # below vLLM's logger, so that its handlers show it

START, V1, V2, CPU, SEEDS = "start-up", "V1 runner", "V2 runner", "CPU fixes", "CPU seeds"
_PROPOSER, _SPECULATOR = "vllm.v1.spec_decode.llm_base_proposer", "vllm.v1.worker.gpu.spec_decode.speculator"
_LOOP_V2, _STATES = "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.speculator", "vllm.v1.worker.gpu.states"
_LAYERS, _MODELS = "vllm.model_executor.layers", "vllm.model_executor.models"
_RUNNER = "vllm.v1.worker.gpu_model_runner"
_GRAPHS, _SAMPLER = "vllm.v1.worker.gpu.cudagraph_utils", "vllm.v1.sample.rejection_sampler"
_PROPOSE_V1 = (
    "self num_speculative_tokens target_token_ids target_positions target_hidden_states next_token_ids "
    "token_indices_to_sample common_attn_metadata sampling_metadata mm_embed_inputs num_rejected_tokens_gpu "
    "slot_mappings"
)
_PROPOSE_V2 = (
    "self input_batch attn_metadata slot_mappings last_hidden_states aux_hidden_states num_sampled num_rejected "
    "last_sampled next_prefill_tokens temperature seeds dp_sync_state dummy_run skip_attn_for_dummy_run mm_inputs "
    "is_profile num_speculative_tokens"
)
TABLE = (
    TouchPoint(
        START, "vllm.model_executor.models.registry", "_ModelRegistry.register_model", "self model_arch model_cls",
        "called", "makes the architecture of drafter directories known",
    ),
    TouchPoint(
        START, "vllm.engine.arg_utils", "EngineArgs.create_speculative_config",
        "self target_model_config target_parallel_config",
        "wrapped", "a wrong drafter directory ends in one sentence before any engine process is started",
    ),
    TouchPoint(
        START, "vllm.compilation.decorators", "support_torch_compile", "cls * dynamic_arg_dims",
        "called", "compiles a FastMTP layer as vLLM compiles a model's",
    ),
    TouchPoint(
        START, f"{_MODELS}.llama", "LlamaDecoderLayer.__init__", "self vllm_config prefix config",
        "called", "the decoder layer of a FastMTP drafter of kind llama",
    ),
    TouchPoint(
        START, f"{_MODELS}.llama", "LlamaDecoderLayer.get_quant_config", "self vllm_config",
        "extended", "a drafter is not quantised, whatever its target is",
    ),
    TouchPoint(
        START, f"{_MODELS}.qwen2", "Qwen2DecoderLayer.__init__", "self config cache_config * prefix",
        "called", "the decoder layer of a FastMTP drafter of kind qwen2",
    ),
    TouchPoint(
        START, f"{_LAYERS}.linear", "ReplicatedLinear.__init__",
        "self input_size output_size bias * params_dtype prefix return_bias",
        "called", "the projection in front of a FastMTP drafter's decoder layer",
    ),
    TouchPoint(
        START, f"{_LAYERS}.layernorm", "RMSNorm.__init__", "self hidden_size eps",
        "called", "the norms of a FastMTP drafter",
    ),
    TouchPoint(
        START, f"{_LAYERS}.logits_processor", "LogitsProcessor.__init__", "self vocab_size",
        "called", "logits of the target's own head, where there is no draft vocabulary",
    ),
    TouchPoint(
        START, f"{_MODELS}.utils", "AutoWeightsLoader.load_weights", "self weights * mapper",
        "called", "shares out a FastMTP drafter's weights over tensor-parallel ranks",
    ),
    TouchPoint(
        START, f"{_MODELS}.mimo", "MiMoForCausalLM.compute_logits", "self hidden_states",
        "called", "has the target's final norm in it, which its drafters' states must go through as well",
    ),
    TouchPoint(
        V1, "vllm.v1.spec_decode.eagle", "EagleProposer.__init__", "self vllm_config device runner",
        "extended", "EagleProposer.__new__ is added: it chooses our proposer by the draft's architecture",
    ),
    TouchPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.propose", _PROPOSE_V1,
        "extended", "MTPC drafts in one shot; FastMTP's drafts get their noise",
    ),
    TouchPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.load_model", "self target_model",
        "extended", "MTPC shares nothing with the target; FastMTP gathers rows of the head that it shares",
    ),
    TouchPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.prepare_next_token_ids_padded",
        "self sampled_token_ids requests gpu_input_batch discard_request_mask",
        "extended", "each request's draft vocabulary follows from what it has said",
    ),
    TouchPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer._greedy_sample", "self hidden_states",
        "extended", "a greedy draft needs no logits of tokens that are not drafted from",
    ),
    TouchPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer._sample_draft_tokens", "self hidden_states sampling_metadata",
        "extended", "a sampled draft needs no distribution over other tokens, and follows from the request's seed",
    ),
    TouchPoint(V1, _PROPOSER, "SpecDecodeBaseProposer._get_model", "self", "called", "loads the drafter"),
    TouchPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.initialize_attn_backend", "self kv_cache_config kernel_block_sizes",
        "extended", "the base class requires a draft attention layer; a drafter has none",
    ),
    TouchPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.dummy_run",
        "self num_tokens use_cudagraphs is_graph_capturing slot_mappings",
        "extended", "the profiling run must see the drafter's memory",
    ),
    TouchPoint(
        V1, _PROPOSER, "SpecDecodeBaseProposer.take_last_draft_probs", "self",
        "called", "the runner fetches the drafts' distributions with it",
    ),
    TouchPoint(
        V2, "vllm.v1.worker.gpu.spec_decode", "init_speculator", "vllm_config device req_states",
        "wrapped", "chooses our speculator by the draft's architecture",
    ),
    TouchPoint(
        V2, _LOOP_V2, "TargetDependentARSpeculator.propose", _PROPOSE_V2,
        "extended", "each request's draft vocabulary is chosen before vLLM drafts with FastMTP",
    ),
    TouchPoint(
        V2, "vllm.v1.worker.gpu.spec_decode.eagle.speculator", "EagleSpeculator.load_draft_model",
        "self target_model target_attn_layer_names",
        "extended", "gathers rows of the head that FastMTP shares with the target",
    ),
    TouchPoint(
        V2, _STATES, "RequestState.add_request", "self req_id prompt_len all_token_ids num_computed_tokens max_tokens",
        "wrapped", "the language of a request is found from its prompt",
    ),
    TouchPoint(
        V2, _STATES, "RequestState.remove_request", "self req_id", "wrapped", "what is known of a request is forgotten",
    ),
    TouchPoint(V2, _SPECULATOR, "DraftModelSpeculator.__init__", "self vllm_config device", "extended", "buffers"),
    TouchPoint(V2, _SPECULATOR, "BaseSpeculator.propose", _PROPOSE_V2, "extended", "MTPC drafts in one shot"),
    TouchPoint(
        V2, _SPECULATOR, "DraftModelSpeculator.load_draft_model", "self target_model target_attn_layer_names",
        "extended", "loads the drafter",
    ),
    TouchPoint(
        V2, _SPECULATOR, "DraftModelSpeculator.draft_logits_spec", "self vllm_config",
        "extended", "distributions are kept in float32: a rounded one is not the one drawn from",
    ),
    TouchPoint(
        V2, _SPECULATOR, "DraftModelSpeculator._copy_request_inputs",
        "self num_reqs idx_mapping temperature seeds dummy_run",
        "called", "fills the buffers that a captured graph reads; padded rows get slot -1",
    ),
    TouchPoint(
        V2, "vllm.model_executor.model_loader.utils", "get_draft_load_config", "vllm_config",
        "called", "loads the drafter",
    ),
    TouchPoint(
        V2, _GRAPHS, "CudaGraphManager.__init__", "self vllm_config device cudagraph_mode decode_query_len",
        "called", "one CUDA graph of the draft for each batch size",
    ),
    TouchPoint(V2, _GRAPHS, "CudaGraphManager.capture", "self create_forward_fn", "called", "captures the draft"),
    TouchPoint(V2, _GRAPHS, "CudaGraphManager.run_fullgraph", "self desc", "called", "replays the draft"),
    TouchPoint(
        V2, _GRAPHS, "CudaGraphManager.dispatch", "self num_reqs num_tokens uniform_token_count num_active_loras",
        "called", "finds the graph for a batch size",
    ),
    TouchPoint(
        CPU, _SAMPLER, "expand_batch_to_tokens", "x cu_num_tokens num_tokens replace_from replace_to",
        "replaced", "returns uninitialised memory on a CPU; replaced only where that is seen",
    ),
    TouchPoint(
        CPU, _SAMPLER, "apply_sampling_constraints", "logits cu_num_draft_tokens sampling_metadata",
        "wrapped", "fails on a CPU for a step without drafts and a top-k; caught only where that happens",
    ),
    TouchPoint(
        SEEDS, _RUNNER, "GPUModelRunner.sample_tokens", "self grammar_output",
        "wrapped", "a seeded request whose prompt is read in parts ends the engine on a CPU",
    ),
)  # fmt: skip

# What applies a group, and after the import of which module: `vllm_mtpc.<name>.install(module)`.
PATCHES = {
    START: ("vllm.engine.arg_utils", "start_up"),
    V1: ("vllm.v1.spec_decode.eagle", "choose_proposer"),
    V2: ("vllm.v1.worker.gpu.spec_decode", "choose_speculator"),
    CPU: (_SAMPLER, "cpu_fixes"),
    SEEDS: (_RUNNER, "cpu_seeds"),
}
_installed = False


def install() -> None:
    """Arrange for every group to be applied once its module is imported; a second call does nothing."""
    global _installed
    if _installed:
        return
    _installed = True
    for group, (module, _) in PATCHES.items():
        after_import(module, lambda found, group=group: _apply(group, found))  # type: ignore[misc]


def _apply(group: str, module: ModuleType) -> None:
    # Only lines of the module at hand: importing the others here could close an import cycle of vLLM's.
    wrong = [problem for line in TABLE if line.group == group and line.module == module.__name__
             and (problem := line.problem())]  # fmt: skip
    if wrong:
        logger.warning("drafters cannot be served (%s): %s; %s.", group, wrong[0], MEND)
        return
    import_module(f"vllm_mtpc.{PATCHES[group][1]}").install(module)


def problems() -> Iterator[str]:
    """One sentence for each line that does not hold in the installed vLLM."""
    return sentences(TABLE, MEND)


def check() -> list[Finding]:
    """Every line of the table against the installed vLLM, for `mtpc doctor`."""
    return findings("vllm", TABLE, MEND)
