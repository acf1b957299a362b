"""CaRR: the facts on the way to an answer, each supported by pages that the rollout cites."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from rag_rewards.errors import DataError
from rag_rewards.evidence.judge_needs import EntitiesNeed, VerdictNeed
from rag_rewards.evidence.needs import Need
from rag_rewards.evidence.protocols import EntityQuestion, JudgeQuestion
from rag_rewards.groups import Scope
from rag_rewards.reward import Batch, Composite, Reward, RolloutReward, Value
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.correctness import outcome_questions
from rag_rewards.rewards.search import REPEATED_ANSWER, RepeatedAnswer, answer_of, details_of
from rag_rewards.rollout import Rollout, Score, canonical
from rag_rewards.settings import about, check_choices
from rag_rewards.text.citations import compiled, strip_markers
from rag_rewards.text.hidden import shown
from rag_rewards.text.normalize import without_invisible
from rag_rewards.text.url_citations import (
    before_references,
    before_source_list,
    cited_urls,
    normalized_url,
    without_dumps,
    without_url_citations,
)
from rag_rewards.turns.trajectory import READING, Reading, Trajectory

_SERVER = "CaRR, released code at c97e7e8: launch_server.py"
_SCRIPT = "CaRR, released code at c97e7e8: training_run_4b-C-GRPO-rubric0.3.sh"
ROOT = "E0"
"""The placeholder of the answer."""
PLACEHOLDER = re.compile(r"<(E\d{1,9})>")


def carr_reward(outcome: float, share: float, alpha: float = 0.3) -> float:
    """Return (1 − α)·R_o + α·R_r if R_o > 0, else R_o.

    outcome  R_o, 0 or 1
    share    R_r, the share of the rubrics that count, or its quotient by the greatest of the group
    alpha    α, 0 to 1

    Range 0 to 1. Source: CaRR, released code at c97e7e8, sglang_rollout.py.

    >>> carr_reward(1, 0.5), carr_reward(0, 0.5)
    (0.85, 0)
    """
    return (1 - alpha) * outcome + alpha * share if outcome > 0 else outcome


def cited_results(rollout: Rollout, run: Trajectory, text: str, limit: int) -> tuple[str, ...]:
    """Return the texts of the results that a text cites by id or address, each once.

    Only results of this rollout count. For a rollout without results, they are its documents.
    `limit` is the number of different citations that count.
    """
    by_reference: dict[str, str] = {}
    results = [result for turn in run.turns for result in turn.results or ()]
    for result in results:
        for reference in (result.id, result.url):
            if reference is not None:
                by_reference.setdefault(_reference(reference), result.premise)
    if not results:
        for label, document in zip(rollout.labels, rollout.documents or (), strict=True):
            reference = label if document.id is None else document.id
            by_reference.setdefault(_reference(reference), document.premise)
    cited = (by_reference.get(_reference(url)) for url in cited_urls(text, limit))
    return tuple(dict.fromkeys(each for each in cited if each is not None))


def _reference(reference: str | int) -> str:
    return normalized_url(canonical(reference))


CHECKS = ("identified", "supported", "connected")
"""What is checked for each rubric. Each needs the one before it."""


@dataclass(frozen=True)
@check_choices
class CarrRubrics(RolloutReward):
    """The outcome, and the share of the rubrics that are identified, supported and connected.

    A rubric is a statement with placeholders, such as "<E0> was born in <E1>.", where <E0> is the
    answer. It is identified if the final text states a name for each placeholder, supported if a
    judge finds that the cited results support it with these names, and connected if supported
    rubrics lead from <E0> to it by common placeholders. Do not confuse them with the
    criteria of `rewards.rubric`, which have weights and grades.

    answer   comparison with by=rules
    always   whether the rubrics are also checked if the answer is wrong
    alpha    weight of the rubrics in the value
    reading  how turns are read

    The value is that of `carr_reward` without normalization. Rubrics that were not checked are
    None. Raises DataError for a row without rubrics or missing evidence, and EvidenceError for
    names of other things than placeholders. Source: CaRR, released code at c97e7e8.
    """

    by: Annotated[
        Literal["judge", "rules"],
        about(
            "whether the answer is right; judge: by a verdict; rules: by an exact match of the "
            "final text without citations",
            "CaRR, released code at c97e7e8: judge",
            key="outcome.by",
        ),
    ] = "judge"
    answer: AnswerMatch = AnswerMatch("outcome", metric="exact")
    connect: Annotated[
        bool,
        about("a rubric counts only if supported rubrics connect it with the answer", _SERVER),
    ] = True
    max_cited: Annotated[
        int, about("number of different citations of a final text that count", _SERVER, ge=1)
    ] = 20
    cited_in: Annotated[
        Literal["text", "shown"],
        about(
            "citations that count; text: those before the heading References; shown: those that a "
            "reader sees beside a claim, before a list of sources under any heading",
            "CaRR, released code at c97e7e8: text",
        ),
    ] = "text"
    always: bool = True
    alpha: float = 0.3
    reading: Reading = READING
    repeated: Annotated[RepeatedAnswer, about(*REPEATED_ANSWER, key="repeated_answer")] = "last"
    name: str = "rubric_parts"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        rubrics = self._rubrics(rollout)
        run = rollout.trajectory(self.reading)
        text = answer_of(run, self.repeated)
        if not text:
            return []
        needs: list[Need] = []
        if self.by == "judge":
            needs.append(VerdictNeed("outcome", outcome_questions(rollout, text)))
        if not self.always:
            is_known = all(need.is_met(rollout) for need in needs)
            if not is_known or not self._outcome(rollout, text)[0]:
                return needs
        names = _all_placeholders(rubrics)
        if names:
            readable_rubrics = tuple(map(readable, rubrics))
            question = EntityQuestion(rollout.question or "", text, readable_rubrics, names)
            needs.append(EntitiesNeed(names, question))
            if not needs[-1].is_met(rollout):
                return needs
        cited = self._cited(rollout, run, text)
        claims = self._claims(rubrics, rollout.entities or {}) if cited else {}
        for i, claim in claims.items():
            supported = JudgeQuestion("supported", rollout.question or "", claim, (), cited)
            needs.append(VerdictNeed(_component(i), (supported,)))
        return needs

    @property
    def is_decided(self) -> bool:
        """Whether `matching.decide` decides on the answer."""
        return self.by == "rules" and self.answer.is_decided

    def score(self, rollout: Rollout) -> Score:
        rubrics = self._rubrics(rollout)
        run = rollout.trajectory(self.reading)
        text = answer_of(run, self.repeated)
        outcome, decision = self._outcome(rollout, text)
        components: dict[str, float | None] = dict.fromkeys(("outcome", "rubrics", *CHECKS))
        components["outcome"] = outcome
        details = details_of(run, text, {})
        if outcome or self.always or not text:
            checked = self._checked(rollout, run, text, rubrics)
            details |= checked
            for name in CHECKS:
                components[name] = sum(each[name] for each in checked["rubrics"]) / len(rubrics)
            components["rubrics"] = components["connected" if self.connect else "supported"]
        value = carr_reward(outcome, components["rubrics"] or 0.0, self.alpha)
        return Score(value, components, outcome, details | decision)

    def _cited(self, rollout: Rollout, run: Trajectory, text: str) -> tuple[str, ...]:
        """Return the texts of the results that the final text cites."""
        text = before_references(text)
        if self.cited_in == "shown":
            visible = without_invisible(shown(text, links=True))
            text = without_dumps(before_source_list(visible))
        return cited_results(rollout, run, text, self.max_cited)

    def _rubrics(self, rollout: Rollout) -> tuple[str, ...]:
        if not rollout.rubrics:
            what = "missing" if rollout.rubrics is None else "contains no rubric"
            raise DataError(
                f"{what}; list statements with placeholders, such as '<E0> was born in <E1>.'",
                "rubrics",
            )
        for i, rubric in enumerate(rollout.rubrics):
            if not rubric.strip():
                raise DataError("contains no text: remove it", f"rubrics[{i}]")
        if self.connect and not any(ROOT in placeholders(each) for each in rollout.rubrics):
            raise DataError(
                "no rubric contains <E0>, so that none could be connected with the answer: write "
                "<E0> for the answer, or set connect=false",
                "rubrics",
            )
        return rollout.rubrics

    def _outcome(self, rollout: Rollout, text: str | None) -> tuple[float, dict[str, Any]]:
        """Return the value of the final text, and the details of the decision on it."""
        if self.by == "rules":
            bare = strip_markers(without_url_citations(before_references(text or "")), _MARKER)
            return self.answer.correctness.decided_value(rollout, bare)
        _ = rollout.gold  # a row without gold answers is an error, also without a final text
        if not text:
            return 0.0, {}
        return float(VerdictNeed("outcome").read(rollout)), {}

    def _checked(
        self, rollout: Rollout, run: Trajectory, text: str | None, rubrics: Sequence[str]
    ) -> dict[str, Any]:
        """Return the names, the number of cited results, and what holds for each rubric."""
        wanted = _all_placeholders(rubrics) if text else ()
        given = EntitiesNeed(wanted).read(rollout) if wanted else {}
        names = {each: given[each] for each in wanted}
        cited = self._cited(rollout, run, text) if text else ()
        claims = self._claims(rubrics, names) if text else {}
        supported = {i for i in claims if cited and VerdictNeed(_component(i)).read(rollout)}
        reached = connected([placeholders(each) for each in rubrics], supported)
        sets = list(zip(CHECKS, (claims, supported, reached), strict=True))
        rows = [
            {"rubric": claims.get(i, rubric), **{name: i in held for name, held in sets}}
            for i, rubric in enumerate(rubrics)
        ]
        return {"entities": names, "cited_results": len(cited), "rubrics": rows}

    def _claims(self, rubrics: Sequence[str], names: Mapping[str, str | None]) -> dict[int, str]:
        """Return the rubrics whose placeholders have names, filled in, by position."""
        claims = {i: filled(rubric, names) for i, rubric in enumerate(rubrics)}
        return {i: claim for i, claim in claims.items() if claim is not None}


@dataclass(frozen=True, repr=False)
@check_choices
class CarrReward(Composite):
    """(1 − α)·R_o + α·R̂_r for a right answer, else 0.

    reward  the outcome R_o and the share R_r of the rubrics

    R̂_r is R_r, or its quotient by the greatest R_r of the group, 0 if that is 0.

    Range 0 to 1. Source: CaRR, C-GRPO; training script and sglang_rollout.py of
    the released code at c97e7e8.
    """

    reward: Reward
    alpha: Annotated[
        float, about("weight of the rubrics in the reward of a right answer", _SCRIPT, ge=0, le=1)
    ] = 0.3
    normalize: Annotated[
        Literal["group_max", "right_max", "none"],
        about(
            "what the share of the rubrics is divided by; group_max: the greatest share of the "
            "group; right_max: the greatest one of a right answer of the group, so that no rubric "
            "of the others is judged; none: nothing, as --rubric-only-positive of the released "
            "code",
            f"{_SCRIPT}: --normalize-rubric-reward",
        ),
    ] = "group_max"
    label: str = ""

    @property
    def scope(self) -> Scope:
        return "rollout" if self.normalize == "none" else "group"

    def __repr__(self) -> str:
        among = " of right rollouts" if self.normalize == "right_max" else ""
        share = "rubrics" if self.normalize == "none" else f"rubrics/(greatest rubrics{among})"
        return f"outcome·({1 - self.alpha:g} + {self.alpha:g}·{share})"

    def values(self, batch: Batch) -> list[Value]:
        components = [score.components for score in batch(self.reward)]
        outcomes = [each["outcome"] or 0.0 for each in components]
        shares = [each["rubrics"] or 0.0 for each in components]
        for group in () if self.normalize == "none" else batch.groups:
            counted = [i for i in group if self.normalize == "group_max" or outcomes[i]]
            greatest = max((shares[i] for i in counted), default=0.0)
            for i in group:
                shares[i] = shares[i] / greatest if greatest else 0.0
        return [carr_reward(o, s, self.alpha) for o, s in zip(outcomes, shares, strict=True)]


_MARKER = compiled()


def _component(i: int) -> str:
    """Return the key of the verdict on a rubric, counted from 1."""
    return f"supported:{i + 1}"


def _all_placeholders(rubrics: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for rubric in rubrics for each in placeholders(rubric)))


# --- placeholders ---------------------------------------------------------------------------------


def placeholders(rubric: str) -> tuple[str, ...]:
    """Return the placeholders of a rubric, each once.

    >>> placeholders("<E0> wrote <E2>, and <E0> wrote <E3>.")
    ('E0', 'E2', 'E3')
    """
    return tuple(dict.fromkeys(PLACEHOLDER.findall(rubric)))


def readable(rubric: str) -> str:
    """Return a rubric with its placeholders as words.

    >>> readable("<E0> was born in <E1>.")
    'E0 was born in E1.'
    """
    return PLACEHOLDER.sub(r"\1", rubric)


def filled(rubric: str, names: Mapping[str, str | None]) -> str | None:
    """Return a rubric with names in place of its placeholders, None if a name is missing.

    >>> filled("<E0> wrote <E1>.", {"E0": "Ada", "E1": "Notes"})
    'Ada wrote Notes.'
    >>> filled("<E0> wrote <E1>.", {"E0": "Ada", "E1": None}) is None
    True
    """
    if not all((names.get(each) or "").strip() for each in placeholders(rubric)):
        return None
    return PLACEHOLDER.sub(lambda match: (names.get(match[1]) or "").strip(), rubric)


def connected(rubrics: Sequence[Sequence[str]], supported: Collection[int]) -> set[int]:
    """Return the supported rubrics that are connected with the placeholder E0.

    rubrics    the placeholders of each rubric
    supported  positions of the supported rubrics

    A rubric is connected if it contains E0, or shares a placeholder with a connected rubric. The
    time is linear in the number of placeholders. Source: CaRR.

    >>> connected([["E0", "E1"], ["E1", "E2"], ["E3"]], {0, 1, 2}) == {0, 1}
    True
    >>> connected([["E0", "E1"], ["E1", "E2"], ["E3"]], {1, 2})
    set()
    """
    containing: dict[str, list[int]] = defaultdict(list)
    for i in supported:
        for each in rubrics[i]:
            containing[each].append(i)
    reached: set[int] = set()
    seen, waiting = {ROOT}, [ROOT]
    while waiting:
        for i in containing[waiting.pop()]:
            if i in reached:
                continue
            reached.add(i)
            new = [each for each in rubrics[i] if each not in seen]
            seen.update(new)
            waiting += new
    return reached
