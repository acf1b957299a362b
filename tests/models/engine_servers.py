"""HTTP servers with the responses of vLLM and SGLang, from the n-gram model, and with faults.

The form of the responses is that of vLLM 0.32 and of SGLang 0.5's tokenizer manager. `requests`
contains the path and body of each POST. Each POST uses up one of `faults`; `delay` and `distort`
apply to all. While `free` is not set, no POST is answered; `released_at` simultaneous ones set it.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ngram import greedy, logprobs, text_of

BLOCK = 16
COMPLETION_FIELDS = {
    *("model", "prompt", "max_tokens", "temperature", "prompt_logprobs", "return_token_ids"),
    *("stop", "seed", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
}
"""Fields of `CompletionRequest` in vLLM 0.33.0, `vllm/entrypoints/openai/completion/protocol.py`.

vLLM ignores other fields with a warning, and other servers of this interface reject them.
`skip_reading_prefix_cache` and `prompt_logprob_start` are no fields of it.
"""
MODEL = "/models/tiny"


@dataclass
class Fault:
    """An error status, an interrupted connection, or a body that is not JSON."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    body: bytes = b'{"error":{"message":"out of order","type":"InternalServerError","code":500}}'


class Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class EngineServer:
    """A server in a thread. `restart` uses the same port again."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any]] = []
        self.authorizations: set[str | None] = set()
        self.faults: deque[Fault] = deque()
        self.delay = 0.0
        self.free = threading.Event()
        self.free.set()
        self.released_at = 0
        self.distort: Callable[[list[float | None]], list[float | None]] = list
        self.seed = 1
        self.cached_prefixes: set[tuple[int, ...]] = set()
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self.port = 0
        self.start()

    def start(self) -> None:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # head and body in one packet: two would wait for each other

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                engine.authorizations.add(self.headers["authorization"])
                self.reply(lambda: engine.get(self.path))

            def do_POST(self) -> None:
                engine.authorizations.add(self.headers["authorization"])
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with engine._lock:
                    engine.requests.append((self.path, body))
                    engine._at_once += 1
                    engine.most_at_once = max(engine.most_at_once, engine._at_once)
                    if engine._at_once == engine.released_at:
                        engine.free.set()
                    fault = engine.faults.popleft() if engine.faults else None
                try:
                    time.sleep(engine.delay)
                    engine.free.wait()
                    if fault is None:
                        self.reply(lambda: engine.post(self.path, body))
                    elif fault.cut:
                        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
                        self.close_connection = True
                    else:
                        self.send(fault.status, fault.body, fault.headers)
                finally:
                    with engine._lock:
                        engine._at_once -= 1

            def reply(self, make: Callable[[], Any]) -> None:
                try:
                    status, content = 200, make()
                except Refusal as refusal:
                    status, content = refusal.status, engine.error(refusal)
                self.send(status, json.dumps(content).encode(), {})

            def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        class Server(ThreadingHTTPServer):
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None:
                """Ignore clients that close their connection."""

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def restart(self) -> None:
        self.cached_prefixes.clear()
        self.start()

    def __enter__(self) -> EngineServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def posts(self) -> list[Any]:
        return [body for _, body in self.requests]

    def get(self, path: str) -> Any:
        raise NotImplementedError

    def post(self, path: str, body: Any) -> Any:
        raise NotImplementedError

    def error(self, refusal: Refusal) -> Any:
        raise NotImplementedError

    def values(self, tokens: list[int]) -> list[float | None]:
        """Return one value per token, None for the first."""
        return self.distort(logprobs(tokens, self.seed))

    def cached(self, tokens: list[int]) -> int:
        """Return the number of cached tokens: whole blocks, without the last token."""
        for blocks in range((len(tokens) - 1) // BLOCK, 0, -1):
            if tuple(tokens[: blocks * BLOCK]) in self.cached_prefixes:
                return blocks * BLOCK
        return 0

    def add_to_cache(self, tokens: list[int]) -> None:
        for blocks in range(1, len(tokens) // BLOCK + 1):
            self.cached_prefixes.add(tuple(tokens[: blocks * BLOCK]))


def continued(prompt: list[int], count: int, stop: list[str]) -> tuple[str, list[int], str]:
    """Return the text before the first stop string, the tokens up to it, and the finish reason."""
    tokens: list[int] = []
    for token in greedy(prompt, count):
        tokens.append(token)
        text = text_of(tokens)
        for end in stop:
            if end in text:
                return text[: text.index(end)], tokens, "stop"
    return text_of(tokens), tokens, "length"


# --- vLLM --------------------------------------------------------------------------------------


class VllmDouble(EngineServer):
    max_model_len = 512

    def get(self, path: str) -> Any:
        if path != "/v1/models":
            raise Refusal(404, "Not Found")
        card = {
            "id": MODEL,
            "object": "model",
            "created": 1795261043,
            "owned_by": "vllm",
            "root": MODEL,
            "parent": None,
            "max_model_len": self.max_model_len,
            "permission": [{"id": "modelperm-1", "object": "model_permission"}],
        }
        return {"object": "list", "data": [card]}

    def error(self, refusal: Refusal) -> Any:
        kind = "NotFoundError" if refusal.status == 404 else "BadRequestError"
        fault = {"message": str(refusal), "type": kind, "param": None, "code": refusal.status}
        return {"error": fault}

    def post(self, path: str, body: Any) -> Any:
        if path == "/v1/completions":
            return self.complete(body)
        raise Refusal(404, "Not Found")

    def complete(self, body: Any) -> Any:
        if unknown := sorted(body.keys() - COMPLETION_FIELDS):
            raise Refusal(400, f"extra fields not permitted: {', '.join(unknown)}")
        if body["model"] != MODEL:
            raise Refusal(404, f"The model `{body['model']}` does not exist.")
        prompts = body["prompt"]
        for prompt in prompts:
            self.refuse(prompt)
        choices = [self.choice(i, prompt, body) for i, prompt in enumerate(prompts)]
        used = sum(map(len, prompts))
        return {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1795261280,
            "model": MODEL,
            "choices": choices,
            "service_tier": None,
            "system_fingerprint": "vllm-0.32.0-4994d7e1",
            "usage": self.usage(used),
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }

    def choice(self, index: int, prompt: list[int], body: Any) -> Any:
        text, tokens, reason = continued(prompt, body["max_tokens"], body.get("stop") or [])
        scoring = body.get("prompt_logprobs") is not None
        returned = body.get("return_token_ids")
        self.add_to_cache(prompt)
        return {
            "index": index,
            "text": text,
            "logprobs": None,
            "finish_reason": reason,
            "stop_reason": None,
            "token_ids": tokens if returned else None,
            "prompt_logprobs": self.rows(prompt) if scoring else None,
            "prompt_token_ids": prompt if returned else None,
            "routed_experts": None,
        }

    def rows(self, tokens: list[int]) -> list[Any]:
        """Return the rows of a prompt."""
        return [
            value
            if value is None
            else {
                str(token): {
                    "logprob": value,
                    "rank": 1 + token,
                    "decoded_token": text_of([token]),
                }
            }
            for token, value in zip(tokens, self.values(tokens), strict=True)
        ]

    def usage(self, used: int) -> Any:
        details = {"cached_tokens": 0, "created_cache_tokens": None, "multimodal_tokens": None}
        return {
            "prompt_tokens": used,
            "total_tokens": used + 1,
            "completion_tokens": 1,
            "prompt_tokens_details": details,
            "completion_tokens_details": None,
        }

    def refuse(self, tokens: list[int]) -> None:
        if len(tokens) >= self.max_model_len:
            raise Refusal(400, f"This model's maximum context length is {self.max_model_len}")
        if any(not 0 <= token < 48 for token in tokens):
            raise Refusal(400, f"Token id {max(tokens)} is out of vocabulary")


# --- SGLang ------------------------------------------------------------------------------------


class SglangDouble(EngineServer):
    max_req_input_len = 512
    weight_versions: deque[str]
    old_paths = False

    def __init__(self) -> None:
        self.weight_versions = deque(["default"])
        super().__init__()

    def get(self, path: str) -> Any:
        prefix = "/get_" if self.old_paths else "/"
        if path == f"{prefix}model_info":
            return {
                "model_path": MODEL,
                "tokenizer_path": MODEL,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": self.weight_versions[0],
                "model_type": "qwen2",
            }
        if path == f"{prefix}server_info":
            return {
                "model_path": MODEL,
                "context_length": None,
                "dtype": "auto",
                "status": "ready",
                "max_total_num_tokens": 10_000,
                "max_req_input_len": self.max_req_input_len,
                "internal_states": [{}],
                "version": "0.5.23",
            }
        raise Refusal(404, "Not Found")

    def error(self, refusal: Refusal) -> Any:
        return {"error": {"message": str(refusal)}}

    def post(self, path: str, body: Any) -> Any:
        if path != "/generate":
            raise Refusal(404, "Not Found")
        prompts, parameters = body["input_ids"], body["sampling_params"]
        if isinstance(prompts[0], int):
            return self.one(prompts, parameters, body, body.get("logprob_start_len", -1))
        starts = body.get("logprob_start_len", -1)
        starts = starts if isinstance(starts, list) else [starts] * len(prompts)
        return [self.one(p, parameters, body, s) for p, s in zip(prompts, starts, strict=True)]

    def one(self, tokens: list[int], parameters: Any, body: Any, start: int) -> Any:
        if len(tokens) >= self.max_req_input_len:
            raise Refusal(400, "The input is longer than the model's context length")
        count = parameters["max_new_tokens"]
        text, output_ids, reason = continued(tokens, count, parameters.get("stop") or [])
        finish = {"type": "length", "length": count}
        version = self.weight_versions[0]
        if len(self.weight_versions) > 1:
            self.weight_versions.popleft()
        meta = {
            "id": "7f3b",
            "finish_reason": finish if reason == "length" else {"type": "stop", "matched": "x"},
            "prompt_tokens": len(tokens),
            "weight_version": version,
            "num_retractions": 0,
            "completion_tokens": len(output_ids),
            "e2e_latency": 0.01,
        }
        cached = self.cached(tokens)
        if body.get("return_logprob"):
            # The cache is not used after `logprob_start_len`; the first value is always null.
            cached = min(cached, start)
            values = [None, *self.values(tokens)[start + 1 :]]
            ids = tokens[start:]
            meta["input_token_logprobs"] = [[v, t, None] for v, t in zip(values, ids, strict=True)]
            meta["output_token_logprobs"] = []
        self.add_to_cache(tokens)
        meta["cached_tokens"] = cached
        return {"text": text, "output_ids": output_ids, "meta_info": meta}
