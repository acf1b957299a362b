"""A new recipe needs four files: its definition, one entry in the table, its example, golden rows.

The tests add the invented recipe of the folder `new_recipe` to a copy of the repository. Then every
command, every generated page and the tests of all recipes must contain it without another change.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from repository_copy import Copy

SOURCE = Path(__file__).parent / "new_recipe"
NAME = "quote-first"
TRAINERS = ("trl", "verl", "openrlhf", "ms-swift")
PAGES = """
import json, sys
sys.path.insert(0, "docs")
import build_hardened, build_matrix, build_recipes
pages = {"hardened": build_hardened.page(), "trainers": build_matrix.table()}
print(json.dumps(pages | build_recipes.pages()))
"""
NAVIGATION = """
import json, sys
sys.path.insert(0, "docs")
import site_hooks
print(json.dumps(site_hooks.on_config({"nav": [{"Recipes": ["recipes/index.md"]}]})))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy of the repository with the new recipe. It changes three files by hand."""
    copy = Copy.in_folder(tmp_path_factory.mktemp("copy") / "repository")
    folder = copy.folder
    shutil.copy(SOURCE / "quote_first.py", folder / "rag_rewards/recipes")
    shutil.copy(SOURCE / "quote-first.jsonl", folder / "examples")
    table = folder / "rag_rewards/recipes/__init__.py"
    last_line = '        "rag-total": "rag_total:RAG_TOTAL",\n'
    text = table.read_text("utf-8")
    assert text.count(last_line) == 1
    new_line = f'        "{NAME}": "quote_first:QUOTE_FIRST",\n'
    table.write_text(text.replace(last_line, last_line + new_line))
    return copy


def test_commands_that_describe_recipes(copy: Copy) -> None:
    table, page, data = copy.commands(["recipes"], ["recipes", NAME], ["recipes", NAME, "--json"])
    assert NAME in table
    words = " ".join(page.split())
    assert "preset quote-first-train: hotpotqa 1" in words
    assert "group 5, learning_rate 7e-06, temperature 0.85 (Quote First, section 4)" in words
    description = json.loads(data)
    assert description["hardened"]["format.words"]["closes"] == [16, 24]
    assert description["deviations"] == ["white space between the sections is allowed"]
    assert description["ranges"] == {"accuracy": "0, 1", "format": "0, 1"}


def test_score_and_replay(copy: Copy) -> None:
    copy.commands(
        ["score", f"examples/{NAME}.jsonl", "-r", NAME, "-o", "scored.jsonl"],
        ["replay", "scored.jsonl", "--set", "weights.format=1"],
        ["explain", "scored.jsonl", "--id", "seine-wrong"],
    )
    rows = [json.loads(line) for line in copy.text("scored.jsonl").splitlines()]
    assert [row["reward"] for row in rows] == [1.5, 1.0, 0.5]
    assert rows[0]["components"] == {"accuracy": 1.0, "format": 1.0}
    assert rows[0]["signature"].endswith(NAME)


def test_init_writes_the_published_training_values(copy: Copy) -> None:
    copy.commands(
        *(["init", trainer, "-r", NAME, "--judge", "http://127.0.0.1:9/v1", "--judge-model", "any",
           "-o", f"run-{trainer}"] for trainer in TRAINERS)
    )  # fmt: skip
    for trainer in TRAINERS:
        files = (copy.folder / f"run-{trainer}").iterdir()
        script = "\n".join(path.read_text("utf-8") for path in files)
        for value in (NAME, "7e-06", "0.85", "Quote First, section 4"):
            assert value in script, (trainer, value)


def test_prepare_uses_the_preset_and_the_prompt(copy: Copy) -> None:
    row = {
        "_id": "1",
        "question": "Which river flows through Paris?",
        "answer": "Seine",
        "type": "bridge",
        "level": "easy",
        "supporting_facts": [["Paris", 0]],
        "context": [["Paris", ["The Seine flows through Paris."]], ["Nantes", ["The Loire."]]],
    }
    other = row | {
        "_id": "2",
        "question": "Which tower stands in Pisa?",
        "answer": "Leaning Tower",
        "supporting_facts": [["Pisa", 0]],
        "context": [["Pisa", ["The Leaning Tower stands in Pisa."]], ["Rome", ["A city."]]],
    }
    (copy.folder / "hotpot.json").write_text(json.dumps([row, other]))
    copy.commands(
        ["prepare", "hotpotqa", "hotpot.json", "-o", "train.jsonl", "-t", "trl", "-r", NAME,
         "--preset", "quote-first-train", "--noise", "1"]
    )  # fmt: skip
    [prepared] = map(json.loads, copy.text("train.jsonl").splitlines())
    [message] = prepared["prompt"]
    assert message["content"].startswith("Quote the sentence that answers the question")
    assert "Source 3: " in message["content"]  # the noise is a third document


def test_select_makes_training_rows_in_the_prompt_and_the_output_form(copy: Copy) -> None:
    copy.commands(
        ["score", f"examples/{NAME}.jsonl", "-r", NAME, "-o", "rollouts.jsonl"],
        ["select", "rollouts.jsonl", "--make", "sft", "-o", "direct.jsonl"],
        ["select", "rollouts.jsonl", "--make", "sft", "--style", "reasoning", "-o", "long.jsonl"],
    )
    [direct] = map(json.loads, copy.text("direct.jsonl").splitlines())
    assert "<answer>Seine</answer>" in json.dumps(direct)
    assert "Source 1: The Seine flows through Paris." in json.dumps(direct)
    [reasoned] = map(json.loads, copy.text("long.jsonl").splitlines())
    assert "<quote>The Seine flows through Paris.</quote><answer>Seine</answer>" in json.dumps(
        reasoned
    )
    assert "Quote the sentence that answers the question" in json.dumps(reasoned)


def test_attacks_use_the_output_form(copy: Copy) -> None:
    [hardened] = copy.commands(["audit", "-r", NAME, "--hardened", "--json"])
    findings = json.loads(hardened)["findings"]
    assert len({finding["attack"] for finding in findings}) > 20
    quoted = [each for each in findings if "<quote>Paris is the capital" in each["response"]]
    assert len(quoted) > len(findings) / 2
    default = copy.python("-c", f"from rag_rewards.audit import audit; print(audit({NAME!r}).ok)")
    assert default.strip() == "False"


def test_generated_pages(copy: Copy) -> None:
    pages: dict[str, Any] = json.loads(copy.python("-c", PAGES))
    assert f"## {NAME}" in pages["hardened"]
    assert (
        f"| `{NAME}` | `judge=URL`, `judge_model=NAME`, or `accuracy.metric=exact` |"
        in (pages["trainers"])
    )
    assert f"[{NAME}]({NAME}.md)" in pages["index.md"]
    page = pages[f"{NAME}.md"]
    for text in ("accuracy + 0.5·format", "seine-unquoted", "weights.format", "7e-06"):
        assert text in page


def test_navigation_of_the_site(copy: Copy) -> None:
    pytest.importorskip("mkdocs", reason='pip install "rag-rewards[docs]"')
    [section] = json.loads(copy.python("-c", NAVIGATION))["nav"]
    assert {NAME: f"recipes/{NAME}.md"} in section["Recipes"]


@pytest.mark.slow
def test_the_tests_of_all_recipes_pass(copy: Copy) -> None:
    """Golden rows and pages are written by their programs; no test is edited."""
    for program in ("pin", "test_defaults"):
        copy.python(f"tests/golden/{program}.py")
    for program in ("build_hardened", "build_inserts", "build_recipes"):
        copy.python(f"docs/{program}.py")
    tested = ("adapters/test_matrix.py", "attacks", "cli/test_arguments.py", "cli/test_init.py",
              "report/test_explanation.py", "test_prompts.py",
              "test_recipe_object.py", "test_signature.py", "test_site.py")  # fmt: skip
    pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    copy.python(
        *pytest,
        "-k",
        f"{NAME} or published or the_table",
        *(f"tests/{path}" for path in tested),
    )
    copy.python(*pytest, "tests/golden")
