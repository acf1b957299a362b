"""The explanation of a group: its rollouts side by side."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rag_rewards.report.explanation import Explanation
from rag_rewards.report.notebook_html import (
    MAX_ROWS,
    box,
    folded,
    html_number,
    html_table,
    html_text,
    line,
)
from rag_rewards.report.rows import RowFault


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

    def _repr_html_(self) -> str:
        """Return the group for notebooks: a table, and each explanation after a click."""
        return box(self._html_parts())

    def _html_parts(self) -> Iterator[str]:
        yield from self.rollouts[0].html_task()
        yield self._html_table()
        if not self.has_signal and len(self.rollouts) > 1:
            yield line("All rewards are equal: GRPO learns nothing from this group.", soft=True)
        for fault in self.faults:
            yield line(html_text(f"{fault.row} is unscored: {fault.message}"), soft=True)
        for rollout in self.rollouts[:MAX_ROWS]:
            title = f"<b>{html_text(rollout.id)}</b>"
            yield folded(title, "".join(rollout.html_parts(in_group=True)))

    def _html_table(self) -> str:
        names = list(dict.fromkeys(c.name for each in self.rollouts for c in each.components))
        head = ["rollout", "reward", "advantage", *names, "reason"]
        rows = []
        for each in self.rollouts[:MAX_ROWS]:
            values = {component.name: component.value for component in each.components}
            rows.append(
                [
                    html_text(each.id),
                    f"<b>{html_number(each.reward)}</b>",
                    html_number(each.advantage, 3),
                    *[html_number(values.get(name)) for name in names],
                    html_text(each.reason),
                ]
            )
        table = html_table(head, rows, ["reward", "advantage", *names])
        hidden = len(self.rollouts) - len(rows)
        return table + (line(f"… {hidden:,} more rollouts", soft=True) if hidden else "")
