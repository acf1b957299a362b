"""Contradictions between a response and the documents of a rollout (Binary RAR)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from rag_rewards.errors import DataError
from rag_rewards.evidence.judge_needs import VerdictNeed
from rag_rewards.evidence.needs import ContradictionNeed, Need
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.matching.mentions import stated_answers
from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.refusal import RefusalDetector
from rag_rewards.rewards.search import REPEATED_ANSWER, RepeatedAnswer, answer_of, details_of
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.bm25 import best_matches
from rag_rewards.text.citations import compiled, markers, strip_markers
from rag_rewards.text.hidden import shown
from rag_rewards.text.lengths import chunks
from rag_rewards.text.normalize import squad
from rag_rewards.text.statements import sentences, statements
from rag_rewards.turns.actions import read_own_words, visible_words
from rag_rewards.turns.trajectory import READING, Reading, Trajectory

_CODE = "Binary RAR, released code at d97ea69: train.py"
_METHOD = "Binary RAR, released code at d97ea69: method.md"
QueryBy = Literal["response", "question+response"]
Unverified = Literal["verifier", 0]
"""Whether a verifier decides on a response, or the response gets 0."""
_MARKER = compiled()
_NO_STATEMENT = ("?", "？", "؟", ":", "：")
_MARKS = " \t\n…*_\"'”’»)]"


def response_text(run: Trajectory) -> str:
    """Return the words of the last turn without thinking, queries and tags.

    >>> from rag_rewards.turns.trajectory import read_trajectory
    >>> response_text(read_trajectory("<think>Hm.</think> <answer>Paris</answer>"))
    'Paris'
    """
    text = visible_words(run.turns[-1].text)
    pieces, at = [], 0
    for action in read_own_words(text, run.dialect).actions:
        if not action.is_answer:
            pieces.append(text[at : action.start])
            at = action.end
    pieces.append(text[at:])
    return run.dialect.pattern.sub(" ", " ".join(pieces)).strip()


def has_statement(text: str) -> bool:
    """Return whether a sentence of a text has a word and is neither a question nor a heading.

    >>> has_statement("Paris"), has_statement("Solution:"), has_statement("Where? …")
    (True, False, False)
    """
    return any(
        any(map(str.isalnum, sentence)) and not sentence.rstrip(_MARKS).endswith(_NO_STATEMENT)
        for sentence in sentences(text)
    )


@dataclass(frozen=True)
@check_choices
class Consistency(RolloutReward):
    """1 if no document contradicts the response, else 0.

    The documents of the row, or else all results, are cut into chunks. The chunks that are most
    relevant to the query under BM25 are compared with the words of the last turn.

    answer   exact match for `correct`, which is None for a row without gold answers
    reading  how turns are read

    Raises DataError for a row without documents and results, or without required evidence. Source:
    Binary RAR, released code at d97ea69; `nli` is not part of it.
    """

    by: Annotated[
        Literal["judge", "nli"],
        about(
            "verifier; judge: a verdict on the response and all chunks; nli: an entailment model "
            "with contradictions on each sentence and chunk",
            f"{_CODE}: judge",
        ),
    ] = "judge"
    threshold: Annotated[
        float,
        about(
            "with by=nli, probability from which a chunk contradicts a sentence",
            "ours: contradiction is more probable than the other classes together",
            ge=0,
            le=1,
        ),
    ] = 0.5
    chunk_words: Annotated[
        int, about("number of words of a chunk", f"{_METHOD}: 512 tokens", ge=1)
    ] = 512
    chunks: Annotated[
        int, about("number of chunks that are compared with the response", _METHOD, ge=1)
    ] = 8
    query_by: Annotated[
        QueryBy,
        about(
            "query of BM25, which selects the chunks (k1 1.5, b 0.75)",
            f"{_CODE}: response; {_METHOD}: question+response",
        ),
    ] = "response"
    truncated: Annotated[
        Unverified,
        about("0: a response that a limit ended gets 0; verifier: the verifier decides", _CODE),
    ] = 0
    empty: Annotated[
        Unverified,
        about(
            "0: a response without a statement gets 0, and so does, unless the row is marked as "
            "unanswerable, a refusal or a response that states no gold answer of the row; "
            "verifier: the verifier decides",
            f"{_CODE}: verifier",
        ),
    ] = "verifier"
    answer: AnswerMatch = AnswerMatch("answer", metric="exact")
    reading: Reading = READING
    repeated: Annotated[RepeatedAnswer, about(*REPEATED_ANSWER, key="repeated_answer")] = "last"
    name: str = "consistent"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        run = rollout.trajectory(self.reading)
        text = response_text(run)
        pool = self._pool(rollout, run)
        if self._is_unverified(rollout, run, text, pool):
            return []
        best = self._best(rollout, text, pool)
        if self.by == "nli":
            return list(_contradiction_needs(best, text))
        question = JudgeQuestion(
            "consistent", rollout.question or "", text, (), tuple(best), rollout.query_time
        )
        return [VerdictNeed(self.name, (question,))]

    def score(self, rollout: Rollout) -> Score:
        run = rollout.trajectory(self.reading)
        text = response_text(run)
        pool = self._pool(rollout, run)
        reason = self._is_unverified(rollout, run, text, pool)
        consistent = 0.0 if reason else self._verified(rollout, text, pool)
        details: dict[str, Any] = details_of(run, text, {})
        if reason:
            details["not_verified"] = reason
        correct, decision = self._correct(rollout, run, text)
        return Score(consistent, {}, correct, details | decision)

    def _pool(self, rollout: Rollout, run: Trajectory) -> list[str]:
        """Return the chunks of the documents, each with the title of its document."""
        pool: list[str] = []
        for document in rollout.documents or run.results:
            parts = chunks(document.text, self.chunk_words)
            title = f"{document.title}\n" if document.title else ""
            pool += [title + part for part in parts]
        if not pool:
            what = "contain no text" if rollout.documents or run.results else "missing"
            raise DataError(
                f"{what}, so that nothing could contradict the response: add documents, or turns "
                "with results",
                "documents",
            )
        return pool

    def _is_unverified(
        self, rollout: Rollout, run: Trajectory, text: str, pool: Sequence[str]
    ) -> str:
        """Return why a response gets 0 without a verifier, or ""."""
        if self.truncated == 0 and "truncated" in run.turns[-1].malformed:
            return "truncated"
        if self.empty == "verifier":
            return ""
        if not has_statement(strip_markers(text, _MARKER)):
            return "no statement"
        if _refuses(rollout, text):
            return "refusal"
        return "no gold answer" if _lacks_gold(rollout, text, pool) else ""

    def _best(self, rollout: Rollout, text: str, pool: Sequence[str]) -> list[str]:
        query = text if self.query_by == "response" else f"{rollout.question or ''}\n{text}"
        return best_matches(query, pool, self.chunks)

    def _verified(self, rollout: Rollout, text: str, pool: Sequence[str]) -> float:
        if self.by == "judge":
            return float(VerdictNeed(self.name).read(rollout))
        needs = _contradiction_needs(self._best(rollout, text, pool), text)
        worst = max((need.read(rollout) for need in needs), default=0.0)
        return float(worst < self.threshold)

    def _correct(
        self, rollout: Rollout, run: Trajectory, text: str
    ) -> tuple[float | None, dict[str, Any]]:
        """Return whether the answer is right, and the details of the decision on it."""
        if rollout.answers is None:
            return None, {}
        answer = strip_markers(answer_of(run, self.repeated) or text, _MARKER)
        return self.answer.correctness.decided_value(rollout, answer)


def _lacks_gold(rollout: Rollout, text: str, pool: Sequence[str]) -> bool:
    """Return whether no statement of a text contains a gold answer of a row that has one.

    This includes refusals in any language, and statements that turn the meaning of the documents.
    """
    if rollout.answerable is False or not rollout.answers or rollout.answer_kind == "claims":
        return False
    question = rollout.question or ""
    return not any(
        any(stated_answers(sentence, rollout.gold, question, pool))
        for sentence in sentences(shown(strip_markers(text, _MARKER)))
    )


def _contradiction_needs(premises: Sequence[str], text: str) -> list[ContradictionNeed]:
    parts = statements(text, _MARKER)
    return [ContradictionNeed(premise, part.text) for part in parts for premise in premises]


_DETECTOR = RefusalDetector(strict=True)


def _refuses(rollout: Rollout, text: str) -> bool:
    """Return whether a text refuses to answer a question that may have an answer."""
    if rollout.answerable is False:
        return False
    gold: tuple[str, ...] = ()
    if rollout.answers is not None and rollout.answer_kind != "claims":
        gold = tuple(squad(alias) for aliases in rollout.gold for alias in aliases)
    bare = strip_markers(text, _MARKER)
    answerable = msgspec.structs.replace(rollout, answerable=True)
    return _DETECTOR.refused(answerable, bare, cites=bool(markers(text, _MARKER)), gold=gold)[0]
