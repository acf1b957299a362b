"""Grounded statements: right statements with sufficient citations, and refusals (Ground-GRPO)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from rag_rewards.errors import DataError
from rag_rewards.evidence.needs import EntailmentNeed, Need
from rag_rewards.matching.gold import Required, in_memory
from rag_rewards.matching.mentions import agrees, stated_answers
from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.citation import (
    CheckedStatement,
    document_of,
    is_sufficient,
    premise_of,
    statement_details,
    stating_answer,
    without_rivals,
)
from rag_rewards.rewards.correctness import supported_answers
from rag_rewards.rewards.format import Format
from rag_rewards.rewards.refusal import RefusalDetector, refusal_reward
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.citations import CITATION, PATTERN, compiled, split_valid, strip_markers
from rag_rewards.text.gold_forms import GoldForms
from rag_rewards.text.hidden import shown
from rag_rewards.text.normalize import NORMALIZER, NormalizerName, normalizer, squad
from rag_rewards.text.statements import Statement, merged, statements

Aggregate = Literal["sum", "mean", "answers", "strict"]
JudgeBy = Literal["nli", "gold"]
EarnedBy = Literal["any", "grounded"]
Counts = Literal["mentioned", "supported"]


@dataclass(frozen=True)
@check_choices
class Grounding(RolloutReward):
    """Statement-level correctness, citations and refusal (Ground-GRPO).

    The value is the sum of the components `exact_match`, `citation` and `refusal`. A statement with
    a gold answer earns `match`, and then `good` for a correct citation or `bad_penalty` for any
    other. A response without the format earns nothing; a refusal earns only the refusal reward.

    format    the format that a response must have
    detector  detects refusals
    refusal   whether the refusal reward applies (stage 2)

    With aggregate=answers, the sum is divided by the number of answers that a document supports.
    With counts=supported, a cited document must have the gold answer and half of the other names,
    and an only answer does not count if another statement gives another name in the same words.

    Raises DataError for a row without `answerable`, gold answers or required evidence. Source:
    Ground-GRPO, section 2.2, Eq. 1, 2 and 6, Algorithm 1.
    """

    format: Format
    detector: RefusalDetector
    refusal: bool = True  # stage 2
    aggregate: Annotated[
        Aggregate,
        about(
            "sum or mean over the statements; answers: each required answer counts once, at its "
            "best statement; strict: as answers, but each additional item of a list lowers the "
            "reward, equal statements are one statement with all their citations, and the citation "
            "of an answer is correct only if it is correct in each statement that contains the "
            "answer and a citation",
            "Ground-GRPO, Eq. 1 and 2, Figure 1",
        ),
    ] = "sum"
    judge_by: Annotated[
        JudgeBy,
        about(
            "how a citation is checked; nli: by an entailment model; gold: the cited documents "
            "must be supporting, and one of them must contain the answer",
            "Ground-GRPO, section 2.2: NLI",
            key="citation.judge_by",
        ),
    ] = "nli"
    threshold: Annotated[
        float,
        about(
            "minimum entailment probability of a correct citation",
            "ours: entailment is the more probable class of two",
            key="citation.threshold",
            ge=0,
            le=1,
        ),
    ] = 0.5
    minimal: Annotated[
        bool,
        about(
            "a citation is correct only if the statement needs each cited document",
            "Ground-GRPO, introduction",
            key="citation.minimal",
        ),
    ] = False
    match: Annotated[
        float,
        about(
            "reward of a statement with a gold answer",
            "Ground-GRPO, Eq. 1",
            key="exact_match.credit",
        ),
    ] = 0.5
    good: Annotated[
        float, about("reward of a correct citation", "Ground-GRPO, Eq. 2", key="citation.credit")
    ] = 0.5
    bad_penalty: Annotated[
        float,
        about(
            "reward of a wrong or missing citation; 0 in an ablation of the paper",
            "Ground-GRPO, Eq. 2, Figure 6",
            key="citation.bad_penalty",
        ),
    ] = -0.5
    answered: Annotated[
        float,
        about(
            "reward for answering an answerable question",
            "Ground-GRPO, Eq. 6",
            key="refusal.answered",
        ),
    ] = 0.5
    earned_by: Annotated[
        EarnedBy,
        about(
            "answers to an answerable question that earn the reward `answered`; any: all; "
            "grounded: those with a gold answer whose citations do not cancel its credit",
            "Ground-GRPO, Eq. 6: any",
            key="refusal.earned_by",
        ),
    ] = "any"
    normalizer: Annotated[
        NormalizerName,
        about(NORMALIZER, "Trust-Score, authors' code", key="accuracy.normalizer"),
    ] = "squad"
    counts: Annotated[
        Counts,
        about(
            "gold answers that count; mentioned: all that a statement contains; supported: those "
            "that a statement contains as whole words and its citations support",
            "Ground-GRPO, Eq. 1: mentioned",
            key="exact_match.counts",
        ),
    ] = "mentioned"
    pattern: Annotated[str, about(*PATTERN, key="citation.pattern")] = CITATION
    name: str = "grounding"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        answer = self._answer(rollout)
        if answer is None:
            return []
        needs: list[Need] = list(self.detector.needs(answer))
        if not rollout.answerable:
            return needs  # the statements of an unanswerable row are not checked
        for statement in self._statements(rollout, answer):
            needs.extend(self._statement_needs(rollout, statement))
        return needs

    def score(self, rollout: Rollout) -> Score:
        answerable = self._answerable(rollout)
        answer = self._answer(rollout)
        if answer is None:
            return _score(0.0, 0.0, 0.0, 0.0, {"answer": None, "refused": False})
        parts = self._statements(rollout, answer)
        refused, r = self._refused(rollout, answer, parts)
        details: dict[str, Any] = {"answer": answer.strip(), "refused": refused}
        if refused:
            details["refusal_similarity"] = r
        reward = (
            refusal_reward(answerable=answerable, refused=refused, r=r, bonus=self.answered)
            if self.refusal
            else 0.0
        )
        if not answerable or refused:
            return _score(0.0, 0.0, reward, float(refused and not answerable), details)
        checked = [self._check(rollout, statement) for statement in parts]
        if self.counts == "supported" and rollout.answer_kind != "claims":
            checked = without_rivals(rollout, checked, answer, self._markers)
        matched, cited = self._credit(rollout, checked)
        details["statements"] = [statement_details(item, rollout.labels) for item in checked]
        matches = self._matches(rollout, checked)
        if self.earned_by == "grounded" and matched + cited <= 0:
            reward = 0.0
        return _score(matched, cited, reward, len(matches) / len(rollout.gold), details)

    @cached_property
    def _forms(self) -> GoldForms:
        return GoldForms(normalizer(self.normalizer))

    @cached_property
    def _markers(self) -> re.Pattern[str]:
        return compiled(self.pattern)

    def _answerable(self, rollout: Rollout) -> bool:
        if rollout.answerable is None:
            raise DataError(
                "missing: state whether the documents answer the question", "answerable"
            )
        if not rollout.answerable and not self.refusal:
            raise DataError(
                "false, but stage 1 scores answerable rows only: remove the row", "answerable"
            )
        return rollout.answerable

    def _answer(self, rollout: Rollout) -> str | None:
        """Return the answer section of a well-formed response, else None."""
        if not self.format.of(rollout):
            return None
        return rollout.parsed.cut(self.format.tags).content["answer"]

    def _statements(self, rollout: Rollout, answer: str) -> list[Statement]:
        uncut: list[str] = []
        items = rollout.answer_kind == "list"
        if (self.counts == "supported" or items) and rollout.answers is not None:
            # A gold answer can contain a comma or the end of a sentence: "Lynn, MA", "Jeopardy! 2".
            uncut = [alias for aliases in rollout.gold for alias in aliases]
        if rollout.answer_kind == "claims":
            uncut = []
        answer = shown(answer) if self.counts == "supported" else answer
        count = len(rollout.documents or ()) or None
        parts = statements(answer, self._markers, items=items, uncut=uncut, documents=count)
        return merged(parts) if self.aggregate == "strict" else parts

    def _refused(
        self, rollout: Rollout, answer: str, parts: Sequence[Statement]
    ) -> tuple[bool, float]:
        if not self.detector.strict:
            return self.detector.refused(rollout, answer)
        gold: tuple[str, ...] = ()
        if rollout.answers is not None and rollout.answer_kind != "claims":
            gold = _squad_forms(rollout.gold)
        # `needs` requests the similarity of the whole answer.
        semantic = self.detector.matcher == "semantic"
        bare = answer if semantic else " ".join(s.text for s in parts)
        return self.detector.refused(rollout, bare, cites=any(s.cited for s in parts), gold=gold)

    # -- one statement --

    def _check(self, rollout: Rollout, statement: Statement) -> CheckedStatement:
        answers = tuple(self._answers_in(rollout, statement))
        sufficient = self._sufficient(rollout, statement, answers) if answers else None
        return CheckedStatement(statement, answers, sufficient)

    def _answers_in(self, rollout: Rollout, statement: Statement) -> Iterator[int]:
        if rollout.answer_kind == "claims":
            for i, aliases in enumerate(rollout.gold):
                if any(self._entails(rollout, statement.text, alias) for alias in aliases):
                    yield i
            return
        if self.counts == "supported":
            yield from self._stated(rollout, statement)
            return
        forms = self._forms
        normal = forms.normalize(statement.text)
        for i, aliases in enumerate(rollout.gold):
            for gold, alias in zip(forms.of(aliases), aliases, strict=True):
                if _contains(normal, statement.text, gold, alias):
                    yield i
                    break

    def _stated(self, rollout: Rollout, statement: Statement) -> Iterator[int]:
        """Yield the required answers that a statement contains as whole words.

        If no entailment model checks the citations, the statement must not turn their meaning.
        """
        sources = None
        if self.judge_by == "gold":
            cited, _ = split_valid(statement.cited, rollout.labels)
            sources = [document_of(rollout, label).premise for label in cited]
        stated = stated_answers(statement.text, rollout.gold, rollout.question or "", sources)
        yield from (i for i, is_stated in enumerate(stated) if is_stated)

    def _sufficient(self, rollout: Rollout, statement: Statement, answers: Sequence[int]) -> bool:
        cited, invalid = split_valid(statement.cited, rollout.labels)
        if invalid or not cited:
            return False
        if self.counts == "supported" and not self._agrees(rollout, statement, cited):
            return False
        if self.judge_by == "gold":
            return self._gold_sufficient(rollout, statement, cited, answers)

        def entails(labels: Sequence[str]) -> bool:
            return self._entails(rollout, premise_of(rollout, labels), statement.text)

        return is_sufficient(cited, entails, minimal=self.minimal)

    def _agrees(self, rollout: Rollout, statement: Statement, cited: Sequence[str]) -> bool:
        """Return whether a cited document with the gold answer has the names of a statement.

        It must also have the other words if no entailment model checks the citations, or if the
        statement cites several documents, since each can support another candidate.
        """
        if rollout.answer_kind == "claims":
            return True
        return agrees(
            statement.text,
            rollout.gold,
            rollout.question or "",
            [document_of(rollout, label).premise for label in cited],
            closely=self.judge_by == "gold" or len(cited) > 1,
        )

    def _gold_sufficient(
        self,
        rollout: Rollout,
        statement: Statement,
        cited: Sequence[str],
        answers: Sequence[int],
    ) -> bool:
        """Return whether the cited documents are supporting and one contains the answer."""
        if not set(cited) <= set(rollout.supporting_labels):
            return False
        if self.counts == "supported" and rollout.answer_kind != "claims":
            return True  # `_agrees`
        forms = self._forms
        normal = forms.normalize(statement.text)
        stated = [
            (gold, alias)
            for i in answers
            for gold, alias in zip(forms.of(rollout.gold[i]), rollout.gold[i], strict=True)
            if rollout.answer_kind == "claims" or _contains(normal, statement.text, gold, alias)
        ]
        texts = [document_of(rollout, label).text for label in cited]
        return any(
            _contains(forms.of((text,))[0], text, *answer) for text in texts for answer in stated
        )

    def _entails(self, rollout: Rollout, premise: str, hypothesis: str) -> bool:
        return bool(EntailmentNeed(premise, hypothesis).read(rollout) >= self.threshold)

    def _statement_needs(self, rollout: Rollout, statement: Statement) -> Iterator[Need]:
        if rollout.answer_kind == "claims":
            for aliases in rollout.gold:
                for alias in aliases:
                    yield EntailmentNeed(statement.text, alias)
        elif next(self._answers_in(rollout, statement), None) is None:
            return
        if self.judge_by == "gold":
            return
        cited, invalid = split_valid(statement.cited, rollout.labels)
        if invalid or not cited:
            return
        yield EntailmentNeed(premise_of(rollout, cited), statement.text)
        if self.minimal and len(cited) > 1:
            for left_out in cited:
                rest = [label for label in cited if label != left_out]
                yield EntailmentNeed(premise_of(rollout, rest), statement.text)

    # -- all statements --

    def _matches(self, rollout: Rollout, checked: Sequence[CheckedStatement]) -> set[int]:
        """Return the required answers that count."""
        mentioned = {i for item in checked for i in item.answers}
        if self.counts == "mentioned":
            return mentioned
        return {i for i in mentioned if self._is_cited(stating_answer(checked, i))}

    def _credit(self, rollout: Rollout, checked: Sequence[CheckedStatement]) -> tuple[float, float]:
        """Return the exact match and the citation credit of the whole answer (Eq. 1 and 2)."""
        if self.aggregate in ("answers", "strict"):
            return self._credit_answers(rollout, checked)
        credits = [
            (self.match, self.good if item.sufficient else self.bad_penalty)
            for item in checked
            if item.answers and (item.sufficient or self.counts == "mentioned")
        ]
        if not credits:
            return 0.0, 0.0
        n = len(checked) if self.aggregate == "mean" else 1
        matched, cited = (math.fsum(column) for column in zip(*credits, strict=True))
        return matched / n, cited / n

    def _credit_answers(
        self, rollout: Rollout, checked: Sequence[CheckedStatement]
    ) -> tuple[float, float]:
        matched = cited = 0.0
        for i in range(len(rollout.gold)):
            stating = stating_answer(checked, i)
            is_cited = self._is_cited(stating)
            if is_cited or (stating and self.counts == "mentioned"):
                matched += self.match
                cited += self.good if is_cited else self.bad_penalty
        n = supported_answers(rollout)
        if self.aggregate == "strict" and rollout.answer_kind == "list":
            n = max(n, len(checked))
        return matched / n, cited / n

    def _is_cited(self, stating: Sequence[CheckedStatement]) -> bool:
        """Return whether the statements of one required answer have a correct citation."""
        if self.aggregate != "strict":
            return any(item.sufficient for item in stating)
        cited = [item.sufficient for item in stating if item.statement.cited]
        return bool(cited) and all(cited)


@in_memory
def _squad_forms(required: Required) -> tuple[str, ...]:
    return tuple(squad(alias) for aliases in required for alias in aliases)


def _score(
    matched: float, cited: float, refusal: float, correct: float, details: dict[str, Any]
) -> Score:
    return Score(
        matched + cited + refusal,
        components={"exact_match": matched, "citation": cited, "refusal": refusal},
        correct=correct,
        details=details,
    )


def _contains(normal: str, raw: str, gold: str, alias: str) -> bool:
    """Return whether a text contains an alias; as written if the alias has no normalized form."""
    return gold in normal if gold else alias.strip().casefold() in raw.casefold()


# --- process -------------------------------------------------------------------------------------


@dataclass(frozen=True)
@check_choices
class Process(RolloutReward):
    """The probability that the reasoning entails the decision, 0 without the format.

    The reasoning is the section `think`. The decision is the answer section without its markers.
    Raises DataError if the entailment is missing. Source: Ground-GRPO, section 4.7, Eq. 7.
    """

    format: Format
    pattern: str = CITATION
    name: str = "process"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        return [self._need(rollout)] if self.format.of(rollout) else []

    def _need(self, rollout: Rollout) -> EntailmentNeed:
        content = rollout.parsed.cut(self.format.tags).content
        decision = strip_markers(content["answer"], compiled(self.pattern))
        return EntailmentNeed(content["think"].strip(), decision)

    def score(self, rollout: Rollout) -> Score:
        is_formatted = self.format.of(rollout)
        return Score(self._need(rollout).read(rollout) if is_formatted else 0.0)
