"""Rows: whether both engines and this project load and answer; without that, nothing else can be tried."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points

from mtpc.lab.doctor import examination
from tests.engine.exact import Reference
from tests.engine.prompts import prompts
from tests.gpu.running import Run

PLUGINS = {"vllm": "vllm.general_plugins", "sglang": "sglang.srt.plugins"}
# Each engine's own, then this project's.  What only a device brings is imported with a device alone.
MODULES = {
    "vllm": (
        "vllm", "vllm.engine.arg_utils", "vllm.v1.engine.llm_engine", "vllm.v1.worker.gpu.model_runner",
        "vllm.v1.worker.gpu.spec_decode.eagle.speculator", "vllm.model_executor.models.llama",
        "vllm.model_executor.models.qwen2", "vllm.model_executor.models.qwen3", "vllm_mtpc.model",
        "vllm_mtpc.v2.speculator", "vllm_mtpc.native.v1", "vllm_mtpc.native.v2", "vllm_mtpc.offline",
    ),
    "sglang": (
        "sglang", "sglang.srt.server_args", "sglang.srt.entrypoints.http_server", "sglang.srt.managers.scheduler",
        "sglang.srt.speculative.eagle_worker_v2", "sglang.srt.models.llama", "sglang.srt.models.qwen2",
        "sglang.srt.models.qwen3", "sglang_mtpc.parallel_worker", "sglang_mtpc.autoregressive_worker",
        "sglang_mtpc.models.draft_layers", "sglang_mtpc.native",
    ),
}  # fmt: skip
ON_A_DEVICE = {"vllm": ("vllm._C_stable_libtorch",), "sglang": ("sgl_kernel",)}
ASKED, LENGTH = 3, 32


def imports(engine: str) -> Callable[[Run], str]:
    """Row: every module, each failure in the log."""

    def row(run: Run) -> str:
        names = [*(ON_A_DEVICE[engine] if run.on_gpu else ()), *MODULES[engine]]
        import_module(engine)
        failed = []
        for name in names:
            try:
                import_module(name)
            except Exception as error:
                traceback.print_exc()
                failed.append(f"{name} ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})")
        assert not failed, f"{len(failed)} of {len(names)} modules do not load: {'; '.join(failed)}"
        return f"{len(names)} modules"

    return row


def engine_fits(engine: str) -> Callable[[Run], str]:
    """Row: what `mtpc doctor` finds."""

    def row(run: Run) -> str:
        registered = [point.name for point in entry_points(group=PLUGINS[engine])]
        assert "mtpc" in registered, f"{engine} does not find this project's plugin, but {registered}"
        findings = examination().all
        failed = [f"{finding.subject}: {finding.detail}" for finding in findings if not finding.ok]
        assert not failed, "; ".join(failed)
        return f"{len(findings)} findings, all ok"

    return row


def compare_texts(run: Run, texts: list[list[int]], drafted: str, exactly: bool = True) -> str:
    """Whether greedy texts, tokens of the byte target, are those of the target in transformers.

    exactly: whether they must be; in other types than float32 rounding decides between tokens now and then.
    """
    exact = Reference(run.paths.weights / "byte-target")
    expected = [exact.greedy(list(prompt.encode()), LENGTH) for prompt in prompts(ASKED)]
    same = sum(a == b for a, b in zip(texts, expected, strict=True))
    found = f"{same} of {ASKED} greedy texts are the target's, {drafted}"
    assert same == ASKED or not exactly, found
    return found


def vllm_answers(backend: str, dtype: str) -> Callable[[Run], str]:
    """Row: a few greedy texts from what ships, without CUDA graphs, with one attention backend, in a type it has."""

    def row(run: Run) -> str:
        from benchmarks.gpu.on_vllm import built, counters, generated

        attention = {"attention_backend": backend} if run.on_gpu else {}
        drafter = {
            "method": "eagle", "model": str(run.paths.weights / "byte-mtpc-hmm-n8"), "num_speculative_tokens": 7,
            "draft_sample_method": "probabilistic",
        }  # fmt: skip
        engine = built(
            run, run.paths.weights / "byte-target", drafter, dtype=dtype, max_model_len=256, max_num_seqs=8,
            enforce_eager=True, **attention,
        )  # fmt: skip
        texts = generated(engine, [list(prompt.encode()) for prompt in prompts(ASKED)], LENGTH)
        found = counters()
        assert found.accepted, "no draft was accepted"
        drafted = f"{found.accepted:.0f} of {found.drafted:.0f} drafts accepted"
        return compare_texts(run, texts, drafted, dtype == "float32")

    return row


def sglang_answers(run: Run) -> str:
    """Row: the same from SGLang's server, without CUDA graphs."""
    from tests.engine_sglang.server import SGLangServer, drafting, texts

    weights = run.paths.weights
    arguments = drafting(weights / "byte-mtpc-hmm-n8", "--speculative-num-steps", "7", "--max-running-requests", "8")
    plain = ("--disable-cuda-graph",) if run.on_gpu else ("--max-total-tokens", "4096")
    run.compute_in_float32()
    with SGLangServer(
        weights / "byte-target", run.folder / "server.log", *arguments, *plain, *run.sglang_words
    ) as server:
        answers = server.generate_all(prompts(ASKED), ASKED, max_new_tokens=LENGTH, ignore_eos=True)
    accepted = sum(answer["meta_info"]["spec_num_correct_drafts"] for answer in answers)
    assert accepted, "no draft was accepted"
    return compare_texts(run, texts(answers), f"{accepted} drafts accepted")
