"""Table of every function of SGLang that this adapter registers, hooks, extends, calls or reads.

Each line is checked by signature, and holds in every release of `VERSIONS`, see `tests/integration_points`.  Lines are
grouped by feature.  Those of `START` are checked in every process before anything is registered; if one does not hold,
every drafter is rejected.  The others are checked together when a drafter is served.  Only the groups that this
drafter uses on this device can reject it, see `groups_used`.  The error is one sentence, and SGLang still works without
a drafter.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from typing import Any, get_args

from mtpc.autoregressive.kinds import LayerType
from mtpc.methods import DrafterConfig
from mtpc.methods.drafter import split_drafts
from mtpc.serving.check_result import CheckResult
from mtpc.serving.integration_point import IntegrationPoint, check_results, mismatches

VERSIONS = ">=0.5.21,<0.5.24"
FIX = f"install an SGLang version {VERSIONS}, or a release of mtpc-plugins made for the installed one"

START = "start-up"
STEP, SAMPLING = "every step", "sampling and verification"
GRAPHS, PARALLEL_ALONE = "a parallel part in CUDA graphs", "a drafter without autoregressive part"
AUTOREGRESSIVE, WORKER = "an autoregressive part", "SGLang's own EAGLE worker"
HEAD = "the target's output head"
NATIVE = "draft vocabularies or prompt lookup with SGLang's own drafters"
NATIVE_COPYING = "prompt lookup with SGLang's own drafters"
LONGER = "longer drafts of SGLang's own drafters by prompt lookup"
ADAPTED = "--speculative-adaptive"
STATES = "runtime states of draft lengths"
KINDS = {kind: f"an autoregressive part with {kind} layers" for kind in get_args(LayerType)}
REQUEST_TOKENS = "draft vocabularies by language, prompt lookup or a text part"
STATE = "a state between the target's layers"
LENGTHS, TIMED = "adaptive draft length or prompt lookup, with an autoregressive part", "adaptive draft length"
RAY, RAY_ENGINE = "schedulers in Ray actors", "sglang.srt.ray.engine"
NATIVE_GROUPS = {START, SAMPLING, WORKER, HEAD, NATIVE, REQUEST_TOKENS}
NATIVE_COPYING_GROUPS = {STEP, NATIVE_COPYING}
LONGER_GROUPS, ADAPTED_GROUPS = {TIMED, LONGER, STATES}, {ADAPTED, STATES}
_SPEC, _SRT = "sglang.srt.speculative", "sglang.srt"
_EAGLE, _LAYERS, _LOADER = f"{_SPEC}.eagle_worker_v2", f"{_SRT}.layers", f"{_SRT}.model_loader"
TABLE = (
    IntegrationPoint(
        START, f"{_SPEC}.spec_info", "SpeculativeAlgorithm.register",
        "name * supports_overlap validate_server_args spec_class",
        "called", "registers the algorithms of the draft methods; its check reports an error of the registration",
    ),
    IntegrationPoint(
        START, f"{_SPEC}.spec_registry", "CustomSpecAlgo.__init__",
        "self name factory * supports_overlap validate_server_args",
        "read", "base class of the algorithms; adds methods that SGLang calls and the class lacks",
    ),
    IntegrationPoint(
        START, f"{_SPEC}.spec_registry", "CustomSpecAlgo.handle_server_args", "self server_args",
        "replaced", "completes the settings for the shape of the drafts",
    ),
    IntegrationPoint(
        START, f"{_SPEC}.spec_info", "SpeculativeAlgorithm.create_future_map", "self",
        "wrapped", "relays hidden states and bonus tokens between overlapping steps",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.resolution_hooks", "register_resolution_hook", "name",
        "called", "checks the drafter checkpoint before any engine process starts",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.speculative_hook", "handle_speculative_decoding", "server_args",
        "replaced", "stage of SGLang's resolution before which the check runs",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.overrides", "resolving_view", "server_args", "called", "reads the settings",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.overrides", "declare_resolution", "server_args source",
        "called", "replaces the Hugging Face id of a drafter by its local folder",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.overrides", "model_config_of", "server_args",
        "called", "reads hidden size and vocabulary size of the target",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.fields.model", "Model", "* model_path",
        "called", "gives SGLang's defaults, which settings that drafters do not use must keep",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.fields.spec", "Spec",
        "* speculative_algorithm speculative_draft_model_path speculative_draft_model_revision "
        "speculative_draft_model_quantization speculative_num_steps speculative_eagle_topk "
        "speculative_num_draft_tokens speculative_token_map speculative_use_rejection_sampling",
        "read", "reads the speculative settings",
    ),
    IntegrationPoint(
        STEP, f"{_SRT}.runtime_context", "get_spec", "",
        "called", "reads the shape of the drafts and the drafter's directory",
    ),
    IntegrationPoint(
        STEP, f"{_SRT}.managers.scheduler", "Scheduler.__init__", "self",
        "wrapped", "reports errors of the scheduler process in one sentence",
    ),
    IntegrationPoint(
        STEP, f"{_SRT}.distributed.parallel_state", "graph_capture", "",
        "called", "allows communication between ranks in a parallel part's graph",
    ),
    IntegrationPoint(
        STEP, f"{_SRT}.runtime_context", "get_schedule", "",
        "called", "reads the largest number of running requests",
    ),
    IntegrationPoint(STEP, f"{_SRT}.runtime_context", "get_device", "", "called", "reads the device"),
    IntegrationPoint(
        STEP, f"{_SRT}.model_executor.cuda_graph_config", "check_cuda_graph_backend", "phase backend",
        "called", "reads whether verification runs in CUDA graphs, which fix the draft length",
    ),
    IntegrationPoint(
        STEP, f"{_SRT}.runtime_context", "get_parallel", "",
        "called", "reads tensor-parallel rank and group",
    ),
    IntegrationPoint(
        STEP, f"{_SRT}.runtime_context", "get_observability", "",
        "called", "reads whether metrics are enabled",
    ),
    IntegrationPoint(
        STEP, f"{_SRT}.runtime_context", "get_serving", "",
        "called", "reads the model's name for metrics, and the tokenizer for a text part",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, f"{_SPEC}.base_spec_worker", "BaseSpecWorker.alloc_memory_pool",
        "self memory_pool_config req_to_token_pool token_to_kv_pool_allocator",
        "called", "inherited; keeps the target's pools for verification",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, f"{_SPEC}.base_spec_worker", "BaseSpecWorker.init_cuda_graphs", "self",
        "replaced", "captures drafting",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, f"{_SPEC}.base_spec_worker", "BaseSpecWorker.on_verify_complete_cpu",
        "self num_correct_drafts_per_req batch_size",
        "replaced", "counts accepted draft tokens of each request",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, f"{_SPEC}.base_spec_worker", "BaseSpecWorker.weight_update_runners", "self",
        "replaced", "leaves the drafter as it is where the target's weights are updated",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, _EAGLE, "EAGLEWorkerV2.__init__", "self server_args gpu_id nccl_port target_worker",
        "replaced", "created like SGLang's worker, but without draft model",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, _EAGLE, "EAGLEWorkerV2.forward_batch_generation",
        "self batch on_publish grammar_barrier pp_proxy_tensors",
        "replaced", "runs a step of that worker",
    ),
    IntegrationPoint(
        GRAPHS, f"{_SPEC}.base_spec_worker", "BaseSpecWorker.__init__", "self",
        "called", "creates the table of graph memory, to which that of drafting is added",
    ),
    IntegrationPoint(
        GRAPHS, f"{_SRT}.model_executor.runner", "DecodeCudaGraphRunner.__init__", "self model_runner",
        "read", "reads the captured batch sizes, capture_bs, for drafting",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, f"{_SRT}.managers.tp_worker", "TpModelWorker.forward_batch_generation",
        "self batch * capture_hidden_mode",
        "called", "runs prompts and returns the hidden state of the last position",
    ),
    IntegrationPoint(
        STEP, f"{_SRT}.managers.utils", "GenerationBatchResult.__init__",
        "self logits_output * next_token_ids next_draft_input accept_lens new_seq_lens speculative_num_draft_tokens",
        "read", "result of a step; receives the input of the next draft",
    ),
    IntegrationPoint(
        STEP, f"{_SRT}.sampling.sampling_batch_info", "SamplingBatchInfo.__init__",
        "self * temperatures top_ps top_ks min_ps is_all_greedy is_any_greedy need_top_p_sampling need_top_k_sampling "
        "need_min_p_sampling sampling_seed",
        "read", "reads sampling parameters; temperature 0 is written as top-k 1",
    ),
    IntegrationPoint(
        STEP, f"{_SPEC}.eagle_info", "EagleDraftInput.__init__",
        "self * topk_p topk_index draft_probs hidden_states bonus_tokens capture_hidden_mode",
        "called", "carries each request's states, bonus token and first draft token to the next step",
    ),
    IntegrationPoint(
        STEP, f"{_SPEC}.eagle_worker_common", "build_eagle_verify_input",
        "batch draft_input parent_list top_scores_index draft_tokens draft_probs * target_worker topk num_steps "
        "num_draft_tokens tree_mask_mode device",
        "called", "builds masks, positions and links of the drafts",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, f"{_SPEC}.eagle_worker_common", "run_eagle_verify",
        "batch * target_worker req_to_token_pool token_to_kv_pool_allocator plan_stream plan_stream_ctx topk "
        "num_draft_tokens device metadata_ready_pre_pad finalize_tree_path grammar_barrier",
        "called", "verifies: target forward pass, grammar, sampling, KV cache of accepted tokens",
    ),
    IntegrationPoint(
        STEP, f"{_SPEC}.eagle_info", "EagleVerifyInput.__init__",
        "self * draft_token draft_token_num retrieve_next_token retrieve_next_sibling spec_steps draft_probs",
        "read", "reads the drafts to verify; spec_steps is the longest path of a tree",
    ),
    IntegrationPoint(STEP, f"{_SPEC}.eagle_utils", "default_tree_mask_mode", "", "called", "form of the tree mask"),
    IntegrationPoint(
        PARALLEL_ALONE, f"{_SPEC}.spec_utils", "get_plan_stream", "device",
        "called", "creates the stream for planning verification",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.plugins.hook_registry", "HookRegistry.register", "target hook hook_type",
        "called", "registers a hook around a function of SGLang",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.plugins.hook_registry", "HookRegistry.apply_hooks", "", "called", "applies the hooks",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.utils", "is_cuda", "",
        "called", "reads whether SGLang's own verification can run",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.runtime_context", "get_exec", "",
        "called", "reads the sampling backend, which decides how filters combine",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SPEC}.eagle_worker_common", "eagle_sample", "verify_input batch logits_output",
        "hooked", "verifies with the core's rules where SGLang has no correct one; applies penalties",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.sampling.sampling_batch_info", "SamplingBatchInfo.__init__",
        "self * acc_additive_penalties acc_scaling_penalties",
        "read", "reads whether SGLang would apply penalties, which are applied to each draft token instead",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.sampling.sampling_params", "SamplingParams.normalize", "self tokenizer",
        "read", "reads stop strings and patterns, penalties, min_new_tokens and custom_params",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.managers.schedule_batch", "Req.__init__",
        "self rid origin_input_text origin_input_ids * eos_token_ids",
        "read", "reads the tokens that penalties count, retraction_count, and the tokens that end a request",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.managers.schedule_batch", "Req.update_finish_state", "self new_accepted_len",
        "hooked", "ends a request at the same token as without speculative decoding",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_SRT}.models.registry", "_ModelRegistry.register", "self package_name overwrite strict",
        "called", "registers the architectures of the draft methods",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EAGLEWorkerV2.__init__", "self",
        "extended", "creates this project's draft worker instead of EagleDraftWorker",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EagleDraftWorker.__init__", "self",
        "extended", "reads the settings and chooses the draft strategy",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EAGLEWorkerV2.forward_batch_generation", "self batch",
        "hooked", "chooses each request's draft vocabulary before a step",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EAGLEWorkerV2.verify", "self batch",
        "hooked", "verifies as many tokens as a step has drafted",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EAGLEWorkerV2.on_verify_complete_cpu", "self num_correct_drafts_per_req",
        "hooked", "counts accepted draft tokens of each request",
    ),
    IntegrationPoint(
        WORKER, f"{_SPEC}.base_spec_worker", "BaseSpecWorker.weight_update_runners", "self",
        "hooked", "leaves the drafter as it is where the target's weights are updated",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EagleDraftWorker.init_token_map", "self",
        "replaced", "replaces SGLang's token map by draft vocabularies",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EagleDraftWorker.init_lm_head", "self",
        "replaced", "shares embedding and output head of the target",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "EagleDraftWorker.init_cuda_graphs", "self",
        "hooked", "captures drafting of the parallel part",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "EagleDraftWorker._draft_extend_for_prefill",
        "self batch target_hidden_states",
        "hooked", "makes the first draft token of greedy requests greedy; keeps the target's states",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "EagleDraftWorker.draft", "self batch",
        "hooked", "timed; replaced where the parallel part drafts",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "EagleDraftWorker._draft_extend_for_decode", "self batch batch_result",
        "hooked", "timed; keeps the target's states for the parallel part",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "organize_draft_results", "score_list token_list parents_list num_draft_token",
        "replaced", "makes the tree from the loop's candidates, with borrowed nodes",
    ),
    IntegrationPoint(
        NATIVE, f"{_SPEC}.spec_info", "SpeculativeAlgorithm.create_worker", "self server_args",
        "hooked", "extends the worker of SGLang's own drafters if the token map is for this project",
    ),
    IntegrationPoint(
        NATIVE, f"{_SPEC}.standalone_worker_v2", "StandaloneWorkerV2.__init__", "self",
        "extended", "creates this project's draft worker instead of StandaloneDraftWorker",
    ),
    IntegrationPoint(
        NATIVE, f"{_SPEC}.standalone_worker_v2", "StandaloneDraftWorker.init_lm_head", "self",
        "replaced", "begins prompt lookup once the draft model is loaded",
    ),
    IntegrationPoint(
        NATIVE_COPYING, _EAGLE, "EagleDraftWorker.draft", "self batch",
        "hooked", "samples the first draft token from the mixture with prompt lookup",
    ),
    IntegrationPoint(
        NATIVE_COPYING, _EAGLE, "EagleDraftWorker.draft_forward", "self forward_batch",
        "hooked", "mixes prompt lookup into the logits of the draft loop, also where CUDA graphs capture it",
    ),
    IntegrationPoint(
        NATIVE_COPYING, f"{_SRT}.model_executor.model_runner", "ModelRunner.forward", "self forward_batch",
        "hooked", "returns logits of the mixture with prompt lookup within the draft loop",
    ),
    IntegrationPoint(
        NATIVE, f"{_SPEC}.spec_info", "SpeculativeAlgorithm.resolve_max_speculative_num_draft_tokens",
        "self server_args",
        "hooked", "reserves memory for drafts that prompt lookup makes longer",
    ),
    IntegrationPoint(
        STATES, f"{_SPEC}.adaptive_runtime_state", "AdaptiveController.__init__", "self worker policy",
        "called", "switches between the runtime states of draft lengths",
    ),
    IntegrationPoint(
        LONGER, _EAGLE, "EAGLEWorkerV2.init_cuda_graphs", "self",
        "hooked", "builds a second runtime state for longer drafts",
    ),
    IntegrationPoint(
        STATES, _EAGLE, "EAGLEWorkerV2.build_adaptive_runtime_state",
        "self speculative_num_steps speculative_num_draft_tokens",
        "hooked", "builds the runtime state of a draft length",
    ),
    IntegrationPoint(
        STATES, f"{_SPEC}.adaptive_runtime_state", "SpecRuntimeState.__init__",
        "self speculative_num_steps speculative_num_draft_tokens draft_attn_backend cuda_graph_runner "
        "target_attn_backend target_graph_runner draft_extend_attn_backend cuda_graph_runner_for_draft_extend",
        "called", "that state on a CPU, where nothing is captured, and of a target without draft model",
    ),
    IntegrationPoint(
        LONGER, _EAGLE, "EAGLEWorkerV2.activate_step_by_batch", "self batch_size",
        "called", "enters that state before a longer draft is verified; SGLang leaves it when the next step begins",
    ),
    IntegrationPoint(
        LONGER, _EAGLE, "EagleDraftWorker._capture_cuda_graphs", "self",
        "hooked", "skips capture of the draft loop for that state, whose further tokens are copied",
    ),
    IntegrationPoint(
        LENGTHS, f"{_SPEC}.eagle_worker_common", "prepare_for_draft",
        "draft_input req_to_token_pool batch cuda_graph_runner draft_model_runner topk num_steps",
        "called", "assigns slots and positions of the draft loop; its first result is used",
    ),
    IntegrationPoint(
        LENGTHS, f"{_SRT}.model_executor.forward_batch_info", "ForwardBatch.mark_forward_metadata_ready", "self",
        "called", "marks attention metadata as prepared before the loop",
    ),
    IntegrationPoint(
        LENGTHS, f"{_SRT}.model_executor.model_runner", "ModelRunner.forward", "self forward_batch",
        "hooked", "returns logits of the mixture with prompt lookup within the draft loop",
    ),
    IntegrationPoint(
        TIMED, f"{_SRT}.model_executor.forward_batch_info", "ForwardBatch.__init__",
        "self * forward_mode batch_size input_ids req_pool_indices seq_lens seq_lens_cpu out_cache_loc seq_lens_sum "
        "positions capture_hidden_mode",
        "called", "creates a dummy decoding step of the target",
    ),
    IntegrationPoint(
        TIMED, f"{_SRT}.model_executor.forward_context", "ForwardContext", "attn_backend",
        "called", "attention backend of the dummy step",
    ),
    IntegrationPoint(
        TIMED, f"{_SRT}.model_executor.forward_context", "forward_context", "ctx",
        "called", "enters the context of the dummy step",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "EagleDraftWorker.draft_forward", "self forward_batch",
        "called", "SGLang's draft loop; returns draft tokens with their distributions",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "EagleDraftWorker.draft_forward", "self", "hooked", "timed",
    ),
    IntegrationPoint(
        LENGTHS, _EAGLE, "EagleDraftWorker._capture_cuda_graphs", "self",
        "hooked", "skips capture of a loop that drafts fewer tokens than are verified",
    ),
    IntegrationPoint(
        REQUEST_TOKENS, f"{_SRT}.managers.schedule_batch", "Req.__init__",
        "self rid origin_input_text origin_input_ids",
        "read", "reads id, prompt and output_ids of a request for its language, prompt lookup and a text part",
    ),
    IntegrationPoint(
        START, f"{_SRT}.distributed.parallel_state", "GroupCoordinator.all_gather", "self input_ dim",
        "called", "gathers logits of draft vocabularies and the first rank's states",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.logits_processor", "LogitsProcessor.__init__", "self config",
        "called", "base class of the logits processor",
    ),
    IntegrationPoint(
        HEAD, f"{_LAYERS}.quantization.base_config", "QuantizeMethodBase.apply", "self layer",
        "called", "dequantizes rows of a quantized output head for draft vocabularies",
    ),
    IntegrationPoint(
        WORKER, f"{_LAYERS}.logits_processor", "LogitsProcessor._get_logits",
        "self hidden_states lm_head logits_metadata",
        "hooked", "computes logits of each request's draft vocabulary",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.logits_processor", "LogitsProcessor.forward",
        "self input_ids hidden_states lm_head logits_metadata",
        "called", "computes logits and the states for the next step",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.logits_processor", "LogitsMetadata.__init__", "self forward_mode",
        "called", "metadata for computing the logits of the first draft token later",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.layernorm", "RMSNorm.__init__", "self hidden_size eps",
        "called", "norms of the draft layers",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.linear", "ReplicatedLinear.__init__", "self input_size output_size bias * prefix",
        "called", "input projection of the draft layers",
    ),
    IntegrationPoint(
        KINDS["llama"], f"{_SRT}.models.llama", "LlamaAttention.__init__",
        "self config * hidden_size num_heads num_kv_heads rope_theta rope_scaling max_position_embeddings prefix bias",
        "called", "attention of a llama layer",
    ),
    IntegrationPoint(
        KINDS["qwen2"], f"{_SRT}.models.qwen2", "Qwen2Attention.__init__",
        "self * hidden_size num_heads num_kv_heads head_dim rope_theta rope_scaling max_position_embeddings prefix",
        "called", "attention of a qwen2 layer",
    ),
    IntegrationPoint(
        KINDS["qwen3"], f"{_SRT}.models.qwen3", "Qwen3Attention.__init__",
        "self * hidden_size num_heads num_kv_heads head_dim rope_theta rope_scaling max_position_embeddings layer_id "
        "rms_norm_eps prefix",
        "called", "attention of a qwen3 layer",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_SRT}.models.llama", "LlamaMLP.__init__",
        "self hidden_size intermediate_size hidden_act * prefix",
        "called", "MLP of the draft layers",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LOADER}.auto_loader", "StackedParamsDispatch.try_load", "self name tensor params_dict",
        "called", "loads matrices that SGLang stacks into one",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LOADER}.weight_utils", "default_weight_loader", "param loaded_weight",
        "called", "loads the other tensors",
    ),
    IntegrationPoint(
        STATE, f"{_SRT}.models.llama", "LlamaForCausalLM.set_eagle3_layers_to_capture", "self layer_ids",
        "called", "makes a target return the state between layers that a drafter reads; here a Llama",
    ),
    IntegrationPoint(
        ADAPTED, f"{_SPEC}.adaptive_spec_params", "resolve_candidate_steps_from_config", "cfg_path",
        "called", "returns the draft lengths among which SGLang chooses",
    ),
    IntegrationPoint(
        ADAPTED, f"{_SPEC}.adaptive_spec_params", "AdaptiveSpeculativeParams.__init__", "self initial_steps cfg_path",
        "called", "chooses the draft length by batch size and acceptance, for a parallel part alone",
    ),
    IntegrationPoint(
        ADAPTED, f"{_SPEC}.adaptive_runtime_state", "AdaptiveController.init_states", "self cuda_graph_bs",
        "called", "builds the runtime states of all draft lengths",
    ),
    IntegrationPoint(
        ADAPTED, f"{_SPEC}.adaptive_runtime_state", "AdaptiveController.activate_step_by_batch", "self batch_size",
        "called", "enters the runtime state of a batch",
    ),
    IntegrationPoint(
        ADAPTED, f"{_SPEC}.adaptive_runtime_state", "AdaptiveController.on_verify_complete",
        "self num_correct_drafts_per_req batch_size",
        "called", "reports accepted draft tokens",
    ),
    IntegrationPoint(
        ADAPTED, _EAGLE, "EAGLEWorkerV2.apply_runtime_state", "self state",
        "hooked", "enters a runtime state; drafts that are made without SGLang's loop keep their number of passes",
    ),
    IntegrationPoint(
        ADAPTED, _EAGLE, "EagleDraftWorker._rebuild_topk1_chain_buffers", "self",
        "hooked", "prepares links of chains only where SGLang's own loop makes them",
    ),
    IntegrationPoint(
        ADAPTED, _EAGLE, "EAGLEWorkerV2._build_trivial_verify_input", "self batch",
        "hooked", "builds the verification of a step without drafts, with the distributions that SGLang requires",
    ),
    IntegrationPoint(
        ADAPTED, f"{_SRT}.model_executor.model_runner", "ModelRunner._get_attention_backend", "self init_new_workspace",
        "called", "creates the attention backend of a draft length",
    ),
    IntegrationPoint(
        ADAPTED, f"{_SRT}.model_executor.runner", "DecodeCudaGraphRunner.__init__",
        "self model_runner * attn_backend speculative_num_steps speculative_num_draft_tokens",
        "called", "captures the CUDA graphs of a draft length",
    ),
    IntegrationPoint(
        ADAPTED, f"{_SRT}.runtime_context", "RuntimeContext.override", "self source",
        "called", "changes the draft length in SGLang's configuration",
    ),
    IntegrationPoint(
        ADAPTED, f"{_SRT}.runtime_context", "_ConfigBag.override", "self",
        "called", "changes it while the runtime state of a draft length is built",
    ),
    IntegrationPoint(
        RAY, RAY_ENGINE, "_create_scheduler_actor", "* server_args",
        "hooked", "makes the actor of a scheduler load plugins",
    ),
    IntegrationPoint(RAY, f"{_SRT}.plugins", "load_plugins", "", "called", "loads the plugins in that actor"),
)  # fmt: skip


def groups_used(
    config: DrafterConfig, device: str, vocabularies: bool, copies: bool, reads_head: bool = False
) -> set[str]:
    """Return the groups of the table that a drafter uses.

    Args:
        config: Configuration of the drafter.
        device: Device, as SGLang names it.
        vocabularies: Whether there are draft vocabularies.
        copies: Whether prompt lookup or a text part drafts.
        reads_head: Whether it drafts through the target's output head.

    Returns:
        The groups; on a CPU those of adaptive draft length as well.
    """
    used = {START, STEP, SAMPLING} | ({TIMED} if device == "cpu" else set())
    used |= {HEAD} if reads_head else set()
    if config.autoregressive is None:
        used.add(PARALLEL_ALONE)
    else:
        used |= {AUTOREGRESSIVE, WORKER, HEAD, KINDS[config.autoregressive.layer]} | (
            {LENGTHS} if copies or device == "cpu" else set()
        )
        used |= set() if config.autoregressive.state_below is None else {STATE}
    if split_drafts(config, config.num_drafts)[1] and device != "cpu":
        used.add(GRAPHS)
    if vocabularies or copies or device == "cpu":
        used.add(REQUEST_TOKENS)
    return used


def ray_groups(settings: Any) -> set[str]:
    """Return the groups of the table that schedulers in Ray actors use; none without Ray, which SGLang reports itself.

    Args:
        settings: SGLang's server arguments as resolved so far.  Ray Serve leaves ``use_ray`` out.
    """
    is_used = settings.use_ray or RAY_ENGINE in sys.modules
    return {RAY} if is_used and find_spec("ray") is not None else set()


def problems(groups: Collection[str]) -> Iterator[str]:
    """Yield one sentence for each line of these groups that does not hold in the installed SGLang."""
    return mismatches((line for line in TABLE if line.group in groups), FIX)


def check() -> list[CheckResult]:
    """Return the findings of `mtpc doctor`: every line of the table, checked against the installed SGLang.

    Without Ray, SGLang's engine for Ray cannot be imported; its lines are left out.
    """
    has_ray = find_spec("ray") is not None
    return check_results("sglang", (line for line in TABLE if has_ray or line.group != RAY), FIX)
