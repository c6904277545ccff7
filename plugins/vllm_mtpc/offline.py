"""Serves vLLM's engine without its API server, for `mtpc bench` and `mtpc distill` with --offline.

``python -m vllm_mtpc.offline --port PORT --model DIR ...`` takes the engine arguments of ``vllm serve`` and listens on
a local port.  There is no streaming.

- GET /health, /v1/models and /metrics, and POST /v1/completions (token ids in, the whole output back) work as in
  vLLM's server.
- POST /run completes a list of prompts at a fixed concurrency and returns outputs with their times.  It needs the
  engine for itself, and nothing crosses the port while it runs.
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

# Sampling parameters of a completion.  No seed: a generator for each request makes sampling slower.
SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "stop_token_ids", "ignore_eos")


def complete(engine: LLMEngine, body: dict[str, Any]) -> dict[str, Any]:
    """Complete prompts at a fixed concurrency.

    Args:
        engine: An engine without requests.
        body: The request: "prompts"; "limits", the maximum number of tokens of each output; "concurrency";
            "temperature"; "ignore_eos".

    Returns:
        "seconds", the time of the whole run, and "completions".  A completion has "text", "tokens", "steps" (target
        forward passes that emitted its tokens), "first" (seconds to the first token) and "seconds".
    """
    prompts, limits = body["prompts"], body["limits"]
    found: list[dict[str, Any]] = [{"text": "", "tokens": 0, "steps": 0, "first": 0.0, "seconds": 0.0} for _ in prompts]
    sent_at = [0.0] * len(prompts)
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
                sent_at[index] = time.perf_counter()
                engine.add_request(str(index), prompt, params)
                running += 1
            if not running:
                return {"seconds": time.perf_counter() - started, "completions": found}
            for output in engine.step():
                index, delta = int(output.request_id), output.outputs[0]
                completion, now = found[index], time.perf_counter() - sent_at[index]
                completion["text"] += delta.text
                completion["tokens"] += len(delta.token_ids)
                completion["steps"] += bool(delta.token_ids)
                completion["first"] = completion["first"] or now
                completion["seconds"] = now
                running -= output.finished
    except Exception:
        engine.abort_request([str(index) for index in range(len(prompts))])  # leave no requests behind
        raise


class EngineLoop:
    """Steps the engine in one thread; other threads submit work and wait for its result.

    Protocol: one thread calls `run`; any other thread calls `complete` or `run_between_steps`.

    Attributes:
        calls: Functions to call before the next step.
        waiting: Results of unfinished completions, by request id.
    """

    def __init__(self, engine: LLMEngine) -> None:
        self.engine = engine
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.waiting: dict[str, Future[CompletionOutput]] = {}
        self.numbers = itertools.count()

    def run(self) -> None:
        """Step the engine until it fails or the process ends."""
        while True:
            while not self.waiting or not self.calls.empty():
                self.calls.get()()
            for output in self.engine.step():
                if output.finished:
                    self.waiting.pop(output.request_id).set_result(output.outputs[0])

    def run_between_steps(self, function: Callable[[LLMEngine], Any]) -> Any:
        """Call a function in the engine's thread between two steps.

        Args:
            function: Receives the engine.

        Returns:
            The function's result; an exception that it raises is raised here.
        """
        future: Future[Any] = Future()

        def call() -> None:
            try:
                future.set_result(function(self.engine))
            except Exception as error:
                future.set_exception(error)

        self.calls.put(call)
        return future.result()

    def complete(self, prompt: list[int], params: SamplingParams) -> CompletionOutput:
        """Complete one prompt, concurrently with others.

        Args:
            prompt: Token ids.
            params: vLLM's sampling parameters.

        Returns:
            The whole completion.
        """
        future: Future[CompletionOutput] = Future()

        def add(engine: LLMEngine) -> None:
            name = f"completion {next(self.numbers)}"
            engine.add_request(name, TokensPrompt(prompt_token_ids=prompt), params)
            self.waiting[name] = future

        self.run_between_steps(add)
        return future.result()


def complete_request(loop: EngineLoop, body: dict[str, Any]) -> dict[str, Any]:
    """Handle POST /v1/completions like vLLM's server with token ids.

    Args:
        loop: The running engine.
        body: The request's JSON: "prompt" (token ids) and the keys of `SAMPLING`.

    Returns:
        The reply's JSON, with one choice.
    """
    sampling = {key: body[key] for key in SAMPLING if key in body}
    output = loop.complete(body["prompt"], SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **sampling))
    choice = {"text": output.text, "token_ids": list(output.token_ids), "finish_reason": output.finish_reason}
    return {"choices": [choice]}


def handler(loop: EngineLoop) -> type[BaseHTTPRequestHandler]:
    """Return the HTTP handler class, which handles each request in its own thread."""

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
                "/run": lambda: loop.run_between_steps(lambda engine: complete(engine, body)),
                "/v1/completions": lambda: complete_request(loop, body),
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
            """Log nothing: the log is for the engine."""

    return Handler


class Listener(ThreadingHTTPServer):
    """HTTP server that accepts as many concurrent connections as there may be clients."""

    daemon_threads = True
    request_queue_size = 1024


def main() -> None:
    """Build the engine and serve it until the process ends."""
    parser = FlexibleArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    arguments = EngineArgs.add_cli_args(parser).parse_args()
    loop = EngineLoop(LLMEngine.from_engine_args(EngineArgs.from_cli_args(arguments)))
    listener = Listener(("127.0.0.1", arguments.port), handler(loop))
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    loop.run()


if __name__ == "__main__":
    main()
