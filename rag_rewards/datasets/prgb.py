"""PRGB (Placeholder RAG Benchmark): documents whose placeholders have several variants.

An answer is an expression, such as `(red | scarlet) & round`. It is converted to required answers
with aliases (a conjunction of disjunctions), which a response satisfies if and only if it satisfies
the expression.

Source: `core/data.py` and `core/eval.py` of AQ-MedAI/PRGB at commit 83a0b19.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from rag_rewards.datasets.gold import Gold, Problem, generator, texts
from rag_rewards.datasets.read_options import ALL, ReadOptions
from rag_rewards.rollout import Document

NOISE = {"noise_doc_level1": 4, "noise_doc_level2": 4, "noise_doc_level3": 1}
"""Number of noise documents by their level. Source: CTRL-RAG, Appendix B, and the loader."""
LARGEST_DOCUMENT = 1_000_000
"""Characters of a document with its values. Values may contain placeholders."""
TYPES = {"filter": "filter"} | dict.fromkeys(
    ("combination_v1", "combination_v2", "combination_v3"), "combination"
)
"""The type of a question by the first part of its id. All others are of the type `infer`."""


class PlaceholderItem(msgspec.Struct):
    """The variants: the values of the placeholders, and the answer."""

    placeholders: list[dict[str, str]]
    answer: list[str | int | float]


class PrgbRow(msgspec.Struct):
    """A row. The placeholders are in `golden_doc`."""

    id: str
    query: str
    golden_doc: list[str]
    placeholder_item: PlaceholderItem
    noise_doc_level1: list[str] = []
    noise_doc_level2: list[str] = []
    noise_doc_level3: list[str] = []


def prgb(row: PrgbRow, options: ReadOptions = ALL) -> Gold | Problem:
    """Convert one variant of a row. Consecutive seeds choose different variants.

    The documents are all supporting ones and a sample of the noise, up to `top` documents.
    """
    item = row.placeholder_item
    if not item.placeholders:
        return Problem("no gold answer", "placeholder_item.placeholders is empty")
    if len(item.placeholders) != len(item.answer):
        return Problem(
            "the placeholders and the answers differ in number",
            f"placeholder_item: {len(item.placeholders)} and {len(item.answer)}",
        )
    variant = _variant(row.id, len(item.placeholders), options.seed)
    answers = required_answers(str(item.answer[variant]))
    if isinstance(answers, Problem):
        return answers
    golden = []
    for at, text in enumerate(row.golden_doc):
        filled = _filled(text, item.placeholders[variant])
        if filled is None:
            return Problem(
                "a document is too long with the values of its placeholders",
                f"golden_doc[{at}]: more than {LARGEST_DOCUMENT:,} characters",
            )
        golden.append(filled)
    kind = row.id.split("-")[0]
    return Gold(
        id=f"{row.id}-{variant}",
        question=row.query,
        documents=tuple([Document(text=text) for text in (*golden, *_noise(row, options))]),
        answers=answers,
        supporting=tuple(range(len(golden))),
        answerable=bool(golden),
        ranked=False,
        source_fields={"type": TYPES.get(kind, "infer"), "question_type": kind},
    )


def _variant(name: str, count: int, seed: int) -> int:
    """The number of a variant: each of `count` consecutive seeds has another one."""
    order = generator(0, "variants", name).sample(range(count), count)
    return order[seed % count]


def _filled(text: str, values: Mapping[str, str]) -> str | None:
    """The text with the values of its placeholders, in their order. None if it is too long."""
    for placeholder, value in values.items():
        growth = text.count(placeholder) * (len(value) - len(placeholder))
        if len(text) + growth > LARGEST_DOCUMENT:
            return None
        text = text.replace(placeholder, value)
    return text


def _noise(row: PrgbRow, options: ReadOptions) -> list[str]:
    """A sample of the noise documents."""
    rng = generator(options.seed, "noise", row.id)
    sample: list[str] = []
    for level, count in NOISE.items():
        documents = getattr(row, level)
        sample += rng.sample(documents, min(count, len(documents)))
    return sample if options.top is None else sample[: max(0, options.top - len(row.golden_doc))]


# --- answers -------------------------------------------------------------------------------------

Answers = tuple[tuple[str, ...], ...]

LONGEST = 20_000
"""Characters of an expression."""
LARGEST = 1_000
"""Number of aliases in all required answers. A conversion can multiply them."""
_PART = re.compile(r"[&|()]|[^&|()]+")
_PRECEDENCE = {"|": 1, "&": 2}


def required_answers(expression: str) -> Answers | Problem:
    """Return the required answers of an expression of `&`, `|` and parentheses, or its problem.

    As in the evaluation of PRGB, `&` binds stronger, and a text without an operator before it is
    ignored: `Paris (France)` requires `Paris`.

    >>> required_answers("(red | scarlet) & round")
    (('red', 'scarlet'), ('round',))
    >>> required_answers("a & b | c")
    (('a', 'c'), ('b', 'c'))
    """
    if len(expression) > LONGEST:
        return Problem("the answer is too long", f"{len(expression):,} characters")
    values: list[Answers] = []
    for part in _postfix(expression):
        if part not in _PRECEDENCE:
            values.append(((part,),))
            continue
        if len(values) < 2:
            return Problem("the answer is not an expression", expression[:80])
        right, left = values.pop(), values.pop()
        if _size(part, left, right) > LARGEST:
            return Problem("the answer has too many alternatives", expression[:80])
        if part == "&":
            combined = [*left, *right]
        else:
            combined = [texts((*one, *other)) for one in left for other in right]
        values.append(tuple(dict.fromkeys(combined)))
    return values[0] if values else ()


def _size(operator: str, left: Answers, right: Answers) -> int:
    """The number of aliases in the result of an operator, with repeated ones."""
    lefts, rights = sum(map(len, left)), sum(map(len, right))
    return lefts + rights if operator == "&" else lefts * len(right) + rights * len(left)


def _postfix(expression: str) -> list[str]:
    """The parts of an expression, with each operator after its operands."""
    output: list[str] = []
    operators: list[str] = []
    for raw in _PART.findall(expression):
        part = raw.strip()
        if part == "(":
            operators.append(part)
        elif part == ")":
            while operators and operators[-1] != "(":
                output.append(operators.pop())
            del operators[-1:]
        elif part in _PRECEDENCE:
            while operators and _PRECEDENCE.get(operators[-1], 0) >= _PRECEDENCE[part]:
                output.append(operators.pop())
            operators.append(part)
        elif part:
            output.append(part)
    return output + [part for part in reversed(operators) if part != "("]
