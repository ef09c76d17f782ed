"""When the package was imported first: what comes next is part of a command's run."""

import time

BEGUN = time.perf_counter()
