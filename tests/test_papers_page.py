"""The page about the papers: it is up to date, each reference exists, and a wrong one is found."""

from __future__ import annotations

import doctest
import importlib
import re
import sys
from pathlib import Path

import msgspec
import pytest

from rag_rewards.recipes import RECIPES

DOCS = Path(__file__).resolve().parents[1] / "docs"
sys.path.insert(0, str(DOCS))
build_papers = importlib.import_module("build_papers")
paper_references = importlib.import_module("paper_references")
paper_results = importlib.import_module("paper_results")


def item(**fields):
    defaults = {
        "kind": "equation",
        "source": "Eq. 1",
        "title": "Recall",
        "where": ("rag_rewards.rewards.citation:citation_recall",),
        "shown_by": ("tests/rewards/test_citation.py::test_citation_recall",),
    }
    return build_papers.Item(**defaults | fields)


@pytest.mark.parametrize("name", build_papers.NAMES)
def test_each_reference_exists(name):
    [paper] = [paper for paper in build_papers.papers() if paper.slug == name]
    assert [error for each in paper.items for error in each.errors()] == []
    names = [each.name for each in paper.items]
    assert len(names) == len(set(names))


def test_recipes_of_the_papers():
    names = [name for paper in build_papers.papers() for name in paper.recipes]
    assert len(names) == len(set(names))
    assert set(names) <= set(RECIPES)


def test_each_numbered_equation_has_an_item():
    """The papers number 16, 13 and 12 equations; the other two number none."""
    numbers = {"CTRL-RAG": 16, "Ground-GRPO": 13, "LEAR": 12}
    for paper in build_papers.papers():
        sources = " ".join(each.source for each in paper.items if each.kind == "equation")
        found = set(map(int, re.findall(r"Eq\. (\d+)", sources)))
        assert found == set(range(1, numbers.get(paper.name, 0) + 1))


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("rag_rewards.rewards.citation:citation_recal", "does not exist"),
        ("rag_rewards.nothing:name", "No module"),
        ("rag_rewards_adapters.trl.trainers:Nothing", "Nothing"),
        ("rag_rewards.rewards.contrastive:ContrastiveLikelihood.none", "does not exist"),
        ("rag-rewards nothing", "no command"),
        ("rag-rewards prepare --nothing", "no option '--nothing'"),
        ("rag-rewards prepare nothing", "unknown data set"),
        ("rag-rewards prepare --preset nothing", "nothing"),
        ("rag-rewards score -r nothing", "no recipe 'nothing'"),
        ("rag-rewards score -r arena --set nothing=1", "nothing"),
        ("rag-rewards prepare -r arena --prompt nothing", "no prompt"),
        ("rag-rewards evaluate --metrics nothing", "unknown metric"),
        ("rag-rewards select --make nothing", "unknown value"),
        ("rag-rewards init nothing -r arena", "unknown trainer"),
        ("arena nothing=1", "nothing"),
        ("arena bonus.value=many", "bonus.value"),
        ("arena training.group=8", "the value of training.group is 7"),
        ("arena training.nothing=8", "no training value"),
        ("docs/nothing.md", "no such file"),
        ("docs/index.md#Nothing", "no heading and no row"),
        ("nothing", "no such file"),
    ],
)
def test_a_wrong_place_is_an_error(reference, message):
    assert message in paper_references.place_error(reference)
    [error] = item(where=(reference,)).errors()
    assert error.startswith("Eq. 1, Recall: ")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("tests/rewards/test_citation.py::test_nothing", "no such test"),
        ("tests/rewards/test_citation.py", "no such test"),
        ("tests/rewards/test_contrastive.py::score", "no such test"),
        ("tests/adapters/test_trl_adapter.py::TestNothing::test_a_custom_recipe", "no such test"),
        ("tests/test_nothing.py::test_citation_recall", "no such file"),
        ("tests/data_sets/test_rows_of_sets.py::test_real_rows_of_crag", "needs `shared`"),
        # By a fixture that needs it.
        ("tests/metrics/test_trust_score.py::test_values_of_the_authors_code", "needs `shared`"),
        ("benchmarks/results/teaches/ctrl_rag.md#nothing", "no heading and no row"),
        ("benchmarks/results/teaches/nothing.md", "no such file"),
        ("docs/index.md", "neither a test nor a page of results"),
    ],
)
def test_wrong_evidence_is_an_error(reference, message):
    assert message in paper_references.evidence_error(reference)
    [error] = item(shown_by=(reference,)).errors()
    assert error.startswith("Eq. 1, Recall: ")


@pytest.mark.parametrize(
    "reference",
    [
        "rag_rewards_adapters.trl:RagReward",
        "rag_rewards_adapters.trl.trainers:K2Trainer",  # also without TRL
        "rag_rewards.rollout:LogProbs.full",
        "rag-rewards evaluate --metrics truthfulness(w1=1,w2=0,w3=1) --by hops",
        "ctrl-rag threshold=null training.group=8",
        "docs/index.md#Quick start",
        "examples/arena.jsonl",
    ],
)
def test_places_that_exist(reference):
    assert paper_references.place_error(reference) == ""


def test_incomplete_items_are_errors():
    assert item().errors() == []
    missing = {"missing": "gpu", "reason": "It trains a model.", "shown_by": ()}
    assert item(**missing).errors() == item(**missing | {"where": ()}).errors() == []
    for fields in (
        {"where": ()},
        {"shown_by": ()},
        {"reason": "Because."},
        missing | {"reason": ""},
        missing | {"shown_by": item().shown_by},
    ):
        [error] = item(**fields).errors()
        assert "missing" in error


RUNS = """
- new, seed 0: answer 0.900, KL to base 0.100, reward first –
- new, seed 1: answer 0.800, KL to base 0.100, reward first –
- new, seed 2: answer 0.800, KL to base 0.100, reward first –
- new, longer, seed 0: answer 0.700, KL to base 0.300
- new, longer, seed 1: answer 0.550, KL to base 0.100
- new, longer, seed 2: answer 0.500, KL to base 0.100
- one seed, seed 0: answer 0.700
"""
PLACE = "benchmarks/results/teaches/runs.md"


@pytest.fixture
def page_of_runs(monkeypatch, tmp_path):
    """Replace the results by a page of runs, and accept each reference to it."""
    (tmp_path / "runs.md").write_text(RUNS, "utf-8")
    monkeypatch.setattr(paper_results, "TEACHES", tmp_path)
    monkeypatch.setattr(build_papers, "evidence_error", lambda reference: "")
    paper_results.results.cache_clear()
    yield
    paper_results.results.cache_clear()


def compared(higher="new", lower="new, longer", measure="answer", **more):
    defaults = {"result": "runs", "higher": higher, "lower": lower, "measure": measure}
    return paper_results.Comparison(**defaults | more)


def ablation(*comparisons, **fields):
    defaults = {"kind": "ablation", "shown_by": (f"{PLACE}#new",), "compared": comparisons}
    return item(**defaults | fields)


@pytest.mark.usefixtures("page_of_runs")
def test_the_state_of_an_item_comes_from_its_results():
    higher, reverse = compared(), compared("new, longer", "new")
    unclear = compared("new, longer", "new", "KL to base")
    assert higher.differences == {"sampled": pytest.approx([0.2, 0.25, 0.3])}
    # The standard deviation is 0.05, and t with two degrees of freedom 4.303: 4.303 · 0.05 / √3.
    assert str(higher) == "shown: answer, `new` − `new, longer`: +0.250 ± 0.124 sampled only"
    assert str(reverse).startswith("contradicts: ")
    assert str(reverse).endswith("−0.250 ± 0.124 sampled only")
    # The differences 0.2, 0.25, 0.3 minus those of the other column, −0.2, 0, 0.
    assert compared(minus="KL to base").differences["sampled"] == [0.4, 0.25, 0.3]
    assert "answer − KL to base, `new` − `new, longer`" in str(compared(minus="KL to base"))
    assert unclear.outcome == "no separation"
    assert compared("new", "new", lower_measure="KL to base").outcome == "shown"
    assert ablation(higher).state == "shown"
    assert ablation(higher, unclear).state == "no separation"
    assert ablation(unclear, reverse, higher).state == "contradicts"
    assert all(ablation(each).errors() == [] for each in (higher, reverse, unclear))
    paper = build_papers.Paper("P", "Title", (), (ablation(higher), ablation(higher, unclear)))
    assert "| [P](#p) | 2 | 1 | 1 | 0 | 0 | 0 | 0 | 0 |" in build_papers._summary([paper])
    assert "| **no separation**<br>" in build_papers._section(paper)


@pytest.mark.usefixtures("page_of_runs")
def test_both_decodings_decide(tmp_path):
    """`equal` and `reverse` have other signs with greedy decoding; `votes` has no greedy values."""
    greedy = {"new": (0.9, None), "equal": (0.9, None), "reverse": (1.0, None), "less": (0.1, None)}
    sampled = {"new": (0.9, 0.9), "equal": (0.5, 0.5), "reverse": (0.5, 0.5), "less": (0.2, 0.2)}
    runs = {
        name: [
            {
                "figures": {
                    decoding: dict(zip(("answer", "votes"), values[name], strict=True))
                    for decoding, values in (("greedy", greedy), ("sampled", sampled))
                }
            }
        ]
        * 3
        for name in greedy
    }
    text = msgspec.json.encode({"seeds": [0, 1, 2], "runs": runs})
    (tmp_path / "runs.json").write_bytes(text)
    outcomes = {name: compared(lower=name).outcome for name in ("equal", "reverse", "less")}
    assert outcomes == {"equal": "no separation", "reverse": "no separation", "less": "shown"}
    assert compared("less", "new").outcome == "contradicts"
    assert str(compared(lower="less")).endswith("+0.700 ± 0.000 sampled, +0.800 ± 0.000 greedy")
    votes = compared(lower="equal", measure="votes")
    assert str(votes) == "shown: votes, `new` − `equal`: +0.400 ± 0.000 sampled only"


@pytest.mark.parametrize(
    "name", ["arena_methods", "ground_grpo_methods", "lear_methods", "truthrl_methods"]
)
def test_the_stored_steps_are_those_of_the_program(name):
    """The program writes its steps on the page, which is compared with the program elsewhere."""
    file = paper_results.TEACHES / f"{name}.json"
    [line] = re.findall("^Steps of the trainings: (.+)$", file.with_suffix(".md").read_text(), re.M)
    steps = {run: int(count) for run, count in re.findall(r'"([^"]+)" (\d+)', line)}
    stored = msgspec.json.decode(file.read_bytes())["runs"]
    assert {run: {each["steps"] for each in runs} for run, runs in stored.items()} == {
        run: {steps.get(run, 0)} for run in stored
    }


def test_each_base_model_is_made_once(monkeypatch):
    """Two processes that make the same base model would write into one folder."""
    monkeypatch.syspath_prepend(DOCS.parent / "benchmarks" / "teaches")
    monkeypatch.delitem(sys.modules, "experiment", raising=False)
    module = importlib.import_module("experiment")
    del sys.modules["experiment"]
    made = []

    def run(function, seeds, kinds):
        made.extend(zip(seeds, kinds, strict=True))
        return [f"{kind} {seed}" for seed, kind in made]

    def bases(**fields):
        made.clear()
        return module._bases(module.Experiment("n", "T", "lear", (), (), (), **fields), (1, 2), run)

    assert bases(base="types", more_bases=("width-64",)) == {1: "types 0", 2: "types 0"}
    assert made == [(0, "types"), (0, "width-64")]
    assert bases() == {1: "full 1", 2: "full 2"}


@pytest.mark.usefixtures("page_of_runs")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"compared": ()}, "has `compared`"),
        ({"compared": (compared("other"),)}, "no value of 'answer' of the run 'other'"),
        ({"compared": (compared(measure="reward first"),)}, "no value of 'reward first'"),
        ({"compared": (compared("one seed"),)}, "need equal seeds"),
        ({"shown_by": ("tests/test_runs.py::test_runs",)}, "names no row of runs.md"),
    ],
)
def test_an_incomplete_comparison_is_an_error(fields, message):
    [error] = ablation(compared(), **fields).errors()
    assert message in error


def test_a_comparison_without_results_is_an_error():
    errors = ablation(compared(result="nothing")).errors()
    assert any("nothing: no such page" in error for error in errors)


def test_unknown_reasons_kinds_and_fields_are_refused():
    text = "{{name: P, title: T, recipes: [], items: [{{kind: {}, source: S, title: T, {}}}]}}"
    assert build_papers.paper(text.format("data", "missing: license, reason: R.")).items
    for kind, more in (
        ("data", "missing: later, reason: R."),
        ("data", "missing: in progress, reason: R."),
        ("poem", "where: []"),
        ("data", "were: []"),
    ):
        with pytest.raises(msgspec.ValidationError):
            build_papers.paper(text.format(kind, more))


def test_doctests():
    assert doctest.testmod(paper_references) == (0, 7)
    assert doctest.testmod(paper_results) == (0, 2)
