"""A real vLLM server on a CPU, with a tiny random model, against transformers.

It runs if RAG_REWARDS_VLLM_PYTHON is the path of a Python with vLLM (make_environment.sh).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from processes import WAIT_SECONDS, finish, free_port

from rag_rewards.evidence.protocols import GenerateRequest, ScoreRequest
from rag_rewards.models.limits import Limits
from rag_rewards.models.vllm import VllmServer

PYTHON = os.environ.get("RAG_REWARDS_VLLM_PYTHON")
HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(not PYTHON, reason="RAG_REWARDS_VLLM_PYTHON names no Python")


def environment():
    return {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("model"))
    subprocess.run(
        [sys.executable, HERE / "tiny_model.py", folder], check=True, timeout=WAIT_SECONDS
    )
    return folder


@pytest.fixture(scope="module")
def url(model, tmp_path_factory):
    port = free_port()
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    options = "--dtype float32 --enforce-eager --max-model-len 1024 --max-num-batched-tokens 1024"
    options += " --host 127.0.0.1"
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    with log.open("wb") as out:
        server = subprocess.Popen(
            [*command, "--port", str(port), *options.split()],
            stdout=out,
            stderr=out,
            env=environment(),
        )
        try:
            wait(f"http://127.0.0.1:{port}", server, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            finish(server)


def wait(url, server, log):
    ends = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < ends:
        if server.poll() is not None:
            break
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    pytest.fail(f"vLLM did not start:\n{log.read_text(errors='replace')[-3000:]}")


def group():
    """Return a group: a prompt of 700 tokens, two without a part of it, and 5 responses."""
    draw = random.Random(1)
    prompt = tuple(draw.randrange(2, 258) for _ in range(700))
    responses = tuple(tuple(draw.randrange(2, 258) for _ in range(48)) for _ in range(4))
    contexts = (prompt, prompt[:300] + prompt[400:], prompt[:500] + prompt[560:])
    return ScoreRequest(contexts, (*responses, responses[0]))


def reference(model, request):
    import torch
    from transformers import AutoModelForCausalLM

    causal = AutoModelForCausalLM.from_pretrained(model).eval()
    values = {}
    for c, r in request.wanted():
        context, response = request.contexts[c], request.responses[r]
        with torch.no_grad():
            logits = causal(torch.tensor([context + response])).logits[0]
        rows = logits[len(context) - 1 : -1].log_softmax(-1)
        values[c, r] = [rows[i, token].item() for i, token in enumerate(response)]
    return values


def furthest(values, expected):
    assert values.keys() == expected.keys()
    return max(
        abs(a - b) for pair in expected for a, b in zip(values[pair], expected[pair], strict=True)
    )


def policy(url, **options):
    return VllmServer(url, precision="float32", limits=Limits(timeout=120), **options)


def test_the_server_passes_its_selfcheck(url):
    asyncio.run(policy(url).selfcheck())


def test_values_are_those_of_transformers(url, model):
    request = group()
    expected = reference(model, request)
    plain = policy(url)
    assert plain.max_length == 1023
    assert plain.tokenizer.decode(plain.tokenizer.encode("Lyon")) == "Lyon"
    (answer,) = asyncio.run(plain.score([request]))
    assert furthest(answer.logprobs, expected) < 1e-4


def test_generation_is_that_of_transformers(url, model):
    import torch
    from transformers import AutoModelForCausalLM

    prompt = tuple(range(20, 60))
    causal = AutoModelForCausalLM.from_pretrained(model).eval()
    with torch.no_grad():
        made = causal.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)
    expected = tuple(made[0, len(prompt) :].tolist())
    unknown = GenerateRequest((5, 999_999))
    answer, refused = asyncio.run(
        policy(url).generate([GenerateRequest(prompt, max_tokens=12), unknown])
    )
    assert answer.token_ids == expected
    assert "out of vocabulary" in str(refused)


IN_PROCESS = """
import asyncio, json, sys
from rag_rewards.models.vllm import VllmEngine
from rag_rewards.evidence.protocols import ScoreRequest

async def main():
    engine = VllmEngine(sys.argv[1], dtype="float32", enforce_eager=True, max_model_len=1024,
                        max_num_batched_tokens=1024)
    await engine.selfcheck()
    request = ScoreRequest(*(tuple(map(tuple, part)) for part in json.load(sys.stdin)))
    answers = [(await engine.score([request]))[0] for _ in range(2)]
    rows = [[[*pair, list(values)] for pair, values in a.logprobs.items()] for a in answers]
    print("RESULT" + json.dumps(rows))

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_the_engine_in_another_process_agrees(model, tmp_path):
    request = group()
    script = tmp_path / "engine.py"  # vLLM starts workers, which import it again
    script.write_text(IN_PROCESS)
    done = subprocess.run(
        [PYTHON, script, model],
        input=json.dumps([request.contexts, request.responses]),
        capture_output=True,
        text=True,
        timeout=300,
        env=environment() | {"PYTHONPATH": str(HERE.parents[1])},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stderr[-3000:]
    result = json.loads(lines[0].removeprefix("RESULT"))
    expected = reference(model, request)
    for rows in result:
        assert furthest({(c, r): values for c, r, values in rows}, expected) < 1e-4
