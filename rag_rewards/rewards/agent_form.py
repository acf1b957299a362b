"""Form of a rollout of a search agent: whether it is valid, its searches, and its tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rag_rewards.reward import RolloutReward
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import check_choices
from rag_rewards.text.sections import contents
from rag_rewards.turns.dialects import THINK
from rag_rewards.turns.order import begins_in_prompt, is_balanced, is_well_formed
from rag_rewards.turns.trajectory import READING, Reading, Trajectory

Rule = Literal["order", "balance", "actions"]
_REJECTED = frozenset(("unclosed_query", "no_action", "bad_call"))
"""The names of turns whose action the environment of IKEA rejects."""
_BRACKETS = re.compile(r"[(\[](?:think|search|answer)|(?:think|search|answer)[)\]]")


def valid_reward(
    outcome: float, valid: float, tools: float, *, invalid: float = -1.0, bonus: float = 0.0
) -> float:
    """Return o + b·t for a valid rollout with o > 0, 0 for another valid one, else `invalid`.

    outcome o, valid and tools t are between 0 and 1; bonus is b. Sources: DeepResearcher at
    c93be8f: format_and_f1.py; ARPO at e257337: deep_research.py; DeepDive at 9c94da4:
    launch_server.py.

    >>> valid_reward(1, 1, 1, bonus=0.1), valid_reward(0, 1, 1, bonus=0.1), valid_reward(1, 0, 1)
    (1.1, 0.0, -1.0)
    """
    if not valid:
        return invalid
    return outcome + bonus * tools if outcome > 0 else 0.0


def boundary_reward(
    outcome: float,
    valid: float,
    searches: float,
    *,
    bonus: float = 0.6,
    limit: int = 3,
    attempt: float = 0.05,
    invalid: float = -1.0,
) -> float:
    """Return o + b·max(0, L − n)/L if o > 0, else a if n > 0, else 0; `invalid` if not valid.

    outcome o and valid are between 0 and 1; searches is n, bonus is b, limit is L, and attempt is
    a. Source: IKEA, released code at 79c38e8: qa_em.py.

    >>> [round(boundary_reward(1, 1, n), 2) for n in (0, 1, 2, 3, 4)], boundary_reward(0, 1, 4)
    ([1.6, 1.4, 1.2, 1.0, 1.0], 0.05)
    """
    if not valid:
        return invalid
    if outcome > 0:
        return outcome + bonus * max(0.0, limit - searches) / limit
    return attempt if searches else 0.0


@dataclass(frozen=True)
@check_choices
class AgentForm(RolloutReward):
    """Whether a rollout is valid, 1 or 0. Only the words of the policy are read.

    The detail `invalid` states why a rollout is not valid.

    Components: `valid`; `searches`, the number of queries with results, which can be empty; and
    `tools`, 1 if the policy searched and wrote a section <python> that is not empty, else 0.

    rule  order    the tags have the order of the dialect, see `turns.order.is_well_formed`
          balance  there is an answer, and each tag opens as often as it closes
          actions  there is thinking, which can begin in the prompt, each turn has an action that
                   can be read, and no bracket is beside the name of a tag, as in "(search"
    """

    rule: Rule = "order"
    reading: Reading = READING
    name: str = "form"
    scope: Literal["rollout"] = "rollout"

    def score(self, rollout: Rollout) -> Score:
        run = rollout.trajectory(self.reading)
        fault = self._fault(run)
        valid = float(not fault)
        searches = float(sum(len(turn.queries) for turn in run.turns if turn.is_search))
        has_code = any(part.strip() for turn in run.turns for part in contents(turn.text, "python"))
        components = {
            "valid": valid,
            "searches": searches,
            "tools": float(has_code and searches > 0),
        }
        return Score(valid, components, details={"invalid": fault} if fault else {})

    def _fault(self, run: Trajectory) -> str:
        """Return why a rollout is not valid; "" if it is."""
        if self.rule == "order":
            return "" if is_well_formed(run) else "another order of the tags"
        if self.rule == "balance":
            if run.answer is None:
                return "no answer"
            return "" if is_balanced(run) else "a tag opens more or less often than it closes"
        words = [turn.text for turn in run.turns]
        has_tags = all(any(tag in text for text in words) for tag in THINK)
        is_begun = begins_in_prompt(run) and words[0].partition(THINK[1])[0].strip()
        if not (has_tags or is_begun or any(turn.reasoning for turn in run.turns)):
            return "no thinking"
        if not all(_REJECTED.isdisjoint(turn.malformed) for turn in run.turns):
            return "an action that cannot be read"
        is_beside = any(map(_BRACKETS.search, words))
        return "a bracket beside the name of a tag" if is_beside else ""
