"""These tests run inside the real trainer: `make test-more-trainers`."""

from importlib.metadata import PackageNotFoundError, version

try:
    version("skyrl")
    collect_ignore_glob = []
except PackageNotFoundError:
    collect_ignore_glob = ["test_*.py"]
