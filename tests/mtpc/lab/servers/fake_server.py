"""A server on a local port that speaks as both engines' do: it completes with the prompt's own bytes, in upper case."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

METRICS = """vllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}
vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {drafts}
vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} {accepted}
"""


def at_once() -> None:
    """Send a token of a stream without a pause."""


def briefly() -> None:
    """Pause before a token of a stream."""
    time.sleep(0.02)


def text(prompt: str | list[int]) -> str:
    """A prompt of ids as text: each is the code of a character."""
    return prompt if isinstance(prompt, str) else "".join(map(chr, prompt))


class State:
    """What the server has seen."""

    def __init__(
        self,
        drafting: bool,
        answer: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        together: int = 1,
        wait: Callable[[], None] = briefly,
    ) -> None:
        self.drafting, self.wait = drafting, wait
        self.gate = threading.Barrier(together, timeout=120)  # streams wait here until `together` of them have begun
        self.answer = answer  # the choice that answers a request which does not stream
        self.refusal = 400  # status of what is not answered
        self.drafts = 0
        self.now, self.most = 0, 0  # requests at a time
        self.bodies: list[dict[str, Any]] = []
        self.pages: list[str] = []  # that were read
        self.lock = threading.Lock()


class Listener(ThreadingHTTPServer):
    """Refuses no connection while many clients connect at once on a busy machine."""

    request_queue_size = 128


class Handler(BaseHTTPRequestHandler):
    """Answers /health, /metrics, /v1/models and /v1/completions; /run as an offline engine does."""

    protocol_version = "HTTP/1.1"  # as engines' servers, which keep connections open
    disable_nagle_algorithm = True
    state: State

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Print nothing."""

    def reply(self, text: str, status: int = 200) -> None:
        """Send a whole answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self) -> None:
        """Health, metrics and models."""
        drafts = self.state.drafts
        self.state.pages.append(self.path)
        pages = {
            "/health": "",
            "/metrics": METRICS.format(drafts=drafts, accepted=drafts // 2) if self.state.drafting else "up 1\n",
            "/v1/models": json.dumps({"data": [{"id": "some-model"}]}),
        }
        self.reply(pages.get(self.path, ""), 200 if self.path in pages else 404)

    def do_POST(self) -> None:
        """One completion: each token in an event of its own, then the usage."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        state = self.state
        with state.lock:
            state.bodies.append(body)
            state.now += 1
            state.most = max(state.most, state.now)
            state.drafts += body["max_tokens"]
        asked, body = body, body | {"prompt": text(body["prompt"]), "prompts": [*map(text, body.get("prompts", ()))]}
        if state.answer is not None and not body.get("stream"):
            time.sleep(0.005)
            choice = state.answer(asked)
            self.reply(
                json.dumps({"choices": [choice]} if choice else {"error": "refused"}), 200 if choice else state.refusal
            )
        elif "refuse" in "".join((body["prompt"], *body["prompts"])):
            self.reply('{"error": "the prompt is refused"}', 400)
        elif self.path == "/run":
            asked = zip(body["prompts"], body["limits"], strict=True)
            texts = [(prompt.upper() * most)[:most] for prompt, most in asked]
            answers = [{"text": text, "tokens": len(text), "first": 1.0, "seconds": 3.0} for text in texts]
            self.reply(json.dumps({"seconds": 3.0, "completions": answers}))
        else:
            self.stream(body)
        with state.lock:
            state.now -= 1

    def stream(self, body: dict[str, Any]) -> None:
        """Send its events in chunks, as engines' servers do."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.state.gate.wait()
        for event in self.events(body):
            if '"text"' in event:
                self.state.wait()
            line = f"data: {event}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            if "vanish" in body["prompt"]:
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def events(self, body: dict[str, Any]) -> Iterator[str]:
        """The lines of the stream."""
        for character in (body["prompt"].upper() * body["max_tokens"])[: body["max_tokens"]]:
            yield json.dumps({"choices": [{"text": character}]})
        if "break off" in body["prompt"]:
            yield json.dumps({"error": {"message": "out of memory"}})
        if self.state.drafting and body.get("return_spec_tokens_details"):
            yield json.dumps({"choices": [], "sglext": {"spec_tokens_details": self.details(body["max_tokens"])}})
        yield json.dumps({"choices": [], "usage": {"completion_tokens": body["max_tokens"]}})
        yield "[DONE]"

    def details(self, drafts: int) -> dict[str, Any]:
        """Return SGLang's details of a request with `drafts` drafts of one token, every second one accepted."""
        accepted = drafts // 2
        return {
            "spec_verify_ct": drafts,
            "spec_num_proposed_drafts": drafts,
            "spec_num_correct_drafts": accepted,
            "spec_correct_drafts_histogram": [drafts - accepted, accepted],
        }


@contextmanager
def serving(
    drafting: bool = True,
    answer: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    together: int = 1,
    wait: Callable[[], None] = briefly,
) -> Iterator[tuple[str, State]]:
    """A running server: its address and what it sees.

    answer: the choice that answers a completion which does not stream; an empty one refuses it.  together: streams that
    wait for each other.  wait: called before each token of a stream.
    """
    state = State(drafting, answer, together, wait)
    server = Listener(("127.0.0.1", 0), type("OwnHandler", (Handler,), {"state": state}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", state
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    Handler.state = State(drafting=True)
    Listener(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
