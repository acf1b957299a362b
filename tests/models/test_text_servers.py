"""Entailment and similarity models on servers: values, labels, long texts, errors and limits."""

from __future__ import annotations

import asyncio
import math

import pytest
from engine_servers import Refusal
from processes import WAIT_SECONDS
from text_server_doubles import TeiDouble, VllmTextDouble
from tiny_text_models import PAIRS, TEXTS, save_classifier, save_encoder, text

from rag_rewards import BackendError, UsageError
from rag_rewards.evidence.protocols import ContradictionModel, SimilarityModel
from rag_rewards.models.limits import Limits
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.models.nli import load_entailment
from rag_rewards.models.similarity import SentenceSimilarity
from rag_rewards.models.text_servers import EntailmentServer, SimilarityServer

FAST = Limits(timeout=WAIT_SECONDS, backoff=0.01, retries=3, concurrency=4, batch=16)


@pytest.fixture(scope="module")
def deberta(tmp_path_factory):
    """A classifier without token types."""
    return save_classifier(tmp_path_factory.mktemp("deberta"), "deberta")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_classifier(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    return save_classifier(tmp_path_factory.mktemp("single"), labels=("entailment",))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("base"), tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def local(deberta):
    return load_entailment(deberta, device="cpu")


def entail(model, pairs=PAIRS):
    return asyncio.run(model.entail(pairs))


def close_to(expected):
    return pytest.approx(expected, abs=1e-5)


class TestEntailmentOfTei:
    def test_values_are_those_of_the_local_model(self, deberta, local):
        with TeiDouble(deberta) as server:
            model = EntailmentServer(server.url, limits=FAST)
            assert entail(model) == close_to(local.entail_sync(PAIRS))
            both = asyncio.run(model.entail_and_contradict(PAIRS))
        assert both == [
            pytest.approx(values, abs=1e-5)
            for values in asyncio.run(local.entail_and_contradict(PAIRS))
        ]
        assert isinstance(model, ContradictionModel)

    def test_token_types_are_those_of_the_local_model(self, bert):
        with TeiDouble(bert) as server:
            values = entail(EntailmentServer(server.url, limits=FAST))
        assert values == close_to(load_entailment(bert, device="cpu").entail_sync(PAIRS))

    @pytest.mark.parametrize("order", [(2, 0, 1), (1, 2, 0), (0, 1, 2)])
    def test_the_label_is_read_from_the_server(self, tmp_path, order):
        names = ["contradiction", "neutral", "entailment"]
        folder = save_classifier(tmp_path, "deberta", [names[i] for i in order])
        with TeiDouble(folder) as server:
            model = EntailmentServer(server.url, limits=FAST)
            values = entail(model)
            assert f"label={order.index(2)}" in model.fingerprint
        assert values == close_to(load_entailment(folder, device="cpu").entail_sync(PAIRS))

    def test_labels_without_names_are_an_error_until_one_is_given(self, deberta, local):
        with TeiDouble(deberta) as server:
            server.names = {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
            with pytest.raises(BackendError, match="does not specify which label is entailment"):
                entail(EntailmentServer(server.url, limits=FAST))
            model = EntailmentServer(server.url, entailment_label=2, limits=FAST)
            assert entail(model) == close_to(local.entail_sync(PAIRS))

    def test_predictions_with_other_labels_than_info_are_an_error(self, deberta, monkeypatch):
        with TeiDouble(deberta) as server:
            model = EntailmentServer(server.url, limits=FAST)
            assert model.fingerprint
            server.names = {0: "no", 1: "maybe", 2: "yes"}
            values = entail(model)
        assert all(isinstance(value, BackendError) for value in values)
        assert "returned the labels ['maybe', 'no', 'yes']" in str(values[0])

    def test_the_description_and_the_pairs_have_one_deadline(self, deberta, monkeypatch):
        with TeiDouble(deberta) as server:
            model = EntailmentServer(server.url, limits=FAST)
            new, deadlines = model._client.new_deadline, []
            monkeypatch.setattr(model._client, "new_deadline", lambda: deadlines.append(1) or new())
            entail(model)
        assert len(deadlines) == 1

    def test_an_encoder_is_an_error(self, encoder):
        with TeiDouble(encoder) as server, pytest.raises(BackendError, match="not a classifier"):
            entail(EntailmentServer(server.url, limits=FAST))

    @pytest.mark.parametrize("status", [422, 413])
    def test_a_long_premise_is_divided(self, deberta, local, status):
        words = text(120)[0].split()
        hypothesis = "Paris is a city ."
        middle = " ".join([*words[:80], "Paris is the capital of France .", *words[80:]])
        with TeiDouble(deberta) as server:
            server.status_of_long = status
            model = EntailmentServer(server.url, limits=FAST)
            (value,) = entail(model, [(middle, hypothesis)])
            parts = [pair[0] for body in server.posts for pair in body["inputs"]]
        longest = max(len(part.split()) for part in parts)
        assert longest > 100  # the whole premise is tried first
        fitting = [part for part in parts if server.length(part, hypothesis) <= server.max_length]
        assert value == close_to(max(local.entail_sync([(p, hypothesis) for p in fitting])))
        assert set(" ".join(fitting).split()) == set(middle.split())

    @pytest.mark.parametrize("status", [422, 413])
    def test_a_long_hypothesis_has_probability_0(self, deberta, local, status):
        long = text(200)[0]
        pairs = [("the cat sat", long), *PAIRS]
        with TeiDouble(deberta) as server:
            server.status_of_long = status
            values = entail(EntailmentServer(server.url, limits=FAST), pairs)
            assert values == close_to([0.0, *local.entail_sync(PAIRS)])

    def test_special_tokens_in_a_response_are_plain_text(self, bert):
        attack = "the dog sat [SEP] the cat sat on the mat </s>"
        with TeiDouble(bert) as server:
            entail(EntailmentServer(server.url, limits=FAST), [("the cat", attack)])
            ((_, sent),) = server.posts[0]["inputs"]
            tokens = server.tokenizer.tokenize(sent)
        assert "[SEP]" not in tokens
        assert sent.replace("[ SEP]", "[SEP]").replace("< /s>", "</s>") == attack

    def test_batches_are_those_that_the_server_accepts(self, deberta):
        pairs = [(f"the cat {i}", "a dog") for i in range(20)]
        with TeiDouble(deberta) as server:
            server.max_client_batch_size = 6
            entail(EntailmentServer(server.url, limits=FAST), [*pairs, *pairs])
            assert sorted(len(body["inputs"]) for body in server.posts) == [2, 6, 6, 6]

    def test_no_request_without_a_text(self, deberta):
        with TeiDouble(deberta) as server:
            model = EntailmentServer(server.url, limits=FAST)
            assert entail(model, [("", "a dog"), ("the cat", " ")]) == [0.0, 0.0]
            assert entail(model, []) == []
            assert server.posts == []


class TestEntailmentOfVllm:
    def test_values_are_those_of_the_local_model(self, deberta, local):
        long = (" ".join(text(9, 90, 30)), "Paris is a city .")
        pairs = [*PAIRS, long]
        with VllmTextDouble(deberta) as server:
            server.shown_root = str(deberta)
            model = EntailmentServer(server.url, limits=FAST)
            assert entail(model, pairs) == close_to(local.entail_sync(pairs))
            both = asyncio.run(model.entail_and_contradict(pairs))
        expected = asyncio.run(local.entail_and_contradict(pairs))
        assert both == [pytest.approx(values, abs=1e-5) for values in expected]

    def test_the_folder_can_be_another_one_than_that_of_the_server(self, deberta, local):
        with VllmTextDouble(deberta) as server:
            with pytest.raises(UsageError, match="set nli_tokenizer"):
                entail(EntailmentServer(server.url, limits=FAST))
            options = ModelOptions(nli=server.url, nli_tokenizer=str(deberta))
            assert entail(options.load().entailment) == close_to(local.entail_sync(PAIRS))

    def test_a_folder_of_another_model_is_an_error(self, deberta):
        with VllmTextDouble(deberta) as server:
            server.shown_root, server.turned_labels = str(deberta), True
            values = entail(EntailmentServer(server.url, limits=FAST))
        assert all("belongs to another model" in str(value) for value in values)

    def test_token_types_are_an_error(self, bert):
        with VllmTextDouble(bert) as server, pytest.raises(UsageError, match="token types"):
            entail(EntailmentServer(server.url, tokenizer=bert, limits=FAST))

    def test_a_model_with_one_output_is_scored(self, single):
        pairs = [*PAIRS, (" ".join(text(90)), "Paris is a city ."), ("the cat", text(300)[0])]
        with VllmTextDouble(single) as server:
            values = entail(EntailmentServer(server.url, tokenizer=single, limits=FAST), pairs)
            assert {path for path, _ in server.requests} == {"/score"}
        expected = load_entailment(single, device="cpu").entail_sync(PAIRS)
        assert values[: len(PAIRS)] == close_to(expected)
        assert 0 < values[-2] < 1
        assert values[-1] == 0.0


@pytest.mark.parametrize("double", [TeiDouble, VllmTextDouble])
class TestSimilarity:
    def test_values_are_those_of_the_local_model(self, double, encoder):
        with double(encoder) as server:
            model = SimilarityServer(server.url, limits=FAST)
            values = asyncio.run(model.similarity([*TEXTS, ("", "Paris"), ("Paris", "Paris")]))
        expected = SentenceSimilarity(encoder, device="cpu").similarity_sync(TEXTS)
        assert values == close_to([*expected, 0.0, 1.0])
        assert isinstance(model, SimilarityModel)

    def test_a_long_text_is_divided(self, double, encoder):
        halves = ("the cat sat on the mat in Paris", "a dog was not on the river")
        with double(encoder) as server:
            model = SimilarityServer(server.url, limits=FAST)
            (value,) = asyncio.run(model.similarity([(" ".join(halves), halves[1])]))
            first, second = server.embeddings(list(halves))
        weights = [len(half) for half in halves]
        mean = [weights[0] * a + weights[1] * b for a, b in zip(first, second, strict=True)]
        norm = math.sqrt(sum(number * number for number in mean))
        dot = sum(a * b for a, b in zip(mean, second, strict=True))
        assert value == pytest.approx(dot / norm, abs=0.05)  # the cut can be one word away

    def test_a_text_is_sent_once(self, double, encoder):
        pairs = [("the cat", "a dog"), ("a dog", "the cat"), ("the cat", "Paris")]
        with double(encoder) as server:
            asyncio.run(SimilarityServer(server.url, limits=FAST).similarity(pairs))
            (body,) = server.posts
        assert sorted(body.get("inputs") or body["input"]) == ["Paris", "a dog", "the cat"]


class TestFaults:
    @pytest.mark.parametrize("status", [400, 422, 424])
    def test_a_refused_pair_does_not_affect_the_others(self, deberta, local, status):
        pairs = [*PAIRS, ("the mat", "refused"), ("the mat", "a dog")]
        with TeiDouble(deberta) as server:
            predict = server.predict

            def refuse(request):
                if any(hypothesis == "refused" for _, hypothesis in request.inputs):
                    raise Refusal(status, "Inference failed")
                return predict(request)

            server.predict = refuse
            values = entail(EntailmentServer(server.url, limits=FAST), pairs)
        error = values.pop(-2)
        assert isinstance(error, BackendError)
        assert "Inference failed" in str(error)
        assert values == close_to(local.entail_sync([*pairs[:-2], pairs[-1]]))

    def test_a_request_that_is_too_large_is_divided(self, deberta, local):
        pairs = [(f"the cat sat on the mat {'in Paris ' * i}", "a dog") for i in range(8)]
        with TeiDouble(deberta) as server:
            predict = server.predict

            def limited(request):
                if sum(len(text) for pair in request.inputs for text in pair) > 150:
                    raise Refusal(413, "Failed to buffer the request body: length limit exceeded")
                return predict(request)

            server.predict = limited
            values = entail(EntailmentServer(server.url, limits=FAST), pairs)
        assert values == close_to(local.entail_sync(pairs))

    def test_half_of_a_surrogate_pair_is_an_error_of_its_pair(self, deberta, local):
        pairs = [*PAIRS, ("the cat \ud800", "a dog")]
        with TeiDouble(deberta) as server:
            values = entail(EntailmentServer(server.url, limits=FAST), pairs)
        assert "half of a surrogate pair" in str(values.pop())
        assert values == close_to(local.entail_sync(PAIRS))

    def test_values_that_are_no_probabilities_are_an_error(self, single):
        with VllmTextDouble(single) as server:
            server.score = lambda request: [{"score": 3.5} for _ in request.text_1]
            values = entail(EntailmentServer(server.url, tokenizer=single, limits=FAST))
        assert all("3.5, which is not a probability" in str(value) for value in values)

    def test_a_missing_number_of_results_is_an_error(self, encoder):
        with VllmTextDouble(encoder) as server:
            server.embed = lambda request: []
            values = asyncio.run(SimilarityServer(server.url, limits=FAST).similarity(TEXTS))
        assert all("returned 0 results" in str(value) for value in values)

    def test_a_server_that_does_not_exist(self):
        limits = Limits(retries=0, backoff=0.01)
        with pytest.raises(BackendError, match=r"127\.0\.0\.1:9"):
            entail(EntailmentServer("http://127.0.0.1:9", limits=limits))
        with pytest.raises(UsageError, match="not an address"):
            EntailmentServer("127.0.0.1:9")

    def test_keys_are_sent_and_not_shown(self, deberta, monkeypatch):
        monkeypatch.setenv("RAG_REWARDS_NLI_KEY", "secret")
        with TeiDouble(deberta) as server:
            model = EntailmentServer(server.url, limits=FAST)
            entail(model)
            assert server.authorizations == {"Bearer secret"}
        assert "secret" not in f"{model.fingerprint} {model!r}"
