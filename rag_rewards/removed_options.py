"""The options that version 0.8.0 has removed, of commands and of trainers' configurations."""

from __future__ import annotations

from rag_rewards.errors import OptionError

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
    "a progress bar is shown on a terminal; set the environment variable TERM=dumb to hide it"
)
_JSON = "use -o FILE, or -o - for the standard output"
_SEED = "the resamples are always drawn with the seed 0; `seed` remains an option in Python"
_BATCH = "64 texts are requested at a time"
_SERVER = "the default is used; `rag_rewards.server` has the option in Python"

REMOVED_OPTIONS = {
    "attention": "remove it; the policy chooses its method of scoring, and {token_budget} limits "
    "its memory",
    "progress": _PROGRESS,
    "no_progress": _PROGRESS,
    "calibrate.svg": "`scores[].reliability.bins` in the JSON of --output contains the curve",
    "calibrate.repeat": _SEVERAL_VERDICTS,
    "calibrate.temperature": _SEVERAL_VERDICTS,
    **dict.fromkeys(
        ("calibrate.swap", "calibrate.no_swap"),
        "with --set models.judge_checks=always, a verdict that depends on the order is an error",
    ),
    "calibrate.prices": "multiply the numbers of tokens in the result by your prices",
    "calibrate.json": _JSON,
    "calibrate.seed": _SEED,
    "calibrate.lengths": "responses are divided at 5, 20, 60 and 200 words; `lengths` remains an "
    "option in Python",
    "evaluate.resume": "run the command again; --judge-cache FILE keeps the verdicts of a judge",
    "evaluate.track": _TRACKERS,
    "evaluate.json": _JSON,
    "evaluate.seed": _SEED,
    **dict.fromkeys(("evaluate.label", "evaluate.l", "evaluate.label_threshold"), _LABELS),
    "init.nodes": "docs/clusters.md lists the settings and commands for several nodes",
    "prepare.no_documents": "use --prompt closed-book",
    "prepare.dialect": "use --prompt with the name of the dialect",
    "probe.batch": _BATCH,
    "select.batch": _BATCH,
    **dict.fromkeys(("report.label", "report.l", "report.label_threshold"), _LABELS),
    "score.track": _TRACKERS,
    **dict.fromkeys(("serve.max_row", "serve.breaker_failures", "serve.breaker_seconds"), _SERVER),
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
    return OptionError(f"there is no option {{{name}}} since version 0.8.0: {instead}")
