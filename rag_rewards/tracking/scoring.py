"""The numbers and settings of a scoring, for a tracker."""

from __future__ import annotations

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.scoring.score_options import ScoreOptions, ScoringRun
from rag_rewards.signature import Signature
from rag_rewards.tracking.step_means import StepMeans
from rag_rewards.tracking.tracker import Tracker


def track_scoring(
    tracker: Tracker, run: ScoringRun, options: ScoreOptions, steps: StepMeans
) -> None:
    """Record the means, the counts, the signature and the settings of a scoring."""
    settings = {"command": "score", "input": options.source, "signature": run.signature}
    settings |= {"output": options.output or "", "columns": options.columns or ""}
    tracker.log_settings(
        {name: text for name, text in settings.items() if text} | _recipe_settings(run)
    )
    for step, means in steps.means():
        tracker.log_step(step, means)
    totals = run.totals
    counts = {
        "rows": totals.rows,
        "rows_in_error": totals.errors,
        "rows_unscored": totals.not_scored,
        "rows_truncated": totals.truncated,
    }
    counts |= {f"errors/{name}": count for name, count in totals.error_types.items()}
    tracker.log_summary(totals.means() | counts)


def _recipe_settings(run: ScoringRun) -> dict[str, str]:
    """Return the recipe, and its settings that differ from the defaults."""
    settings = {"recipe": run.recipe, "equation": run.equation}
    try:
        signature = Signature.parse(run.signature)
    except UsageError:
        return settings
    if signature.hardened:
        settings["hardened"] = "true"
    changed = signature.settings | {f"model.{name}": x for name, x in signature.models.items()}
    return settings | {
        f"settings.{key}": value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in changed.items()
    }
