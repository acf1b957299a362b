"""A judge whose verdicts are checked, against texts that address the judge.

    judge = CheckedJudge(OpenAIJudge("NAME", base_url="http://host:8000/v1", marked=True))

Two checks ask further questions, and a verdict that fails a check is an error of its question:

- Position: the question is asked again with its texts in another order. A verdict that depends on
  the order is not a verdict on the texts.
- Canary: the judge is asked a planted question with the same text, whose verdict is known to be
  the opposite (`planted_questions`). A judge that an instruction in the text controls, or that
  accepts every text of this form, gives the wrong verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal

from rag_rewards.errors import BackendError, UsageError, shorten
from rag_rewards.evidence.protocols import (
    NO_ENTITIES,
    Entities,
    EntityJudge,
    EntityQuestion,
    Judge,
    JudgeQuestion,
)
from rag_rewards.models.planted_questions import content_of, planted_question
from rag_rewards.models.suspicious_texts import is_suspicious

Canaries = Literal["off", "suspicious", "all"]


@dataclass
class CheckCounts:
    """The number of questions that the checks asked, and of the verdicts that they refused.

    positions, canaries  questions of the two checks
    disagreements        verdicts that depend on the order of the texts
    failed_canaries      verdicts of a judge that gave the wrong verdict on the planted question
    """

    positions: int = 0
    canaries: int = 0
    disagreements: int = 0
    failed_canaries: int = 0

    @property
    def refused(self) -> int:
        """The number of verdicts that failed a check."""
        return self.disagreements + self.failed_canaries


class CheckedJudge:
    """A judge (the protocol `Judge`) that checks the verdicts of another one.

    judge     the judge that is asked
    position  whether each question is asked in both orders of its texts
    canaries  which verdicts are checked by a planted question: none (`off`), those on texts that
              show signs of an attack (`suspicious`, see `suspicious_texts`), or `all`
    sample    share of the other verdicts that are checked as well, 0 to 1. The digest of the
              question chooses them, so that the choice is the same in every run

    The position check doubles the number of questions with documents or gold answers. A planted
    question exists for the verdict 1 of every kind of question, and for the verdict 0 of questions
    about documents. The result of a question that fails a check, or whose check has no verdict, is
    a BackendError, so that its rollout is unscored. `counts` has the numbers of both.

    Names that a judge reads (`entities`) are not checked.

    Raises UsageError for invalid arguments.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        position: bool = True,
        canaries: Canaries = "suspicious",
        sample: float = 0.05,
    ) -> None:
        if canaries not in ("off", "suspicious", "all"):
            raise UsageError(f"canaries must be off, suspicious or all, found {canaries!r}")
        if not 0 <= sample <= 1:
            raise UsageError(f"sample must be from 0 to 1, found {sample}")
        self.inner = judge
        self.counts = CheckCounts()
        self._position, self._canaries, self._sample = position, canaries, sample

    def __repr__(self) -> str:
        return f"<CheckedJudge {self.fingerprint}>"

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the judge, with the checks: "… checks=position,suspicious,0.05"."""
        checks = ["position"] if self._position else []
        if self._canaries != "off":
            checks += [self._canaries, f"{self._sample:g}"]
        return f"{self.inner.fingerprint} checks={','.join(checks) or 'none'}"

    @property
    def usage(self) -> Any:
        """The requests and the cost of the judge, if it counts them."""
        return getattr(self.inner, "usage", None)

    @property
    def health(self) -> Any:
        """The health of the server of the judge, if it has one."""
        return getattr(self.inner, "health", None)

    async def judge(self, questions: Sequence[JudgeQuestion]) -> list[int | Exception]:
        """Return a checked verdict or an error for each question, in order."""
        distinct = list(dict.fromkeys(questions))
        swapped = {q: replace(q, swapped=not q.swapped) for q in distinct if self._is_swapped(q)}
        verdicts = await self._ask([*distinct, *swapped.values()])
        self.counts.positions += len(swapped)
        checked = {q: self._agreed(q, verdicts[q], verdicts[swapped.get(q, q)]) for q in distinct}
        canaries = {
            question: canary
            for question, verdict in checked.items()
            if not isinstance(verdict, Exception)
            and (canary := self._canary(question, verdict)) is not None
        }
        replies = await self._ask(list(dict.fromkeys(canaries.values())))
        self.counts.canaries += len(canaries)
        for question, canary in canaries.items():
            checked[question] = self._passed(question, checked[question], replies[canary])
        return [checked[question] for question in questions]

    async def entities(self, questions: Sequence[EntityQuestion]) -> list[Entities | Exception]:
        """Return the names that the judge reads, without a check."""
        if isinstance(self.inner, EntityJudge):
            return await self.inner.entities(questions)
        return [BackendError(NO_ENTITIES)] * len(questions)

    async def close(self) -> None:
        """Close the judge."""
        await self.inner.close()

    async def _ask(self, questions: list[JudgeQuestion]) -> dict[JudgeQuestion, int | Exception]:
        if not questions:
            return {}
        verdicts = await self.inner.judge(questions)
        return dict(zip(questions, verdicts, strict=True))

    def _is_swapped(self, question: JudgeQuestion) -> bool:
        """Return whether a question has texts whose order can change."""
        return self._position and bool(question.gold or question.documents)

    def _agreed(
        self, question: JudgeQuestion, verdict: int | Exception, other: int | Exception
    ) -> int | Exception:
        """Return the verdict of both orders, or an error."""
        if isinstance(verdict, Exception) or verdict == other:
            return verdict
        if isinstance(other, Exception):
            return other
        self.counts.disagreements += 1
        return _refused(
            question, f"the verdict is {verdict}, but {other} with the texts in another order"
        )

    def _canary(self, question: JudgeQuestion, verdict: int) -> JudgeQuestion | None:
        """Return the planted question that checks a verdict, or None."""
        if self._canaries == "off":
            return None
        is_checked = self._canaries == "all" or is_suspicious(question) or self._in_sample(question)
        return planted_question(question, 1 - verdict) if is_checked else None

    def _in_sample(self, question: JudgeQuestion) -> bool:
        digest = blake2b(content_of(question), digest_size=8, person=b"sample").digest()
        return int.from_bytes(digest, "big") < self._sample * 2**64

    def _passed(
        self, question: JudgeQuestion, verdict: int | Exception, reply: int | Exception
    ) -> int | Exception:
        """Return the verdict if the judge gave the opposite one on the planted question."""
        if isinstance(reply, Exception):
            error = _refused(
                question, f"no verdict on the planted question that checks it: {reply}"
            )
            error.__cause__ = reply  # it can show that the server is unavailable
            return error
        if reply != verdict:
            return verdict
        self.counts.failed_canaries += 1
        return _refused(
            question,
            f"the verdict is {verdict}, and so is the one on a planted question with the same "
            f"text, which must be {1 - reply}: the text may address the judge",
        )


def _refused(question: JudgeQuestion, message: str) -> BackendError:
    """Return the error of a question whose verdict failed a check."""
    return BackendError(
        f"judge, {question.kind} question {shorten(question.question, 60)!r}: {message}"
    )
