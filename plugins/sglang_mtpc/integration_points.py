"""The one table of everything in SGLang that this adapter registers, hooks, extends, calls or reads by its shape.

Every line is checked by signature, and holds in every release of `VERSIONS`, see `tests/integration_points`.  Lines are
grouped by what they serve.  Those of the start are checked in every process before anything is registered: where one
does not hold, every drafter is refused.  The others are checked, all at once, when a drafter is asked for: only the
groups that this drafter uses on this device can refuse it (see `groups_used`).  A refusal is one sentence; SGLang stays
usable without a drafter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import get_args

from mtpc.autoregressive.kinds import LayerType
from mtpc.methods import DrafterConfig
from mtpc.methods.drafter import split_drafts
from mtpc.serving.finding import Finding
from mtpc.serving.integration_point import IntegrationPoint, findings, sentences

VERSIONS = ">=0.5.21,<0.5.24"
MEND = f"install an SGLang version {VERSIONS}, or a release of mtpc-plugins made for the installed one"

START = "start-up"
STEP, SAMPLING = "every step", "sampling where SGLang has no correct rule"
GRAPHS, PARALLEL_ALONE = "a parallel part in CUDA graphs", "a drafter without an autoregressive part"
AUTOREGRESSIVE, WORKER = "an autoregressive part", "SGLang's own EAGLE worker"
NATIVE = "draft vocabularies of SGLang's own draft layers"
KINDS = {kind: f"an autoregressive part of kind {kind}" for kind in get_args(LayerType)}
TEXTS = "draft vocabularies by language, or copying"
STATE = "a state between the target's layers"
LENGTHS, TIMED = "chosen draft lengths, or copying, beside an autoregressive part", "chosen draft lengths"
NATIVE_GROUPS = {START, SAMPLING, WORKER, NATIVE, TEXTS}
_SPEC, _SRT = "sglang.srt.speculative", "sglang.srt"
_EAGLE, _LAYERS, _LOADER = f"{_SPEC}.eagle_worker_v2", f"{_SRT}.layers", f"{_SRT}.model_loader"
TABLE = (
    IntegrationPoint(
        START, f"{_SPEC}.spec_info", "SpeculativeAlgorithm.register",
        "name * supports_overlap validate_server_args spec_class",
        "called", "makes the draft methods' algorithms known; its check raises what went wrong in registering",
    ),
    IntegrationPoint(
        START, f"{_SPEC}.spec_registry", "CustomSpecAlgo.__init__",
        "self name factory * supports_overlap validate_server_args",
        "read", "answers what SGLang asks of an algorithm, with the methods that the class lacks",
    ),
    IntegrationPoint(
        START, f"{_SPEC}.spec_registry", "CustomSpecAlgo.handle_server_args", "self server_args",
        "replaced", "completes the settings of the drafts' shape",
    ),
    IntegrationPoint(
        START, f"{_SPEC}.spec_info", "SpeculativeAlgorithm.create_future_map", "self",
        "wrapped", "relays hidden states and pending tokens between overlapping steps",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.resolution_hooks", "register_resolution_hook", "name",
        "called", "a wrong drafter checkpoint ends in one sentence before any engine process is started",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.speculative_hook", "handle_speculative_decoding", "server_args",
        "replaced", "the step of the resolution before which the check runs",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.overrides", "resolving_view", "server_args", "called", "reads the settings",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.overrides", "declare_resolution", "server_args source",
        "called", "puts the folder of a drafter in the place of its id on the Hugging Face Hub",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.overrides", "model_config_of", "server_args",
        "called", "hidden size and vocabulary of the target",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.fields.model", "Model", "* model_path",
        "called", "SGLang's defaults, which settings that mean nothing for a drafter must keep, come with it alone",
    ),
    IntegrationPoint(
        START, f"{_SRT}.arg_groups.fields.spec", "Spec",
        "* speculative_algorithm speculative_draft_model_path speculative_draft_model_revision "
        "speculative_draft_model_quantization speculative_num_steps speculative_eagle_topk "
        "speculative_num_draft_tokens speculative_token_map speculative_use_rejection_sampling",
        "read", "the settings of the drafts",
    ),
    IntegrationPoint(STEP, f"{_SRT}.runtime_context", "get_spec", "", "called", "the drafts' shape and the directory"),
    IntegrationPoint(
        STEP, f"{_SRT}.managers.scheduler", "Scheduler.__init__", "self",
        "wrapped", "what only the engine's process can know ends it with one sentence",
    ),
    IntegrationPoint(
        STEP, f"{_SRT}.distributed.parallel_state", "graph_capture", "",
        "called", "a window's graph may hold the exchange of logits between ranks",
    ),
    IntegrationPoint(STEP, f"{_SRT}.runtime_context", "get_schedule", "", "called", "how many requests run at a time"),
    IntegrationPoint(STEP, f"{_SRT}.runtime_context", "get_device", "", "called", "whether there can be CUDA graphs"),
    IntegrationPoint(
        STEP, f"{_SRT}.model_executor.cuda_graph_config", "check_cuda_graph_backend", "phase backend",
        "called", "whether verification is captured, so that all drafts have one length",
    ),
    IntegrationPoint(STEP, f"{_SRT}.runtime_context", "get_parallel", "", "called", "tensor-parallel rank and group"),
    IntegrationPoint(STEP, f"{_SRT}.runtime_context", "get_observability", "", "called", "whether metrics are shown"),
    IntegrationPoint(STEP, f"{_SRT}.runtime_context", "get_serving", "", "called", "the model's name in metrics"),
    IntegrationPoint(
        PARALLEL_ALONE, f"{_SPEC}.base_spec_worker", "BaseSpecWorker.alloc_memory_pool",
        "self memory_pool_config req_to_token_pool token_to_kv_pool_allocator",
        "called", "inherited: keeps the target's pools for verification",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, f"{_SPEC}.base_spec_worker", "BaseSpecWorker.init_cuda_graphs", "self",
        "replaced", "captures the drafts",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, f"{_SPEC}.base_spec_worker", "BaseSpecWorker.on_verify_complete_cpu",
        "self num_correct_drafts_per_req batch_size",
        "replaced", "what was accepted of each request is counted",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, _EAGLE, "EAGLEWorkerV2.__init__", "self server_args gpu_id nccl_port target_worker",
        "replaced", "a worker that has no draft model, which is made as SGLang's own",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, _EAGLE, "EAGLEWorkerV2.forward_batch_generation",
        "self batch on_publish grammar_barrier pp_proxy_tensors",
        "replaced", "a step of that worker",
    ),
    IntegrationPoint(
        GRAPHS, f"{_SPEC}.base_spec_worker", "BaseSpecWorker.__init__", "self",
        "called", "makes, where SGLang tells the memory of graphs, the table that the drafts' are added to",
    ),
    IntegrationPoint(
        GRAPHS, f"{_SRT}.model_executor.runner", "DecodeCudaGraphRunner.__init__", "self model_runner",
        "read", "the batch sizes of its graphs, capture_bs, are those of the drafts",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, f"{_SRT}.managers.tp_worker", "TpModelWorker.forward_batch_generation",
        "self batch * capture_hidden_mode",
        "called", "runs prompts and keeps the hidden state of each last position",
    ),
    IntegrationPoint(
        STEP, f"{_SRT}.managers.utils", "GenerationBatchResult.__init__",
        "self logits_output * next_token_ids next_draft_input accept_lens new_seq_lens speculative_num_draft_tokens",
        "read", "what a step returns; the next draft's input is written into it",
    ),
    IntegrationPoint(
        STEP, f"{_SRT}.sampling.sampling_batch_info", "SamplingBatchInfo.__init__",
        "self * temperatures top_ps top_ks min_ps is_all_greedy is_any_greedy need_top_p_sampling need_top_k_sampling "
        "need_min_p_sampling sampling_seed",
        "read", "the requests' sampling parameters, a temperature of 0 written as a top-k of 1",
    ),
    IntegrationPoint(
        STEP, f"{_SPEC}.eagle_info", "EagleDraftInput.__init__",
        "self * topk_p topk_index draft_probs hidden_states bonus_tokens capture_hidden_mode",
        "called", "carries each request's states, pending token and first draft to the next step",
    ),
    IntegrationPoint(
        STEP, f"{_SPEC}.eagle_worker_common", "build_eagle_verify_input",
        "batch draft_input parent_list top_scores_index draft_tokens draft_probs * target_worker topk num_steps "
        "num_draft_tokens tree_mask_mode device",
        "called", "masks, positions and links of the drafts",
    ),
    IntegrationPoint(
        PARALLEL_ALONE, f"{_SPEC}.eagle_worker_common", "run_eagle_verify",
        "batch * target_worker req_to_token_pool token_to_kv_pool_allocator plan_stream plan_stream_ctx topk "
        "num_draft_tokens device metadata_ready_pre_pad finalize_tree_path grammar_barrier",
        "called", "verifies: target forward pass, grammar, sampling, KV cache of what was accepted",
    ),
    IntegrationPoint(
        STEP, f"{_SPEC}.eagle_info", "EagleVerifyInput.__init__",
        "self * draft_token draft_token_num retrieve_next_token retrieve_next_sibling spec_steps draft_probs",
        "read", "what is to be verified is read off it; spec_steps is the longest path of a tree",
    ),
    IntegrationPoint(STEP, f"{_SPEC}.eagle_utils", "default_tree_mask_mode", "", "called", "form of the tree's mask"),
    IntegrationPoint(
        PARALLEL_ALONE, f"{_SPEC}.spec_utils", "get_plan_stream", "device", "called", "stream for verify's planning",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.plugins.hook_registry", "HookRegistry.register", "target hook hook_type",
        "called", "SGLang's own way to put a function around one of its own",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.plugins.hook_registry", "HookRegistry.apply_hooks", "", "called", "applies the hook",
    ),
    IntegrationPoint(SAMPLING, f"{_SRT}.utils", "is_cuda", "", "called", "whether SGLang's own rules can run"),
    IntegrationPoint(SAMPLING, f"{_SRT}.runtime_context", "get_exec", "", "called", "what samples, and so filters"),
    IntegrationPoint(
        SAMPLING, f"{_SPEC}.eagle_worker_common", "eagle_sample", "verify_input batch logits_output",
        "hooked", "the core's rules at temperatures above 0 on a CPU, and with min-p, where SGLang has none; penalties",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.sampling.sampling_batch_info", "SamplingBatchInfo.__init__",
        "self * acc_additive_penalties acc_scaling_penalties",
        "read", "the penalties of a step's first token, which SGLang would apply to all of its drafts",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.sampling.sampling_params", "SamplingParams.normalize", "self tokenizer",
        "read", "stop strings and patterns as lists, beside them penalties and min_new_tokens",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.managers.schedule_batch", "Req.__init__",
        "self rid origin_input_text origin_input_ids * eos_token_ids",
        "read", "the text that penalties are for, its retraction_count, and the tokens that may not end it yet",
    ),
    IntegrationPoint(
        SAMPLING, f"{_SRT}.managers.schedule_batch", "Req.update_finish_state", "self new_accepted_len",
        "hooked", "a step of many tokens ends a text where steps of one token would",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_SRT}.models.registry", "_ModelRegistry.register", "self package_name overwrite strict",
        "called", "makes the architectures of the draft methods known",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EAGLEWorkerV2.__init__", "self",
        "extended", "makes a draft worker of ours in the place of SGLang's, by the name EagleDraftWorker of its module",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EagleDraftWorker.__init__", "self",
        "extended", "reads the settings of the drafts, then chooses what makes them",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EAGLEWorkerV2.forward_batch_generation", "self batch",
        "hooked", "each request's draft vocabulary is chosen before a step",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EAGLEWorkerV2.verify", "self batch",
        "hooked", "as many tokens of each request as a step has drafted, whose number may be chosen",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EAGLEWorkerV2.on_verify_complete_cpu", "self num_correct_drafts_per_req",
        "hooked", "what was accepted of each request is counted",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EagleDraftWorker.init_token_map", "self",
        "replaced", "SGLang's token map gives way to draft vocabularies",
    ),
    IntegrationPoint(
        WORKER, _EAGLE, "EagleDraftWorker.init_lm_head", "self", "replaced", "shares modules of the target",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "EagleDraftWorker.init_cuda_graphs", "self", "hooked", "captures a parallel part's drafts",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "EagleDraftWorker._draft_extend_for_prefill",
        "self batch target_hidden_states",
        "hooked", "greedy requests draft greedily from the start; the target's states are kept for what waits",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "EagleDraftWorker.draft", "self batch", "hooked", "timed; a parallel part drafts in its place",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "EagleDraftWorker._draft_extend_for_decode", "self batch batch_result",
        "hooked", "timed; the target's states are kept for a parallel part",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "organize_draft_results", "score_list token_list parents_list num_draft_token",
        "replaced", "the loop's tree, of which nodes are borrowed",
    ),
    IntegrationPoint(
        NATIVE, f"{_SPEC}.spec_info", "SpeculativeAlgorithm.create_worker", "self server_args",
        "hooked", "with a token map of ours, the worker of SGLang's own draft layers is extended",
    ),
    IntegrationPoint(
        LENGTHS, f"{_SPEC}.eagle_worker_common", "prepare_for_draft",
        "draft_input req_to_token_pool batch cuda_graph_runner draft_model_runner topk num_steps",
        "called", "slots and positions of the drafts that SGLang's loop makes; the first thing that it returns is used",
    ),
    IntegrationPoint(
        LENGTHS, f"{_SRT}.model_executor.forward_batch_info", "ForwardBatch.mark_forward_metadata_ready", "self",
        "called", "what the loop's attention reads is laid out once, before it",
    ),
    IntegrationPoint(
        TIMED, f"{_SRT}.model_executor.forward_batch_info", "ForwardBatch.__init__",
        "self * forward_mode batch_size input_ids req_pool_indices seq_lens seq_lens_cpu out_cache_loc seq_lens_sum "
        "positions capture_hidden_mode",
        "called", "a step of the target's for nobody",
    ),
    IntegrationPoint(
        TIMED, f"{_SRT}.model_executor.forward_context", "ForwardContext", "attn_backend",
        "called", "its attention",
    ),
    IntegrationPoint(
        TIMED, f"{_SRT}.model_executor.forward_context", "forward_context", "ctx", "called", "enters it",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "EagleDraftWorker.draft_forward", "self forward_batch",
        "called", "the loop, which returns drafts with their distributions, with copying those of the mixture",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, _EAGLE, "EagleDraftWorker.draft_forward", "self", "hooked", "timed",
    ),
    IntegrationPoint(
        LENGTHS, _EAGLE, "EagleDraftWorker._capture_cuda_graphs", "self",
        "hooked", "the loop, which is shorter than what is verified, is not captured",
    ),
    IntegrationPoint(
        TEXTS, f"{_SRT}.managers.schedule_batch", "Req.__init__", "self rid origin_input_text origin_input_ids",
        "read", "the name, prompt and output_ids of a request, to find its language and what it repeats",
    ),
    IntegrationPoint(
        START, f"{_SRT}.distributed.parallel_state", "GroupCoordinator.all_gather", "self input_ dim",
        "called", "logits of every rank's share of draft vocabularies, and the first one's states",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.logits_processor", "LogitsProcessor.__init__", "self config",
        "called", "the class is extended",
    ),
    IntegrationPoint(
        WORKER, f"{_LAYERS}.logits_processor", "LogitsProcessor._get_logits",
        "self hidden_states lm_head logits_metadata",
        "hooked", "logits of each request's draft vocabulary",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.logits_processor", "LogitsProcessor.forward",
        "self input_ids hidden_states lm_head logits_metadata", "called", "logits, and the states for the next step",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.logits_processor", "LogitsMetadata.__init__", "self forward_mode",
        "called", "of the logits of a first draft that has waited",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.layernorm", "RMSNorm.__init__", "self hidden_size eps", "called", "the layer's norms",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LAYERS}.linear", "ReplicatedLinear.__init__", "self input_size output_size bias * prefix",
        "called", "the projection in front of the decoder layer",
    ),
    IntegrationPoint(
        KINDS["llama"], f"{_SRT}.models.llama", "LlamaAttention.__init__",
        "self config * hidden_size num_heads num_kv_heads rope_theta rope_scaling max_position_embeddings prefix bias",
        "called", "attention of a layer of kind llama",
    ),
    IntegrationPoint(
        KINDS["qwen2"], f"{_SRT}.models.qwen2", "Qwen2Attention.__init__",
        "self * hidden_size num_heads num_kv_heads head_dim rope_theta rope_scaling max_position_embeddings prefix",
        "called", "attention of a layer of kind qwen2",
    ),
    IntegrationPoint(
        KINDS["qwen3"], f"{_SRT}.models.qwen3", "Qwen3Attention.__init__",
        "self * hidden_size num_heads num_kv_heads head_dim rope_theta rope_scaling max_position_embeddings layer_id "
        "rms_norm_eps prefix",
        "called", "attention of a layer of kind qwen3",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_SRT}.models.llama", "LlamaMLP.__init__", "self hidden_size intermediate_size hidden_act * prefix",
        "called", "the layer's other half",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LOADER}.auto_loader", "StackedParamsDispatch.try_load", "self name tensor params_dict",
        "called", "loads the matrices that SGLang keeps as one",
    ),
    IntegrationPoint(
        AUTOREGRESSIVE, f"{_LOADER}.weight_utils", "default_weight_loader", "param loaded_weight", "called", "the others",
    ),
    IntegrationPoint(
        STATE, f"{_SRT}.models.llama", "LlamaForCausalLM.set_eagle3_layers_to_capture", "self layer_ids",
        "called", "lets a target hand over the state that a drafter reads, here one of kind llama",
    ),
)  # fmt: skip


def groups_used(config: DrafterConfig, device: str, vocabularies: bool, copies: bool) -> set[str]:
    """The groups that a drafter uses on a device (as SGLang names it), with draft vocabularies or copying or not.

    On a CPU draft lengths are chosen, unless the user forbids it.
    """
    used = {START, STEP, SAMPLING} | ({TIMED} if device == "cpu" else set())
    if config.autoregressive is None:
        used.add(PARALLEL_ALONE)
    else:
        used |= {AUTOREGRESSIVE, WORKER, KINDS[config.autoregressive.layer]} | (
            {LENGTHS} if copies or device == "cpu" else set()
        )
        used |= set() if config.autoregressive.state_below is None else {STATE}
    if split_drafts(config, config.num_drafts)[1] and device != "cpu":
        used.add(GRAPHS)
    if vocabularies or copies or device == "cpu":
        used.add(TEXTS)
    return used


def problems(groups: Collection[str]) -> Iterator[str]:
    """One sentence for each line of these groups that does not hold in the installed SGLang."""
    return sentences((line for line in TABLE if line.group in groups), MEND)


def check() -> list[Finding]:
    """Every line of the table against the installed SGLang, for `mtpc doctor`."""
    return findings("sglang", TABLE, MEND)
