"""Concurrent first use of a type by several threads."""

import subprocess
import sys

# Each round uses new types; lookups of type hints let other threads run in between.
SCRIPT = """
import sys, threading
import msgspec
from rescheduler import decoding

sys.setswitchinterval(1e-6)
THREADS, FIELDS = 8, 30
for number in range(100):
    inner = msgspec.defstruct(f"Inner{number}", [(f"x{i}", int, 0) for i in range(FIELDS)])
    outer = msgspec.defstruct(f"Outer{number}", [(f"y{i}", list[inner], []) for i in range(FIELDS)])
    together, decoded = threading.Barrier(THREADS), []
    text = '{"y%d": [{"x%d": 7}]}' % (FIELDS - 1, FIELDS - 1)

    def meet():
        together.wait()
        decoded.append(decoding.decode(text, outer))

    threads = [threading.Thread(target=meet) for _ in range(THREADS)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert len(decoded) == THREADS and all(value == decoded[0] for value in decoded)
print("met")
"""


def test_threads_may_use_a_new_type_concurrently() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "met\n", "")
