"""The scorer that most projects write for themselves: the thing to be faster than.

A regular expression for the last answer, SQuAD's normalisation character by character, and three
metrics, each of which normalises both of its sides and takes the best alias. Nothing is shared
between metrics or aliases, as in the evaluation scripts that this is usually copied from.
"""

import re
import string
from collections import Counter
from collections.abc import Callable

Metric = Callable[[str, str], float]


def last_answer(response: str) -> str | None:
    found = re.findall(r"<answer>(.*?)</answer>", response, re.DOTALL)
    return found[-1].strip() if found else None


def normalize(text: str) -> str:
    punctuation = set(string.punctuation)
    text = "".join(ch for ch in text.lower() if ch not in punctuation)
    text = re.sub(r"\b(a|an|the)\b", " ", text)
    return " ".join(text.split())


def exact_match(prediction: str, gold: str) -> float:
    return float(normalize(prediction) == normalize(gold))


def substring_match(prediction: str, gold: str) -> float:
    return float(normalize(gold) in normalize(prediction))


def token_f1(prediction: str, gold: str) -> float:
    predicted, expected = normalize(prediction).split(), normalize(gold).split()
    common = sum((Counter(predicted) & Counter(expected)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(expected)
    return 2 * precision * recall / (precision + recall)


def best_alias(metric: Metric, prediction: str, aliases: list[str]) -> float:
    return max(metric(prediction, alias) for alias in aliases)


METRICS: dict[str, Metric] = {
    "exact": exact_match,
    "substring": substring_match,
    "f1": token_f1,
}


def score(response: str, aliases: list[str]) -> dict[str, float]:
    """All three metrics of one response; a response without an answer scores 0 in each."""
    answer = last_answer(response)
    if answer is None:
        return dict.fromkeys(METRICS, 0.0)
    return {name: best_alias(metric, answer, aliases) for name, metric in METRICS.items()}
