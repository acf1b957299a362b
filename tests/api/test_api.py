"""The current version has every public name of the last release, with the same signature.

    python tests/api/describe.py      # writes the description again, after a release

`public-names.json` describes the last release. CHANGES lists each accepted change with its reason.
"""

from __future__ import annotations

import json
from pathlib import Path

import describe
import pytest

from rag_rewards.cli.entry import MODEL_SETTINGS
from rag_rewards.cli.removed_options import removed_option

RELEASED = json.loads(Path(__file__).with_name("public-names.json").read_text("utf-8"))


def is_removed_option(key: str) -> bool:
    """Return whether a key such as `option score --dtype` is that of a removed option."""
    kind, command, option = (*key.split(" "), "")[:3]
    name = option.lstrip("-").replace("-", "_")
    return kind == "option" and any(
        (each in MODEL_SETTINGS and command != "prepare") or removed_option(each, command)
        for each in (name, name.removeprefix("no_"))
    )


ASK = "`undecided` says which answers a judge decides on: the rules give no certainty"
UNDECIDED = "`undecided` says what decides on an answer, in place of `strict` and `certainty`"
SPELLING = "the normalizer `spelling` is in place of `fold_accents`, `numbers` and `dates`"
FORMS = "the comparison has the normalized gold answers"
PROMPT = "the options of the prompt are one value, `prompt=PromptOptions(…)`"
CHANGES: dict[str, str] = dict.fromkeys(
    (
        f"class rag_rewards.metrics.{name}"
        for name in ("CascadeAccuracy", "MajorityAtK", "PassAtK", "ReasoningScore", "Truthfulness")
    ),
    ASK,
) | {
    "class rag_rewards.Rollout": "its fields are named, so that new ones can be between others",
    "class rag_rewards.Scorer": PROMPT,
    "function rag_rewards.Scorer.load": PROMPT,
    "class rag_rewards.rewards.AnswerMatch": f"{UNDECIDED}; {SPELLING}",
    "class rag_rewards.rewards.Outcome": f"{UNDECIDED}; {SPELLING}",
    "class rag_rewards.rewards.Grounding": f"`counts`, `aggregate` replace switches; {SPELLING}",
    "class rag_rewards.rewards.Format": "`tags` is optional",
    "class rag_rewards.rewards.Lengths": "`strict` is in place of three switches",
    "class rag_rewards.rewards.MaskedAnswer": SPELLING,
    "class rag_rewards.rewards.Relevance": "`tags` is optional",
    "function rag_rewards.rewards.AnswerMatch.value_of": FORMS,
    "function rag_rewards.rewards.Outcome.decide": FORMS,
    "function rag_rewards.rewards.Outcome.truth_of": "`verify` returns it",
    "function rag_rewards.rewards.Outcome.verify": FORMS,
    "class rag_rewards.rewards.TagCount": "`tags` is optional",
    "function rag_rewards.Response.answer": "`cut(tags).content` has the text of the section",
    "route POST /": "a request to it is still refused with the names of the routes",
    "function rag_rewards_adapters.skyrl.SkyRLRecipe.advantages": (
        "the generator computes the advantages, and its output contains them"
    ),
    "class rag_rewards_adapters.verifiers.GroupCredit": "`EpisodeReward` needs no launcher",
    "function rag_rewards.lazy_names": "never was a public name: the stub has the public names",
    "function rag_rewards.rewards.lazy_names": "never was a public name",
    **{key: "an error names what replaces it" for key in RELEASED if is_removed_option(key)},
    **dict.fromkeys(
        (
            f"value rag_rewards_adapters.{name}"
            for name in (
                "ms_swift.T ms_swift.log trl.log "
                "verl.NEEDS_GROUP_LOOP verl.NEEDS_MANAGER verl.NEEDS_STEP"
            ).split()
        ),
        "never was a public name: the stub has the public names",
    ),
}
"""Accepted removals and changes: the key of the description, and the reason."""


@pytest.fixture(scope="module")
def current() -> dict[str, str]:
    return describe.description()


def broken(released: dict[str, str], current: dict[str, str]) -> dict[str, str]:
    """Return the names that are missing or have another description, with the difference."""
    return {
        name: f"{text} -> {current.get(name, 'missing')}"
        for name, text in released.items()
        if not describe.is_compatible(text, current.get(name))
    }


def test_no_public_name_is_missing_or_changed(current: dict[str, str]) -> None:
    differences = broken(RELEASED, current)
    assert not {name: text for name, text in differences.items() if name not in CHANGES}
    assert not CHANGES.keys() - differences.keys(), "these changes are not changes"


def test_the_description_contains_all_kinds_of_names(current: dict[str, str]) -> None:
    kinds = {name.partition(" ")[0] for name in current}
    assert kinds == {"function", "class", "value", "option", "route", "entry-point"}
    assert current["option score --workers"]
    assert current["route POST /score"]
    assert current["entry-point console_scripts rag-rewards"] == "rag_rewards.cli:main"


@pytest.mark.parametrize(
    ("old", "new", "compatible"),
    [
        ("(a, b=1)", "(a, b=1)", True),
        ("(a, b=1)", "(a, b=1, *, c=None)", True),
        ("(a, b=1)", "(a, b=1, c=None)", True),
        ("(a, *, b=1)", "(a, *, new=0, b=1)", True),
        ("(a, b=1)", "(a, b=2)", False),
        ("(a, b=1)", "(a)", False),
        ("(a, b=1)", "(a, b=1, *, c)", False),
        ("(a, b)", "(b, a)", False),
        ("(a)", "(*, a)", False),
        ("(a)", None, False),
    ],
)
def test_compatible_signatures(old: str, new: str | None, compatible: bool) -> None:
    assert describe.is_compatible(old, new) == compatible
