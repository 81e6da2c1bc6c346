"""What these tests share stands in `shown.py` beside them; the hooks of the site stand in `.ci`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / ".ci"))
