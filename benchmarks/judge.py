"""Measure the time of 1,000 questions to a local judge that answers after 50 ms.

    python benchmarks/judge.py            # 64 requests at a time; targets: 2 s, from cache 0.5 s
    python benchmarks/judge.py --openai   # also the openai library without the judge

The server is another process on the same machine. 1,000 answers of 50 ms, 64 at a time, take at
least 0.8 s.
"""

import argparse
import asyncio
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.models.judge_prompts import judge_messages
from rag_rewards.models.openai import OpenAIJudge

SERVER = Path(__file__).resolve().parents[1] / "tests" / "models" / "judge_server.py"


def make_questions(count: int) -> list[JudgeQuestion]:
    kinds = ("accuracy", "outcome", "reasoning")
    thinking = "The second document names the year, the first one the place. " * 20
    return [
        JudgeQuestion(kinds[i % 3], f"Where was number {i} built?", f"{thinking}{i}", (f"{i}",))
        for i in range(count)
    ]


@contextmanager
def serving(delay: float) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, str(SERVER), "--delay", str(delay)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def measure(judge: OpenAIJudge, questions: list[JudgeQuestion], name: str) -> None:
    before = judge.usage
    start, cpu = time.perf_counter(), time.process_time()
    answers = asyncio.run(judge.judge(questions))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    assert answers == [1] * len(questions), next(a for a in answers if a != 1)
    after = judge.usage
    show(name, len(questions), seconds, cpu, after.requests - before.requests)


def show(name: str, count: int, seconds: float, cpu: float, requests: int) -> None:
    print(
        f"{name:22} {count} verdicts: {seconds:5.2f} s ({cpu:.2f} s of this process), "
        f"{requests} requests"
    )


async def call_openai(url: str, questions: list[JudgeQuestion], concurrency: int) -> None:
    import openai

    slots = asyncio.Semaphore(concurrency)
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:

        async def one(question: JudgeQuestion) -> None:
            async with slots:
                await client.chat.completions.create(
                    model="judge", messages=judge_messages(question), max_tokens=1024, temperature=0
                )

        await asyncio.gather(*map(one, questions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--openai", action="store_true")
    options = parser.parse_args()
    questions = make_questions(options.count)
    print(f"{os.cpu_count()} CPUs, Python {platform.python_version()}")
    with serving(options.latency) as url, tempfile.TemporaryDirectory() as folder:
        judge = OpenAIJudge(
            "judge",
            base_url=url,
            concurrency=options.concurrency,
            cache=Path(folder) / "verdicts.sqlite",
        )
        measure(judge, questions, "from the server")
        measure(judge, questions, "from the cache")
        if options.openai:
            start, cpu = time.perf_counter(), time.process_time()
            asyncio.run(call_openai(url, questions, options.concurrency))
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
            show("openai library", len(questions), seconds, cpu, len(questions))


if __name__ == "__main__":
    main()
