"""OpenRLHF's own executor with the server and the reward function of this package."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from openrlhf.utils import agent
from openrlhf.utils.agent import SingleTurnAgentExecutor
from processes import WAIT_SECONDS, end, finish, free_port, wait_for

PROMPT = "<|im_start|>user\nWhich river?<|im_end|>\n<|im_start|>assistant\n"
RIGHT = "<relevance>[1]</relevance><analysis>1</analysis><answer>Seine</answer><|im_end|>"
LABEL = json.dumps({"answers": ["Seine"], "supporting": [1]})


class Characters:
    """A tokenizer whose tokens are characters."""

    def __call__(self, text: str, **_: Any) -> Any:
        import torch

        return {"input_ids": torch.tensor([[ord(c) for c in text]])}

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, ids))


class Engine:
    """An engine that returns a fixed text."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def generate(self, prompt_ids: Any, params: Any, multi_modal_data: Any = None) -> Any:
        output = SimpleNamespace(
            token_ids=[ord(c) for c in self.text],
            text=self.text,
            finish_reason="stop",
            logprobs=None,
        )
        return SimpleNamespace(outputs=[output])


def run_executor(
    endpoint: str, text: str = RIGHT, label: str = LABEL, max_length: int = 2000, n: int = 1
) -> list[dict[str, Any]]:
    """Return the outputs of the trainer's executor for `n` concurrent samples."""
    executor = SingleTurnAgentExecutor(endpoint)
    params = SimpleNamespace(max_tokens=len(RIGHT), logprobs=None)

    async def run() -> list[dict[str, Any]]:
        return await asyncio.gather(
            *[
                executor.execute(PROMPT, label, params, max_length, Characters(), Engine(text))
                for _ in range(n)
            ]
        )

    return asyncio.run(run())


class Server:
    """`rag-rewards serve` as a process."""

    def __init__(self, *arguments: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}/openrlhf"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rag_rewards", "serve", "--port", str(self.port), *arguments],
            stderr=subprocess.DEVNULL,
            env=os.environ,
        )

    def ready(self) -> Server:
        try:
            wait_for(self.is_ready)
        except BaseException:
            end(self.process)
            raise
        return self

    def is_ready(self) -> bool:
        url = self.url.replace("openrlhf", "health")
        try:
            urllib.request.urlopen(url, timeout=WAIT_SECONDS).close()  # noqa: S310
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        finish(self.process)


@pytest.fixture(scope="module")
def server() -> Any:
    running = Server("--recipe", "arena").ready()
    yield running
    running.stop()


def test_the_trainer_gets_reward_score_and_components(server: Server) -> None:
    right, wrong = run_executor(server.url)[0], run_executor(server.url, text="no")[0]
    assert (right["reward"], right["scores"], wrong["reward"]) == (13.0, 1.0, 0.0)
    assert right["extra_logs"]["bonus"] == 10.0
    assert all(isinstance(value, float) for value in right["extra_logs"].values())
    assert wrong["extra_logs"].keys() == right["extra_logs"].keys()


def test_a_prompt_truncated_on_the_left(server: Server) -> None:
    (output,) = run_executor(server.url, max_length=len(RIGHT) + len(PROMPT) - 12)
    assert len(output["observation_tokens"]) == len(RIGHT) + len(PROMPT) - 12
    assert output["reward"] == 13.0


def test_concurrent_requests(server: Server) -> None:
    assert {output["reward"] for output in run_executor(server.url, n=64)} == {13.0}


def test_the_server_accepts_a_token_in_the_url() -> None:
    os.environ["RAG_REWARDS_TOKEN"] = "s3cret"
    try:
        running = Server("--recipe", "arena").ready()
    finally:
        del os.environ["RAG_REWARDS_TOKEN"]
    try:
        url = running.url.replace("http://", "http://trainer:s3cret@")
        assert run_executor(url)[0]["reward"] == 13.0
    finally:
        running.stop()


def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer waits a second between its five attempts."""
    real = asyncio.sleep

    async def sleep(seconds: float, *rest: Any) -> Any:
        return await real(min(seconds, 0.1), *rest)

    monkeypatch.setattr(agent.asyncio, "sleep", sleep)


def test_without_an_error_value_the_trainer_has_no_reward(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_retries(monkeypatch)
    (output,) = run_executor(server.url, label="{}")
    assert output["reward"] is None  # the trainer ignores the error after five attempts


def test_with_an_error_value_the_trainer_continues() -> None:
    running = Server("-r", "arena", "--error-value", "-1").ready()
    try:
        (output,) = run_executor(running.url, label='{"answers": "Seine"}')
    finally:
        running.stop()
    assert (output["reward"], output["extra_logs"]["rag_rewards_error"]) == (-1.0, 1.0)
    assert math.isnan(output["extra_logs"]["accuracy"])


def test_a_restarted_server_is_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Server("--recipe", "arena").ready()
    first.stop(signal.SIGKILL)
    second: list[Server] = []
    real = asyncio.sleep

    async def restart(seconds: float, *rest: Any) -> Any:
        if seconds == 1 and not second:  # after the first attempt failed
            second.append(Server("--recipe", "arena", port=first.port).ready())
        return await real(min(seconds, 0.1), *rest)

    monkeypatch.setattr(agent.asyncio, "sleep", restart)
    try:
        (output,) = run_executor(first.url)
    finally:
        for server in second:
            server.stop()
    assert second
    assert output["reward"] == 13.0


def test_a_reward_file(tmp_path: Path) -> None:
    file = tmp_path / "rewards.py"
    file.write_text(
        "from rag_rewards_adapters.openrlhf import reward_function\n"
        'reward_func = reward_function(recipe="arena", settings={"bonus.value": 5})\n'
    )
    right, wrong = run_executor(str(file))[0], run_executor(str(file), text="no")[0]
    assert (right["reward"], wrong["reward"]) == (8.0, 0.0)
    assert right["extra_logs"].keys() == wrong["extra_logs"].keys()
