"""The known attacks on each recipe, with the same response without the attack.

Each line of `cases.jsonl` is one attack on one or more recipes. An attack pays if the attacked row
earns more than the honest row. The fields of a line:

attack           number of the attack
name             name of the variant
recipes          settings that the case requires, by recipe
attacked, honest the two responses
row              row fields of both sides, added to those of the built-in rows
same_likelihood  whether both sides get the same log-probabilities
is_free          whether the attack also pays if both sides earn the same, because it saves effort
                 or costs nothing
template         whether the attacked answer is also used for rows of other questions
visible_text     what a reader sees of a template with invisible or look-alike characters

Fields of a response:

response         the whole response, or
answer           the answer, in the recipe's output form
sections         texts of other sections of the output form
every_section    one text for all sections of the output form
before, after    text around the output form
turns            the turns of a search agent in the dialect search-r1, instead of a response
row              row fields of this side

A case with turns is tried in three forms: in the field `turns`, as chat messages, and as a
transcript.

A text is a string, a generated text, or a list of both. `{"repeat": ["ha ", 3]}` generates
"ha ha ha ", `{"growing": [".", 3]}` generates ". .. ..." and `{"numbered": ["w", 3]}` generates
"w0 w1 w2".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from rag_rewards.audit.agent_rows import FORMS
from rag_rewards.audit.capitals import SAME_LIKELIHOOD, Row
from rag_rewards.audit.rule_evidence import reward_of
from rag_rewards.errors import UsageError
from rag_rewards.prompts import OutputForm
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import definition_of

FILE = Path(__file__).with_name("cases.jsonl")

Generated = dict[Literal["repeat", "growing", "numbered"], tuple[str, int]]
Text = str | Generated | list[str | Generated]


def expand(text: Text) -> str:
    """Return a text with its generated parts.

    >>> expand(["(", {"repeat": ("ha ", 2)}, ")"]), expand({"numbered": ("w", 3)})
    ('(ha ha )', 'w0 w1 w2')
    """
    if isinstance(text, str):
        return text
    if isinstance(text, list):
        return "".join(map(expand, text))
    ((kind, (unit, count)),) = text.items()
    if kind == "repeat":
        return unit * count
    if kind == "growing":
        return " ".join(unit * size for size in range(1, count + 1))
    return " ".join(f"{unit}{number}" for number in range(count))


class CaseResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One side of a case."""

    response: Text | None = None
    answer: Text | None = None
    sections: dict[str, Text] = {}
    every_section: Text | None = None
    before: Text = ""
    after: Text = ""
    turns: list[dict[str, Any]] | None = None
    row: dict[str, Any] = {}

    def __post_init__(self) -> None:
        choices = (self.response, self.answer, self.every_section, self.turns)
        if sum(each is not None for each in choices) != 1:
            raise ValueError("give one of response, answer, every_section and turns")

    def text(self, form: OutputForm) -> str:
        """Return the response in an output form."""
        if self.response is not None:
            return expand(self.response)
        if self.answer is not None:
            texts = {name: expand(text) for name, text in self.sections.items()}
            written = form.write(expand(self.answer), **texts)
        else:
            everywhere = dict.fromkeys((*form.sections, "answer"), expand(self.every_section or ""))
            written = form.write(**everywhere)
        return expand(self.before) + written + expand(self.after)


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line of the file."""

    attack: int
    name: str
    recipes: dict[str, dict[str, Any]]
    attacked: CaseResponse
    honest: CaseResponse
    row: dict[str, Any] = {}
    same_likelihood: bool = False
    is_free: bool = False
    template: bool = False
    visible_text: str = ""


@dataclass(frozen=True, eq=False)
class Case:
    """One attack on one recipe: two rows that differ only in the attack.

    form     form of the turns of a search agent; "" for a single response
    is_free  whether the attack also pays if both rows earn the same
    """

    attack: int
    recipe: str
    name: str
    attacked: Row
    honest: Row
    settings: Mapping[str, Any] = field(default_factory=dict)
    form: str = ""
    is_free: bool = False

    @property
    def variant(self) -> str:
        """The name without the form."""
        return self.name.removesuffix(f", {self.form}")

    @property
    def id(self) -> str:
        """The recipe, the attack, the name, and the settings of a search agent."""
        settings = [f"{key}={value}" for key, value in self.settings.items() if self.form]
        return "-".join([self.recipe, str(self.attack), self.name, *settings])

    def rewards(self, recipe: Recipe) -> tuple[float, float]:
        """Return the rewards without the attack and with it."""
        return reward_of(recipe, self.honest), reward_of(recipe, self.attacked)


@dataclass(frozen=True)
class Template:
    """An answer that names Paris without asserting that it is the answer.

    visible_text  what a reader sees of it; "" if the same
    """

    attack: int
    name: str
    text: str
    visible_text: str


def read_lines(file: Path = FILE) -> list[Line]:
    """Return the lines of a file of cases. Raises UsageError if a line is invalid."""
    decoder = msgspec.json.Decoder(Line)
    lines = []
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            lines.append(decoder.decode(line))
        except msgspec.DecodeError as error:
            raise UsageError(f"{file} line {number}: {error}") from None
    return lines


def cases_of(lines: list[Line]) -> Iterator[Case]:
    """Yield one case per line and recipe."""
    for line in lines:
        shared = line.row | (SAME_LIKELIHOOD if line.same_likelihood else {})
        for recipe, settings in line.recipes.items():
            if line.attacked.turns is not None:
                yield from _agent_cases(line, recipe, settings)
                continue
            form = definition_of(recipe).output
            attacked, honest = (
                {"response": side.text(form)} | shared | side.row
                for side in (line.attacked, line.honest)
            )
            name, is_free = line.name, line.is_free
            yield Case(line.attack, recipe, name, attacked, honest, settings, is_free=is_free)


def _agent_cases(line: Line, recipe: str, settings: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the case of a search agent in each form."""
    for form, write in FORMS.items():
        attacked, honest = (
            write(side.turns or []) | line.row | side.row for side in (line.attacked, line.honest)
        )
        # The hardened profile rejects transcripts.
        required = {"results_from": "text"} if form == "transcript" else {}
        name = f"{line.name}, {form}"
        yield Case(
            line.attack,
            recipe,
            name,
            attacked,
            honest,
            {**settings, **required},
            form,
            line.is_free,
        )


_LINES = read_lines()
CASES = tuple(cases_of(_LINES))
TEMPLATES = tuple(
    Template(line.attack, line.name, expand(line.attacked.answer or ""), line.visible_text)
    for line in _LINES
    if line.template
)
