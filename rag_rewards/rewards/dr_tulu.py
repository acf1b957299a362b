"""DR Tulu: citations as tags that a judge checks, the form of a report, and the number of searches.

Source: released code at 6188f34, rl/open-instruct/open_instruct/search_rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from rag_rewards.evidence.judge_needs import GradesNeed
from rag_rewards.evidence.needs import Need
from rag_rewards.evidence.protocols import Choice, JudgeQuestion
from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.claims import mean_claim_f1
from rag_rewards.rewards.search import details_of
from rag_rewards.rollout import Rollout, Score, canonical
from rag_rewards.settings import about, check_choices
from rag_rewards.text.statements import cited_claims
from rag_rewards.turns.trajectory import READING, Reading, Trajectory

_CITATIONS = "DR Tulu, released code at 6188f34: citation_utils.py"
_FORMAT = "DR Tulu, released code at 6188f34: format_utils.py"
SUPPORT = Choice((("full", 1.0), ("partly", 0.5), ("no", 0.0)))
NEEDLESS = Choice((("not needed", 1.0), ("needed", 0.0)))
_RESULTS = 5
"""Number of cited results of a claim that are judged alone."""


def citation_value(scores: list[tuple[float, float]], valid: float) -> float:
    """Return 0.6·(mean F1 of the claims) + 0.4·(share of the cited ids that exist).

    scores  precision and recall of the citations of each claim, 0 to 1
    valid   share of the different cited ids that are ids of results

    Range 0 to 1. Source: DR Tulu, released code at 6188f34, citation_utils.py.

    >>> round(citation_value([(1.0, 0.5), (0.0, 0.0)], 1.0), 3)
    0.6
    """
    return 0.6 * mean_claim_f1(scores) + 0.4 * valid


def format_value(answered: bool, cited: bool, searched: bool) -> float:
    """Return 0.5·[there is an answer] + 0.3·[there is a citation] + 0.2·[there is a query].

    Source: DR Tulu, released code at 6188f34, format_utils.py.

    >>> format_value(True, False, True)
    0.7
    """
    return 0.5 * answered + 0.3 * cited + 0.2 * searched


def sources_of(rollout: Rollout, run: Trajectory) -> dict[str, str]:
    """Return the texts of the results by id; for a rollout without results, its documents.

    A document without an id has its number.
    """
    documents = run.results or rollout.documents or ()
    return {
        str(number) if each.id is None else canonical(each.id): each.premise
        for number, each in enumerate(documents, 1)
    }


class _Claim(NamedTuple):
    """A claim of an answer, its citations, and the texts of those that exist."""

    answer: str
    text: str
    cited: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True)
@check_choices
class CitedClaims(RolloutReward):
    """0.6·(mean F1 of the claims) + 0.4·(share of the cited ids that exist).

    The claims are the parts of the answer inside and between <cite> tags. A judge grades how far
    the cited results support a claim: recall r is 1, 0.5 or 0, and precision is 1 for r > 0, since
    a result that supports a part of a claim is relevant to it. For a claim without an existing
    citation, precision is 1, and r is 1 if it needs none, else 0. Without an answer, a claim or a
    result, the value is 0.

    reading  how turns are read

    Raises DataError for a rollout without the grades. Source: DR Tulu, released code at 6188f34.
    """

    uncited: Annotated[
        Literal["count", "needed"],
        about(
            "claims without an existing citation; count: each one that needs none has F1 1; "
            "needed: these are left out, and a citation of no result has F1 0",
            f"{_CITATIONS}: count",
        ),
    ] = "count"
    precision: Annotated[
        Literal["claim", "result"],
        about(
            "claim: 1 for a claim with support; result: the share of the cited results that alone "
            f"support a part of the claim; those after the first {_RESULTS} count as no support",
            "ours: claim; the released code asks a judge",
        ),
    ] = "claim"
    max_claims: Annotated[
        int,
        about("number of claims that are judged; further ones have F1 0", "ours", ge=1, le=500),
    ] = 50
    reading: Reading = READING
    name: str = "citation"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        sources = sources_of(rollout, rollout.trajectory(self.reading))
        questions = self._questions(rollout, self._claims(rollout, sources))
        names = tuple(questions)
        return [GradesNeed(self.name, names, tuple(questions.values()))] if names else []

    def score(self, rollout: Rollout) -> Score:
        sources = sources_of(rollout, rollout.trajectory(self.reading))
        claims = self._claims(rollout, sources)
        names = tuple(self._questions(rollout, claims))
        grades = GradesNeed(self.name, names).read(rollout) if names else {}
        scores, details = [], []
        for number, claim in claims.items():
            recall = grades.get(number, 0.0)
            details.append({"text": claim.text, "cited": list(claim.cited), "recall": recall})
            is_needless = self.uncited == "needed" and not claim.cited and recall == 1
            if not is_needless:
                scores.append((self._precision(number, claim, grades), recall))
        cited = {label for claim in claims.values() for label in claim.cited}
        valid = len(cited & sources.keys()) / len(cited) if cited else 0.0
        return Score(citation_value(scores, valid), {}, None, {"claims": details})

    def _claims(self, rollout: Rollout, sources: Mapping[str, str]) -> dict[str, _Claim]:
        """Return the claims by number, none for a rollout without results."""
        if not sources:
            return {}
        answer = rollout.trajectory(self.reading).answer or ""
        return {
            str(number): _Claim(
                answer,
                each.text,
                each.cited,
                tuple(sources[label] for label in each.cited if label in sources),
            )
            for number, each in enumerate(cited_claims(answer), 1)
        }

    def _precision(self, number: str, claim: _Claim, grades: Mapping[str, float]) -> float:
        """Return the precision of the citations of a claim."""
        count = len(claim.sources)
        if self.precision == "claim" or count < 2:
            return float(not count or grades.get(number, 0.0) > 0)
        return sum(grades.get(f"{number}.{i}", 0.0) > 0 for i in range(1, count + 1)) / count

    def _questions(
        self, rollout: Rollout, claims: Mapping[str, _Claim]
    ) -> dict[str, JudgeQuestion]:
        """Return the questions by claim, as "2", and by cited result, as "2.1"."""
        judged = [
            (number, claim)
            for number, claim in claims.items()
            if claim.sources or not (claim.cited and self.uncited == "needed")
        ][: self.max_claims]
        questions = {number: _question(rollout, claim) for number, claim in judged}
        for number, claim in judged if self.precision == "result" else ():
            if len(claim.sources) > 1:
                for i, source in enumerate(claim.sources[:_RESULTS], 1):
                    alone = claim._replace(sources=(source,))
                    questions[f"{number}.{i}"] = _question(rollout, alone)
        return questions


def _question(rollout: Rollout, claim: _Claim) -> JudgeQuestion:
    """Return the question for the support of a claim, or whether it needs a citation."""
    kind, form = ("support", SUPPORT) if claim.sources else ("needless", NEEDLESS)
    documents = claim.sources or (claim.answer,)
    question = rollout.question or ""
    return JudgeQuestion(kind, question, claim.text, (), documents, rollout.query_time, form=form)


@dataclass(frozen=True)
@check_choices
class ReportFormat(RolloutReward):
    """0.5·[answer] + 0.3·[citation] + 0.2·[query], see `format_value`.

    reading  how turns are read
    """

    valid: Annotated[
        bool,
        about(
            "an answer counts only with a word, a citation only in the answer, with the id of a "
            "result, and a query only with results",
            f"{_FORMAT}: no",
        ),
    ] = False
    reading: Reading = READING
    name: str = "format"
    scope: Literal["rollout"] = "rollout"

    def score(self, rollout: Rollout) -> Score:
        run = rollout.trajectory(self.reading)
        answer = run.answer
        if self.valid:
            cited = {label for each in cited_claims(answer or "") for label in each.cited}
            is_cited = not cited.isdisjoint(sources_of(rollout, run))
            is_answered, is_searched = any(map(str.isalnum, answer or "")), run.searches > 0
        else:
            is_cited = any(each.cited for turn in run.turns for each in cited_claims(turn.text))
            is_answered, is_searched = answer is not None, any(turn.queries for turn in run.turns)
        value = format_value(is_answered, is_cited, is_searched)
        return Score(value, {}, None, details_of(run, answer, {}))


@dataclass(frozen=True)
@check_choices
class SearchCount(RolloutReward):
    """min(searches / `enough`, 1), 0 for a rollout without an answer.

    reading  how turns are read

    Source: DR Tulu, released code at 6188f34, search_utils.py.
    """

    count: Annotated[
        Literal["queries", "new"],
        about(
            "queries: every query counts; new: every turn with a result that no earlier turn has, "
            "if the answer has a letter or digit",
            "DR Tulu, released code at 6188f34: search_utils.py: queries",
        ),
    ] = "queries"
    enough: Annotated[
        int,
        about(
            "number of searches with the full reward",
            "DR Tulu, released code at 6188f34: search_utils.py: 3",
            ge=1,
        ),
    ] = 3
    reading: Reading = READING
    name: str = "searches"
    scope: Literal["rollout"] = "rollout"

    def score(self, rollout: Rollout) -> Score:
        run = rollout.trajectory(self.reading)
        if run.answer is None or (self.count == "new" and not any(map(str.isalnum, run.answer))):
            return Score(0.0)
        count = sum(len(turn.queries) for turn in run.turns)
        if self.count == "new":
            count, seen = 0, set[str]()
            for turn in run.turns:
                texts = {each.titled_text for each in turn.results or ()} if turn.queries else set()
                count += not texts <= seen
                seen |= texts
        return Score(min(count / self.enough, 1.0))
