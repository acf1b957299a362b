"""Explanations of scored rows and of groups: what they state, and how they are shown.

Console.print of rich prints an explanation. Notebooks and pictures show the same as a terminal. The
HTML pages show the fields with a script.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from rag_rewards.errors import plain, shorten
from rag_rewards.report import terminal
from rag_rewards.report.rows import RowFault
from rag_rewards.report.segments import Segment, colored, legend
from rag_rewards.report.terminal import MAX_ROWS, number_text, titled_table, with_hidden
from rag_rewards.report.turns import TurnExplanation

_CHARACTERS = 400
"""Characters of a document that are shown."""


class ComponentExplanation(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"reason": "why", "improvement": "change"},
):
    """A component with its value, the reason for it, and how to increase it."""

    name: str
    value: float | None
    reason: str = ""
    improvement: str = ""


class DocumentExplanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A document of the row.

    effect  nats by which the log-probability of the response is lower without the document
    """

    label: str
    text: str
    title: str = ""
    supporting: bool | None = None
    cited: bool = False
    effect: float | None = None


class Variant(msgspec.Struct, frozen=True, rename={"name": "what"}):
    """A response that differs from that of the row in one respect, and its reward."""

    name: str
    reward: float
    response: str


class Explanation(
    msgspec.Struct,
    kw_only=True,
    omit_defaults=True,
    rename={"components": "parts", "variants": "changes"},
):
    """Everything that is shown of one scored row.

    tokens    how the texts of the tokens were determined
    shades    contribution of each document to each segment
    turns     turns of a search agent
    dialect   how the agent writes its actions; empty for a response of one turn
    searches  number of its searches
    variants  variants of the response with another reward
    """

    id: str
    reward: float | None
    group: str = ""
    question: str = ""
    step: int | None = None
    correct: float | None = None
    advantage: float | None = None
    reason: str = ""
    equation: str = ""
    signature: str = ""
    gold: list[list[str]] = []
    segments: list[Segment] = []
    tokens: str = ""
    shades: dict[str, list[float | None]] = {}
    components: list[ComponentExplanation] = []
    passages: list[DocumentExplanation] = []
    variants: list[Variant] = []
    turns: list[TurnExplanation] = []
    dialect: str = ""
    searches: int | None = None
    notes: list[str] = []

    @property
    def has_response(self) -> bool:
        """Whether the response is shown besides the turns: with contributions of documents."""
        return not self.turns or self.has_colors

    @property
    def has_colors(self) -> bool:
        """Whether the contributions of documents to the words of the response are known."""
        return any(each.value is not None for each in self.segments)

    def svg(self, width: int = terminal.PICTURE_WIDTH) -> str:
        """Return a picture of the terminal output as SVG text, described by the signature."""
        return terminal.svg(*self.parts(), title=self.id, description=self.signature, width=width)

    def _repr_html_(self) -> str:
        """Return the explanation for notebooks."""
        return terminal.html(self)

    def __repr__(self) -> str:
        return f"<Explanation {self.id!r}: reward {self.reward}, {self.reason}>"

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield the explanation. The signature is on one line, so that it can be copied."""
        yield from self.parts()
        if self.signature:
            text = Text(plain(self.signature), style="dim", no_wrap=True, overflow="ignore")
            yield text

    def parts(self, *, in_group: bool = False) -> Iterator[RenderableType]:
        """Yield the texts and tables from top to bottom, without the signature.

        `in_group` leaves out what all rollouts of a group have in common.
        """
        reward = "unscored" if self.reward is None else f"reward {number_text(self.reward)}"
        advantage = ""
        if self.advantage is not None:
            advantage = f"  advantage {self.advantage:+.2f} in its group"
        yield Text.assemble((plain(self.id), "bold cyan"), "  ", (reward, "bold"), advantage)
        if not in_group and self.equation:
            yield Text(f"reward = {plain(self.equation)}", style="dim")
        yield Text(plain(self.reason))
        if not in_group:
            yield from self.task()
        if self.turns:
            yield from self._turns()
        if self.has_response:
            yield Text("\nresponse", style="bold")
            yield colored(self.segments)
        if self.has_colors:
            yield legend(self.tokens)
        for note in self.notes:
            yield Text(f"note: {plain(note)}", style="dim")
        yield Text()
        yield self._components()
        if self.passages:
            yield self._documents()
        if self.variants:
            yield self._variants()

    def task(self) -> Iterator[Text]:
        """Yield the question and the gold answers."""
        if self.question:
            yield Text.assemble(("\nquestion  ", "bold"), plain(self.question))
        for aliases in self.gold:
            yield Text.assemble(("gold      ", "bold"), plain(" | ".join(aliases)))

    def _turns(self) -> Iterator[RenderableType]:
        searches = f"{self.searches} {'search' if self.searches == 1 else 'searches'}"
        dialect = f"  dialect {self.dialect}, {searches}"
        yield Text.assemble(("\nturns", "bold"), (dialect, "dim"))
        previous = 0
        for turn in self.turns:
            if turn.number > previous + 1:
                yield Text(f"… {turn.number - previous - 1:,} turns …", style="dim")
            previous = turn.number
            yield turn

    def _components(self) -> Table:
        columns = ("component", "value", "reason", "how to increase it")
        table = titled_table("components", columns, numbers=("value",))
        for each in self.components:
            texts = (each.name, number_text(each.value), each.reason, each.improvement)
            table.add_row(*(Text(plain(text)) for text in texts))
        return table

    def _documents(self) -> Table:
        """Return the documents, sorted by their effect."""
        table = titled_table("documents", ("", "nats", "document"), numbers=("nats",))
        for each in sorted(self.passages, key=lambda each: -(each.effect or 0.0)):
            marks = ", ".join(["supporting"] * bool(each.supporting) + ["cited"] * each.cited)
            effect = "" if each.effect is None else f"{each.effect:+.2f}"
            label = Text.assemble((f"[{plain(each.label)}] ", "cyan"), marks)
            text = f"{each.title}: {each.text}" if each.title else each.text
            table.add_row(label, effect, Text(plain(shorten(text, _CHARACTERS))))
        return table

    def _variants(self) -> Table:
        table = titled_table("variants of the response", ("variant", "reward"), ("reward",))
        for each in self.variants:
            change = "" if self.reward is None else f" ({each.reward - self.reward:+.4g})"
            table.add_row(Text(plain(each.name)), f"{number_text(each.reward)}{change}")
        return table


class GroupExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanations of the rollouts of a group.

    rollouts  the rollouts that were scored, in the order of the data
    faults    the rollouts that cannot be scored, with the reasons
    """

    rollouts: list[Explanation]
    faults: list[RowFault] = []

    @property
    def has_signal(self) -> bool:
        """Whether the rewards differ, so that GRPO can learn from the group."""
        return len({rollout.reward for rollout in self.rollouts}) > 1

    def __repr__(self) -> str:
        rewards = ", ".join(str(rollout.reward) for rollout in self.rollouts[:MAX_ROWS])
        return f"<GroupExplanation of {len(self.rollouts)} rollouts: rewards {rewards}>"

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield what the rollouts have in common, and a table of them."""
        first = self.rollouts[0]
        if first.equation:
            yield Text(f"reward = {plain(first.equation)}", style="dim")
        yield from first.task()
        yield Text()
        yield self._table()
        if not self.has_signal and len(self.rollouts) > 1:
            yield Text("All rewards are equal: GRPO learns nothing from this group.", "dim")
        for fault in self.faults:
            yield Text(plain(f"{fault.row} is unscored: {fault.message}"), "dim")

    def _repr_html_(self) -> str:
        """Return the group for notebooks: a table, and each explanation after a click."""
        folded = (
            f'<details><summary style="cursor:pointer">{terminal.escaped(each.id)}</summary>'
            f"{terminal.html(*each.parts(in_group=True))}</details>"
            for each in self.rollouts[:MAX_ROWS]
        )
        return "".join(["<div>", terminal.html(self), *folded, "</div>"])

    def _table(self) -> Table:
        names = list(dict.fromkeys(c.name for each in self.rollouts for c in each.components))
        numbers = ["reward", "advantage", *names]
        table = titled_table("", ["rollout", *numbers, "reason"], numbers)
        for each in self.rollouts[:MAX_ROWS]:
            values = {component.name: component.value for component in each.components}
            texts = [number_text(each.reward), number_text(each.advantage, 3)]
            texts += [number_text(values.get(name)) for name in names]
            table.add_row(*(Text(plain(text)) for text in (each.id, *texts, each.reason)))
        return with_hidden(table, len(self.rollouts) - MAX_ROWS, "rollouts")
