"""Makes the helpers of the end-to-end tests importable for the tests of a cluster."""

import sys
from pathlib import Path

for folder in ("end_to_end", "resources"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
