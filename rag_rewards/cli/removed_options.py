"""The options that version 0.8.0 has removed, and what to do instead."""

from __future__ import annotations

from rag_rewards.errors import OptionError
from rag_rewards.models.model_options import REMOVED_MODEL_OPTIONS, removal

_TRACKERS = (
    "write the metrics to a file with `rag-rewards evaluate -o FILE`, and log this file as "
    "docs/evaluate.md shows"
)
_SEVERAL_VERDICTS = (
    "write the verdicts to columns of the rows, and compare the columns with --column NAME, once "
    "for each of them"
)
_LABELS = "use `rag-rewards calibrate --label FIELD`"
_PROGRESS = (
    "leave it out; a progress bar is shown on a terminal, unless the environment variable TERM is "
    "dumb"
)
_JSON = "use -o FILE, or -o - for the standard output"
_BATCH = "leave it out; 64 texts are requested at a time"
_PYTHON = "leave it out; in Python, set `{}` of `rag_rewards.{}`"
_CALIBRATE, _EVALUATE = "calibration.options.CalibrateOptions", "metrics.evaluation.EvaluateOptions"
_SERVE = "server.options.ServerOptions"

REMOVED_OPTIONS = {
    **REMOVED_MODEL_OPTIONS,
    "progress": _PROGRESS,
    "no_progress": _PROGRESS,
    "calibrate.svg": "use `scores[].reliability.bins` in the JSON of --output, which has the curve",
    "calibrate.repeat": _SEVERAL_VERDICTS,
    "calibrate.temperature": _SEVERAL_VERDICTS,
    **dict.fromkeys(
        ("calibrate.swap", "calibrate.no_swap"),
        "use --set models.judge_checks=always: a verdict that depends on the order is an error",
    ),
    "calibrate.prices": "multiply the numbers of tokens in the result by your prices",
    "calibrate.json": _JSON,
    "calibrate.seed": _PYTHON.format("seed", _CALIBRATE),
    "calibrate.lengths": _PYTHON.format("lengths", _CALIBRATE),
    "evaluate.resume": "run the command again; --judge-cache FILE keeps the verdicts of a judge",
    "evaluate.track": _TRACKERS,
    "evaluate.json": _JSON,
    "evaluate.seed": _PYTHON.format("seed", _EVALUATE),
    **dict.fromkeys(("evaluate.label", "evaluate.l", "evaluate.label_threshold"), _LABELS),
    "init.nodes": "see docs/clusters.md for the settings and commands of several nodes",
    "prepare.no_documents": "use --prompt closed-book",
    "prepare.dialect": "use --prompt with the name of the dialect",
    "probe.batch": _BATCH,
    "select.batch": _BATCH,
    **dict.fromkeys(("report.label", "report.l", "report.label_threshold"), _LABELS),
    "score.track": _TRACKERS,
    **{
        f"serve.{name}": _PYTHON.format(name, _SERVE)
        for name in ("max_row", "breaker_failures", "breaker_seconds")
    },
    "serve.on_error": "use --error-value NUMBER to return a value for an invalid row",
}
"""What to do instead of a removed option. The names are those in Python, with the command before
the name of an option that only this command had."""


def removed_option(name: str, command: str = "") -> OptionError | None:
    """Return the error for an option that an earlier version had, None for another name.

    >>> removed_option("dialect", "prepare").message(lambda name: "--" + name)
    'there is no option --dialect since version 0.8.0: use --prompt with the name of the dialect'
    """
    instead = REMOVED_OPTIONS.get(f"{command}.{name}") or REMOVED_OPTIONS.get(name)
    if instead is None:
        return None
    return removal(name, instead)
