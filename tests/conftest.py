"""Before any test: one thread for tiny models, no hub, interrupts that arrive.

A second thread only waits there, and test processes share the cores. A job in the background of a
shell starts with interrupts ignored, and so would every process that it starts.
"""

import os
import signal

signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
