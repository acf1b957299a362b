"""Run one command; print elapsed and processor seconds, peak memory and exit code as JSON.

This script is a separate process, because on Linux the peak memory of a child process is at least
that of its parent. The parent must therefore be smaller than the measured command.

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
    result = {
        "seconds": seconds,
        "processor": usage.ru_utime + usage.ru_stime,
        "peak": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "code": os.waitstatus_to_exitcode(status),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
