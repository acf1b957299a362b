"""Log-probabilities of groups, with keys and values that are stored once for a whole group."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from rag_rewards.evidence.protocols import ScoreRequest
from rag_rewards.models.runs import Plan, Step, steps
from rag_rewards.models.transformers.forward import ModelForward, Values
from rag_rewards.models.transformers.tree_attention import TreeAttention, attention_in_tree


def score_trees(
    forward: ModelForward, requests: Sequence[ScoreRequest], size: int, rows: int
) -> list[Values]:
    """Return the log-probabilities of each request, by (context, response) pair.

    size  number of tokens that run at a time
    rows  number of rows of logits in memory at a time

    Raises NotInTreeError if the attention of the model cannot be computed in this way.
    """
    plan = Plan()
    spans = [plan.add(request) for request in requests]
    targets = _Targets(plan)
    every = list(steps(plan.runs, size))
    capacity = max((run.end for run in plan.runs), default=0)
    with attention_in_tree(forward.causal, capacity) as attention:
        for step in every:
            targets.score(forward, step, attention, rows)
    return [
        {pair: targets.values[span] for pair, span in of_request.items()} for of_request in spans
    ]


class _Targets:
    """The targets of a plan, in the order of the rows that predict them, and their values."""

    def __init__(self, plan: Plan) -> None:
        self.values = array("f", [0.0]) * len(plan.targets)
        self._plan = plan
        self._order = sorted(range(len(plan.rows)), key=plan.rows.__getitem__)
        self._rows = [plan.rows[k] for k in self._order]
        self._done = 0

    def score(self, forward: ModelForward, step: Step, attention: TreeAttention, rows: int) -> None:
        """Run the next step, and score the targets that its rows predict."""
        tokens = step.tokens
        hidden = forward.run_step(tokens, step.positions, attention.of(step))
        first, self._done = self._done, self._done + len(tokens)
        span = slice(bisect_left(self._rows, first), bisect_left(self._rows, self._done))
        predictors = sorted(set(self._rows[span]))
        place = {row: number for number, row in enumerate(predictors)}
        logprobs = forward.logprobs(
            hidden[[row - first for row in predictors]],
            [place[row] for row in self._rows[span]],
            [self._plan.targets[k] for k in self._order[span]],
            rows,
        )
        for k, value in zip(self._order[span], logprobs, strict=True):
            self.values[k] = value
