"""The accuracy of the answer that a generator gives from found documents or from a section."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from rag_rewards.evidence.needs import GeneratedAnswerNeed, Need
from rag_rewards.prompts import Prompt
from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.correctness import Correctness
from rag_rewards.rewards.evidence import output_answer
from rag_rewards.rewards.search import details_of
from rag_rewards.rollout import Document, Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.sections import Tags
from rag_rewards.text.thinking import without_thinking
from rag_rewards.turns.trajectory import READING, Reading
from rag_rewards.turns.turn import Result

_S3 = "s3, released code at ba08d58: rag_2.py"
_SELECTION = ("<important_info>", "</important_info>")
_NUMBER = re.compile(r"(?<!\d)\d{1,40}(?!\d)")  # the label of a document can be a long id
Messages = tuple[tuple[str, str], ...]
"""The role and the content of each message of a chat."""


@dataclass(frozen=True)
class FromDocuments:
    """The chat that shows the question of a rollout and documents to a generator.

    with_documents  prompt with documents
    closed_book     prompt for a rollout without documents
    """

    with_documents: Prompt
    closed_book: Prompt

    def messages(self, rollout: Rollout, documents: Sequence[Document]) -> Messages:
        """Return the chat. The documents have the labels 1, 2, 3, …"""
        prompt = self.with_documents if documents else self.closed_book
        shown = Rollout(
            response="",
            question=rollout.question,
            query_time=rollout.query_time,
            documents=tuple(Document(title=each.title, text=each.text) for each in documents),
        )
        return tuple((each["role"], each["content"]) for each in prompt.messages(shown))

    def __call__(self, rollout: Rollout) -> Messages | None:
        """Return the chat about a rollout. By default, it shows the documents before any search."""
        return self.messages(rollout, first_documents(rollout))

    def details(self, rollout: Rollout, answer: str) -> dict[str, Any]:
        """Return what was read from the rollout, with the generated answer, for details."""
        return {}


@dataclass(frozen=True)
class FromSelection(FromDocuments):
    """The chat with the documents that a search agent selected."""

    reading: Reading = READING

    def __call__(self, rollout: Rollout) -> Messages:
        return self.messages(rollout, selected_documents(rollout, self.reading))

    def details(self, rollout: Rollout, answer: str) -> dict[str, Any]:
        return details_of(rollout.trajectory(self.reading), answer, {})


@dataclass(frozen=True)
class FromSection(FromDocuments):
    """The chat in which a section of the response replaces the documents.

    A response without the section, or with white space in it, has no chat.
    """

    section: str = "long_answer"
    tags: Tags = Tags(("answer",))

    def __call__(self, rollout: Rollout) -> Messages | None:
        text = rollout.parsed.cut(self.tags).content.get(self.section, "").strip()
        return self.messages(rollout, (Document(text=text),)) if text else None


def first_documents(rollout: Rollout) -> tuple[Document, ...]:
    """Return the documents of a row, none if they are the results of its searches."""
    documents = rollout.documents or ()
    return () if any(isinstance(each, Result) for each in documents) else documents


def selected_documents(rollout: Rollout, reading: Reading = READING) -> list[Document]:
    """Return the documents that a search agent selected, each text once.

    After each block of documents, the first ones and the results of each search, the agent can
    write the numbers of the important ones: `<important_info>[1, 4]</important_info>`. Those come
    first, in the order of their blocks; then all documents of blocks without a selection. The first
    selection after a block counts. Source: s3, released code at ba08d58: rag_2.py.

    >>> row = Rollout(response="<important_info>[2]</important_info><answer>done</answer>",
    ...               documents=("Rome.", "Paris."))
    >>> [document.text for document in selected_documents(row)]
    ['Paris.']
    """
    turns = rollout.trajectory(reading).turns
    first = first_documents(rollout)
    blocks = [dict(zip(rollout.labels, first, strict=True)) if first else {}]
    blocks += [{str(n): each for n, each in enumerate(turn.results or (), 1)} for turn in turns]
    selected: list[Document] = []
    others: list[Document] = []
    for block, words in _words_after(blocks, [turn.text for turn in turns]):
        numbers = _selection(words)
        if numbers is None:
            others += block.values()
        else:
            selected += [block[number] for number in numbers if number in block]
    by_text: dict[str, Document] = {}
    for document in (*selected, *others):
        by_text.setdefault(document.text, document)
    return list(by_text.values())


def _words_after(
    blocks: Sequence[dict[str, Document]], texts: Sequence[str]
) -> list[tuple[dict[str, Document], str]]:
    """Return each block with documents, and the words of the policy up to the next such block."""
    pairs: list[tuple[dict[str, Document], str]] = []
    words: list[str] = []
    for at in reversed(range(len(blocks))):
        if at < len(texts):
            words.append(texts[at])
        if blocks[at]:
            pairs.append((blocks[at], "\n".join(reversed(words))))
            words = []
    return pairs[::-1]


def _selection(text: str) -> Iterable[str] | None:
    """Return the numbers of the first selection in a text, each once; None without one."""
    _, opening, rest = text.partition(_SELECTION[0])
    inside, closing, _ = rest.partition(_SELECTION[1])
    if not opening or not closing:
        return None
    return dict.fromkeys(str(int(number)) for number in _NUMBER.findall(inside))


def final_answer(output: str) -> str:
    """Return the answer in an output of a generator, without its thinking.

    An unclosed tag of the thinking extends to the end, and the prompt can contain the opening tag.

    >>> final_answer("<think>Paris?</think>Rome"), final_answer("Paris?</think><answer>Rome")
    ('Rome', 'Rome')
    """
    return output_answer(without_thinking(output).rpartition("</think>")[2])


@dataclass(frozen=True)
@check_choices
class GeneratedAnswer(RolloutReward):
    """The accuracy of the answer that a generator gives to a chat about a rollout. Range 0 to 1.

    chat    the chat about a rollout; without one, the value is 0
    answer  comparison of the final answer with the gold answers

    The answer is the evidence `generated_answers.NAME`, and a verdict on it `verdicts.NAME`. Raises
    DataError for missing evidence and gold answers. Sources: s3, released code at ba08d58:
    rag_2.py; CANOE, released code at c6b215c: grpo.py.
    """

    chat: FromDocuments
    answer: AnswerMatch = AnswerMatch("accuracy")
    by: Annotated[
        Literal["rules", "judge"],
        about(
            "rules: the comparison alone decides on a generated answer; judge: a judge also "
            "decides on one that the comparison rejects",
            f"ours: a generator is enough; {_S3}: judge",
            key="accuracy.by",
        ),
    ] = "rules"
    temperature: Annotated[
        float,
        about(
            "sampling temperature of the generator",
            "ours: 0 causes less noise",
            key="decode.temperature",
            ge=0,
        ),
    ] = 0.0
    max_tokens: Annotated[
        int,
        about(
            "maximum number of tokens of a generated answer",
            "ours: enough for a short answer",
            key="decode.max_tokens",
            ge=1,
        ),
    ] = 256
    name: str = "accuracy"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        need = self._need(rollout)
        if need is None:
            return []
        if not need.is_met(rollout) or self.by == "rules":
            return [need]
        text = final_answer(need.read(rollout))
        if not text.strip() or self._correctness.value_of(rollout, text):
            return [need]
        return [need, self._correctness.verdict_need(rollout, text.strip())]

    def _need(self, rollout: Rollout) -> GeneratedAnswerNeed | None:
        messages = self.chat(rollout)
        if messages is None:
            return None
        return GeneratedAnswerNeed(self.name, messages, self.temperature, self.max_tokens)

    @cached_property
    def _correctness(self) -> Correctness:
        """The comparison, with the name of the verdict."""
        return replace(self.answer.correctness, component=self.name)

    def score(self, rollout: Rollout) -> Score:
        _ = rollout.gold  # a row without gold answers is in error whatever the generator writes
        need = self._need(rollout)
        if need is None:
            return Score(0.0)
        text = final_answer(need.read(rollout))
        value, decision = self._correctness.decided_value(rollout, text)
        if not value and self.by == "judge":
            value = self._correctness.verdict(rollout, text)
        # The answer of the component with the name of the comparison is the one that is decided.
        if self.name != self.answer.name:
            decision = {}
        answer = text.strip()
        details = self.chat.details(rollout, answer) or {f"{self.name}_answer": answer}
        return Score(value, details=details | decision)
