"""A judge that fails at random, as a process of its own.

The question of a row ends with its verdict, such as "(case 17: 1)". The verdict of an answer is
always this one; all other answers are failures. During an outage, every answer is a failure.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from judge_server import JudgeServer, Reply, Request

FAULT_SHARE = 0.04
"""Share of failures outside of outages."""
HANG_SHARE = 5e-5
"""Share of requests without any response."""
OUTAGE_EVERY, OUTAGE_SECONDS = 90.0, 9.0
SERVER_FAULTS = (
    Reply(status=500),
    Reply(status=503, headers={"retry-after": "0.1"}),
    Reply(status=429, headers={"retry-after": "0.1"}),
    Reply(raw=b"<html>bad gateway</html>"),
    Reply(raw=b'{"choices": ['),
    Reply(raw=b""),
    Reply(cut=True),
    Reply(delay=0.5, status=502),
)
"""Faults after which a client sends the request again."""
VERDICT_FAULTS = (Reply(text="I cannot say."), Reply(text='{"explanation": "", "score": 7}'))
_VERDICT = re.compile(r"\(case \d+: ([01])\)")


class FaultyJudge:
    """The behaviour of the judge, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.started = time.monotonic()

    def __call__(self, request: Request) -> Reply:
        elapsed = time.monotonic() - self.started
        is_outage = elapsed % OUTAGE_EVERY > OUTAGE_EVERY - OUTAGE_SECONDS
        if is_outage or self.random.random() < FAULT_SHARE:
            return self._fault()
        if self.random.random() < HANG_SHARE:
            return Reply(hang=True)
        verdict = _VERDICT.findall(request.material)[0]
        return Reply(f'{{"explanation": "as the case says", "score": {verdict}}}')

    def _fault(self) -> Reply:
        return self.random.choice((*SERVER_FAULTS, *VERDICT_FAULTS))


class ForgetfulServer(JudgeServer):
    """A judge that stores no requests, so that it can run for days."""

    async def _read(self, reader: asyncio.StreamReader) -> Request | None:
        request = await super()._read(reader)
        self.requests.clear()
        return request


async def main(seed: int) -> None:
    server = ForgetfulServer(FaultyJudge(seed))
    serving = asyncio.ensure_future(server.serve())
    while not server._ready.is_set():
        await asyncio.sleep(0.01)
    print(server.url, flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
