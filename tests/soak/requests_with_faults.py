"""Requests with random faults, and the responses that they must receive."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import rag_rewards as rr
from rag_rewards import Score, decode_row
from rag_rewards.scorer import Scorer

Row = dict[str, Any]
ROWS = 500
"""Number of different rows of each recipe."""
WORDS = "river bridge Seine Paris museum opera harbour railway ﬁnal naïve 東京 ㍿ Zoë".split()


@dataclass(frozen=True)
class Case:
    """A row, and the reward that the library computes for it in this process."""

    row: Row
    reward: float


@dataclass(frozen=True)
class Planned:
    """A request: the bytes to send, and what must come back.

    parts     bytes with pauses between them
    statuses  the permitted statuses; empty if the client closes the connection before the response
    rewards   rewards of a response with status 200; None for a row without a reward
    may_close  whether the server may close the connection without a response
    """

    kind: str
    parts: tuple[bytes, ...]
    statuses: frozenset[int] = frozenset({200})
    rewards: tuple[float | None, ...] = ()
    may_close: bool = False


def cases(recipe: str, seed: int) -> list[Case]:
    """Return rows of a recipe with their rewards. Those of `truthrl` have verdicts only here."""
    rng = random.Random(f"{recipe} {seed}")
    make = {"arena": _arena_row, "truthrl": _truthrl_row}[recipe]
    scorer = Scorer(rr.recipe(recipe))
    results = []
    for i in range(ROWS):
        row, verdict = make(rng, i)
        informed = row | ({} if verdict is None else {"verdicts": {"outcome": verdict}})
        (score,) = scorer.score_each([decode_row(informed)])
        assert isinstance(score, Score)
        assert score.value is not None
        results.append(Case(row, score.value))
    return results


def _arena_row(rng: random.Random, i: int) -> tuple[Row, None]:
    text = " ".join(rng.choices(WORDS, k=rng.randrange(5, 200)))
    answer = rng.choice(["Seine", "the Seine", "Thames", "", text[:40]])
    cited = rng.choice(["[1]", "[2]", "[1][2]", "[9]", ""])
    response = rng.choice(
        [
            f"<relevance>{cited}</relevance><analysis>{text}</analysis><answer>{answer}</answer>",
            f"<answer>{answer}</answer> {text}",
            text,
        ]
    )
    return {
        "id": i,
        "question": f"Which river runs through Paris ({i})?",
        "documents": [{"id": k, "text": text[: 50 * k]} for k in (1, 2, 3)],
        "supporting": rng.sample([1, 2, 3], rng.randrange(1, 3)),
        "answers": ["Seine", "the Seine"],
        "response": response,
    }, None


def _truthrl_row(rng: random.Random, i: int) -> tuple[Row, int | None]:
    """Half of the rows need the judge, because the answer differs from the gold answer."""
    needs_judge, verdict = rng.random() < 0.5, rng.randrange(2)
    answer = f"the year of the comet {i}" if needs_judge else f"{2000 + i}"
    return {
        "question": f"In which year will the comet return? (case {i}: {verdict})",
        "answers": [f"{2000 + i}"],
        "response": f"{rng.choice(WORDS)} \\boxed{{{answer}}}",
    }, verdict if needs_judge else None


class Plan:
    """Chooses requests at random.

    cases     rows with their rewards
    is_judged  whether a judge can fail, so that 503 and 504 are permitted
    """

    def __init__(self, cases: Sequence[Case], *, is_judged: bool, seed: int) -> None:
        self.cases, self.random = cases, random.Random(seed)
        self.statuses = frozenset({200, 503, 504} if is_judged else {200})
        self._makers: list[tuple[float, Callable[[], Planned]]] = [
            (78.0, self._one),
            (8.0, self._several),
            (2.0, self._with_unscored),
            (2.0, self._broken_json),
            (2.0, self._wrong_type),
            (2.0, self._closed_in_the_body),
            (1.5, self._closed_before_the_response),
            (1.5, self._slow_body),
            (1.0, self._long_head),
            (0.5, self._no_http),
            (0.5, self._text),
            (0.5, self._unknown_route),
            (0.5, self._unknown_field),
        ]
        self._weights = [weight for weight, _ in self._makers]

    def next(self) -> Planned:
        """Return the next request."""
        ((_, make),) = self.random.choices(self._makers, self._weights)
        return make()

    def _one(self) -> Planned:
        case = self.random.choice(self.cases)
        return self._valid("one row", [case.row], (case.reward,))

    def _several(self) -> Planned:
        chosen = self.random.choices(self.cases, k=self.random.randrange(2, 9))
        # An id of its own for each row: rows with one question would form a group.
        rows = [case.row | {"group": i} for i, case in enumerate(chosen)]
        return self._valid("several rows", rows, tuple(case.reward for case in chosen))

    def _with_unscored(self) -> Planned:
        case = self.random.choice(self.cases)
        rows = [{"response": "x", "supporting": [], "group": "a"}, case.row | {"group": "b"}]
        return self._valid("a row without gold answers", rows, (None, case.reward))

    def _valid(self, kind: str, rows: list[Row], rewards: tuple[float | None, ...]) -> Planned:
        body = json.dumps({"rollouts": rows}, ensure_ascii=False).encode()
        return Planned(kind, (http(body),), self.statuses, rewards)

    def _broken_json(self) -> Planned:
        body = self._body()
        cut = self.random.randrange(1, len(body))
        return Planned("broken JSON", (http(body[:cut]),), frozenset({400, 422}))

    def _wrong_type(self) -> Planned:
        body = json.dumps({"rollouts": [{"response": 3}]}).encode()
        return Planned("a field of the wrong type", (http(body),), frozenset({422}))

    def _unknown_field(self) -> Planned:
        body = json.dumps({"rollouts": [], "module": "os"}).encode()
        return Planned("an unknown field", (http(body),), frozenset({422}))

    def _closed_in_the_body(self) -> Planned:
        request = http(self._body())
        head = request.index(b"\r\n\r\n") + 4
        cut = self.random.randrange(head, len(request))
        return Planned("closed in the body", (request[:cut],), frozenset())

    def _closed_before_the_response(self) -> Planned:
        return Planned("closed before the response", (http(self._body()),), frozenset())

    def _slow_body(self) -> Planned:
        planned = self._one()
        (request,) = planned.parts
        third = len(request) // 3
        parts = (request[:third], request[third : 2 * third], request[2 * third :])
        return replace(planned, kind="a slow body", parts=parts)

    def _long_head(self) -> Planned:
        field = "X-Long: " + "x" * self.random.randrange(70_000, 200_000)
        refused = frozenset({400, 431})
        return Planned("a long head", (http(self._body(), field),), refused, may_close=True)

    def _no_http(self) -> Planned:
        data = bytes(self.random.randrange(256) for _ in range(60)) + b"\r\n\r\n"
        return Planned("no HTTP", (data,), frozenset({400}), may_close=True)

    def _text(self) -> Planned:
        request = http(self._body()).replace(b"application/json", b"text/plain")
        return Planned("another content type", (request,), frozenset({415}))

    def _unknown_route(self) -> Planned:
        request = http(self._body()).replace(b"POST /score", b"POST /nowhere")
        return Planned("an unknown route", (request,), frozenset({404}))

    def _body(self) -> bytes:
        row = self.random.choice(self.cases).row
        return json.dumps({"rollouts": [row]}, ensure_ascii=False).encode()


def http(body: bytes, *fields: str) -> bytes:
    """Return a POST to /score."""
    lines = [
        "POST /score HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *fields,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
