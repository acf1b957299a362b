"""The models of a run as plain options, with the same names in Python and on the command line.

    options = ModelOptions(judge="http://host:8000/v1", judge_model="NAME")
    models = options.load()

The command line generates its options from `ModelChoice`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.evidence.needs import ModelKind
from rag_rewards.evidence.protocols import EntailmentModel, Judge, Models, Policy, SimilarityModel
from rag_rewards.models.addresses import is_url, without_credentials
from rag_rewards.prompts import Prompt, PromptTemplate
from rag_rewards.settings import did_you_mean

BACKENDS = ("transformers", "vllm", "sglang")
JUDGE_CHECKS = ("hardened", "always", "never")
LEAST_TOKEN_BUDGET = 256
EXAMPLES: dict[ModelKind, str] = {
    "policy": 'model="path/to/model", or a server: model="http://host:8000", backend="vllm"',
    "generator": 'generator="path/to/model" or generator="http://host:8000"',
    "entailment": 'nli="path/to/model" or nli="http://host:8000"',
    "similarity": 'similarity="path/to/model" or similarity="http://host:8000"',
    "judge": 'judge="http://host:8000/v1", judge_model="NAME"',
}
"""The option that sets each kind of model, with an example."""


REMOVED_MODEL_OPTIONS = {
    "attention": "remove it; the policy chooses its method of scoring, and {token_budget} limits "
    "its memory"
}
"""What to do instead of an option that an earlier version had."""


def removal(name: str, instead: str) -> OptionError:
    """Return the error for an option that an earlier version had."""
    return OptionError(f"there is no option {{{name}}} since version 0.8.0: {instead}")


def unknown_option(key: str, names: Collection[str], prefix: str = "") -> UsageError:
    """Return the error for an option that is none of `names`, in which `prefix` is before it.

    >>> print(unknown_option("modle", ["model"]))
    unknown option 'modle'; did you mean 'model'?
    """
    if key in REMOVED_MODEL_OPTIONS:
        removed = removal(key, REMOVED_MODEL_OPTIONS[key])
        return OptionError(removed.template, **({key: prefix + key} if prefix else {}))
    return UsageError(f"unknown option {prefix + key!r}{did_you_mean(key, names)}")


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Which models provide evidence. The command line has an option for each field.

    None means that the option is not set.
    """

    model: str | None = None
    """Policy that provides log-probabilities and answers: a folder or the URL of a server."""
    backend: str | None = None
    """Library that runs the policy: transformers (the default), vllm or sglang."""
    device: str | None = None
    """Device of local models, such as cpu or cuda. The default is a GPU if there is one."""
    nli: str | None = None
    """Entailment model, which checks citations: a folder or the URL of a server."""
    similarity: str | None = None
    """Sentence encoder, which recognizes refusals: a folder or the URL of a server."""
    judge: str | None = None
    """Judge of responses: the URL of an OpenAI-compatible endpoint, including /v1."""
    judge_model: str | None = None
    """Name of the judge model at the endpoint."""
    judge_cache: str | None = None
    """File that stores verdicts, so that no request is sent twice. No verdict is deleted; an entry
    takes about 0.4 kB."""

    def options(self, settings: Mapping[str, Any] | None = None) -> ModelOptions:
        """Return the options of these models, with further settings by name.

        A field of this choice takes precedence over a setting, unless it is None.
        """
        values = {each.name: getattr(self, each.name) for each in fields(ModelChoice)}
        chosen = {name: value for name, value in values.items() if value is not None}
        return ModelOptions.of({**(settings or {}), **chosen})


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The settings of the models, as `models.NAME` among the settings of the command line."""

    dtype: str = "auto"
    """Precision of the policy: float32, bfloat16, float16, or auto (as stored)."""
    adapter: str | None = None
    """Folder of a LoRA adapter for the policy."""
    generator: str | None = None
    """Model that answers from documents or sections, such as a frozen one: a folder, or the URL of
    a server of `backend` (default vllm). Without it, the policy answers. Without `model`,
    `tokenizer` is the folder of its tokenizer."""
    tokenizer: str | None = None
    """Folder of the tokenizer, for a policy on a server."""
    token_budget: int | None = None
    """Maximum number of tokens in a batch. A smaller number needs less memory."""
    truncate: bool = False
    """Drop non-supporting documents when the prompt exceeds the context length."""
    document_form: str | None = None
    """Template of a document in the prompts of the rows, such as '{label}. {text}'."""
    document_separator: str | None = None
    """Text between two documents in the prompts of the rows."""
    prompt_template: str | None = None
    """Prompt of rows without one: a file with {documents}, {question}, perhaps {instruction}."""
    nli_tokenizer: str | None = None
    """Folder of the tokenizer and the config of the entailment model, for a server of vLLM."""
    nli_profile: str | None = None
    """How a fact checker reads a claim, such as minicheck. The default is that of its name."""
    judge_retries: int = 7
    """Number of times to retry a failed request."""
    judge_templates: str | None = None
    """YAML file with your own wording of the questions to the judge."""
    judge_checks: str = "hardened"
    """Check verdicts with further questions: always, never, or with the hardened profile."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions(ModelSettings, ModelChoice):
    """The models that provide evidence, and their settings.

    Raises OptionError for contradictory options.
    """

    backend: str = "transformers"
    """Library that runs the policy: transformers, vllm or sglang."""

    def __post_init__(self) -> None:
        for each in fields(self):
            _check_value(each.name, getattr(self, each.name))
        self._check_policy()
        if self.judge and not self.judge_model:
            raise OptionError(
                "{judge} requires {judge_model}, the name of the model at this endpoint"
            )
        if self.judge_templates and not self.judge:
            raise OptionError("{judge_templates} requires {judge}")
        prompt = (self.document_form, self.document_separator)
        Prompt("").showing(*prompt)  # raises for a bad form before a model is loaded
        if not self.model and prompt != (None, None):
            raise OptionError(
                "{document_form} and {document_separator} describe the documents in the prompts "
                "of {model}: set {model}"
            )
        if self.template and not self.model:
            raise OptionError("{prompt_template} is the prompt of {model}: set {model}")
        if not self.model and self.truncate:
            raise OptionError("{truncate} shortens the prompts of {model}: set {model}")
        if self.nli_tokenizer and not is_url(self.nli or ""):
            raise OptionError("{nli_tokenizer} is for a server: set {nli} to its URL")
        if self.nli_profile and (not self.nli or is_url(self.nli)):
            raise OptionError(
                "{nli_profile} is for a model in this process: set {nli} to its folder, or start "
                "the server with it"
            )

    def _check_policy(self) -> None:
        if not self.model:
            return
        if self.backend != "transformers" and self.adapter:
            raise OptionError(
                "{adapter} requires {backend} transformers: a server loads its own adapters"
            )
        if self.backend == "transformers" and self.tokenizer:
            raise OptionError(
                "{tokenizer} is for servers: with {backend} transformers the folder of the model "
                "contains its tokenizer"
            )
        if self.backend == "transformers" and is_url(self.model):
            raise OptionError(
                "{model} {url} is a server: set {backend} to vllm or sglang",
                url=without_credentials(self.model),
            )
        if self.backend == "sglang" and not is_url(self.model):
            raise OptionError("{backend} sglang requires the URL of a server as {model}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ModelOptions:
        """Return the model options of a mapping. None is the default, and text can be a number.

        Raises UsageError for another key, and for a value of another type.
        """
        return cls(**read_options(options))

    def for_profile(self, *, hardened: bool) -> ModelOptions:
        """Return the options for a recipe, which decide whether verdicts are checked."""
        if self.judge_checks != "hardened" or not (hardened and self.judge):
            return self
        return replace(self, judge_checks="always")

    @property
    def is_set(self) -> bool:
        """Whether any model is set."""
        return bool(self.model or self.generator or self.nli or self.judge or self.similarity)

    @cached_property
    def template(self) -> PromptTemplate | None:
        """The template in the file `prompt_template`."""
        return None if self.prompt_template is None else PromptTemplate.read(self.prompt_template)

    def load(self) -> Models:
        """Load the models. Raises MissingExtraError with the name of a missing extra."""
        return Models(
            policy=_policy(self) if self.model else None,
            generator=self._load_generator() if self.generator else None,
            entailment=_entailment(self, self.nli) if self.nli else None,
            judge=self.load_judge() if self.judge else None,
            similarity=_similarity(self.similarity, self.device) if self.similarity else None,
        )

    def _load_generator(self) -> Policy:
        """Load the generator. A folder is loaded by transformers, whatever runs the policy."""
        is_server = is_url(str(self.generator))
        backend = self.backend if is_server and self.backend != "transformers" else "vllm"
        options = replace(
            self,
            model=self.generator,
            backend=backend if is_server else "transformers",
            adapter=None,
            tokenizer=None if self.model else self.tokenizer,
        )
        return _policy(options)

    def load_judge(self) -> Judge:
        """Load the judge, with checks of its verdicts if `judge_checks` is "always"."""
        from rag_rewards.models.checked_judge import CheckedJudge
        from rag_rewards.models.judge_prompts import read_templates
        from rag_rewards.models.openai import OpenAIJudge

        templates = read_templates(self.judge_templates) if self.judge_templates else None
        judge = OpenAIJudge(
            str(self.judge_model),
            base_url=str(self.judge),
            cache=self.judge_cache,
            retries=self.judge_retries,
            marked=self.judge_checks == "always",
            templates=templates,
        )
        return CheckedJudge(judge) if self.judge_checks == "always" else judge


def read_options(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return options of `ModelOptions` in their types, without those that are None.

    Raises UsageError for an unknown option, and for an invalid value. In its message, `prefix` is
    before the name of the option.

    >>> read_options({"token_budget": "512", "dtype": None})
    {'token_budget': 512}
    >>> read_options({"truncate": "maybe"}, "models.")
    Traceback (most recent call last):
    rag_rewards.errors.OptionError: models.truncate must be true or false, found 'maybe'
    """
    types = get_type_hints(ModelOptions)
    names = [each.name for each in fields(ModelOptions)]
    for key in options:
        if key not in names:
            raise unknown_option(str(key), names, prefix)
    values: dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        kind = (get_args(types[name]) or (types[name],))[0]
        try:
            text = str(value) if isinstance(value, Path) else value
            values[name] = msgspec.convert(text, kind, strict=False)
        except msgspec.ValidationError:
            raise _invalid(name, _KINDS[kind], value, prefix) from None
        _check_value(name, values[name], prefix)
    return values


_KINDS = {str: "text", int: "a whole number", bool: "true or false"}


def _check_value(name: str, value: Any, prefix: str = "") -> None:
    """Raise OptionError for a value that is invalid whatever the other options are."""
    sets: dict[str, tuple[str, ...]] = {"backend": BACKENDS, "judge_checks": JUDGE_CHECKS}
    choices = sets.get(name)
    if name == "nli_profile" and value is not None:
        from rag_rewards.models.nli.profiles import PROFILES

        choices = tuple(PROFILES)
    if choices and value not in choices:
        raise _invalid(name, f"one of {', '.join(choices)}", value, prefix)
    if name == "token_budget" and value is not None and value < LEAST_TOKEN_BUDGET:
        raise _invalid(name, f"at least {LEAST_TOKEN_BUDGET}", value, prefix)


def _invalid(name: str, kind: str, value: object, prefix: str) -> OptionError:
    option = f"{prefix}{name}" if prefix else f"{{{name}}}"
    return OptionError(f"{option} must be {kind}, found {{value!r}}", value=value)


def missing_model(name: str, kind: ModelKind, verb: str = "set") -> UsageError:
    """Return the error of a reward that requires a kind of model that is not set.

    `verb` is the beginning of the instruction, for interfaces with other ways to set a model.

    >>> str(missing_model("carr", "judge"))
    'carr requires a model of the kind judge: set judge="http://host:8000/v1", judge_model="NAME"'
    """
    return UsageError(f"{name} requires a model of the kind {kind}: {verb} {EXAMPLES[kind]}")


def _policy(options: ModelOptions) -> Policy:
    if options.backend != "transformers":
        return _engine(options, str(options.model))
    from rag_rewards.models.transformers import TransformersPolicy

    budget = {} if options.token_budget is None else {"token_budget": options.token_budget}
    return TransformersPolicy.load(
        str(options.model),
        dtype=options.dtype,
        device=options.device,
        adapter=options.adapter,
        **budget,
    )


def _engine(options: ModelOptions, model: str) -> Policy:
    """Return the policy on a server, or vLLM in this process if `model` is a path."""
    arguments: dict[str, Any] = {}
    if options.tokenizer is not None:
        arguments["tokenizer"] = options.tokenizer
    if not is_url(model):
        from rag_rewards.models.vllm import VllmEngine

        return VllmEngine(model, dtype=options.dtype, **arguments)
    if options.dtype != "auto":
        arguments["precision"] = options.dtype  # a server does not report its precision
    if options.backend == "sglang":
        from rag_rewards.models.sglang import SglangServer

        return SglangServer(model, **arguments)
    from rag_rewards.models.vllm import VllmServer

    return VllmServer(model, **arguments)


def _entailment(options: ModelOptions, model: str) -> EntailmentModel:
    if is_url(model):
        from rag_rewards.models.text_servers import EntailmentServer

        return EntailmentServer(model, tokenizer=options.nli_tokenizer)
    from rag_rewards.models.nli import load_entailment

    return load_entailment(model, device=options.device, profile=options.nli_profile)


def _similarity(path: str, device: str | None) -> SimilarityModel:
    if is_url(path):
        from rag_rewards.models.text_servers import SimilarityServer

        return SimilarityServer(path)
    from rag_rewards.models.similarity import SentenceSimilarity

    return SentenceSimilarity(path, device=device)
