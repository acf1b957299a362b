"""Run one command; print wall-clock and processor seconds, peak memory and exit code as JSON.

A process of its own: on Linux a child starts with its parent's peak memory on its account, so
the peak of a small command can only be read from a parent that is smaller still.

    python -I spawn.py SECONDS COMMAND…
"""

import json
import os
import subprocess
import sys
import threading
import time


def main(limit: float, command: list[str]) -> None:
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    timer = threading.Timer(limit, process.kill)
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    timer.cancel()
    seen = {
        "seconds": seconds,
        "processor": usage.ru_utime + usage.ru_stime,
        "peak": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "code": os.waitstatus_to_exitcode(status),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
