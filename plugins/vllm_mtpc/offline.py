"""vLLM's engine alone in a process, for `mtpc bench --offline`: no server, no streaming, no other processes.

``python -m vllm_mtpc.offline --port PORT --model DIR ...`` takes the engine arguments of ``vllm serve`` and answers
on a local port: GET /health, /v1/models and /metrics as vLLM's server does, and POST /run, which completes a list of
prompts, so many at a time, and returns the texts with their times.  Nothing crosses the port while a run lasts.
"""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from prometheus_client import generate_latest
from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.utils.argparse_utils import FlexibleArgumentParser


def complete(engine: LLMEngine, body: dict[str, Any]) -> dict[str, Any]:
    """Complete ``body["prompts"]``, ``body["concurrency"]`` at a time; times in seconds."""
    params = SamplingParams(
        max_tokens=body["max_tokens"],
        temperature=body["temperature"],
        ignore_eos=body["ignore_eos"],
        output_kind=RequestOutputKind.DELTA,
    )
    prompts = body["prompts"]
    found: list[dict[str, Any]] = [{"text": "", "tokens": 0, "first": 0.0, "seconds": 0.0} for _ in prompts]
    sent = [0.0] * len(prompts)
    waiting, running = iter(enumerate(prompts)), 0
    started = time.perf_counter()
    while True:
        while running < body["concurrency"] and (following := next(waiting, None)) is not None:
            index, prompt = following
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
            answer["first"] = answer["first"] or now
            answer["seconds"] = now
            running -= output.finished


def handler(engine: LLMEngine) -> type[BaseHTTPRequestHandler]:
    """The answers to requests, one at a time."""

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
            try:
                self.reply(200, json.dumps(complete(engine, body)).encode())
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


def main() -> None:
    """Build the engine, then answer until the process is ended."""
    parser = FlexibleArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    arguments = EngineArgs.add_cli_args(parser).parse_args()
    engine = LLMEngine.from_engine_args(EngineArgs.from_cli_args(arguments))
    HTTPServer(("127.0.0.1", arguments.port), handler(engine)).serve_forever()


if __name__ == "__main__":
    main()
