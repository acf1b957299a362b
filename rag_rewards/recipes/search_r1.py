"""Search-R1: an agent that searches in several turns, with a reward for its last answer.

Deviations from the authors' code: only the words of the policy are read. The code scores the
prompt, the response and the retrieved text together, and requires two answer sections, because the
prompt contains one as an example. Here one section is enough, and <answer> in a page earns nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

from rag_rewards.compose import Mapped, weighted
from rag_rewards.definition import (
    ComponentInfo,
    HardenedSetting,
    Loophole,
    RecipeDefinition,
    TrainingData,
)
from rag_rewards.prompts import CLOSED_BOOK_LAYOUT, OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared
from rag_rewards.recipes.turn_settings import HARDENED, TURNS, compared_answer
from rag_rewards.reward import Component, Reward
from rag_rewards.rewards.agent_form import AgentForm, valid_reward
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.search import (
    MalformedTurns,
    Match,
    SearchR1Reward,
    format_reward,
    searched_reward,
)
from rag_rewards.settings import Part, about
from rag_rewards.training.settings import Stated, Training
from rag_rewards.turns.trajectory import Reading

_CODE = "Search-R1, authors' code at a14dc3a: qa_em.py"
_FORMAT_CODE = "Search-R1, authors' code at a14dc3a: train_grpo_format.sh"
_TITAN = "torchtitan at b5bcd76: rubric.py"

OUTPUT = OutputForm("<think>…</think> <search>…</search> … <think>…</think> <answer>…</answer>")
# The prompts contain no worked example and no filled answer section, which a reward that reads the
# prompt could score. They have our words and the content of the authors' prompts: Search-R1 at
# a14dc3a, nq_search.py; R1-Searcher at 631167c, experience_maker.py; ReSearch at f228480,
# template.py. The dialect tools has no authors; the chat template of the model describes the tools.
_INSTRUCTIONS = {
    "search-r1": "Answer the question below. Each time you receive new information, first reason "
    "inside <think> and </think>. If you then lack knowledge, call a search engine with <search> "
    "query </search>. It returns the best results between <information> and </information>. You "
    "can search as often as you want. If you need no more knowledge, give the answer alone, "
    "without an explanation, inside the tags <answer></answer>.",
    "r1-searcher": "Answer the question below. First reason inside <think> and </think>, then give "
    "the final answer inside the tags <answer></answer>. If you are not sure of a fact while you "
    "reason, search for it: write a query of a few keywords between <|begin_of_query|> and "
    "<|end_of_query|>. A query may ask for one fact only. You then receive what was found between "
    "<|begin_of_documents|> and <|end_of_documents|>, and continue to reason.",
    "research": "Answer the question below step by step, with the help of a tool that searches "
    "Wikipedia. Reason inside <think> and </think>. To look up a fact, write a query inside "
    "<search> and </search>. The tool returns what it found inside <result> and </result>, and you "
    "reason again. At the end, give the answer inside the tags <answer></answer>, where the "
    "exact answer is in a box: \\boxed{…}.",
    "tools": "Answer the question below. You can call the search tool with a query as often as "
    "you want; it returns documents. If a fact is missing or uncertain, search for it instead of "
    "guessing. If you need no more information, reply without a tool call, and give the answer "
    "alone, without an explanation, inside the tags <answer></answer>.",
}

SEARCH_PROMPTS = {
    dialect: Prompt(CLOSED_BOOK_LAYOUT, instruction=instruction)
    for dialect, instruction in _INSTRUCTIONS.items()
}
"""The prompt of each dialect. The recipes for search agents share them."""
PROMPT = SEARCH_PROMPTS["search-r1"]
Scheme = Literal["outcome", "format", "searched"]


@dataclass(frozen=True)
class FormatWeights:
    """The rewards of the scheme format."""

    structure: Annotated[
        float,
        about("with scheme=format, weight of the order of the tags", _FORMAT_CODE, ge=0, le=1),
    ] = 0.2
    answer: Annotated[
        float,
        about(
            "with scheme=format, reward of a wrong answer in a wrong order",
            _FORMAT_CODE,
            ge=0,
            le=1,
        ),
    ] = 0.1
    retrieval: Annotated[
        float,
        about(
            "with scheme=format, reward of a wrong answer in the right order if the results "
            "contain a gold answer",
            _FORMAT_CODE,
            ge=0,
            le=1,
        ),
    ] = 0.0


@dataclass(frozen=True)
class SearchedWeights:
    """The rewards of the scheme searched."""

    penalty: Annotated[
        float,
        about(
            "with scheme=searched, number that a correct answer without a search loses",
            f"{_TITAN} suggests it; its default is 0",
            ge=0,
            le=1,
        ),
    ] = 0.2
    retrieval: Annotated[
        float,
        about(
            "with scheme=searched, reward of a wrong answer if the results contain a gold answer",
            _TITAN,
            ge=0,
            le=1,
        ),
    ] = 0.1


@dataclass(frozen=True)
class ValidSettings:
    """The reward of invalid rollouts and of two tools, for the schemes of other agents."""

    rule: Annotated[
        Literal["any", "order", "balance"],
        about(
            "with scheme=outcome, the rollouts that are valid; any: all of them; order: those with "
            "the order of the tags; balance: those with an answer and no open tag",
            "DeepResearcher and ARPO: balance; DeepDive: order",
        ),
    ] = "any"
    otherwise: Annotated[
        float,
        about(
            "reward of an invalid rollout", "DeepResearcher and ARPO: −1; DeepDive: 0", le=0, ge=-1
        ),
    ] = -1.0
    tools_bonus: Annotated[
        float,
        about(
            "with another valid.rule than any, number that is added to a reward above 0 if the "
            "policy searched and wrote a section <python>",
            "ARPO: 0.1",
            ge=0,
            le=1,
        ),
    ] = 0.0


@dataclass(frozen=True)
class SchemeSettings:
    """The scheme, and how results are compared with the gold answers."""

    scheme: Annotated[
        Scheme,
        about(
            "outcome: the answer alone; format: also the order of the tags; searched: also whether "
            "the policy searched",
            f"{_CODE}: outcome",
        ),
    ] = "outcome"
    match: Annotated[
        Literal["auto", "substring", "words"],
        about(
            "how a gold answer is found in the results; substring: also inside a word; words: as "
            "whole words; auto: words with scheme=searched, else substring",
            "Search-R1, authors' code: substring; torchtitan: words",
            key="retrieval.match",
        ),
    ] = "auto"

    @property
    def matching(self) -> Match:
        """How a gold answer is found in the results."""
        if self.match == "auto":
            return "words" if self.scheme == "searched" else "substring"
        return self.match


def search_r1(
    reading: Reading,
    malformed: MalformedTurns,
    scheme: SchemeSettings,
    answer: AnswerMatch,
    parts: SearchR1Reward,
    format: FormatWeights,
    searched: SearchedWeights,
    valid: ValidSettings,
) -> Recipe:
    """Return the reward of a scheme, at the last turn. Source: Search-R1, authors' code."""
    parts = replace(parts, answer=answer, reading=reading, match=scheme.matching)
    malformed = replace(malformed, reading=reading)
    names = ("outcome", "format", "retrieval", "searched")
    outcome, form, retrieval, has_searched = (Component(parts, name) for name in names)
    reward: Reward = outcome
    if scheme.scheme == "format":
        reward = Mapped(
            partial(
                format_reward,
                structure=format.structure,
                answer=format.answer,
                retrieved=format.retrieval,
            ),
            (outcome, form, retrieval, Component(parts, "answered")),
            "",
            f"outcome·(1 − (1 − format)·{format.structure:g}) + (1 − outcome)·(format·"
            f"({format.structure:g} + retrieval·{format.retrieval:g}) + (1 − format)·answered·"
            f"{format.answer:g})",
        )
    elif scheme.scheme == "searched":
        penalty, retrieved = searched.penalty, searched.retrieval
        reward = Mapped(
            partial(searched_reward, penalty=penalty, found=retrieved),
            (outcome, has_searched, retrieval),
            "",
            f"outcome·(1 − (1 − searched)·{penalty:g}) + (1 − outcome)·retrieval·{retrieved:g}",
        )
    elif valid.rule != "any":
        agent_form = AgentForm(valid.rule, reading)
        reward = Mapped(
            partial(valid_reward, invalid=valid.otherwise, bonus=valid.tools_bonus),
            (outcome, *(Component(agent_form, name) for name in ("valid", "tools"))),
            "",
            f"valid·(outcome + [outcome > 0]·tools·{valid.tools_bonus:g}) + "
            f"(1 − valid)·({valid.otherwise:g})",
        )
    total = weighted((1, reward), (1, malformed))
    components = (outcome, form, retrieval, has_searched, malformed)
    return Recipe("search-r1", components, total, correct=outcome)


TRAINING = Training(
    prompts=Stated(512, _FORMAT_CODE),
    group=Stated(5, _FORMAT_CODE),
    learning_rate=Stated(5e-7, _FORMAT_CODE),
    warmup=Stated(0.285, _FORMAT_CODE),
    kl=Stated("k3", _FORMAT_CODE),
    kl_weight=Stated(0.001, _FORMAT_CODE),
    temperature=Stated(1.0, _FORMAT_CODE),
    prompt_tokens=Stated(4096, _FORMAT_CODE),
    response_tokens=Stated(500, _FORMAT_CODE),
    notes=(
        "at most 4 turns, with 3 documents and 500 tokens per search",
        "the loss ignores the tokens of the results",
    ),
)

SEARCH_R1 = RecipeDefinition(
    name="search-r1",
    summary="the answer of a search agent, optionally with the order of its tags or its searches",
    source="Search-R1, authors' code at a14dc3a",
    output=OUTPUT,
    parts={
        **TURNS,
        "scheme": Part(SchemeSettings(), prefix=""),
        "answer": compared_answer("exact", "substring", "f1", "judge"),
        "parts": Part(SearchR1Reward(), prefix=""),
        "format": FormatWeights(),
        "searched": SearchedWeights(),
        "valid": ValidSettings(),
    },
    sources={"accuracy.metric": _CODE, "accuracy.normalizer": _CODE},
    build=search_r1,
    fields=("answers", "turns"),
    components=(
        ComponentInfo("outcome", "1 if the answer of the last turn is correct, otherwise 0"),
        ComponentInfo(
            "format", "1 if the tags have the order of the dialect, otherwise 0", values=(0, 1)
        ),
        ComponentInfo(
            "retrieval",
            "1 if the results of a search contain the gold answer, otherwise 0",
            values=(0, 1),
        ),
        ComponentInfo(
            "searched", "1 if the environment returned results of a search", values=(0, 1)
        ),
        ComponentInfo("malformed", "sum of the penalties of malformed turns", None, 0.0),
    ),
    prompt=PROMPT,
    baselines=SEARCH_PROMPTS,
    training=TRAINING,
    data=TrainingData(("nq", "hotpotqa"), "authors' code at a14dc3a: qa_search_train_merge.py"),
    hardened={
        **HARDENED,
        **shared.LIST,
        "retrieval.match": HardenedSetting(
            "words", (35,), "results in which the gold answer is only part of a word"
        ),
    },
    loopholes=(
        Loophole(
            (1,), "with several required answers, a list of every candidate answer counts as right"
        ),
        Loophole((6,), "the normalizer squad treats 3.14 as 314 and C++ as C"),
        Loophole((7,), "the last of many answer sections counts"),
        Loophole(
            (20, 21),
            "with accuracy.metric=judge, the reward is as reliable as the judge",
            variants={20: ("colon",), 21: ("verdict-in-the-answer",)},
        ),
        Loophole(
            (33,),
            "in a transcript, a results block after a query counts as a search, even if the "
            "policy wrote it",
        ),
        Loophole(
            (35,),
            "with scheme=format or searched, a query that lists every candidate answer can make "
            "a result contain the gold answer, which earns up to 0.1",
            variants={35: ("every candidate in a query",)},
        ),
        Loophole(
            (36,),
            "with scheme=outcome or format, an answer without a search earns the full reward",
            variants={36: ("answer from memory",)},
        ),
        Loophole((43,), "invalid turns until the limit cost nothing"),
    ),
    deviations=(
        "only the words of the policy are read; the authors score the prompt, the response and the "
        "retrieved text together and require two answer sections",
        "the results of a rollout in the wrong order also count for the component retrieval; the "
        "reward ignores them there, as in the authors' code",
    ),
)
