"""`examples/search_r1_trl.py` trains one step with a retrieval server of Search-R1."""

from __future__ import annotations

import json
import runpy
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import socket
from typing import Any

import pytest
from trl import GRPOTrainer
from trl_runs import make_model, qwen3_tokenizer

from rag_rewards.errors import BackendError

sys.path.append(str(Path(__file__).resolve().parents[1]))
from test_trl_search_script import CALL, CORPUS, SMALL

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "search_r1_trl.py"
PAGES = [f"{each['text']}{' Words of a page.' * 20}" for each in CORPUS]
"""Results that are longer than the 512 tokens of TRL's default, as three pages of a corpus are."""


class Retriever(BaseHTTPRequestHandler):
    """Replies as retrieval_server.py of Search-R1 at a14dc3a does."""

    requests: list[Any]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append((self.path, body))
        pages = [{"id": str(i), "contents": text} for i, text in enumerate(PAGES)]
        found = [{"document": page, "score": 0.5} for page in pages[: body["topk"]]]
        reply = json.dumps({"result": [found for _ in body["queries"]]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    Retriever.requests = []
    served = HTTPServer(("127.0.0.1", 0), Retriever)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    monkeypatch.setenv("SEARCH_URL", f"http://127.0.0.1:{served.server_port}/retrieve")
    yield Retriever
    served.shutdown()
    thread.join()
    served.server_close()


def run_script(folder: Path, monkeypatch: Any) -> Any:
    """Run the script with fixed replies, of which the first one searches. Return its trainer."""
    model, data = folder / "model", folder / "data"
    make_model("qwen2").save_pretrained(model)
    qwen3_tokenizer().save_pretrained(model)
    data.mkdir()
    row = {"question": "Which river runs through Lyon?", "golden_answers": ["Rhône", "Rhone"]}
    (data / "train.jsonl").write_text(f"{json.dumps(row)}\n" * 2)
    turns = iter([[CALL, "<answer>Seine</answer>"], ["The <answer>the Rhone.</answer>"]])
    trainers: list[Any] = []

    def sampled(trainer: Any, prompt_ids: Any, *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        trainers.append(trainer)
        tokenizer, texts = trainer.processing_class, next(turns)
        assert len(texts) == len(prompt_ids)
        return [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in texts], None

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", sampled)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(folder / "cache"))
    words = ["--model_name_or_path", str(model), "--dataset_name", str(data)]
    words += ["--output_dir", str(folder / "output"), "--learning_rate", "0.01", *SMALL]
    monkeypatch.setattr(sys, "argv", [SCRIPT.name, *words])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    return trainers[0]


def test_a_retrieval_server_that_is_down_ends_the_training(
    tmp_path: Path, monkeypatch: Any
) -> None:
    with socket() as closed:
        closed.bind(("127.0.0.1", 0))  # without listening
        monkeypatch.setenv("SEARCH_URL", f"http://127.0.0.1:{closed.getsockname()[1]}/retrieve")
        with pytest.raises(BackendError, match="the environment failed in this rollout: URLError"):
            run_script(tmp_path, monkeypatch)


@pytest.mark.optimizer_step
def test_the_script_trains_a_step(tmp_path: Path, monkeypatch: Any, server: Any) -> None:
    trainer = run_script(tmp_path, monkeypatch)
    [(path, request)] = server.requests
    assert (path, request["queries"]) == ("/retrieve", ["river of Lyon"])
    [logged] = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert logged["reward"] == 0.5  # of 1 and 0
    searched, _ = trainer.reward_funcs[0].last_rollouts
    assert [page.text for page in searched.steps()[0].results] == PAGES
    assert trainer.max_tool_calling_iterations == 3
