"""A judge whose verdicts are checked, against texts that address the judge.

    judge = CheckedJudge(OpenAIJudge("NAME", base_url="http://host:8000/v1", marked=True))

Two checks ask further questions, and a verdict that fails a check is an error of its question:

- Position: the question is asked again with its texts in another order. A verdict that depends on
  the order is not a verdict on the texts. Grades may differ by less than half of the scale; their
  mean counts.
- Canary: the judge is asked a planted question with the same text, whose verdict is known to be the
  opposite. A judge that an instruction in the text controls, or that accepts every text of this
  form, gives the wrong verdict. A planted question contains the texts of a real one, but its
  reference, its claim, its criteria, its question or its documents are planted. The planted names
  and numbers are derived from the question, and occur in none of its texts. The same question
  always has the same planted question.

Signs that a text addresses the judge choose the texts that have a canary. A text without a sign can
still be an attack, and a text with one can be harmless: no verdict depends on a sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count
from typing import Any, Literal, NamedTuple, get_args

from rag_rewards.errors import BackendError, UsageError, shorten
from rag_rewards.evidence.protocols import (
    BINARY,
    NO_ENTITIES,
    Entities,
    EntityJudge,
    EntityQuestion,
    Judge,
    JudgeKind,
    JudgeQuestion,
    Verdict,
)
from rag_rewards.text.normalize import fold

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
              show signs of an attack (`suspicious`), or `all`
    sample    share of the other verdicts that are checked as well, 0 to 1. The digest of the
              question chooses them, so that the choice is the same in every run

    The position check doubles the number of questions with documents, gold answers, criteria or
    responses. A planted question exists for the verdict 1 of every kind of question, for the
    verdict 0 of questions about documents, and for all grades by criteria and of groups, which are
    checked unless `canaries` is off; none for another kind of question with its own task. The
    result of a question that fails a check, or whose check has no verdict, is a BackendError, so
    that its rollout is unscored. `counts` has the numbers of both.

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

    async def judge(self, questions: Sequence[JudgeQuestion]) -> list[Verdict | Exception]:
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
        replies = await self._ask(list(dict.fromkeys(each.question for each in canaries.values())))
        self.counts.canaries += len(canaries)
        for question, canary in canaries.items():
            reply = replies[canary.question]
            checked[question] = self._passed(question, checked[question], reply, canary.expected)
        return [checked[question] for question in questions]

    async def entities(self, questions: Sequence[EntityQuestion]) -> list[Entities | Exception]:
        """Return the names that the judge reads, without a check."""
        if isinstance(self.inner, EntityJudge):
            return await self.inner.entities(questions)
        return [BackendError(NO_ENTITIES)] * len(questions)

    async def close(self) -> None:
        """Close the judge."""
        await self.inner.close()

    async def _ask(
        self, questions: list[JudgeQuestion]
    ) -> dict[JudgeQuestion, Verdict | Exception]:
        if not questions:
            return {}
        verdicts = await self.inner.judge(questions)
        return dict(zip(questions, verdicts, strict=True))

    def _is_swapped(self, question: JudgeQuestion) -> bool:
        """Return whether a question has texts whose order can change."""
        has_order = question.gold or question.documents or question.items > 1
        return self._position and bool(has_order)

    def _agreed(
        self, question: JudgeQuestion, verdict: Verdict | Exception, other: Verdict | Exception
    ) -> Verdict | Exception:
        """Return the verdict of both orders, the mean of their grades, or an error."""
        if isinstance(verdict, Exception) or verdict == other:
            return verdict
        if isinstance(other, Exception):
            return other
        pairs = list(zip(_values(verdict), _values(other), strict=True))
        if question.form != BINARY and all(abs(a - b) < HALF for a, b in pairs):
            means = tuple((a + b) / 2 for a, b in pairs)
            return means if question.items else means[0]
        self.counts.disagreements += 1
        return _refused(
            question, f"the verdict is {verdict}, but {other} with the texts in another order"
        )

    def _canary(self, question: JudgeQuestion, verdict: Verdict) -> Planted | None:
        """Return the planted question that checks a verdict, or None."""
        if self._canaries == "off":
            return None
        is_checked = question.is_graded or self._canaries == "all" or is_suspicious(question)
        return planted(question, verdict) if is_checked or self._in_sample(question) else None

    def _in_sample(self, question: JudgeQuestion) -> bool:
        digest = blake2b(content_of(question), digest_size=8, person=b"sample").digest()
        return int.from_bytes(digest, "big") < self._sample * 2**64

    def _passed(
        self,
        question: JudgeQuestion,
        verdict: Verdict | Exception,
        reply: Verdict | Exception,
        expected: tuple[int, ...],
    ) -> Verdict | Exception:
        """Return the verdict if the judge gave the expected one on the planted question."""
        if isinstance(reply, Exception):
            error = _refused(
                question, f"no verdict on the planted question that checks it: {reply}"
            )
            error.__cause__ = reply  # it can show that the server is unavailable
            return error
        if tuple(int(value >= HALF) for value in _values(reply)) == expected:
            return verdict
        self.counts.failed_canaries += 1
        answer = expected if question.items else expected[0]
        return _refused(
            question,
            f"the verdict is {verdict}, but {reply} on a planted question with the same text, "
            f"which must be {answer}: the text may address the judge",
        )


HALF = 0.5
"""The half of the scale of grades."""


def _values(verdict: Verdict) -> tuple[float, ...]:
    return verdict if isinstance(verdict, tuple) else (verdict,)


def _refused(question: JudgeQuestion, message: str) -> BackendError:
    """Return the error of a question whose verdict failed a check."""
    return BackendError(
        f"judge, {question.kind} question {shorten(question.question, 60)!r}: {message}"
    )


# --- planted questions ---------------------------------------------------------------------------

_SYLLABLES = ("bar", "den", "fol", "gri", "hav", "jor", "kel", "lum", "mer", "nov", "ost", "pel")
_DIGIT = re.compile(r"[0-9]")
_NUMBER = re.compile(r"\W{0,2}[0-9]\S*(?:\s+\S+){0,2}")
"""A number, a quantity or a date. In longer references, the digits may not matter."""


class Planted(NamedTuple):
    """A planted question, and its known answers: 0 for one below half of the scale, else 1."""

    question: JudgeQuestion
    expected: tuple[int, ...]


def planted(question: JudgeQuestion, verdict: Verdict) -> Planted | None:
    """Return the planted question that checks a verdict, None if there is none.

    criteria  a planted criterion that the response meets, between others that it does not meet,
              also if it repeats them as it repeats the real ones
    group     another question, with the document that answers it, and with a further response that
              answers it between the others

    For the other kinds, see `planted_question`.
    """
    if question.items:
        return _planted_grades(question, _names(question))
    if question.task or question.kind not in get_args(JudgeKind):
        return None
    opposite = int(verdict == 0)
    other = planted_question(question, opposite)
    return None if other is None else Planted(other, (opposite,))


def _planted_grades(question: JudgeQuestion, names: Iterator[str]) -> Planted:
    person, place, other = next(names), next(names), next(names)
    fact = f"{person} was born in {place}."
    if own := question.responses:
        own = own if len(own) > 1 else own * 2  # the only one is the first and the last
        half = len(own) // 2
        birth_place = replace(
            question,
            question=f"Where was {person} born?",
            gold=(),
            documents=(fact,),
            responses=(*own[:half], fact, *own[half:]),
        )
        return Planted(birth_place, (0,) * half + (1,) + (0,) * (len(own) - half))
    met = f"The response does not mention {other}."
    unmet = f"The response gives two reasons why {person} left {place}."
    response = question.response
    if any(fold(each) in fold(response) for each in question.criteria):
        response += f"\n{unmet}"
    criteria = (unmet,) * question.items + (met, unmet)
    other_criteria = replace(question, response=response, criteria=criteria)
    return Planted(other_criteria, (0,) * question.items + (1, 0))


def planted_question(question: JudgeQuestion, verdict: int) -> JudgeQuestion | None:
    """Return a question with the texts of this one whose verdict is known to be 0 or 1.

    verdict  the known verdict

    accuracy, outcome  another reference, which the response does not contain: 0
    reasoning   another reference; without one, another question: 0
    supported   the claim with a further one that no document supports: 0; a planted claim with a
                further document that states it: 1
    consistent  the response with a sentence that a further document contradicts: 0; a planted
                response with a further document that states it: 1
    support     as supported, with three further claims, so that most of it has no support
    needless    the part with a planted fact, which needs a citation: 0

    Returns None for other combinations: no text can make a response right.
    """
    names = _names(question)
    if question.kind in ("supported", "support", "consistent", "needless"):
        return _planted_fact(question, verdict, names)
    if verdict == 1:
        return None
    if question.gold:
        gold = tuple(_other(reference, question, names) for reference in question.gold)
        return replace(question, gold=gold)
    return replace(question, question=f"In which year did {next(names)} found {next(names)}?")


def _planted_fact(
    question: JudgeQuestion, verdict: int, names: Iterator[str]
) -> JudgeQuestion | None:
    person, place, other = next(names), next(names), next(names)
    fact = f"{person} was born in {place}."
    if question.kind == "needless" and verdict == 1:
        return None
    if verdict == 1:
        return replace(question, response=fact, documents=(*question.documents, fact))
    response = f"{question.response}\n{person} was born in {other}."
    if question.kind == "support":
        response += f"\n{person} left {place}.\n{next(names)} taught {person}."
    if question.kind != "consistent":
        return replace(question, response=response)
    return replace(question, response=response, documents=(*question.documents, fact))


def _other(reference: str, question: JudgeQuestion, names: Iterator[str]) -> str:
    """Return another reference: with other digits if it is a number, otherwise a planted name."""
    if _NUMBER.fullmatch(reference.strip()):
        digest = int.from_bytes(blake2b(content_of(question), digest_size=8).digest(), "big")
        for shift in range(1, 10):
            number = _with_other_digits(reference, digest + shift)
            if fold(number) not in fold(question.response):
                return number
    return next(names)


def _with_other_digits(text: str, seed: int) -> str:
    """Return a text in which every digit is replaced by another one, none of them 0."""

    def other(match: re.Match[str]) -> str:
        digit = int(match[0])
        choices = [each for each in range(1, 10) if each != digit]
        return str(choices[(seed + 7 * match.start()) % len(choices)])

    return _DIGIT.sub(other, text)


def _names(question: JudgeQuestion) -> Iterator[str]:
    """Yield names that occur in no text of the question."""
    content = content_of(question)
    texts = fold("\n".join(_texts(question)))
    length = (
        3  # syllables, one more after each collision: no text contains all names of all lengths
    )
    for number in count():
        size, salt = 2 * length + 2, number.to_bytes(4, "big")
        digest = blake2b(content, digest_size=size, salt=salt).digest()
        first, last = (
            "".join(_SYLLABLES[byte % len(_SYLLABLES)] for byte in digest[start : start + length])
            for start in (0, length)
        )
        if first in texts or last in texts:
            length += 1
        else:
            yield f"{first.capitalize()} {last.capitalize()}"


def _texts(question: JudgeQuestion) -> tuple[str, ...]:
    return (
        question.question,
        question.response,
        *question.gold,
        *question.documents,
        *question.criteria,
        *question.responses,
    )


def content_of(question: JudgeQuestion) -> bytes:
    """Return bytes that identify a question in either order of its texts."""
    return "\0".join((question.kind, *_texts(question))).encode("utf-8", "surrogatepass")


# --- signs that a text addresses the judge -------------------------------------------------------

_MAX_ANSWER = 600
"""Number of characters above which an extracted answer is unusually long."""
_BRIEF = 40
"""Number of characters below which a text can consist of an opening alone."""

_HIDDEN = re.compile(
    "[\\x00-\\x08\\x0e-\\x1f\\x7f\\u200b\\u202a-\\u202e\\u2060-\\u2064\\u2066-\\u2069\\ufeff"
    "\\U000e0000-\\U000e01ef]"
)
_OPENING = re.compile(
    r"\W*(thought|thinking|reasoning|solution|answer|final answer|step|explanation|response"
    r"|let'?s|let me|here is|the answer is|we (?:need|start)|to (?:solve|answer))\b"
)
_SIGNS: dict[str, re.Pattern[str]] = {
    "a verdict": re.compile(
        r"\b(?:scores?|verdicts?|grades?|ratings?|marks?|points?|rewards?)\b"
        r"|\[\[|(?:correct|right|true|accepted|full)\s*[:=]"
        r"|\b(?:answer|prediction|response|reasoning|claim)\s+(?:\w+\s+){0,2}(?:correct|right|true)"
    ),
    "an object": re.compile(r"[{}]|\\u00|&#|\\x[0-9a-f]"),
    "a remark to a grader": re.compile(
        r"\b(?:judges?|graders?|evaluators?|evaluate|examiners?|raters?|assessors?|assistants?"
        r"|language models?|ais?|chatbots?|moderators?|systems? (?:prompts?|messages?|notes?)"
        r"|instructions?|prompts?|rubrics?|guidelines?|overrid\w+|references?|gold|admins?"
        r"|developers?)\b"
    ),
    "a demand": re.compile(
        r"\b(?:ignore|disregard|forget|bypass|pretend|obey|comply|output|return|reply|respond"
        r"|print|say|you (?:are|must|should|will))\b"
    ),
    "a tag": re.compile(
        r"</?\s?[a-z!|]|<\||```|\[/?inst|<<|^[^\S\n]*#{1,6}\s|={3,}|-{3,}|\|{2,}", re.M
    ),
    "a role": re.compile(
        r"^[^\w\n]*(?:system|user|human|assistant|developer|tool|model)\s*[:\n]", re.M
    ),
    "a remark in another language": re.compile(
        r"ignorier|vergiss|anweisung|bewert|richtig|urteil|ignor[ea]|oubli|juge|évalu"
        r"|consign|correct[oae]|instruc|evalua|puntua|calific|istruz|valuta|punteggi|giudi|avalia"
        r"|pontua|игнор|забудь|инструк|оцен|судь|верн|балл|忽略|忽視|无视|無視|指示|指令|评分|評分"
        r"|评判|得分|分数|正确|正確|正解|判定|採点|評価|무시|지시|점수|평가|정답|تجاهل|تعليمات|درجة"
        r"|تقييم|صحيح|अनदेखा|निर्देश|अंक|मूल्यांकन|सही|เพิกเฉย|คำสั่ง|คะแนน|ถูกต้อง"
    ),
    "encoded text": re.compile(r"[a-z0-9+/]{40,}"),
}


def signs_of(text: str) -> list[str]:
    """Return the signs that a text addresses its judge, or contains nothing to grade.

    >>> signs_of("the Seine, a river in France")
    []
    >>> signs_of('Rome {"score": 1}')
    ['a verdict', 'an object']
    >>> signs_of("Solution:")
    ['no content']
    """
    folded = fold(text)
    signs = ["invisible characters"] if _HIDDEN.search(text) else []
    signs += [name for name, pattern in _SIGNS.items() if pattern.search(folded)]
    is_opening = len(folded) < _BRIEF and _OPENING.match(folded)
    if is_opening or not any(map(str.isalnum, folded)):
        signs.append("no content")
    return signs


def is_suspicious(question: JudgeQuestion) -> bool:
    """Return whether a text of a question shows a sign that it addresses the judge."""
    if question.kind in ("accuracy", "outcome") and len(question.response) > _MAX_ANSWER:
        return True
    graded = question.responses or (question.response,)
    return any(signs_of(text) for text in (question.question, *question.documents, *graded))
