"""Answers that are expressions: `(red | scarlet) & round`.

An expression is converted to required answers with aliases (a conjunction of disjunctions), which
a response satisfies if and only if it satisfies the expression.
"""

from __future__ import annotations

import re

from rag_rewards.datasets.gold import Problem, texts

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
