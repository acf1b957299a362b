"""Golden scores of each recipe, which a change of the code must not change.

    python tests/golden/pin.py       # writes the files again

`scores/NAME.jsonl` contains the results of a recipe for each row of the examples and of the
attacks: the reward, its components, `correct` and the details, or the type and the field of an
error. The file contains the complete details for the recipe's own examples, and a digest of the
details for all other rows. `constructed_rows.jsonl` contains digests of the scores of responses to
the questions in `questions.jsonl`. `real_rows.jsonl` contains digests of the scores of responses to
questions of public data sets. These questions must not be part of the repository, so they are read
from the folder `shared` next to it. Without this folder, the file stays as it is.

Missing evidence comes from `rag_rewards.audit.rule_evidence`, which needs no model.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec

from rag_rewards import RECIPES, Curriculum, RolloutError, Stage, decode_row, recipe
from rag_rewards.audit.cases import CASES
from rag_rewards.audit.policies import POLICIES
from rag_rewards.audit.rule_evidence import COMPANIONS, with_evidence, with_group_evidence
from rag_rewards.recipes.sample import ROW

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
SHARED = REPOSITORY.parent / "shared"

Row = Mapping[str, Any]
Settings = Mapping[str, Any]
Result = dict[str, Any]
"""A score as JSON, or the type and the field of an error."""

CORRECTED = {"normalizer": "spelling"}
ACCURACY = [
    *({"accuracy.metric": metric} for metric in ("exact", "f1", "substring", "judge")),
    {"accuracy.metric": "substring", "accuracy.undecided": "wrong"},
    {f"accuracy.{key}": value for key, value in CORRECTED.items()},
]
LISTS = [{"accuracy.extra": "reject"}]
SECTIONS = [{"sections.tags": "lenient"}]
LIKELIHOOD = [
    {"loo": "mean"},
    {"threshold": None},
    {"threshold": 7.0},
    {"threshold_on": "reward"},
    {"length_norm": "none"},
    {"length_norm": "linear"},
    {"span": "answer"},
    {"on_missing_support": "zero"},
]
GROUNDING = [
    {"aggregate": "mean"},
    {"aggregate": "answers"},
    {"citation.judge_by": "gold"},
    {"citation.minimal": True},
    {"citation.bad_penalty": 0.0},
    {"refusal.matcher": "partial_ratio"},
    {"refusal.matcher": "semantic"},
    {"refusal.threshold": 0.5},
    {"process.weight": 1.0},
]
VARIANTS: dict[str, Sequence[Settings]] = {
    "arena": [*ACCURACY, *LISTS, *SECTIONS, {"bonus.value": 5.0}],
    "naive-grpo": [*ACCURACY, *LISTS, *SECTIONS],
    "truthrl": [
        *({"verifier": each} for each in ("exact", "substring", "f1>=0.5")),
        {"scheme": "binary"},
        {"scheme": "geometric", "geometric.correct_rate": 0.4, "geometric.wrong_rate": 0.3},
        {"knowledge_enhanced": True},
        {"box": "first"},
        {"unwrap_text": False},
        {"extra": "allow"},
        {"verifier": "exact"} | CORRECTED,
        {"verifier": "substring", "undecided": "wrong"},
        *({"reasoning.combine": each} for each in ("multiplicative", "additive", "conditional")),
    ],
    "stepsearch": [
        {"keys.weight": 0.0},
        {"keys.assign": "best"},
        {"step.scale": 1.6},
        {"redundancy.weight": 0.0},
        {"process": "coverage"},
        {"process": "coverage", "coverage.of": "all"},
        {"malformed_penalty": 0.1},
    ],
    "igpo": [
        {"gain.kind": "log"},
        {"gain.baseline": "empty"},
        {"gain.baseline": "random"},
        {"gain.weight": 0.5},
        {"gain.alias": "best"},
        {"gain.first_tokens": 1, "gain.first_weight": 3.0},
        {"outcome.tokens": "set"},
        {"metric": "exact"},
        {"bad_end": 0.0},
        {"malformed_penalty": 0.1},
    ],
    "ctrl-rag": [
        {"accuracy.metric": "exact"},
        {"threshold": None},
        {"threshold_on": "reward"},
        {"fusion": "add"},
        {"fusion": "none"},
        {"min_spread": 0.5},
        {"no_spread": "one"},
        {"among": "correct"},
        {"floor": 0.1},
    ],
    "ctrl-rag-clr": LIKELIHOOD,
    "rag-total": [
        *ACCURACY,
        {"eta": 0.1, "cost.budget": 8},
        {"eta": 0.1, "cost.kind": "repetition", "cost.ngram": 2},
        {"citation.measure": "f1"},
        {"citation.include_thinking": False},
        {"citation.claims_only": True},
    ],
    "lear": [
        {"mode": "likelihood"},
        {"answers": ["r"]},
        {"answers": ["e"], "length.gated": True},
        {"length.tau": 0.1, "length.gamma": 1.0, "length.omega": 0.5},
        {"length.strict": True},
        {"weights.answer": 0.5, "weights.format": 0.4},
        CORRECTED,
    ],
    "ground-grpo": GROUNDING,
    "ground-grpo-stage1": GROUNDING,
    "carr": [
        {"normalize": "none"},
        {"normalize": "right_max"},
        {"connect": False},
        {"outcome.by": "rules"},
    ],
    "rag-env": [
        {"gated": True, "measure": "recall", "weights.grounding": 0.2},
        {"accuracy.metric": "exact"},
    ],
    "hiprag": [{"distinct_steps": True}],
    "binary-rar": [
        {"by": "nli"},
        {"truncated": "verifier"},
        {"empty": 0},
        {"query_by": "question+response"},
        {"chunks": 1},
    ],
    "rlcr": [{"accuracy.metric": "f1"}, {"weights.calibration": 1.0}],
    "autorefine": [{"refine.from_results": True}, {"accuracy.metric": "exact"}],
    "ikea": [{"boundary.limit": 2}],
    "search-r1": [
        {"accuracy.metric": "f1", "valid.rule": "balance", "valid.tools_bonus": 0.1},
        {"accuracy.metric": "judge", "valid.rule": "order", "valid.otherwise": 0.0},
    ],
}
"""More settings of the default profile with which a recipe's own examples are scored."""

HARDENED_VARIANTS: dict[str, Sequence[Settings]] = {
    "arena": [{"accuracy.metric": "f1"}, {"accuracy.metric": "substring"}],
    "truthrl": [{"verifier": "exact"}, {"verifier": "substring"}],
    "ctrl-rag": [{"accuracy.metric": "exact"}, {"threshold": 7.0}],
    "lear": [{"mode": "likelihood"}],
    "ground-grpo": [{"citation.judge_by": "gold"}],
}
"""More settings of the hardened profile, for a recipe's own examples and for real rows."""

EXAMPLES_OF = {"ctrl-rag-clr": "ctrl-rag", "rag-total": "ctrl-rag"}
"""Recipes that use the examples of another recipe."""

PROFILES = {"default": False, "hardened": True}


def name_of(profile: str, settings: Settings) -> str:
    """Return the name of a profile with settings that differ from it."""
    return " ".join([profile, *(f"{key}={json.dumps(value)}" for key, value in settings.items())])


# --- results ------------------------------------------------------------------------------------


def score_rows(reward: Any, rows: Sequence[Row | bytes]) -> list[Result]:
    """Add the missing evidence to each row, and return its result."""
    batch: list[Any] = [_decode(reward, row) for row in rows]
    rollouts = [each for each in batch if not isinstance(each, RolloutError)]
    scores = iter(reward.score_each(with_group_evidence(reward, rollouts)))
    return [_result(each if isinstance(each, RolloutError) else next(scores)) for each in batch]


def _decode(reward: Any, row: Row | bytes) -> Any:
    """Return the rollout of a row with complete evidence, or its error."""
    try:
        rollout = decode_row(row)
    except RolloutError as error:
        return error
    try:
        return with_evidence(reward, rollout)
    except RolloutError:
        return rollout  # scoring it gives the same error


def _result(score: Any) -> Result:
    if isinstance(score, RolloutError):
        return {"error": type(score).__name__, "field": score.path}
    result = {
        "reward": score.value,
        "components": score.components,
        "correct": score.correct,
        "details": score.details,
    }
    return json.loads(msgspec.json.encode(result))


# --- examples and attacks -----------------------------------------------------------------------

Pinned = dict[tuple[str, str], Result]
"""The result of each row with each profile and its settings."""


def pinned_scores(name: str) -> Pinned:
    """Return the results of a recipe, or of the curricula, for examples and attacks."""
    if name == "curriculum":
        return dict(_curriculum_results())
    return {**dict(_example_results(name)), **dict(_attack_results(name))}


def names() -> list[str]:
    """Return the names of all files of golden scores."""
    return [*RECIPES, "curriculum"]


def _examples(name: str) -> tuple[list[str], list[bytes]]:
    """Return a name for each line of an example file, and the lines."""
    lines = (REPOSITORY / "examples" / f"{name}.jsonl").read_bytes().splitlines()
    return [f"example {name} {number}" for number in range(1, len(lines) + 1)], lines


def _example_results(name: str) -> Iterator[tuple[tuple[str, str], Result]]:
    own = EXAMPLES_OF.get(name, name)
    for file in sorted((REPOSITORY / "examples").glob("*.jsonl")):
        labels, lines = _examples(file.stem)
        for profile, settings in _settings(name, everything=file.stem == own):
            reward = recipe(name, settings, hardened=PROFILES[profile])
            for label, result in zip(labels, score_rows(reward, lines), strict=True):
                key = (label, name_of(profile, settings))
                yield key, result if file.stem == own else _brief(result)


def _settings(name: str, *, everything: bool) -> Iterator[tuple[str, Settings]]:
    """Yield the two profiles. With `everything`, also yield their variants."""
    variants = {"default": VARIANTS, "hardened": HARDENED_VARIANTS} if everything else {}
    for profile in PROFILES:
        for settings in ({}, *variants.get(profile, {}).get(name, ())):
            yield profile, settings


def _attack_results(name: str) -> Iterator[tuple[tuple[str, str], Result]]:
    for label, row, settings, rivals in _attacks(name):
        shared = {key: row[key] for key in ("answers", "supporting", "documents") if key in row}
        for profile, hardened in PROFILES.items():
            reward = recipe(name, settings, hardened=hardened)
            rows = [row, *rivals] if reward.scope == "group" else [row]
            group = [ROW | shared | each | {"group": "g"} for each in rows]
            yield (label, name_of(profile, settings)), _brief(score_rows(reward, group)[0])


def _attacks(name: str) -> Iterator[tuple[str, Row, Settings, Sequence[Row]]]:
    """Yield each attacked and each honest row of a recipe, with the other rows of its group."""
    for case in CASES:
        if case.recipe == name:
            for side in ("attacked", "honest"):
                label = f"attack {case.attack} {case.name} {side}"
                yield label, getattr(case, side), case.settings, COMPANIONS
    for policy in POLICIES:
        if policy.recipe == name:
            for side in ("attacked", "honest"):
                for number, row in enumerate(getattr(policy, side), start=1):
                    label = f"policy {policy.attack} {policy.name} {side} {number}"
                    yield label, row, policy.settings, policy.rivals


def _curriculum_results() -> Iterator[tuple[tuple[str, str], Result]]:
    """Yield the results of two curricula: Ground-GRPO, and one with a group recipe at the end."""
    for first, second in (("ground-grpo-stage1", "ground-grpo"), ("naive-grpo", "ctrl-rag")):
        for profile, hardened in PROFILES.items():
            stages = [recipe(name, hardened=hardened) for name in (first, second)]
            curriculum = Curriculum((Stage(stages[0], 100), Stage(stages[1])))
            labels, lines = _examples(second)
            for step in (99, 100, None):
                rows = [{**json.loads(line), "step": step} for line in lines]
                settings = name_of(profile, {first: 100, second: None, "step": step})
                for label, result in zip(labels, score_rows(curriculum, rows), strict=True):
                    yield (label, settings), _brief(result)


# --- constructed and real rows ------------------------------------------------------------------

RUBRIC = [{"max_words": 8, "weight": 2}, {"contains": ["and", "not"], "weight": -1}]
"""The rubric of each row, which no data set has."""
CONSTRUCTED_FILE = HERE / "constructed_rows.jsonl"
REAL_FILE = HERE / "real_rows.jsonl"


def row_digests(name: str, sets: Mapping[str, Sequence[Row]]) -> dict[str, dict[str, Any]]:
    """Return a digest of the scores of a recipe for each profile with its settings and each set.

    It contains the number of rows, the mean reward with six digits, and a hash of all results.
    """
    digests = {}
    hardened = [("hardened", each) for each in ({}, *HARDENED_VARIANTS.get(name, ()))]
    for profile, settings in (("default", {}), *hardened):
        reward = recipe(name, settings, hardened=PROFILES[profile])
        digests[f"{name} {name_of(profile, settings)}"] = {
            each: _summary(score_rows(reward, rows)) for each, rows in sets.items()
        }
    return digests


def constructed_rows() -> dict[str, Sequence[Row]]:
    """Return the rows of the questions in this folder."""
    lines = (HERE / "questions.jsonl").read_bytes().splitlines()
    return {"constructed": _with_responses(map(json.loads, lines))}


def real_rows(shared: Path) -> dict[str, Sequence[Row]]:
    """Return the rows of each data set."""
    from real_rows import SOURCES

    sets = {source.__name__: _with_responses(source(shared / "data"), 3) for source in SOURCES}
    return sets | dict(_parity_rows(shared / "parity"))


def _with_responses(questions: Iterable[Row], most: int = 9) -> Sequence[Row]:
    """Return each question with responses that are made from its gold answers.

    Many questions of a set have `most` of the nine responses, in turn.
    """
    from real_rows import responses

    questions = list(questions)
    rows = []
    for number, row in enumerate(questions):
        texts = list(responses(row).items())
        count = most if len(questions) > 9 else len(texts)
        for kind, text in (texts[(number * most + k) % len(texts)] for k in range(count)):
            more = {"id": f"{number}-{kind}", "group": number, "response": text}
            rows.append({"rubric": RUBRIC, **row, **more})
    return rows


def _parity_rows(parity: Path) -> Iterator[tuple[str, Sequence[Row]]]:
    def load(name: str) -> Any:
        return json.loads((parity / "generated" / f"{name}.json").read_text("utf-8"))

    yield (
        "parity-answers",
        [
            {"response": f"<answer>{case['pred']}</answer>", "answers": case["gold"]}
            for case in load("answer_metrics")["answer_metrics"]
            if "pred" in case
        ],
    )
    yield (
        "parity-arena",
        [
            {
                "response": case["completion"],
                "answers": case["answers"],
                "supporting": case["supporting_ids"],
            }
            for case in load("arena_rewards")["cases"]
        ],
    )
    yield (
        "parity-truthrl",
        [
            {
                "response": case["completion"],
                "answers": case["targets"],
                "out_of_knowledge": case["out_of_knowledge"],
            }
            for case in load("truthrl_rewards")["cases"]
        ],
    )
    yield (
        "parity-trust-eval",
        [
            {
                "question": item["question"],
                "answers": item["answers"],
                "documents": [
                    {
                        "title": each["title"],
                        "text": each["text"],
                        "supports": each["answers_found"],
                    }
                    for each in item["docs"]
                ],
                "supporting": [1],
                "answerable": any(any(each["answers_found"]) for each in item["docs"]),
                "response": f"<think>t</think><answer>{item['output']}</answer>",
            }
            for each_set in load("trust_eval_metrics")["sets"].values()
            for item in each_set["data"]
        ],
    )
    graded = parity / "crag_truthrl_judge_graded_examples.jsonl"
    yield (
        "parity-graded",
        [
            {
                "question": case["question"],
                "answers": [case["ground_truth"]],
                "response": rf"\boxed{{{case['prediction']}}}",
            }
            for case in map(json.loads, graded.read_text("utf-8").splitlines())
        ],
    )


def _summary(results: Sequence[Result]) -> list[Any]:
    rewards = [each["reward"] for each in results if each.get("reward") is not None]
    return [len(results), float(f"{mean(rewards):.6g}") if rewards else None, _digest(results)]


# --- digests ------------------------------------------------------------------------------------


def _brief(result: Result) -> Result:
    """Return the result with a digest of its details."""
    if not result.get("details"):
        return result
    return result | {"details": _digest(result["details"])}


def _digest(value: Any) -> str:
    text = json.dumps(_rounded(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _rounded(value: Any) -> Any:
    """Return the value with nine digits per number: sums differ between Python versions."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


# --- files --------------------------------------------------------------------------------------


def read_scores(name: str) -> Pinned:
    """Return the results in the file of a recipe."""
    results: Pinned = {}
    for line in _scores_file(name).read_text("utf-8").splitlines():
        entry = json.loads(line)
        row, settings = entry.pop("row"), entry.pop("settings")
        results.update({(row, each): entry for each in settings})
    return results


def read_digests(file: Path) -> dict[str, dict[str, list[Any]]]:
    """Return the committed digests of a file, by recipe and settings."""
    lines = file.read_text("utf-8").splitlines()
    return {entry.pop("settings"): entry for entry in map(json.loads, lines)}


def write_scores(name: str) -> None:
    """Write the results of a recipe. Settings with equal results of a row share one line."""
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for (row, settings), result in pinned_scores(name).items():
        start = {"row": row, "settings": []}
        entry = entries.setdefault((row, json.dumps(result, sort_keys=True)), start | result)
        entry["settings"].append(settings)
    _write_lines(_scores_file(name), sorted(entries.values(), key=_sort_key))


def _sort_key(entry: Mapping[str, Any]) -> str:
    """Return the name of a row with padded numbers, so that "arena 9" is before "arena 10"."""
    return re.sub(r"\d+", lambda digits: digits[0].zfill(3), entry["row"])


def write_digests(file: Path, sets: Mapping[str, Sequence[Row]]) -> None:
    """Write the digests of the scores of all recipes."""
    entries = [
        {"settings": settings, **each}
        for name in RECIPES
        for settings, each in row_digests(name, sets).items()
    ]
    _write_lines(file, entries)


def _scores_file(name: str) -> Path:
    return HERE / "scores" / f"{name}.jsonl"


def _write_lines(path: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    lines = [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in entries]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    for name in names():
        write_scores(name)
    sys.path.insert(0, str(HERE.parent))
    write_digests(CONSTRUCTED_FILE, constructed_rows())
    if SHARED.is_dir():
        write_digests(REAL_FILE, real_rows(SHARED))
    else:
        print(f"{REAL_FILE.name} is unchanged: the folder {SHARED} does not exist")


if __name__ == "__main__":
    main()
