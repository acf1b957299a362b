"""DR Tulu: a report with citations as tags, graded by a rubric that can evolve with the policy.

Traps of the released code, which this recipe does not have: of a citation with several ids, only
the last one counts; and the asynchronous precision looks for "Fully supported" in the reply to a
prompt that asks for "Relevant" or "Unrelevant", so that it and the F1 of every claim are always 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from rag_rewards.compose import weighted
from rag_rewards.definition import ComponentInfo, HardenedSetting, Loophole, RecipeDefinition
from rag_rewards.prompts import CLOSED_BOOK_LAYOUT, OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes.turn_settings import HARDENED, TURNS
from rag_rewards.reward import Component, Reward
from rag_rewards.rewards.dr_tulu import CitedClaims, ReportFormat, SearchCount
from rag_rewards.rewards.rubric import EvolvingRubric, Rubric
from rag_rewards.rewards.search import MalformedTurns
from rag_rewards.settings import Part, about
from rag_rewards.training.settings import Stated, Training
from rag_rewards.turns.trajectory import Reading

_CODE = "DR Tulu, released code at 6188f34"
_SCRIPT = f"{_CODE}: train_dr_tulu.sh"
_REWARD = f"{_CODE}: longform_rubric_rewards.py"
OUTPUT = OutputForm('<think>…</think> <answer>… <cite id="…">…</cite> …</answer>')
PROMPT = Prompt(
    CLOSED_BOOK_LAYOUT,
    instruction="Answer the question with a report. Search as often as you need, at least three "
    "times, and reason inside <think> and </think> before each search. Then write the report "
    "inside <answer> and </answer>. Put each claim that rests on a result between citation tags "
    'with the id of the result, as in <cite id="a1b2">claim</cite>, with several ids separated by '
    "commas. Cite only results of your searches.",
)


@dataclass(frozen=True)
class Weights:
    """The weights of the components."""

    rubric: Annotated[float, about("weight of the rubric", f"{_REWARD}; .6 without citations")] = (
        0.5
    )
    citation: Annotated[float, about("weight of citations; 0: none is judged", _REWARD)] = 0.2
    format: Annotated[float, about("weight of the format", _REWARD)] = 0.2
    searches: Annotated[float, about("weight of searches", f"{_REWARD}; .2 without citations")] = (
        0.1
    )


def dr_tulu(
    reading: Reading,
    malformed: MalformedTurns,
    weights: Weights,
    rubric: Rubric,
    evolving: EvolvingRubric,
    citation: CitedClaims,
    format: ReportFormat,
    searches: SearchCount,
) -> Recipe:
    """Return .5·rubric + .2·citation + .2·format + .1·searches, at the last turn."""
    rubric = replace(rubric, reading=reading)
    graded = replace(evolving, rubric=rubric)
    grades = tuple(Component(graded, name) for name in rubric.criterion_names)
    terms: list[tuple[float, Reward]] = [
        (weights.rubric, graded),
        *([(weights.citation, replace(citation, reading=reading))] if weights.citation else ()),
        (weights.format, replace(format, reading=reading)),
        (weights.searches, replace(searches, reading=reading)),
        (1.0, replace(malformed, reading=reading)),
    ]
    return Recipe("dr-tulu", (*(part for _, part in terms), *grades), weighted(*terms))


TRAINING = Training(
    prompts=Stated(32, _SCRIPT),
    group=Stated(8, _SCRIPT),
    learning_rate=Stated(5e-7, _SCRIPT),
    schedule=Stated("constant", _SCRIPT),
    kl=Stated("k3", _SCRIPT),
    kl_weight=Stated(0.001, _SCRIPT),
    temperature=Stated(1.0, _SCRIPT),
    prompt_tokens=Stated(2048, _SCRIPT),
    response_tokens=Stated(16_384, _SCRIPT),
    notes=("the judge of the rubric is gpt-4.1-mini", "at most 10 calls of tools"),
)

DR_TULU = RecipeDefinition(
    name="dr-tulu",
    summary="a report by a rubric, its citations, its format and the number of searches",
    source=_REWARD,
    output=OUTPUT,
    parts={
        **TURNS,
        "weights": Weights(),
        "rubric": Rubric(best=2, clip=False, documents=False, reads="answer"),
        "evolving": Part(EvolvingRubric(Rubric()), prefix="rubric"),
        "citation": CitedClaims(),
        "format": ReportFormat(),
        "searches": SearchCount(),
    },
    sources={f"rubric.{key}": _REWARD for key in ("best", "clip", "documents", "reads")},
    build=dr_tulu,
    fields=("rubric", "turns", "verdicts.rubric", "verdicts.citation"),
    components=(
        ComponentInfo("rubric", "weighted mean of the grades; faults are below 0", None),
        ComponentInfo("citation", "0.6·(mean F1 of the claims) + 0.4·(share of ids that exist)"),
        ComponentInfo("format", "0.5·[answer] + 0.3·[citation] + 0.2·[query]"),
        ComponentInfo("searches", "number of searches divided by 3, at most 1"),
        ComponentInfo("malformed", "sum of the penalties of malformed turns", None, 0.0),
    ),
    prompt=PROMPT,
    training=TRAINING,
    hardened={
        "results_from": HARDENED["results_from"],
        "malformed_penalty": HARDENED["malformed_penalty"],
        "citation.uncited": HardenedSetting("needed", (46,), "text that needs no citation"),
        "citation.precision": HardenedSetting("result", (17,), "citations of every result"),
        "format.valid": HardenedSetting(
            True, (13, 44), "empty answers, citations of nothing, and queries without results"
        ),
        "searches.count": HardenedSetting(
            "new", (37, 38), "searches without results, or with the same results"
        ),
    },
    loopholes=(
        Loophole((13,), "an empty answer is rewarded"),
        Loophole(
            (21,),
            "a response can address the judge; judge_checks=always checks it by planted questions",
            variants={21: ("grades-by-request",)},
        ),
        Loophole((17,), "a citation of every result counts like one of the results that support"),
        Loophole((44,), "a citation of an id that no result has is rewarded by the format"),
        Loophole((37, 38), "searches are counted, whatever they return"),
        Loophole((46,), "a claim that needs no citation counts like one that is supported"),
    ),
    deviations=(
        "all ids of a citation count, as one source; in the released code only the last one does",
        "precision follows from the grades of support; the released code asks for it, and its "
        "asynchronous precision is always 0",
        "the claims are those of the answer; the released code also reads thinking and results",
        "a failed judge leaves the rollout unscored, not at 0; weights may sum to less than 1",
        "adaptive criteria are those of the row; the released code lets a language model write "
        "them, and leaves some out only from the next step on",
    ),
)
