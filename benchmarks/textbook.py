"""A simple scorer, as many projects write it: the baseline of the speed comparison.

It reads the last answer with a regular expression, applies the normalization of SQuAD to single
characters, and computes three metrics. Each metric normalizes both texts again for each alias, as
in common evaluation scripts.
"""

import re
import string
from collections import Counter
from collections.abc import Callable

Metric = Callable[[str, str], float]


def last_answer(response: str) -> str | None:
    answers = re.findall(r"<answer>(.*?)</answer>", response, re.DOTALL)
    return answers[-1].strip() if answers else None


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
    """Return the three metrics of a response. Without an answer, all are 0."""
    answer = last_answer(response)
    if answer is None:
        return dict.fromkeys(METRICS, 0.0)
    return {name: best_alias(metric, answer, aliases) for name, metric in METRICS.items()}
