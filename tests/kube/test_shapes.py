"""Threads that meet a shape for the first time at the same moment."""

import subprocess
import sys

# Each round has types of its own; hints that are looked up let other threads run in the middle of it.
SCRIPT = """
import sys, threading
import msgspec
from rescheduler import shapes

sys.setswitchinterval(1e-6)
THREADS, FIELDS = 8, 30
for number in range(100):
    inner = msgspec.defstruct(f"Inner{number}", [(f"x{one}", int, 0) for one in range(FIELDS)])
    outer = msgspec.defstruct(f"Outer{number}", [(f"y{one}", list[inner], []) for one in range(FIELDS)])
    together, found = threading.Barrier(THREADS), []
    text = '{"y%d": [{"x%d": 7}]}' % (FIELDS - 1, FIELDS - 1)

    def meet():
        together.wait()
        found.append(shapes.decode(text, outer))

    threads = [threading.Thread(target=meet) for _ in range(THREADS)]
    for one in threads: one.start()
    for one in threads: one.join()
    assert len(found) == THREADS and all(one == found[0] for one in found)
print("met")
"""


def test_threads_may_meet_a_shape_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "met\n", "")
