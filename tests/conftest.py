"""Settings that all tests share."""

import os

# Tests run side by side, one thread each; the libraries read this when they are first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
