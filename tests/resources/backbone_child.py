"""A process of its own that asks a model one question, for the tests of the model backbone."""

import sys
from pathlib import Path

from test_model_backbone import ask, call, settings_for

if __name__ == "__main__":
    settings = settings_for(sys.argv[1])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.write(ask(settings, Path(sys.argv[2]), call())[0].text)
