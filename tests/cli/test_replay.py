"""`rag-rewards replay`: rows under other settings."""

from __future__ import annotations

import json
import re

import pytest

import rag_rewards as rr
from rag_rewards.files.sources import Source
from rag_rewards.loading import RecipeSpec
from rag_rewards.scoring.replay import Variation, _compares_rollouts
from rag_rewards.signature import Signature, signature_of

HEAD = f"rag-rewards {rr.__version__}"


@pytest.fixture
def scored(cli, write, arena, tmp_path):
    """Write a right and a wrong rollout of a group, scored with bonus.value=5."""
    wrong = "<relevance>[1]</relevance><analysis>One.</analysis><answer>Rhine</answer>"
    rows = [arena(group="g"), arena(id="b", group="g", response=wrong)]
    source = write(rows)
    path = source.with_name("scored.jsonl")
    cli("score", source, "-r", "arena", "--set", "bonus.value=5", "-o", path, code=0)
    return path


def replayed(cli, *arguments, code=0, stdin=b""):
    return json.loads(cli("replay", *arguments, "--json", code=code, stdin=stdin).out)


def signed(row, signature):
    return row | {"signature": str(signature)}


def test_settings_come_from_the_signature(cli, scored):
    data = replayed(cli, scored, "--set", "bonus.value=0")
    assert data["means"]["reward"] == [5.0, 2.5]
    assert (data["rows"], data["groups"], data["changed"]) == (2, 1, 1)
    assert data["before"] == f'{HEAD} arena {{"settings":{{"bonus.value":5}}}}'
    assert data["after"] == f'{HEAD} arena {{"settings":{{"bonus.value":0}}}}'
    assert data["settings"] == {"bonus.value": [5.0, 0.0]}
    output = cli("replay", scored, "--set", "bonus.value=0", code=0).out
    assert "bonus.value: 5.0 → 0.0" in output


def test_settings_come_from_the_signature_on_standard_input(cli, scored):
    data = scored.read_bytes()
    for recipe in ([], ["-r", "arena"]):
        values = replayed(cli, "-", *recipe, "--set", "bonus.value=0", stdin=data)
        assert values["means"]["reward"] == [5.0, 2.5]


def test_base_takes_precedence_over_the_signature(cli, scored):
    data = replayed(cli, scored, "--base", "bonus.value=1", "--set", "bonus.value=0")
    assert data["means"]["reward"] == [3.0, 2.5]


def test_a_change_takes_precedence_over_a_short_key_of_the_base(cli, likely, write):
    path = write([likely()])
    data = replayed(
        cli, path, "-r", "ctrl-rag", "--base", "metric=f1", "--set", "accuracy.metric=exact"
    )
    assert data["settings"] == {"accuracy.metric": ["f1", "exact"]}


def test_hardened(cli, scored):
    data = replayed(cli, scored, "--hardened")
    assert data["before"] == f'{HEAD} arena {{"settings":{{"bonus.value":5}}}}'
    assert data["after"] == f'{HEAD} arena hardened {{"settings":{{"bonus.value":5}}}}'
    assert data["settings"]["sections.repeated"] == ["first", "missing"]


def test_hardened_rejects_a_metric_for_evaluation(cli, scored):
    arguments = ("--hardened", "--set", "accuracy.metric=lenient")
    ran = cli("replay", scored, *arguments, code=2)
    assert "setting accuracy.metric: lenient is only for evaluation" in ran.err


def test_rows_that_were_scored_with_the_hardened_profile(cli, write, arena):
    text = "<relevance>[1]</relevance><analysis>.</analysis><answer>Seine</answer>"
    source = write([arena(response=text)])
    path = source.with_name("scored.jsonl")
    cli("score", source, "-r", "arena", "--hardened", "-o", path, code=0)
    data = replayed(cli, path, "--set", "format.words=false")
    # With format.words the analysis "." has no word: no format reward and no bonus.
    assert data["means"]["reward"] == [2.0, 13.0]
    assert data["before"] == f"{HEAD} arena hardened"
    assert data["settings"] == {"format.words": [True, False]}


@pytest.mark.parametrize("options", [[], ["-r", "ctrl-rag"]])
def test_rows_that_were_scored_with_a_model(cli, write, likely, options):
    """Settings are read from signatures with models, in the old and in the new format."""
    recipe = rr.recipe("ctrl-rag", {"threshold": 7, "fusion": "none"})
    models = {"policy": "transformers qwen2 float32 5e1f", "prompt": "0a1b"}
    old = 'rag-rewards 0.7.0 ctrl-rag fusion="none" threshold=7'
    for signature in (signature_of(recipe, models), old, f"{old} models={json.dumps(models)}"):
        path = write([signed(likely(id=name), signature) for name in "ab"])
        data = replayed(cli, path, *options, "--set", "threshold=1")
        assert data["before"] == recipe.signature
        assert data["settings"] == {"threshold": [7.0, 1.0]}
        # E is 3.4 nats, below 7: its threshold makes the likelihood reward 0.
        assert data["means"]["clr"][0] == 0.0
        assert data["means"]["clr"][1] > 1.0


def test_rows_with_different_fingerprints(cli, write, arena):
    """During training, the fingerprint of the policy changes with every step."""
    recipe = rr.recipe("arena", {"bonus.value": 5})
    rows = [signed(arena(step=i), signature_of(recipe, {"policy": f"step {i}"})) for i in range(3)]
    rows.append(signed(arena(step=3), "rag-rewards 0.7.0 arena bonus.value=5"))
    data = replayed(cli, write(rows), "--set", "bonus.value=0")
    assert (data["rows"], data["means"]["reward"]) == (4, [8.0, 3.0])


def test_rows_of_a_curriculum(cli, write, arena, tmp_path):
    config = tmp_path / "stages.yaml"
    config.write_text(
        "stages:\n- {recipe: naive-grpo, until_step: 10}\n"
        "- {recipe: arena, settings: {bonus: {value: 4}}}\n"
    )
    thought = "<think>One.</think><answer>Seine</answer>"
    rows = [arena(id="a", group="1", step=9, response=thought), arena(id="b", group="2", step=10)]
    source = write(rows)
    path = source.with_name("scored.jsonl")
    cli("score", source, "--config", config, "-o", path, code=0)
    assert replayed(cli, path)["means"]["reward"] == [4.5, 4.5]
    data = replayed(cli, path, "--set", "normalizer=unicode", "--base", "metric=f1")
    assert data["settings"] == {
        "stages[0].accuracy.normalizer": ["triviaqa", "unicode"],
        "stages[1].accuracy.normalizer": ["triviaqa", "unicode"],
    }
    stages = Signature.parse(data["before"]).stages
    assert [stage.until_step for stage in stages] == [10, None]
    assert stages[1].settings == {"accuracy.metric": "f1", "bonus.value": 4}
    hardened = Signature.parse(replayed(cli, path, "--hardened")["after"])
    assert [stage.hardened for stage in hardened.stages] == [True, True]
    # A setting of one stage alone.
    assert "recipe naive-grpo has no setting 'bonus.value'" in (
        cli("replay", path, "--set", "bonus.value=0", code=2).err
    )
    # Another recipe starts from its defaults.
    assert replayed(cli, path, "-r", "arena")["before"] == f"{HEAD} arena"


def test_old_signatures_of_a_curriculum(cli, write, arena):
    signature = (
        'rag-rewards 0.7.0 curriculum stages=[{"recipe":"naive-grpo","until_step":10,'
        '"settings":{"format.words":true}},{"recipe":"arena","settings":{"bonus.value":4}}]'
    )
    data = replayed(cli, write([signed(arena(step=10), signature)]))
    assert data["means"]["reward"] == [7.0, 7.0]
    assert data["before"] == (
        f'{HEAD} curriculum {{"stages":[{{"recipe":"naive-grpo","until_step":10,'
        '"settings":{"format.words":true}},{"recipe":"arena","settings":{"bonus.value":4}}]}'
    )


def test_another_recipe_than_the_signature(cli, scored, tmp_path):
    assert replayed(cli, scored, "-r", "rag-total")["after"] == f"{HEAD} rag-total"
    config = tmp_path / "config.yaml"
    config.write_text("recipe: rag-total\nalpha: 0.25\n")
    data = replayed(cli, scored, "--config", config)
    assert data["after"] == f'{HEAD} rag-total {{"settings":{{"alpha":0.25}}}}'
    config.write_text("stages: [{recipe: arena}]")
    assert "takes no stages" in cli("replay", scored, "--config", config, code=2).err


def test_equal_settings(cli, scored):
    output = cli("replay", scored, code=0).out
    assert "none" in output
    assert "0 rewards change" in output


@pytest.mark.parametrize("show", ["0", "1", "-1"])
def test_show(cli, scored, show):
    data = replayed(cli, scored, "--set", "bonus.value=0", "--show", show)
    assert len(data["most_changed"]) == max(int(show), 0)


def test_rows_in_error(cli, write, likely):
    rows = [likely(), likely(id="x", answers=""), likely(id="y", group="h"), "{"]
    path = write(rows)
    data = replayed(cli, path, "-r", "ctrl-rag", code=3)
    assert (data["rows"], data["errors"]) == (0, 4)
    assert "contains no answer" in data["first_error"]
    assert "4 rows in error" in cli("replay", path, "-r", "ctrl-rag", code=3).out


def test_the_first_row_is_in_error(cli, write, arena):
    rows = [arena(group="h", response=5), arena(group="g")]
    rows[1]["signature"] = f"{HEAD} arena bonus.value=5"
    data = replayed(cli, write(rows), code=3)
    assert (data["rows"], data["errors"]) == (1, 1)
    assert data["means"]["reward"] == [8.0, 8.0]


def test_standard_input_and_groups(cli, write, likely):
    rows = [likely(id="1"), likely(id="2", group="h"), likely(id="3")]
    data = write(rows).read_bytes()
    for options in (["--sort"], []):
        values = json.loads(
            cli("replay", "-", "-r", "ctrl-rag", "--json", *options, stdin=data).out
        )
        assert (values["groups"], values["errors"]) == ((2, 0) if options else (2, 1))


OWN = """
from dataclasses import dataclass
from typing import Annotated

from rag_rewards.reward import as_reward
from rag_rewards.definition import HardenedSetting, RecipeDefinition
from rag_rewards.recipe_object import Recipe
from rag_rewards.prompts import OutputForm
from rag_rewards.settings import Part, about


@dataclass(frozen=True)
class Length:
    scale: Annotated[float, about("reward of a character", "ours: 1")] = 1.0

    def __call__(self, rollout):
        return self.scale * len(rollout.parsed.text)


def build(length):
    def reward(rollout):
        return length(rollout)

    return Recipe("own", (as_reward(reward),), as_reward(reward))


OWN = RecipeDefinition(
    name="own", summary="", source="", output=OutputForm(""), build=build,
    parts={"length": Part(Length(), prefix="")},
    fields=(), components=(), hardened={"scale": HardenedSetting(0.5, (), "")},
)


def constant(rollout):
    return 1.0
"""


def test_a_recipe_of_a_module(cli, write, arena, tmp_path, monkeypatch):
    (tmp_path / "own_recipe.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    source = write([arena(response="abcd")])
    path = source.with_name("scored.jsonl")
    cli("score", source, "-r", "own_recipe:OWN", "--set", "scale=3", "-o", path, code=0)
    # Its defaults are not tied to a version of this package, so that every setting is written.
    signature = json.loads(path.read_text())["signature"]
    values = '{"settings":{"code_digest":"[0-9a-f]{16}","scale":3}}'
    assert re.fullmatch(re.escape(f"{HEAD} own ") + values, signature)
    data = replayed(cli, path, "-r", "own_recipe:OWN", "--set", "scale=2")
    assert data["means"]["reward"] == [12.0, 8.0]
    assert data["settings"] == {"scale": [3.0, 2.0]}
    assert replayed(cli, path, "-r", "own_recipe:OWN", "--hardened")["means"]["reward"] == [12, 2]
    assert "no recipe 'own'" in cli("replay", path, code=2).err
    # A function has no settings.
    assert replayed(cli, path, "-r", "own_recipe:constant")["means"]["reward"] == [1.0, 1.0]
    result = cli("replay", path, "-r", "own_recipe:constant", "--set", "scale=2", code=2)
    assert "constant is an object without settings" in result.err


# --- signatures that replay cannot use -----------------------------------------------------------


def test_rows_without_a_signature(cli, write, arena):
    for signature in (5, None, [], "x", "a b c d", 'a b arena {"bonus.value":'):
        path = write([arena() | {"signature": signature}])
        assert "set --recipe" in cli("replay", path, code=2).err
        assert replayed(cli, path, "-r", "arena")["before"] == f"{HEAD} arena"
    assert "set --recipe" in cli("replay", write([]), code=2).err


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        (f"{HEAD} arena gone=1", "line 1: recipe arena has no setting 'gone'"),
        ("rag-rewards 0.6.0 arena", "this version reads 0.7.0 and later: score the rows again"),
        (f'{HEAD} arena bonus.value="x"', "line 1: recipe arena: setting bonus.value: Expected"),
        (f"{HEAD} arena bonus.value=", "line 1: not a signature: Expecting value"),
        ("rag-rewards 0.8.0 arena {", "line 1: not a signature"),
        ("rag-rewards 99.0.0 arena", "line 1: the signature is of rag-rewards 99.0.0, but this"),
    ],
)
@pytest.mark.parametrize("recipe", [[], ["-r", "arena"]])
def test_an_invalid_signature_is_not_replaced_by_defaults(
    cli, write, arena, signature, message, recipe
):
    result = cli("replay", write([signed(arena(), signature)]), *recipe, code=2)
    assert message in result.err
    assert result.out == ""


def test_rows_of_a_recipe_that_is_not_built_in(cli, write, arena):
    own = rr.custom("my own", lambda rollout: 1.0)
    path = write([signed(arena(), own.signature)])
    message = cli("replay", path, code=2).err
    assert "line 1: the signature names the custom recipe 'my own'" in message
    assert "set --recipe" in message
    assert replayed(cli, path, "-r", "arena")["means"]["reward"] == [13.0, 13.0]
    stages = rr.Curriculum((rr.Stage(own, 5), rr.Stage(rr.recipe("arena"))))
    message = cli("replay", write([signed(arena(), stages.signature)]), code=2).err
    assert "custom recipe 'my own'" in message
    path = write([signed(arena(), f"{HEAD} areena")])
    assert "no recipe 'areena'; did you mean 'arena'?" in cli("replay", path, code=2).err


@pytest.mark.parametrize(
    ("second", "difference"),
    [
        (f"{HEAD} arena", "bonus.value is 5.0 and 10.0"),
        (f"{HEAD} arena bonus.value=5 hardened", "sections.repeated is 'first' and 'missing'"),
        (f"{HEAD} naive-grpo", "(arena and naive-grpo)"),
        (
            f'{HEAD} c stages=[{{"recipe":"arena","until_step":5}},{{"recipe":"lear"}}]',
            "(arena and a curriculum of arena, lear)",
        ),
        (f'{HEAD} c stages=[{{"recipe":"arena"}}]', "(arena and a curriculum of arena)"),
        (None, "(arena and no signature of this recipe)"),
    ],
)
def test_rows_with_different_settings_are_refused(cli, write, arena, second, difference):
    first = f"{HEAD} arena bonus.value=5"
    rows = [arena(group="1") | {"signature": text} for text in (first, first)]
    rows += [arena(group="2") | {"signature": second}]
    result = cli("replay", write(rows), code=2)
    assert "lines 1 and 3 were scored with different settings" in result.err
    assert difference in result.err
    assert "split the file" in result.err
    assert result.out == ""
    # With --recipe, the settings of that recipe's rows must agree as well.
    assert "lines 1 and 3" in cli("replay", write(rows), "-r", "arena", code=2).err
    # The settings of another recipe's rows play no part.
    assert replayed(cli, write(rows), "-r", "rag-total", code=0)["rows"] == 3


def test_rows_with_different_curricula_are_refused(cli, write, arena):
    texts = [
        f'{HEAD} c stages=[{{"recipe":"arena","until_step":{end}}},{{"recipe":"arena"}}]'
        for end in (5, 6)
    ]
    rows = [signed(arena(step=3), text) for text in texts]
    assert "stages[0].until_step is 5 and 6" in cli("replay", write(rows), code=2).err


def test_settings_are_shown_as_they_are_given(cli, write, likely):
    source = write([likely(id="a", group="a"), likely(id="b", group="a")])
    out = cli("replay", source, "-r", "ctrl-rag", "--set", "threshold=null", code=0).out
    assert "→ null" in out
    assert "None" not in out


def test_groups_of_a_recipe_of_single_rollouts_may_be_apart(cli, write, arena):
    wrong = arena()["response"].replace("Seine", "Rhine")
    rows = [
        arena(id=f"{group}{i}", group=group, response=wrong if i else arena()["response"])
        for i in range(3)
        for group in "abc"
    ]
    arguments = ("-r", "arena", "--set", "bonus.value=0")
    apart = replayed(cli, write(rows), *arguments)
    assert apart["errors"] == 0
    assert (apart["groups"], apart["rows"]) == (3, 9)
    assert apart == replayed(cli, write(sorted(rows, key=lambda row: row["group"])), *arguments)
    with_bad_line = write(["{", *rows])
    assert replayed(cli, with_bad_line, *arguments, code=3)["errors"] == 1
    data = write(rows).read_bytes()
    assert replayed(cli, "-", *arguments, stdin=data) == apart


def test_few_lines_are_in_memory_before_the_first_row_that_decodes():
    lines = ((number, b"{") for number in range(1, 10_001))
    assert _compares_rollouts(Source(lines, None), Variation(RecipeSpec(recipe="ctrl-rag"), {}))
    assert next(lines)[0] <= 1001


def test_rows_after_many_bad_lines_are_replayed(cli, write, arena):
    result = replayed(
        cli, write(["{"] * 1500 + [arena()]), "-r", "arena", "--set", "bonus.value=0", code=3
    )
    assert (result["errors"], result["rows"]) == (1500, 1)


def test_groups_of_a_recipe_that_compares_rollouts_are_adjacent(cli, write, likely):
    rows = [likely(id=name, group=name[0]) for name in ("a1", "b1", "a2")]
    result = replayed(cli, write(rows), "-r", "ctrl-rag", code=3)
    assert "not adjacent" in result["first_error"]
    assert replayed(cli, write(rows), "-r", "ctrl-rag", "--sort")["errors"] == 0
