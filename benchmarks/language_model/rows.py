"""Rows on which the evidence of a language model is measured, from data sets in a folder.

Each construction is stated in `KINDS` and `REASONED`. No row is written to the repository.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

import rag_rewards as rr
from rag_rewards.text.normalize import normalizer

MULTIHOP = {
    "HotpotQA": "hotpotqa_gold_plus_3_distractors",
    "MuSiQue": "musique_gold_plus_3_distractors",
    "2Wiki": "2wikimultihopqa_gold_plus_3_distractors",
}
R1_SEARCHER = ("hotpotqa_qwen_first200", "bamboogle_qwen", "bamboogle_llama")
KINDS = {
    "supported": "the right answer, with the gold paragraphs in the prompt",
    "memory": "the same response, after each gold paragraph and each paragraph that contains the "
    "answer was replaced by a gold paragraph of another question; the replaced gold paragraphs "
    "count as the supporting documents",
    "wrong": "the answer of another question, of the same type (yes or no, with a digit, or "
    "other), which no paragraph contains; yes becomes no, and no becomes yes",
    "misread": "a number or a name of a gold paragraph that is neither the answer nor in the "
    "question",
    "copied distractor": "the first sentence, of six words or more and without the answer, of a "
    "paragraph that does not support",
    "copied gold": "the same of a gold paragraph",
}
COPIED_ANSWER = "copied answer"
"""A further kind: the first sentence of a gold paragraph that contains the answer, alone. It is
supported and right, so that it is compared with supported responses and not counted among the
others."""
FORMS = {
    "short": "the sentence “The answer is: X.”, whose colon the model expects",
    "reasoned": "the reasoning of the data set, which ends with “So the answer is: X.”; a wrong "
    "answer replaces the right one in the whole text, or yes and no at its end (no NQ)",
}
PLAIN = "{documents}\n\nQuestion: {question}\nAnswer:"


@dataclass(frozen=True)
class Item:
    """A rollout with what is measured on it.

    question  position among the questions of the data set
    facts     further facts, such as the number of supporting documents
    """

    data: str
    question: int
    kind: str
    form: str
    rollout: rr.Rollout
    facts: Mapping[str, Any] = field(default_factory=dict)

    def with_evidence(self, evidence: Mapping[str, Any]) -> Item:
        """Return the same with the evidence of a model, as it is in a row."""
        row = msgspec.to_builtins(self.rollout)
        return replace(self, rollout=rr.decode_row({**row, **evidence}))


@dataclass(frozen=True)
class Question:
    """A question with its paragraphs, of which some are gold.

    reasoning  text that ends with "So the answer is: X.", or "" without one
    """

    text: str
    answers: Sequence[str]
    reasoning: str
    documents: Sequence[Mapping[str, str]]
    gold: Sequence[bool]

    @property
    def answer(self) -> str:
        return self.answers[0]

    @property
    def type(self) -> str:
        if self.answer.lower() in ("yes", "no"):
            return "yes or no"
        return "digit" if re.search(r"\d", self.answer) else "other"

    def paragraphs(self, gold: bool) -> Iterator[Mapping[str, str]]:
        return (
            doc for doc, is_gold in zip(self.documents, self.gold, strict=True) if is_gold is gold
        )

    def in_text(self, text: str) -> bool:
        """Return whether a text contains one of the answers. Yes and no count as in no text."""
        return self.type != "yes or no" and any(contains(text, a) for a in self.answers)


def contains(text: str, phrase: str) -> bool:
    """Return whether a text contains a phrase as whole words, after the normalizer `squad`.

    >>> contains("The Paris-Nice race.", "paris nice"), contains("Parisian", "Paris")
    (False, False)
    >>> contains("In Paris.", "the Paris")
    True
    """
    squad = normalizer("squad")
    return f" {squad(phrase)} " in f" {squad(text)} "


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, which end after a word of two letters or more.

    >>> sentences("It was made by Edward L. Cahn. He died.")
    ['It was made by Edward L. Cahn.', 'He died.']
    """
    return re.split(r"(?<=\w\w[.!?]) +(?=[A-Z])", text)


def whole(doc: Mapping[str, str]) -> str:
    return f"{doc['title']}\n{doc['text']}"


# --- questions -----------------------------------------------------------------------------------


def questions(shared: Path, data: str) -> list[Question]:
    """Return the questions of a data set in the order of its file."""
    if data == "NQ":
        return _nq(shared / "data" / "nq" / "nq_open_oracle_first25.jsonl")
    file = shared / "data" / "ircot_multihop" / f"{MULTIHOP[data]}.jsonl"
    return [
        Question(
            raw["question"],
            [raw["answer"]],
            raw["cot_answer"],
            [{"title": p["title"], "text": p["paragraph_text"]} for p in raw["paragraphs"]],
            raw["is_supporting"],
        )
        for raw in read(file)
    ]


def _nq(file: Path) -> list[Question]:
    """Return rows of NQ, each with the gold passages of the next four as distractors."""
    rows = [{k: v if k == "question" else _parsed(v) for k, v in raw.items()} for raw in read(file)]
    passages = [
        {"title": each["title"], "text": each["text"]}
        for raw in rows
        for each in raw["ctxs"]
        if each["isgold"]
    ]
    result = []
    for i, raw in enumerate(rows):
        others = [passages[(i + k) % len(rows)] for k in range(1, 5)]
        at = i % 5
        gold = [place == at for place in range(5)]
        documents = [*others[:at], passages[i], *others[at:]]
        result.append(Question(raw["question"], raw["answers"], "", documents, gold))
    return result


def _parsed(value: Any) -> Any:
    return ast.literal_eval(value) if isinstance(value, str) else value


def read(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file. Raises SystemExit if it is missing."""
    if not file.exists():
        raise SystemExit(f"{file} is missing: set --shared to the folder that contains data/")
    yield from map(json.loads, file.read_text("utf-8").splitlines())


# --- responses for CTRL-RAG ----------------------------------------------------------------------


def contrastive_items(shared: Path, data: str, prompt: str) -> list[Item]:
    """Return the responses of each question, of every kind and form that it allows."""
    all_questions = questions(shared, data)
    return [
        item
        for i, question in enumerate(all_questions)
        for item in _of_question(
            data, i, question, [*all_questions[i + 1 :], *all_questions[:i]], prompt
        )
    ]


def copied_answers(shared: Path, data: str, prompt: str) -> list[Item]:
    """Return for each question the first gold sentence that contains the answer, if any."""
    items = []
    for i, question in enumerate(questions(shared, data)):
        if sentence := answer_sentence(question):
            items.append(
                Item(data, i, COPIED_ANSWER, "copied", rollout(question, sentence, prompt))
            )
    return items


def _of_question(
    data: str, i: int, question: Question, others: Sequence[Question], prompt: str
) -> Iterator[Item]:
    replaced = without_gold(question, others)
    answers = {
        "supported": (question, question.answer),
        "memory": (replaced, question.answer),
        "wrong": (question, other_answer(question, others)),
        "misread": (question, misread_answer(question)),
    }
    responses = [
        (kind, form, shown, text)
        for kind, (shown, answer) in answers.items()
        for form, text in texts(question, answer).items()
    ]
    for kind, gold in (("copied distractor", False), ("copied gold", True)):
        sentence = copied_sentence(question, gold)
        responses += [(kind, form, question, sentence) for form in FORMS if sentence]
    facts = {
        "supporting": sum(question.gold),
        "answer in gold": any(question.in_text(whole(doc)) for doc in question.paragraphs(True)),
        "answer in question": question.in_text(question.text),
        "type": question.type,
    }
    for kind, form, shown, text in responses:
        if form == "short" or question.reasoning:
            yield Item(data, i, kind, form, rollout(shown, text, prompt), facts)


def texts(question: Question, answer: str | None) -> dict[str, str]:
    """Return a response with an answer in each form, without those that are not possible."""
    if answer is None:
        return {}
    result = {"short": f"The answer is: {answer}."}
    end = f"So the answer is: {question.answer}."
    if question.reasoning.endswith(end):
        before = question.reasoning.removesuffix(end)
        if question.type != "yes or no":
            before = re.sub(rf"(?<!\w){re.escape(question.answer)}(?!\w)", lambda _: answer, before)
        result["reasoned"] = f"{before}So the answer is: {answer}."
    return result


def without_gold(question: Question, others: Sequence[Question]) -> Question:
    """Return a question whose gold paragraphs, and all with its answer, are those of others."""
    spare = (
        doc
        for other in others
        for doc in other.paragraphs(True)
        if not question.in_text(whole(doc)) and doc not in question.documents
    )
    documents = [
        next(spare) if is_gold or question.in_text(whole(doc)) else doc
        for doc, is_gold in zip(question.documents, question.gold, strict=True)
    ]
    return Question(question.text, question.answers, question.reasoning, documents, question.gold)


def other_answer(question: Question, others: Sequence[Question]) -> str | None:
    """Return the answer of the next question of the same type that no paragraph contains."""
    if question.type == "yes or no":
        return "no" if question.answer.lower() == "yes" else "yes"
    shown = " ".join(map(whole, question.documents))
    return next(
        (
            other.answer
            for other in others
            if other.type == question.type
            and not contains(shown, other.answer)
            and not question.in_text(other.answer)
        ),
        None,
    )


_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][\w'’-]+(?: [A-Z][\w'’-]+){0,3}")


def misread_answer(question: Question) -> str | None:
    """Return the first number or name of a gold paragraph that shares no word with the answers.

    A name consists of capitalized words that do not begin a sentence. It is not in the question.
    """
    if question.type == "yes or no":
        return None
    squad = normalizer("squad")
    taken = {w for text in (question.text, *question.answers) for w in squad(text).split()}
    pattern = _NUMBER if question.type == "digit" else _NAME
    candidates = (
        match.group()
        for doc in question.paragraphs(True)
        for match in pattern.finditer(doc["text"])
    )
    return next((c for c in candidates if not taken & set(squad(c).split())), None)


def copied_sentence(question: Question, gold: bool) -> str | None:
    """Return the first sentence without the answer, of six words or more, of a paragraph."""
    for doc in question.paragraphs(gold):
        for sentence in sentences(doc["text"]):
            if len(sentence.split()) >= 6 and not question.in_text(sentence):
                return sentence
    return None


def rollout(question: Question, response: str, prompt: str) -> rr.Rollout:
    """Return a rollout with the prompt of the recipe, or with a plain prompt."""
    labels = [str(n) for n in range(1, len(question.documents) + 1)]
    documents = [
        {"id": label, **doc} for label, doc in zip(labels, question.documents, strict=True)
    ]
    blocks = [f"[{doc['id']}] {doc['title']}\n{doc['text']}" for doc in documents]
    row: dict[str, Any] = {
        "question": question.text,
        "documents": documents,
        "supporting": [label for label, gold in zip(labels, question.gold, strict=True) if gold],
        "answers": list(question.answers),
        "response": response,
    }
    if prompt == "plain":
        row["prompt"] = PLAIN.format(documents="\n\n".join(blocks), question=question.text)
        row["response"] = f" {response}"
    return rr.decode_row(row)


# --- rollouts of a search agent ------------------------------------------------------------------


def search_items(shared: Path, prompt: str) -> list[Item]:
    """Return the rollouts of R1-Searcher with their verdicts, in the order of their files."""
    items = []
    for name in R1_SEARCHER:
        for i, raw in enumerate(read(shared / "data" / "r1_searcher" / f"{name}.jsonl")):
            row: dict[str, Any] = {
                "id": f"{name}-{i}",
                "question": raw["question"],
                "answers": raw["answer"],
                "response": raw["gen_text_store"],
                "response_prefix": "<think>",
            }
            if prompt == "plain":
                row["prompt"] = f"Question: {raw['question']}\nAnswer: "
            facts = {"right": raw["gpt4o_output"] == "True"}
            items.append(Item(name, i, "search", "search", rr.decode_row(row), facts))
    return items


# --- rollouts for LEAR ---------------------------------------------------------------------------

REASONED = {
    "supported": "the reasoning of the data set without its last sentence (“So the answer "
    "is: X.”), the first sentence of a gold paragraph that contains the answer, and the answer",
    "no evidence": "the same, and a sentence of a distractor as the extract",
    "wrong": "the reasoning and the extract with another answer, as in the responses above",
    "empty": "an ellipsis as reasoning and as extract, and the answer",
}
"""The parts of a LEAR rollout: reasoning, extract and answer."""


def lear_items(shared: Path, data: str, prompt: str) -> list[Item]:
    """Return rollouts of four kinds of each question whose gold paragraphs contain the answer."""
    all_questions = questions(shared, data)
    items = []
    for i, question in enumerate(all_questions):
        others = [*all_questions[i + 1 :], *all_questions[:i]]
        wrong = other_answer(question, others)
        extract = answer_sentence(question)
        distractor = copied_sentence(question, gold=False)
        has_reasoning = "reasoned" in texts(question, question.answer)
        if extract is None or distractor is None or wrong is None or not has_reasoning:
            continue
        right = question.answer
        reasoned, bad = (
            texts(question, answer)["reasoned"].removesuffix(f" So the answer is: {answer}.")
            for answer in (right, wrong)
        )
        replaced = re.sub(re.escape(right), lambda _, w=wrong: w, extract, flags=re.I)
        parts = {
            "supported": (reasoned, extract, right),
            "no evidence": (reasoned, distractor, right),
            "wrong": (bad, replaced, wrong),
            "empty": ("…", "…", right),
        }
        for kind, (reason, evidence, answer) in parts.items():
            response = (
                f"<reason>{reason}</reason><extract>{evidence}</extract><answer>{answer}</answer>"
            )
            items.append(Item(data, i, kind, "lear", rollout(question, response, prompt)))
    return items


def answer_sentence(question: Question) -> str | None:
    """Return the first sentence of a gold paragraph that contains the answer."""
    for doc in question.paragraphs(True):
        for sentence in sentences(doc["text"]):
            if question.in_text(sentence):
                return sentence
    return None
