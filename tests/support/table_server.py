"""A server of a `TableModel` on a local port, which is asked as vLLM is, or as SGLang is."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from tests.support.table_model import DRAFTS, Rows, Sampling

KNOWN = 20
NO_SETTINGS: Mapping[str, Any] = {}
METRICS = """vllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}
vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {tokens}
vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}
"""
INFO = "mtpc_drafter_info{{{labels}}} 1\n"
AT = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{position}"}} {accepted}\n'


class SpeculatingModel(Protocol):
    """A language model that decodes speculatively, with `DRAFTS` draft tokens per step, and counts.

    drafts: whether it drafts.  steps: decoding steps so far.  accepted: steps that accepted the draft token at each
    position, [DRAFTS].
    """

    drafts: bool
    steps: int
    accepted: np.ndarray

    def logits(self, before: Rows, last: Rows) -> Rows:
        """After each pair of tokens, [B, V]."""

    def sampled(self, text: list[int], count: int, length: int, sampling: Sampling, noise: np.random.Generator) -> Rows:
        """Continuations of a text, [count, length]."""


class Listener(ThreadingHTTPServer):
    """Refuses no connection while many clients connect at once on a busy machine."""

    request_queue_size = 128


class Handler(BaseHTTPRequestHandler):
    """Answers the routes that `mtpc prove` asks for."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a second packet waits until the client has acknowledged the first
    model: SpeculatingModel
    noise: np.random.Generator
    lock: threading.Lock
    sglang = False
    settings = NO_SETTINGS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Print nothing."""

    def reply(self, text: str, status: int = 200) -> None:
        """Send a whole answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self) -> None:
        """Metrics and names."""
        model = self.model
        counts = {"drafts": model.steps, "tokens": DRAFTS * model.steps, "accepted": model.accepted.sum()}
        at = "".join(AT.format(position=i, accepted=count) for i, count in enumerate(model.accepted))
        labels = ",".join(f'{name}="{value}"' for name, value in self.settings.items())
        info = INFO.format(labels=labels) if labels else ""
        pages = {
            "/v1/models": json.dumps({"data": [{"id": "table"}]}),
            "/metrics": METRICS.format(**counts) + at + info if model.drafts and not self.sglang else "",
            **({"/get_server_info": json.dumps(dict(self.settings))} if self.sglang else {}),
        }
        self.reply(pages.get(self.path, ""), 200 if self.path in pages else 404)

    def do_POST(self) -> None:
        """Completions, what is stated of a prompt, and the ids of a text: its characters, as numbers."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.lock:
            if self.path == "/tokenize":
                answer: Any = {"tokens": [ord(letter) % 32 for letter in body["prompt"]]}
            elif self.path == "/v1/completions" and "prompt_logprobs" in body:
                places = self.stated(body["prompt"], 0)[1:]
                tops = [{str(token): {"logprob": logprob} for logprob, token in place} for place in places]
                answer = {"choices": [{"prompt_logprobs": [None, *tops]}]}
            elif self.path == "/v1/completions":
                answer = {"choices": [{"token_ids": text} for text in self.texts(body["prompt"], body, "max_tokens")]}
            elif body.get("return_logprob"):
                tops = self.stated(body["input_ids"], body["logprob_start_len"])
                named = [None, *([[logprob, token, None] for logprob, token in place] for place in tops[1:])]
                answer = {"output_ids": [0], "meta_info": {"input_top_logprobs": named}}
            else:
                before = self.reached()
                found = self.texts(body["input_ids"], body["sampling_params"], "max_new_tokens")
                answers = [{"output_ids": text, "meta_info": {}} for text in found]
                answers[0]["meta_info"] = counted((self.reached() - before).tolist())
                answer = answers if len(answers) > 1 else answers[0]
        self.reply(json.dumps(answer))

    def texts(self, prompt: list[int], body: dict[str, Any], length: str) -> list[list[int]]:
        """Completions; a seed has its own noise."""
        seed = body.get("seed", body.get("sampling_seed"))
        noise = self.noise if seed is None else np.random.default_rng(seed)
        sampling = Sampling(body["temperature"], max(body["top_k"], 0), body["top_p"])
        found: list[list[int]] = self.model.sampled(prompt, body["n"], body[length], sampling, noise).tolist()
        return found

    def reached(self) -> np.ndarray:
        """Return the number of steps so far, and of those that accepted each position, [DRAFTS + 1]."""
        return np.array([self.model.steps, *self.model.accepted])

    def stated(self, text: list[int], start: int) -> list[list[tuple[float, int]]]:
        """The most probable tokens at every place from one on; of the first place of all, nothing is meant."""
        ids, at = np.array(text), np.arange(start, len(text))
        logits = self.model.logits(ids[np.maximum(at - 2, 0)], ids[at - 1])
        logprobs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        order = np.argsort(-logprobs, axis=1)[:, :KNOWN]
        ranked = np.take_along_axis(logprobs, order, 1)
        return [list(zip(*row, strict=True)) for row in zip(ranked.tolist(), order.tolist(), strict=True)]


def counted(reached: list[float]) -> dict[str, Any]:
    """Return SGLang's details of a request; reached: its steps, and those that accepted each position."""
    steps, *accepted = map(int, reached)
    return {
        "spec_verify_ct": steps,
        "spec_num_proposed_drafts": DRAFTS * steps,
        "spec_num_correct_drafts": sum(accepted),
        "spec_correct_drafts_histogram": [more - less for more, less in pairwise([steps, *accepted, 0])],
    }


@contextmanager
def serving(
    model: SpeculatingModel, *, sglang: bool = False, settings: Mapping[str, Any] = NO_SETTINGS
) -> Iterator[str]:
    """A running server's address.

    settings: SGLang's, or the labels of what vLLM drafts with; none for a drafter of vLLM's own.
    """
    own = {"model": model, "sglang": sglang, "settings": settings}
    own |= {"noise": np.random.default_rng(0), "lock": threading.Lock()}
    server = Listener(("127.0.0.1", 0), type("OwnHandler", (Handler,), own))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
