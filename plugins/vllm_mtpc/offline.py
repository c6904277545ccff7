"""vLLM's engine alone in a process, for `mtpc bench` and `mtpc distill` with --offline: no streaming, no server's cost.

``python -m vllm_mtpc.offline --port PORT --model DIR ...`` takes the engine arguments of ``vllm serve`` and answers
on a local port: GET /health, /v1/models and /metrics and POST /v1/completions (of token ids, whole) as vLLM's server
does, and POST /run, which completes a list of prompts, so many at a time, and returns the texts with their times.
Nothing crosses the port while a run lasts, and nothing else may be under way.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

from prometheus_client import generate_latest
from vllm import EngineArgs, LLMEngine, SamplingParams, TokensPrompt
from vllm.outputs import CompletionOutput
from vllm.sampling_params import RequestOutputKind
from vllm.utils.argparse_utils import FlexibleArgumentParser

# Of a completion.  Not its seed: a generator for each request makes sampling slower.
SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "stop_token_ids", "ignore_eos")


def complete(engine: LLMEngine, body: dict[str, Any]) -> dict[str, Any]:
    """Complete ``body["prompts"]``, ``body["concurrency"]`` at a time; times in seconds.

    ``body["limits"]`` holds the most tokens of each completion.  "steps" of a completion are the target forward passes
    that brought its tokens.
    """
    prompts, limits = body["prompts"], body["limits"]
    found: list[dict[str, Any]] = [{"text": "", "tokens": 0, "steps": 0, "first": 0.0, "seconds": 0.0} for _ in prompts]
    sent = [0.0] * len(prompts)
    waiting, running = iter(enumerate(prompts)), 0
    started = time.perf_counter()
    try:
        while True:
            while running < body["concurrency"] and (following := next(waiting, None)) is not None:
                index, prompt = following
                params = SamplingParams(
                    max_tokens=limits[index],
                    temperature=body["temperature"],
                    ignore_eos=body["ignore_eos"],
                    output_kind=RequestOutputKind.DELTA,
                )
                sent[index] = time.perf_counter()
                engine.add_request(str(index), prompt, params)
                running += 1
            if not running:
                return {"seconds": time.perf_counter() - started, "completions": found}
            for output in engine.step():
                index, delta = int(output.request_id), output.outputs[0]
                answer, now = found[index], time.perf_counter() - sent[index]
                answer["text"] += delta.text
                answer["tokens"] += len(delta.token_ids)
                answer["steps"] += bool(delta.token_ids)
                answer["first"] = answer["first"] or now
                answer["seconds"] = now
                running -= output.finished
    except Exception:
        engine.abort_request([str(index) for index in range(len(prompts))])  # nothing is left for others to find
        raise


class EngineLoop:
    """Steps the engine in one thread; other threads hand it work and wait for the outcome."""

    def __init__(self, engine: LLMEngine) -> None:
        self.engine = engine
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.waiting: dict[str, Future[CompletionOutput]] = {}  # by the id of the request
        self.numbers = itertools.count()

    def run(self) -> None:
        """Until the process is ended, or the engine fails."""
        while True:
            while not self.waiting or not self.calls.empty():
                self.calls.get()()
            for output in self.engine.step():
                if output.finished:
                    self.waiting.pop(output.request_id).set_result(output.outputs[0])

    def alone(self, function: Callable[[LLMEngine], Any]) -> Any:
        """What a function returns that has the engine to itself, between two steps."""
        future: Future[Any] = Future()

        def call() -> None:
            try:
                future.set_result(function(self.engine))
            except Exception as error:
                future.set_exception(error)

        self.calls.put(call)
        return future.result()

    def complete(self, prompt: list[int], params: SamplingParams) -> CompletionOutput:
        """One completion, beside whatever else is under way."""
        future: Future[CompletionOutput] = Future()

        def add(engine: LLMEngine) -> None:
            name = f"completion {next(self.numbers)}"
            engine.add_request(name, TokensPrompt(prompt_token_ids=prompt), params)
            self.waiting[name] = future

        self.alone(add)
        return future.result()


def answer(loop: EngineLoop, body: dict[str, Any]) -> dict[str, Any]:
    """The reply to POST /v1/completions, as vLLM's server gives it to a request for token ids."""
    sampling = {key: body[key] for key in SAMPLING if key in body}
    output = loop.complete(body["prompt"], SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **sampling))
    choice = {"text": output.text, "token_ids": list(output.token_ids), "finish_reason": output.finish_reason}
    return {"choices": [choice]}


def handler(loop: EngineLoop) -> type[BaseHTTPRequestHandler]:
    """The answers to requests, each in a thread of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages = {
                "/health": lambda: b"",
                "/metrics": generate_latest,
                "/v1/models": lambda: json.dumps({"data": [{"id": "offline"}]}).encode(),
            }
            self.reply(200, pages[self.path]()) if self.path in pages else self.reply(404, b"no such page")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            pages = {
                "/run": lambda: loop.alone(lambda engine: complete(engine, body)),
                "/v1/completions": lambda: answer(loop, body),
            }
            if self.path not in pages:
                return self.reply(404, b"no such page")
            try:
                self.reply(200, json.dumps(pages[self.path]()).encode())
            except Exception as error:
                self.reply(500, f"{type(error).__name__}: {error}".encode())
                raise

        def reply(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """The log is the engine's."""

    return Handler


class Listener(ThreadingHTTPServer):
    """Room for as many connections at once as there may be clients."""

    daemon_threads = True
    request_queue_size = 1024


def main() -> None:
    """Build the engine, then answer until the process is ended."""
    parser = FlexibleArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    arguments = EngineArgs.add_cli_args(parser).parse_args()
    loop = EngineLoop(LLMEngine.from_engine_args(EngineArgs.from_cli_args(arguments)))
    listener = Listener(("127.0.0.1", arguments.port), handler(loop))
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    loop.run()


if __name__ == "__main__":
    main()
