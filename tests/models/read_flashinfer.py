"""Read the functions of FlashInfer that the package calls, from its wheels on a package index.

    python tests/models/read_flashinfer.py 0.6.0 0.7.2.post1

writes flashinfer.json beside this file. FlashInfer itself runs on a GPU only.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FILE = Path(__file__).with_name("flashinfer.json")
CLASS = "BatchPrefillWithRaggedKVCacheWrapper"
KERNELS = "flashinfer/data/include/flashinfer/attention/cascade.cuh"


def read(version: str, folder: Path) -> dict[str, object]:
    """Return the parameters of the functions, and the base of log Σ exp in the kernels."""
    wanted = f"flashinfer-python=={version}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", wanted]
    subprocess.run([*pip, "--dest", str(folder)], check=True)
    wheel = zipfile.ZipFile(next(folder.glob(f"*-{version}-*.whl")))
    module = ast.parse(wheel.read("flashinfer/prefill.py"))
    # Overloads precede the function itself.
    own = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    methods = {n.name: n for n in classes[CLASS].body if isinstance(n, ast.FunctionDef)}
    bases = re.findall(r"logsumexp values with base (\d+)", wheel.read(KERNELS).decode())
    return {
        "single_prefill_with_kv_cache": parameters(own["single_prefill_with_kv_cache"]),
        **{f"{CLASS}.{name}": parameters(methods[name]) for name in ("__init__", "plan", "run")},
        "base of log Σ exp": sorted({int(base) for base in bases}),
    }


def parameters(function: ast.FunctionDef) -> list[str]:
    """Return the names of the parameters: `name`, or `name=` with a default."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    first = len(positional) - len(arguments.defaults)
    names = [a.arg + ("=" if i >= first else "") for i, a in enumerate(positional)]
    rest = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return names + [a.arg + ("" if default is None else "=") for a, default in rest]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        interfaces = {version: read(version, Path(folder)) for version in sys.argv[1:]}
    FILE.write_text(json.dumps(interfaces, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
