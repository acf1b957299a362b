"""Golden groups: the same rollouts, rewards and advantages for every trainer.

The rows contain their evidence, so no model is needed. The rewards are numbers, computed by hand
from the equations of the papers. This module imports only rag-rewards and the standard library, so
it works in the environment of every trainer.

    for group in GROUPS:
        scored(group)        # the rewards of the recipe, which must equal group.rewards
        advantages(group)    # the advantages of a trainer that normalizes within the group
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import rag_rewards as rr
from rag_rewards.evidence.protocols import Models
from rag_rewards.rollout import Evidence, Rollout, Score
from rag_rewards.rows import decode_row
from rag_rewards.scorer import Scorer
from rag_rewards.testing import TableEntailment, TableJudge, TablePolicy
from rag_rewards.training.advantages import group_advantages, zscores

Row = dict[str, Any]

DOCUMENTS = (
    {"id": 1, "title": "Paris", "text": "Paris lies on both banks of the Seine."},
    {"id": 2, "title": "Seine", "text": "The Seine flows into the English Channel at Le Havre."},
    {"id": 3, "title": "Loire", "text": "The Loire flows into the Atlantic Ocean."},
)
GOLD: Row = {
    "question": "Into which sea does the river of Paris flow?",
    "documents": list(DOCUMENTS),
    "supporting": [1, 2],
    "answers": ["English Channel", "the Channel"],
    "answerable": True,
    "out_of_knowledge": False,
    "search_keys": [["river of Paris", "Paris river"], ["mouth of the Seine"]],
    "rubrics": ["<E1> flows into <E0>.", "Paris lies on <E1>."],
    "rubric": [{"criterion": "Names the English Channel."}],
}
"""The gold data of the question: the columns or the label of a trainer."""


@dataclass(frozen=True)
class Group:
    """The rollouts of one prompt. The reward None means unscored.

    `padding` is the number of rows with which the trainer fills its batch. They are no rollouts and
    must not change any advantage.
    """

    recipe: str
    case: str
    rows: tuple[Row, ...]
    rewards: tuple[float | None, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    padding: int = 0

    @property
    def id(self) -> str:
        return f"{self.recipe}: {self.case}"

    @property
    def scope(self) -> str:
        return str(rr.recipe(self.recipe, self.settings).scope)

    @property
    def whole(self) -> bool:
        """Whether every rollout has a reward."""
        return None not in self.rewards

    @property
    def label(self) -> str:
        """The gold fields as JSON, for trainers with one label per row."""
        return json.dumps({name: value for name, value in GOLD.items() if name != "question"})


@dataclass(frozen=True)
class _Response:
    """A response, its evidence, and its reward if that does not depend on a group."""

    text: str
    evidence: Row
    reward: float


@dataclass(frozen=True)
class _Plan:
    """Four responses for one recipe.

    `in_groups` contains the rewards of the cases if the recipe compares rollouts. `opening` is the
    tag that a prompt may open.
    """

    recipe: str
    opening: str
    right: _Response
    partly: _Response
    wrong: _Response
    truncated: _Response
    in_groups: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)


# --- the responses -----------------------------------------------------------------------------


def _entailed(*probabilities: tuple[int, str, float]) -> Row:
    """Return P(document entails statement) as evidence, by the number of the document."""
    return {
        "nli": [
            {
                "premise": f"Title: {DOCUMENTS[i - 1]['title']}\n{DOCUMENTS[i - 1]['text']}",
                "hypothesis": statement,
                "entailment": p,
            }
            for i, statement, p in probabilities
        ]
    }


def _likely(full: float, without: Mapping[str, float], tokens: int = 4) -> Row:
    """Return log-probabilities in nats, whose sum is divided evenly between the tokens."""
    spread = {label: [total / tokens] * tokens for label, total in without.items()}
    return {"logprobs": {"full": [full / tokens] * tokens, "without": spread}}


_ARENA = _Plan(
    "arena",
    "<relevance>",
    right=_Response(
        "<relevance>[1, 2]</relevance><analysis>1 names the Seine, 2 its mouth.</analysis>"
        "<answer>English Channel</answer>",
        {},
        13.0,  # format 1, accuracy 1, relevance 1, bonus 10
    ),
    partly=_Response(
        "<relevance>[1, 3]</relevance><analysis>1 and 3.</analysis><answer>the Channel</answer>",
        {},
        2.5,  # format 1, accuracy 1, relevance ½
    ),
    wrong=_Response(
        "<relevance>[3]</relevance><analysis>3.</analysis><answer>Atlantic Ocean</answer>", {}, 1.0
    ),
    truncated=_Response("<relevance>[1, 2]</relevance><analysis>1 names the", {}, 1.0),  # relevance
)
_NAIVE = _Plan(
    "naive-grpo",
    "<think>",
    right=_Response("<think>1, then 2.</think><answer>English Channel</answer>", {}, 2.0),
    partly=_Response("<think>1.</think><answer>the Channel</answer> I think.", {}, 1.0),
    wrong=_Response("<think>3.</think>Answer: <answer>Atlantic Ocean</answer>", {}, 0.0),
    truncated=_Response("<think>1 names the Seine, and so the", {}, 0.0),
)
_CITED = "The Seine flows into the English Channel."


def _ground(recipe: str, right: float, partly: float) -> _Plan:
    """Tag count 1, format 1, ½ for the statement with the answer, and ±½ for its citation."""
    return _Plan(
        recipe,
        "<think>",
        right=_Response(
            "<think>2.</think><answer>The Seine flows into the English Channel [2].</answer>",
            _entailed((2, _CITED, 0.99)),
            right,
        ),
        partly=_Response(
            "<think>3.</think><answer>The Seine flows into the English Channel [3].</answer>",
            _entailed((3, _CITED, 0.02)),
            partly,
        ),
        wrong=_Response("<think>3.</think>It flows into the Atlantic Ocean [3].", {}, 0.5),
        truncated=_Response("<think>1 names the Seine, and so the", {}, 0.25),
    )


_GROUND_1 = _ground("ground-grpo-stage1", right=3.0, partly=2.0)
_GROUND_2 = _ground("ground-grpo", right=3.5, partly=2.5)  # ½ for the attempt to answer
_LEAR = _Plan(
    "lear",
    "<reason>",
    right=_Response(
        "<reason>Paris: Seine.</reason><extract>English Channel</extract>"
        "<answer>English Channel</answer>",
        {"masked_answers": {"rationale": "English Channel", "evidence": "English Channel"}},
        0.975,  # answers 1; rationale as long as the evidence ½, evidence 2 of 25 words 1; format 1
    ),
    partly=_Response(
        "<reason>Paris: Seine.</reason><extract>English Channel</extract>"
        "<answer>the Channel</answer>",
        {"masked_answers": {"rationale": "Paris", "evidence": "English Channel"}},
        0.8 * 2 / 3 + 0.175,  # only the answer from the rationale is wrong
    ),
    wrong=_Response(
        "<reason>Atlantic, surely.</reason><extract>Atlantic Ocean</extract>"
        "<answer>Atlantic Ocean</answer>",
        {"masked_answers": {"rationale": "Atlantic Ocean", "evidence": "Atlantic Ocean"}},
        0.175,
    ),
    truncated=_Response(
        "<reason>Paris: Seine.</reason><extract>English",
        {"masked_answers": {"rationale": "English Channel"}},
        0.8 / 3,  # one answer of three, no length, no format
    ),
)
_TRUTHRL = _Plan(
    "truthrl",
    "<think>",
    right=_Response(r"<think>2.</think>\boxed{English Channel}", {"verdicts": {"outcome": 1}}, 1.0),
    partly=_Response(r"<think>Hm.</think>\boxed{I don't know}", {"verdicts": {"outcome": 0}}, 0.0),
    wrong=_Response(r"<think>3.</think>\boxed{Atlantic Ocean}", {"verdicts": {"outcome": 0}}, -1.0),
    truncated=_Response("<think>1 names the", {"verdicts": {"outcome": 0}}, -1.0),
)
_LIKELIHOODS = {
    "right": _Response(
        "<think>1, 2.</think>The English Channel [1][2].",
        _likely(-2.0, {"1": -5.0, "2": -10.0}),  # E = 8, E/√4 = 4
        4.0,
    ),
    "partly": _Response(
        "<think>2.</think>The English Channel, I believe [2].",
        _likely(-3.0, {"1": -4.0, "2": -7.0}),  # E = 4
        2.0,
    ),
    "wrong": _Response(
        "<think>3.</think>The Atlantic [3].",
        _likely(-4.0, {"1": -4.5, "2": -4.25}),  # E = ½, below τ = 1
        0.0,
    ),
    "truncated": _Response(
        "<think>1 names the",
        _likely(-2.0, {"1": -4.0, "2": -2.0}),  # E = 2
        1.0,
    ),
}
_CLR = _Plan("ctrl-rag-clr", "<think>", **_LIKELIHOODS)
_CTRL_RAG = _Plan(
    "ctrl-rag",
    "<think>",
    **_LIKELIHOODS,
    in_groups={  # (R − min)/(max − min), times 1 where the answer is right
        "whole group": (1.0, 0.5, 0.0, 1.0),
        "one rollout": (1.0,),  # nothing to compare with: E above τ is 1
        "partial group": (1.0, 0.0, 0.5),
        "all equal": (0.0, 0.0, 0.0, 0.0),  # Eq. 14 gives a group without spread 0
        "unscored member": (None, None, None, None),  # the scale of the other members is unknown
        "padding rows": (1.0, 0.5, 0.0, 1.0),
        "end-of-sequence text": (1.0, 0.5, 0.0),
        "prefilled opening": (1.0, 0.5, 0.0),
        "tool turns": (1.0, 0.5, 0.0),
        "truncated response": (1.0, 0.0, 0.0, 0.5),
    },
)
_TOTAL = _Plan(
    "rag-total",
    "<think>",
    right=_Response("<think>1, 2.</think>The English Channel [1][2].", {}, 1.0),
    partly=_Response("<think>2.</think>The English Channel [2].", {}, 0.75),
    wrong=_Response("<think>3.</think>The Atlantic [3].", {}, 0.0),
    truncated=_Response("<think>1 names the Seine [1], and", {}, 0.25),
)


def _cited(answer: str, outcome: int, *supported: int) -> _Response:
    """Return a response with two cited facts, and the verdicts of a judge on them."""
    text = f"<think>x</think><answer>{answer} [1](1) [2](2)</answer>"
    verdicts = {f"supported:{i}": verdict for i, verdict in enumerate(supported, start=1)}
    entities = {"E0": answer, "E1": "the Seine"}
    return _Response(text, {"entities": entities, "verdicts": {"outcome": outcome, **verdicts}}, 0)


_CARR = _Plan(
    "carr",
    "<think>",
    right=_cited("English Channel", 1, 1, 1),  # both rubrics are supported and connected
    partly=_cited("The English Channel", 1, 1, 0),
    wrong=_cited("Atlantic Ocean", 0, 0, 1),
    truncated=_Response("<think>x", {}, 0.0),
    in_groups={  # 0.7·outcome + 0.3·outcome·rubrics/max rubrics
        "whole group": (1.0, 0.85, 0.0, 1.0),
        "one rollout": (1.0,),
        "partial group": (1.0, 0.0, 0.85),
        "all equal": (1.0, 1.0, 1.0, 1.0),
        "unscored member": (None, None, None, None),
        "padding rows": (1.0, 0.85, 0.0, 1.0),
        "end-of-sequence text": (1.0, 0.85, 0.0),
        "prefilled opening": (1.0, 0.85, 0.0),
        "tool turns": (1.0, 0.85, 0.0),  # no search, so that the documents can be cited
        "truncated response": (1.0, 0.0, 0.0, 0.85),
    },
)
PLANS = (_ARENA, _GROUND_1, _GROUND_2, _LEAR, _TRUTHRL, _CTRL_RAG, _CLR, _NAIVE, _TOTAL, _CARR)


# --- the cases ---------------------------------------------------------------------------------


def _row(sample: _Response, **different: Any) -> Row:
    row = {**GOLD, "response": sample.text, **sample.evidence, **different}
    return {name: value for name, value in row.items() if value is not None}


def _prefilled(sample: _Response, opening: str) -> Row:
    """Return a row whose prompt opens the tag, so that the completion lacks it."""
    if not sample.text.startswith(opening):
        raise ValueError(f"{sample.text!r} does not open with {opening}")
    return _row(sample, response_prefix=opening, response=sample.text[len(opening) :])


def _after_tools(sample: _Response) -> Row:
    """Return a row with a search before the response. The tool message contains the answer."""
    turns = [
        {"role": "assistant", "content": "<answer>searching</answer>"},
        {"role": "tool", "content": "<answer>English Channel</answer> [1][2]"},
        {"role": "assistant", "content": sample.text},
    ]
    return _row(sample, response=turns)


def _unscored(sample: _Response) -> Row:
    """Return a row without gold data and evidence, which is an error and not a reward of 0."""
    return {"question": GOLD["question"], "documents": GOLD["documents"], "response": sample.text}


def _groups(plan: _Plan) -> list[Group]:
    right, partly, wrong = plan.right, plan.partly, plan.wrong
    three = [_row(right), _row(partly), _row(wrong)]
    four = [*three, _row(right)]
    r, p, w, t = (sample.reward for sample in (right, partly, wrong, plan.truncated))
    cases: dict[str, tuple[list[Row], tuple[float | None, ...]]] = {
        "whole group": (four, (r, p, w, r)),
        "one rollout": (three[:1], (r,)),
        "partial group": ([three[0], three[2], three[1]], (r, w, p)),
        "all equal": ([_row(right)] * 4, (r, r, r, r)),
        "unscored member": ([three[0], _unscored(right), *three[1:]], (r, None, p, w)),
        "padding rows": (four, (r, p, w, r)),
        "end-of-sequence text": (
            [
                _row(sample, response=sample.text + "<|im_end|>\n")
                for sample in (right, partly, wrong)
            ],
            (r, p, w),
        ),
        "prefilled opening": (
            [_prefilled(sample, plan.opening) for sample in (right, partly, wrong)],
            (r, p, w),
        ),
        "tool turns": ([_after_tools(sample) for sample in (right, partly, wrong)], (r, p, w)),
        "truncated response": (
            [three[0], _row(plan.truncated, finish_reason="length"), three[2], three[1]],
            (r, t, w, p),
        ),
    }
    return [
        Group(
            plan.recipe,
            case,
            tuple({**row, "id": f"{case}-{i}"} for i, row in enumerate(rows)),
            plan.in_groups.get(case, rewards),
            padding=2 if case == "padding rows" else 0,
        )
        for case, (rows, rewards) in cases.items()
    ]


RECIPES: tuple[str, ...] = tuple(plan.recipe for plan in PLANS)
"""The recipes with golden groups. Only `make test` tests the others."""
GROUPS: tuple[Group, ...] = tuple(group for plan in PLANS for group in _groups(plan))
CASES: tuple[str, ...] = tuple(dict.fromkeys(group.case for group in GROUPS))
"""The names of the cases, which are the same for every recipe."""


SEARCH = {"text": "<search>river</search>", "results": [{"text": "The Seine runs to the sea."}]}
"""A turn with a search."""


def bare(recipe: str) -> list[Row]:
    """Return the rows of a whole group without evidence, which is enough for recipes of rules.

    A recipe without golden groups gets a right and a wrong response in its output form. If it needs
    turns, a search precedes the response, unless that would be outside of its steps.
    """
    groups = [group for group in GROUPS if group.id == f"{recipe}: whole group"]
    if groups:
        responses = [row["response"] for row in groups[0].rows]
    else:
        form = rr.RECIPES[recipe].output
        responses = [form.write(answer) for answer in ("the Channel", "Atlantic Ocean")]
    if not groups and rr.recipe(recipe).needs_turns and "<step>" not in responses[0]:
        return [{**GOLD, "turns": [SEARCH, {"text": response}]} for response in responses]
    return [{**GOLD, "response": response} for response in responses]


class EvidenceGatherer:
    """A gatherer that returns the evidence of the golden rows, by the text of the response.

        scorer.gatherer, scorer.models = EvidenceGatherer(group), MODELS

    lets an adapter score a golden group without models.
    """

    def __init__(self, group: Group) -> None:
        rows = [decode_row(row) for row in group.rows]
        self._evidence = {row.parsed.text: row.evidence for row in rows if row.answers is not None}

    def gather_sync(
        self, reward: Any, rollouts: Sequence[Rollout], groups: Any = None
    ) -> list[Rollout]:
        return [
            rollout.with_evidence(self._evidence.get(rollout.parsed.text, Evidence()))
            for rollout in rollouts
        ]

    async def gather(
        self, reward: Any, rollouts: Sequence[Rollout], groups: Any = None
    ) -> list[Rollout]:
        return self.gather_sync(reward, rollouts)


MODELS = Models(
    policy=TablePolicy({}), entailment=TableEntailment({}), judge=TableJudge(lambda question: 0)
)
"""Models of each kind, so that a scorer uses its gatherer."""


# --- what is expected --------------------------------------------------------------------------


def scored(group: Group) -> list[float | None]:
    """Return the rewards of the recipe, with None for unscored rollouts."""
    rollouts = [decode_row({**row, "group": group.id}) for row in group.rows]
    results = Scorer(rr.recipe(group.recipe, group.settings)).score_each(rollouts)
    return [result.value if isinstance(result, Score) else None for result in results]


def advantages(
    group: Group, *, sample: bool = True, epsilon: float = 1e-4, std_floor: float | None = None
) -> list[float]:
    """Return (R − mean)/(std + ε) over the scored members, and 0 for an unscored member.

    With `sample`, the standard deviation is that of a sample (n − 1), as in the trainers; the
    papers use that of the population (n). With `std_floor`, the advantage is that of LEAR,
    (R − mean)/max(std, floor), always with the standard deviation of the population.
    """
    scored = [reward for reward in group.rewards if reward is not None]
    if std_floor is not None:
        values = group_advantages(scored, std_floor=std_floor)
    else:
        wider = math.sqrt(len(scored) / (len(scored) - 1)) if sample and len(scored) > 1 else 1.0
        # (R − mean)/(wider·std + ε) is the z-score of a population with ε/wider, divided by wider.
        values = [z / wider for z in zscores(scored, epsilon=epsilon / wider)]
    return _placed(group.rewards, values)


def centred(group: Group) -> list[float]:
    """Return R − mean over the scored members: the advantage without scaling."""
    scored = [reward for reward in group.rewards if reward is not None]
    mean = math.fsum(scored) / len(scored) if scored else 0.0
    return _placed(group.rewards, [reward - mean for reward in scored])


def _placed(rewards: Sequence[float | None], values: Sequence[float]) -> list[float]:
    """Return the values at the positions of the scored rollouts, and 0 at the others."""
    left = iter(values)
    return [0.0 if reward is None else next(left) for reward in rewards]
