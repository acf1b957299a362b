"""Environment variables of processes that score rows."""

from __future__ import annotations

KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
"""By default glibc returns the memory of each chunk to the system. These variables keep it, which
avoids seven of eight page faults."""
