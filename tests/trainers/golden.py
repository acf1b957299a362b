"""Golden groups: the same rollouts, rewards and advantages for every trainer.

Rows bring what models would have said, so that no model is needed; rewards are written down as
numbers, worked out by hand from the papers' equations. Only rag-rewards and the standard library
are imported: every trainer's environment can.

    for group in GROUPS:
        scored(group)        # the rewards, as the recipe gives them now: equal to group.rewards
        advantages(group)    # what a trainer that normalises within the group must arrive at
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
}
"""What a data set knows about the question: the columns or the label of a trainer."""


@dataclass(frozen=True)
class Group:
    """The rollouts of one prompt. A reward of None: not scored. `padding` counts the rows that
    the trainer fills its batch with; they are nobody's rollouts and change nobody's advantage."""

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
        """Whether every member has a score."""
        return None not in self.rewards

    @property
    def label(self) -> str:
        """The gold fields as trainers with one label carry them: JSON."""
        return json.dumps({name: value for name, value in GOLD.items() if name != "question"})


@dataclass(frozen=True)
class _Said:
    """A response, what models said about it, and its reward where it does not need a group."""

    text: str
    evidence: Row
    reward: float


@dataclass(frozen=True)
class _Plan:
    """Four responses for one recipe; `in_groups` gives the rewards of the cases of a recipe that
    compares rollouts, `opening` is what a prompt may write for the model."""

    recipe: str
    opening: str
    right: _Said
    partly: _Said
    wrong: _Said
    truncated: _Said
    in_groups: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)


# --- the responses -----------------------------------------------------------------------------


def _entailed(*probabilities: tuple[int, str, float]) -> Row:
    """P(document entails statement), by the document's number."""
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
    """Sums of token log-probabilities in nats, spread evenly over the tokens."""
    spread = {label: [total / tokens] * tokens for label, total in without.items()}
    return {"logprobs": {"full": [full / tokens] * tokens, "without": spread}}


_ARENA = _Plan(
    "arena",
    "<relevance>",
    right=_Said(
        "<relevance>[1, 2]</relevance><analysis>1 names the Seine, 2 its mouth.</analysis>"
        "<answer>English Channel</answer>",
        {},
        13.0,  # format 1, accuracy 1, relevance 1, bonus 10
    ),
    partly=_Said(
        "<relevance>[1, 3]</relevance><analysis>1 and 3.</analysis><answer>the Channel</answer>",
        {},
        2.5,  # format 1, accuracy 1, relevance ½
    ),
    wrong=_Said(
        "<relevance>[3]</relevance><analysis>3.</analysis><answer>Atlantic Ocean</answer>", {}, 1.0
    ),
    truncated=_Said("<relevance>[1, 2]</relevance><analysis>1 names the", {}, 1.0),  # relevance
)
_NAIVE = _Plan(
    "naive-grpo",
    "<think>",
    right=_Said("<think>1, then 2.</think><answer>English Channel</answer>", {}, 2.0),
    partly=_Said("<think>1.</think><answer>the Channel</answer> I think.", {}, 1.0),
    wrong=_Said("<think>3.</think>Answer: <answer>Atlantic Ocean</answer>", {}, 0.0),
    truncated=_Said("<think>1 names the Seine, and so the", {}, 0.0),
)
_CITED = "The Seine flows into the English Channel."


def _ground(recipe: str, right: float, partly: float) -> _Plan:
    """tag_count 1, format 1, ½ for the statement that holds the answer, ±½ for its citation."""
    return _Plan(
        recipe,
        "<think>",
        right=_Said(
            "<think>2.</think><answer>The Seine flows into the English Channel [2].</answer>",
            _entailed((2, _CITED, 0.99)),
            right,
        ),
        partly=_Said(
            "<think>3.</think><answer>The Seine flows into the English Channel [3].</answer>",
            _entailed((3, _CITED, 0.02)),
            partly,
        ),
        wrong=_Said("<think>3.</think>It flows into the Atlantic Ocean [3].", {}, 0.5),
        truncated=_Said("<think>1 names the Seine, and so the", {}, 0.25),
    )


_GROUND_1 = _ground("ground-grpo-stage1", right=3.0, partly=2.0)
_GROUND_2 = _ground("ground-grpo", right=3.5, partly=2.5)  # ½ for answering what can be answered
_LEAR = _Plan(
    "lear",
    "<reason>",
    right=_Said(
        "<reason>Paris: Seine.</reason><extract>English Channel</extract>"
        "<answer>English Channel</answer>",
        {"masked_answers": {"rationale": "English Channel", "evidence": "English Channel"}},
        0.975,  # answers 1; rationale as long as the evidence ½, evidence 2 of 25 words 1; format 1
    ),
    partly=_Said(
        "<reason>Paris: Seine.</reason><extract>English Channel</extract>"
        "<answer>the Channel</answer>",
        {"masked_answers": {"rationale": "Paris", "evidence": "English Channel"}},
        0.8 * 2 / 3 + 0.175,  # the rationale alone leads elsewhere
    ),
    wrong=_Said(
        "<reason>Atlantic, surely.</reason><extract>Atlantic Ocean</extract>"
        "<answer>Atlantic Ocean</answer>",
        {"masked_answers": {"rationale": "Atlantic Ocean", "evidence": "Atlantic Ocean"}},
        0.175,
    ),
    truncated=_Said(
        "<reason>Paris: Seine.</reason><extract>English",
        {"masked_answers": {"rationale": "English Channel"}},
        0.8 / 3,  # one answer of three, no length, no format
    ),
)
_TRUTHRL = _Plan(
    "truthrl",
    "<think>",
    right=_Said(r"<think>2.</think>\boxed{English Channel}", {"verdicts": {"outcome": 1}}, 1.0),
    partly=_Said(r"<think>Hm.</think>\boxed{I don't know}", {"verdicts": {"outcome": 0}}, 0.0),
    wrong=_Said(r"<think>3.</think>\boxed{Atlantic Ocean}", {"verdicts": {"outcome": 0}}, -1.0),
    truncated=_Said("<think>1 names the", {"verdicts": {"outcome": 0}}, -1.0),
)
_LIKELIHOODS = {
    "right": _Said(
        "<think>1, 2.</think>The English Channel [1][2].",
        _likely(-2.0, {"1": -5.0, "2": -10.0}),  # E = 8, E/√4 = 4
        4.0,
    ),
    "partly": _Said(
        "<think>2.</think>The English Channel, I believe [2].",
        _likely(-3.0, {"1": -4.0, "2": -7.0}),  # E = 4
        2.0,
    ),
    "wrong": _Said(
        "<think>3.</think>The Atlantic [3].",
        _likely(-4.0, {"1": -4.5, "2": -4.25}),  # E = ½, below τ = 1
        0.0,
    ),
    "truncated": _Said(
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
        "one rollout": (1.0,),  # nothing to compare with: E above τ counts 1
        "partial group": (1.0, 0.0, 0.5),
        "all equal": (0.0, 0.0, 0.0, 0.0),  # Eq. 14 gives a group without spread 0
        "unscored member": (None, None, None, None),  # its siblings' scale is not known
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
    right=_Said("<think>1, 2.</think>The English Channel [1][2].", {}, 1.0),
    partly=_Said("<think>2.</think>The English Channel [2].", {}, 0.75),
    wrong=_Said("<think>3.</think>The Atlantic [3].", {}, 0.0),
    truncated=_Said("<think>1 names the Seine [1], and", {}, 0.25),
)
PLANS = (_ARENA, _GROUND_1, _GROUND_2, _LEAR, _TRUTHRL, _CTRL_RAG, _CLR, _NAIVE, _TOTAL)


# --- the cases ---------------------------------------------------------------------------------


def _row(said: _Said, **different: Any) -> Row:
    row = {**GOLD, "response": said.text, **said.evidence, **different}
    return {name: value for name, value in row.items() if value is not None}


def _prefilled(said: _Said, opening: str) -> Row:
    """The prompt ends with the opening tag, so that the completion lacks it."""
    if not said.text.startswith(opening):
        raise ValueError(f"{said.text!r} does not open with {opening}")
    return _row(said, response_prefix=opening, response=said.text[len(opening) :])


def _after_tools(said: _Said) -> Row:
    """A search before the response; what the tool returns holds the answer, and is not read."""
    turns = [
        {"role": "assistant", "content": "<answer>searching</answer>"},
        {"role": "tool", "content": "<answer>English Channel</answer> [1][2]"},
        {"role": "assistant", "content": said.text},
    ]
    return _row(said, response=turns)


def _unscored(said: _Said) -> Row:
    """Gold and evidence are missing: an error of the data or of a model, never a reward of 0."""
    return {"question": GOLD["question"], "documents": GOLD["documents"], "response": said.text}


def _groups(plan: _Plan) -> list[Group]:
    right, partly, wrong = plan.right, plan.partly, plan.wrong
    three = [_row(right), _row(partly), _row(wrong)]
    four = [*three, _row(right)]
    r, p, w, t = (said.reward for said in (right, partly, wrong, plan.truncated))
    cases: dict[str, tuple[list[Row], tuple[float | None, ...]]] = {
        "whole group": (four, (r, p, w, r)),
        "one rollout": (three[:1], (r,)),
        "partial group": ([three[0], three[2], three[1]], (r, w, p)),
        "all equal": ([_row(right)] * 4, (r, r, r, r)),
        "unscored member": ([three[0], _unscored(right), *three[1:]], (r, None, p, w)),
        "padding rows": (four, (r, p, w, r)),
        "end-of-sequence text": (
            [_row(said, response=said.text + "<|im_end|>\n") for said in (right, partly, wrong)],
            (r, p, w),
        ),
        "prefilled opening": (
            [_prefilled(said, plan.opening) for said in (right, partly, wrong)],
            (r, p, w),
        ),
        "tool turns": ([_after_tools(said) for said in (right, partly, wrong)], (r, p, w)),
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
"""The recipes with golden groups; the others are tested by `make test` alone."""
GROUPS: tuple[Group, ...] = tuple(group for plan in PLANS for group in _groups(plan))
CASES: tuple[str, ...] = tuple(dict.fromkeys(group.case for group in GROUPS))
"""The names of the cases, the same for every recipe."""


def bare(recipe: str) -> list[Row]:
    """Return the rows of a whole group without evidence, which is enough for recipes of rules.

    A recipe without golden groups gets a right and a wrong response in its output form.
    """
    groups = [group for group in GROUPS if group.id == f"{recipe}: whole group"]
    if groups:
        responses = [row["response"] for row in groups[0].rows]
    else:
        form = rr.RECIPES[recipe].output
        responses = [form.write(answer) for answer in ("the Channel", "Atlantic Ocean")]
    return [{**GOLD, "response": response} for response in responses]


class Recorded:
    """A gatherer that answers with what the golden rows say, by the text of the response.

        scorer.gatherer, scorer.models = Recorded(group), ASKED

    lets an adapter score a golden group as if it had asked the models.
    """

    def __init__(self, group: Group) -> None:
        known = [decode_row(row) for row in group.rows]
        self._said = {row.parsed.text: row.evidence for row in known if row.answers is not None}

    def gather_sync(
        self, reward: Any, rollouts: Sequence[Rollout], groups: Any = None
    ) -> list[Rollout]:
        return [row.with_evidence(self._said.get(row.parsed.text, Evidence())) for row in rollouts]

    async def gather(
        self, reward: Any, rollouts: Sequence[Rollout], groups: Any = None
    ) -> list[Rollout]:
        return self.gather_sync(reward, rollouts)


ASKED = Models(
    policy=TablePolicy({}), entailment=TableEntailment({}), judge=TableJudge(lambda asked: 0)
)
"""Models that there are, so that a scorer asks its gatherer."""


# --- what is expected --------------------------------------------------------------------------


def scored(group: Group) -> list[float | None]:
    """The rewards as the recipe gives them; None where there is no score."""
    rollouts = [decode_row({**row, "group": group.id}) for row in group.rows]
    results = Scorer(rr.recipe(group.recipe, group.settings)).score_each(rollouts)
    return [result.value if isinstance(result, Score) else None for result in results]


def advantages(
    group: Group, *, sample: bool = True, epsilon: float = 1e-4, std_floor: float | None = None
) -> list[float]:
    """(R − mean)/(std + ε) over the scored members, 0 for a member without a score.

    `sample` divides by n − 1 as the trainers' tensors do, the papers by n. `std_floor` is LEAR's
    (R − mean)/max(std, floor) instead, with the population's deviation always.
    """
    known = [reward for reward in group.rewards if reward is not None]
    if std_floor is not None:
        values = group_advantages(known, std_floor=std_floor)
    else:
        wider = math.sqrt(len(known) / (len(known) - 1)) if sample and len(known) > 1 else 1.0
        # (R − mean)/(wider·std + ε) is the z-score of a population with ε/wider, made smaller.
        values = [z / wider for z in zscores(known, epsilon=epsilon / wider)]
    return _placed(group.rewards, values)


def centred(group: Group) -> list[float]:
    """R − mean over the scored members: a trainer's own scaling switched off."""
    known = [reward for reward in group.rewards if reward is not None]
    mean = math.fsum(known) / len(known) if known else 0.0
    return _placed(group.rewards, [reward - mean for reward in known])


def _placed(rewards: Sequence[float | None], values: Sequence[float]) -> list[float]:
    """The values in the places of the rewards that are known, 0 in the others."""
    left = iter(values)
    return [0.0 if reward is None else next(left) for reward in rewards]
