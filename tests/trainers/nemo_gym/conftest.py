"""These tests run inside the real package: `make test-more-trainers`."""

from importlib.metadata import PackageNotFoundError, version

try:
    version("nemo-gym")
    collect_ignore_glob = []
except PackageNotFoundError:
    collect_ignore_glob = ["test_*.py"]
