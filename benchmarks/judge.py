"""How fast verdicts come: 1,000 questions to a local server that answers after 50 ms.

    python benchmarks/judge.py            # 64 requests at a time; targets: 2 s, from cache 0.5 s
    python benchmarks/judge.py --openai   # the bare openai library on the same requests, to compare

The server is another process on the same machine. 1,000 answers of 50 ms, 64 at a time, take 0.8 s
where neither side needs any time of its own.
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

from rag_rewards.backends.judge_prompts import judge_messages
from rag_rewards.backends.openai import OpenAIJudge
from rag_rewards.evidence.protocols import JudgeQuestion

SERVER = Path(__file__).resolve().parents[1] / "tests" / "backends" / "judge_server.py"


def questions(count: int) -> list[JudgeQuestion]:
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


def ask(judge: OpenAIJudge, asked: list[JudgeQuestion], name: str) -> None:
    before = judge.usage
    start, cpu = time.perf_counter(), time.process_time()
    answers = asyncio.run(judge.judge(asked))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    assert answers == [1] * len(asked), next(a for a in answers if a != 1)
    after = judge.usage
    show(name, len(asked), seconds, cpu, after.requests - before.requests)


def show(name: str, count: int, seconds: float, cpu: float, requests: int) -> None:
    print(
        f"{name:22} {count} verdicts: {seconds:5.2f} s ({cpu:.2f} s of this process), "
        f"{requests} requests"
    )


async def bare_openai(url: str, asked: list[JudgeQuestion], concurrency: int) -> None:
    import openai

    slots = asyncio.Semaphore(concurrency)
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:

        async def one(question: JudgeQuestion) -> None:
            async with slots:
                await client.chat.completions.create(
                    model="judge", messages=judge_messages(question), max_tokens=1024, temperature=0
                )

        await asyncio.gather(*map(one, asked))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--openai", action="store_true")
    given = parser.parse_args()
    asked = questions(given.count)
    print(f"{os.cpu_count()} CPUs, Python {platform.python_version()}")
    with serving(given.latency) as url, tempfile.TemporaryDirectory() as folder:
        judge = OpenAIJudge(
            "judge",
            base_url=url,
            concurrency=given.concurrency,
            cache=Path(folder) / "verdicts.sqlite",
        )
        ask(judge, asked, "asked")
        ask(judge, asked, "from the cache")
        if given.openai:
            start, cpu = time.perf_counter(), time.process_time()
            asyncio.run(bare_openai(url, asked, given.concurrency))
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
            show("bare openai library", len(asked), seconds, cpu, len(asked))


if __name__ == "__main__":
    main()
