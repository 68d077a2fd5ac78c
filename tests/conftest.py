"""Settings that all tests share."""

import os

# Tests run side by side, one thread each; the libraries read this when they are first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# scikit-learn checks estimators with the array API only where scipy is told of it before it is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
