"""Claims: statements of a response that documents must support (faithfulness, attribution)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Annotated, Any, Literal, NamedTuple

from rag_rewards.errors import DataError, EvidenceError, SettingError
from rag_rewards.evidence.judge_needs import EntitiesNeed, VerdictNeed
from rag_rewards.evidence.needs import EntailmentNeed, Need
from rag_rewards.evidence.protocols import EntityQuestion, JudgeQuestion
from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.citation import document_of, premise_of
from rag_rewards.rewards.correctness import f1_of
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.citations import CITATION, PATTERN, compiled, split_valid, strip_markers
from rag_rewards.text.sections import Tags
from rag_rewards.text.statements import Statement, merged, statements

Supports = Callable[[int, Sequence[str]], bool]
"""(position of a claim, labels of documents) → whether the documents together support the claim."""
Measure = Literal["faithfulness", "precision", "recall", "f1", "mean_f1"]
CheckedBy = Literal["nli", "judge"]
ClaimsBy = Literal["statements", "judge"]
ClaimsIn = Literal["answer", "response"]
Premises = Literal["together", "each"]
ANSWER = Tags(("answer",))
_TAG = re.compile(r"</?[a-z_]{1,30}>")
_CLAIMS_OF_STATEMENT, _MIN_CLAIMS, _MAX_CLAIMS = 3, 20, 100  # that a judge can list


@dataclass(frozen=True)
class Claim:
    """The text of a claim and the labels that it cites; None if one of them is no document."""

    text: str
    cited: tuple[str, ...] | None

    def needs(self, rollout: Rollout) -> Iterator[EntailmentNeed]:
        """Yield all entailments that `citation_scores` can read for the claim."""
        cited = self.cited or ()
        if cited:
            yield EntailmentNeed(premise_of(rollout, cited), self.text)
        if len(cited) > 1:
            for one in cited:
                rest = [label for label in cited if label != one]
                yield EntailmentNeed(premise_of(rollout, [one]), self.text)
                yield EntailmentNeed(premise_of(rollout, rest), self.text)


def claim_of(rollout: Rollout, text: str, cited: Sequence[str], limit: int) -> Claim:
    """Return a claim with its first `limit` citations."""
    valid, invalid = split_valid(cited, rollout.labels)
    return Claim(text, None if invalid else valid[:limit])


class ClaimCitations(NamedTuple):
    """The citations of one claim: whether its documents support it, their number, and the credit.

    `recall` is 1 or 0, and `precision` the share of the citations that are credited.
    """

    is_attributed: bool
    number: int
    credited: int

    @property
    def recall(self) -> float:
        return float(self.is_attributed)

    @property
    def precision(self) -> float:
        return self.credited / self.number if self.number else 0.0


def claim_citations(
    cited: Sequence[Sequence[str] | None],
    supports: Supports,
    shares: Callable[[str, Sequence[str]], bool] | None = None,
) -> list[ClaimCitations]:
    """Return what the citations of each claim are worth.

    cited     the labels that each claim cites, each once; None if one of them is no document
    supports  whether documents together support a claim
    shares    whether a document supports a gold answer that one of the others supports

    A claim is attributed if the documents that it cites together support it. Then a citation is
    credited, unless it is superfluous: it alone does not support the claim, the others do, and
    they share no gold answer. Source: ALCE, released code at 3fdc2ed, eval.py (without `shares`);
    Trust-Score's evaluation code.
    """
    result = []
    for at, labels in enumerate(cited):
        labels = labels or ()
        is_attributed = bool(labels) and supports(at, labels)
        credited = (
            sum(not _superfluous(at, one, labels, supports, shares) for one in labels)
            if is_attributed
            else 0
        )
        result.append(ClaimCitations(is_attributed, len(labels), credited))
    return result


def _superfluous(
    at: int,
    one: str,
    cited: Sequence[str],
    supports: Supports,
    shares: Callable[[str, Sequence[str]], bool] | None,
) -> bool:
    if len(cited) == 1 or supports(at, [one]):
        return False
    rest = [label for label in cited if label != one]
    return supports(at, rest) and not (shares is not None and shares(one, rest))


def citation_scores(claims: Sequence[ClaimCitations]) -> tuple[float, float]:
    """Return recall and precision of the citations of a response. Range 0 to 1.

    Recall is the share of the claims that are attributed, and precision the share of all citations
    that are credited. A value without a denominator is 0. Source: ALCE.

    >>> citation_scores([ClaimCitations(True, 2, 1), ClaimCitations(False, 0, 0)])
    (0.5, 0.5)
    """
    counted = sum(each.number for each in claims)
    recall = sum(each.is_attributed for each in claims) / len(claims) if claims else 0.0
    return recall, (sum(each.credited for each in claims) / counted if counted else 0.0)


def mean_claim_f1(scores: Sequence[tuple[float, float]]) -> float:
    """Return the mean of the F1 of each claim, 0 without a claim. Range 0 to 1.

    scores  precision and recall of the citations of each claim, 0 to 1

    Source: DR Tulu, released code at 6188f34, citation_utils.py.

    >>> mean_claim_f1([(1.0, 0.5), (0.0, 1.0)])
    0.3333333333333333
    """
    f1s = [f1_of(precision, recall) for precision, recall in scores]
    return math.fsum(f1s) / len(f1s) if f1s else 0.0


def faithfulness(supported: Sequence[bool]) -> float:
    """Return supported claims / claims, 0 without a claim. Range 0 to 1.

    Source: RAGAS (arXiv 2309.15217), section 3.

    >>> faithfulness([True, False, True, True])
    0.75
    """
    return sum(supported) / len(supported) if supported else 0.0


@dataclass(frozen=True)
@check_choices
class Claims(RolloutReward):
    """The share of the claims of a response that the documents support, or its citations.

    The claims are statements of the answer. With measure=faithfulness, all documents count for each
    claim. The other measures are those of `citation_scores` and `mean_claim_f1`; without citations
    they are 0. A model of entailments or a judge checks the claims.

    A response that copies documents is faithful: combine the reward with one of the answer. Raises
    DataError for a row without documents or without evidence. Range 0 to 1, or `empty`. Sources:
    RAGAS (arXiv 2309.15217), section 3; ALCE (arXiv 2305.14627), section 3.
    """

    measure: Annotated[
        Measure,
        about(
            "faithfulness: supported claims / claims; precision, recall, f1: of the citations of "
            "the response; mean_f1: the mean of the F1 of each claim",
            "RAGAS, section 3; ALCE, section 3; DR Tulu",
        ),
    ] = "faithfulness"
    claims_in: Annotated[
        ClaimsIn,
        about(
            "text with the claims; answer: the answer section, or the response without its "
            "thinking if there is none; response: always the response without its thinking",
            "ours",
        ),
    ] = "answer"
    claims_by: Annotated[
        ClaimsBy,
        about(
            "statements: each statement is a claim; judge: a judge lists the claims of the answer "
            "(faithfulness only, since its claims have no citations)",
            "ALCE, section 3: statements; RAGAS, section 3: judge",
        ),
    ] = "statements"
    checked_by: Annotated[
        CheckedBy,
        about("nli: an entailment model or fact checker; judge: a judge", "ALCE, section 3: nli"),
    ] = "nli"
    threshold: Annotated[
        float,
        about("minimum probability of a supported claim", "ours: the more probable", ge=0, le=1),
    ] = 0.5
    premises: Annotated[
        Premises,
        about(
            "documents of faithfulness; together: all as one premise, of which an entailment model "
            "reads one piece after another; each: one of them must support the claim alone",
            "RAGAS, section 3: together; ALCE, eval.py: each",
        ),
    ] = "together"
    max_citations: Annotated[
        int, about("number of citations of a claim that count", "ALCE, eval.py", ge=1, le=20)
    ] = 3
    max_claims: Annotated[
        int,
        about(
            "number of claims that are checked; further ones count as unsupported, so that a "
            "response cannot raise the cost without limit",
            "ours",
            ge=1,
            le=10_000,
        ),
    ] = 200
    repeated: Annotated[
        bool, about("count equal claims each time, and not once with all their citations", "ours")
    ] = False
    empty: Annotated[
        float, about("reward of a response without a claim", "ours: it supports nothing")
    ] = 0.0
    pattern: Annotated[str, about(*PATTERN)] = CITATION
    name: str = "claims"
    scope: Literal["rollout"] = "rollout"

    def __post_init__(self) -> None:
        if self.claims_by == "judge" and self.measure != "faithfulness":
            raise SettingError(
                "claims_by: the claims that a judge lists have no citations: set "
                f"measure=faithfulness, or claims_by=statements for measure={self.measure}"
            )

    @cached_property
    def _markers(self) -> re.Pattern[str]:
        return compiled(self.pattern)

    def claims(self, rollout: Rollout) -> list[Claim]:
        """Return the claims of a response.

        Raises DataError for a row without documents, without the claims of a judge, or with more
        claims than a judge was asked for.
        """
        if rollout.documents is None:
            raise DataError("missing: list the documents that must support the claims", "documents")
        count = len(rollout.documents) or None
        parts = statements(self._text(rollout), self._markers, documents=count)
        if need := self._listing(rollout, len(parts)):
            texts = [need.read(rollout)[name] for name in need.placeholders]
            if texts[-1] is not None:
                raise EvidenceError(
                    f"a judge lists at most {len(texts) - 1} claims of this response, and it has "
                    "more: use claims_by=statements, or leave out the row",
                    "entities",
                )
            parts = [Statement(text, ()) for text in texts if text and text.strip()]
        parts = parts if self.repeated else merged(parts)
        return [claim_of(rollout, each.text, each.cited, self.max_citations) for each in parts]

    def _text(self, rollout: Rollout) -> str:
        response = rollout.parsed
        answer = response.cut(ANSWER).content.get("answer")
        if answer is None or self.claims_in == "response":
            return _TAG.sub("\n\n", response.visible)
        return answer

    def _listing(self, rollout: Rollout, count: int | None = None) -> _ListNeed | None:
        """Return the need of the claims that a judge lists, None without it.

        `count` is the number of statements, of which each can contain several claims.
        """
        if self.claims_by == "statements":
            return None
        text = self._text(rollout)
        if count is None:
            count = len(statements(text, self._markers))
        if not count:
            return None
        limit = min(max(_CLAIMS_OF_STATEMENT * count + 2, _MIN_CLAIMS), _MAX_CLAIMS)
        names = tuple(f"C{i + 1}" for i in range(limit))
        text = strip_markers(text, self._markers)
        question = EntityQuestion(rollout.question or "", text, (), names, "claims")
        digest = _digest(question.question, text, limit)
        return _ListNeed(tuple(f"{name}:{digest}" for name in names), question)

    def needs(self, rollout: Rollout) -> list[Need]:
        """Return the needs that the claims raise with the evidence of the rollout.

        The support of single documents is requested after that of all that a claim cites.
        """
        listing = self._listing(rollout)
        if listing is not None and not listing.is_met(rollout):
            return [listing]
        checker = _Checker(self, rollout)
        checker.values()
        return [*([listing] if listing else ()), *checker.needs]

    def score(self, rollout: Rollout) -> Score:
        checker = _Checker(self, rollout, is_complete=True)
        components, details = checker.values()
        if not checker.claims:
            return Score(self.empty, dict.fromkeys(components), None, {"claims": []})
        return Score(components[self.measure], components, None, {"claims": details})


class _Checker:
    """The check of the claims of one rollout.

    is_complete  whether missing evidence is an error; otherwise the claim is not supported

    `needs` contains all needs that were read.
    """

    def __init__(self, reward: Claims, rollout: Rollout, *, is_complete: bool = False) -> None:
        self._reward, self._rollout, self._is_complete = reward, rollout, is_complete
        self.claims = reward.claims(rollout)
        self.needs: dict[Need, None] = {}
        self._premises: dict[tuple[str, ...], str] = {}

    def values(self) -> tuple[dict[str, float | None], list[dict[str, Any]]]:
        """Return the components of the reward by name, and the details of each claim."""
        texts = [claim.text for claim in self.claims]
        if self._reward.measure == "faithfulness":
            supported = [self._is_faithful(at) for at in range(len(texts))]
            details = zip(texts, supported, strict=True)
            return {"faithfulness": faithfulness(supported)}, [
                {"text": text, "supported": is_supported} for text, is_supported in details
            ]
        cited = [claim.cited for claim in self.claims]
        citations = claim_citations(cited, self._supports)
        recall, precision = citation_scores(citations)
        pairs = [(each.precision, each.recall) for each in citations]
        return {
            "precision": precision,
            "recall": recall,
            "f1": f1_of(precision, recall),
            "mean_f1": mean_claim_f1(pairs),
        }, [
            {
                "text": claim.text,
                "cited": None if claim.cited is None else list(claim.cited),
                "supported": each.is_attributed,
                "credited": each.credited,
            }
            for claim, each in zip(self.claims, citations, strict=True)
        ]

    def _is_faithful(self, at: int) -> bool:
        labels = self._rollout.labels
        if self._reward.premises == "together":
            return bool(labels) and self._supports(at, labels)
        return any(self._supports(at, [label]) for label in labels)

    def _supports(self, at: int, labels: Sequence[str]) -> bool:
        if at >= self._reward.max_claims:
            return False
        need = self._need(at, tuple(labels))
        self.needs[need] = None
        if not self._is_complete and not need.is_met(self._rollout):
            return False
        return bool(need.read(self._rollout) >= self._reward.threshold)

    def _need(self, at: int, labels: tuple[str, ...]) -> Need:
        text, rollout = self.claims[at].text, self._rollout
        if self._reward.checked_by == "nli":
            premise = self._premises.get(labels)
            if premise is None:
                premise = self._premises[labels] = premise_of(rollout, labels)
            return EntailmentNeed(premise, text)
        documents = tuple(document_of(rollout, label).premise for label in labels)
        question = JudgeQuestion("supported", rollout.question or "", text, (), documents)
        # The digest binds a verdict to its texts: positions differ between settings.
        digest = _digest(text, documents)
        return VerdictNeed(f"{self._reward.name}:{at + 1}:{digest}", (question,))


class _ListNeed(EntitiesNeed):
    """The claims that a judge lists as C1, C2, …; the keys of the evidence have a digest.

    The digest binds the claims to their text: rewards and settings read different texts.
    """

    def combine(self, results: Sequence[Any]) -> Any:
        if isinstance(results[0], BaseException):
            return results[0]
        pairs = [(key, key.partition(":")[0]) for key in self.placeholders]
        return {key: results[0][name] for key, name in pairs if name in results[0]}


def _digest(*content: Any) -> str:
    return blake2b(repr(content).encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
