"""The example of a mechanism of one's own is installed as a package would be, and runs like a built-in one."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.mechanisms.registry import BUILT_IN, mechanism_class

TESTS = Path(__file__).resolve().parent.parent
EXAMPLE = TESTS / "example_mechanism"
GUIDE = TESTS.parent / "finevolve_pipeline" / "mechanisms" / "README.md"

SETTINGS = """\
[benchmark]
last_session = 2025-03-07
industries = ["801080", "801170"]

[mechanisms.three_outcomes]
kind = "last_outcomes"
last = 3

[experiments]
mechanisms = ["three_outcomes"]
"""

CONFORMS = """
import last_outcomes
from finevolve_pipeline.testing import assert_conforms
assert_conforms(last_outcomes.LastOutcomes, {"last": 5})
"""

RUN = """
import sys
from pathlib import Path
from finevolve_pipeline.embedding import HashingEmbedder
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import Parts, run
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.testing import small_world

settings = load_settings(Path("finevolve.toml"))
(experiment,) = settings.all_experiments
parts = Parts(settings, small_world(), RulesBackbone(), HashingEmbedder(64, (2,)))
store = ReplayStore(Path("replay"))
run(experiment, settings.benchmark.sessions, parts, store, lambda day: None)
shown = store.read_retrievals(experiment.key)
shown["sources"] = shown["sources"].map(list)
shown.to_json("shown.json", orient="records")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder into which pip has put the package; it is built from a copy, so that nothing is left in the tree."""
    folder = tmp_path_factory.mktemp("package")
    source, target = shutil.copytree(EXAMPLE, folder / "source"), folder / "target"
    pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([sys.executable, *pip, "--target", target, source], check=True, capture_output=True, text=True)
    return target


def python(code, installed, folder):
    """What a script says, in a process that finds the installed package and this checkout."""
    path = os.pathsep.join([str(installed), str(TESTS.parent)])
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FINEVOLVE_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_forty_lines_suffice():
    (module,) = EXAMPLE.glob("*.py")
    text = module.read_text("utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [
        node.body[0] for node in ast.walk(ast.parse(text)) if isinstance(node, documented) and ast.get_docstring(node)
    ]
    told = {line for one in docstrings for line in range(one.lineno, one.end_lineno + 1)}
    code = [line for number, line in enumerate(text.splitlines(), 1) if line.strip() and number not in told]
    assert len(code) <= 40


def test_it_conforms_from_where_it_is_installed(installed, tmp_path):
    python(CONFORMS, installed, tmp_path)


def test_it_runs_as_an_experiment_by_its_name_in_the_settings(installed, tmp_path):
    (tmp_path / "finevolve.toml").write_text(SETTINGS)
    python(RUN, installed, tmp_path)
    shown = json.loads((tmp_path / "shown.json").read_text())
    latest = [row for row in shown if (row["session"], row["code"]) == ("2025-03-07", "801170")]
    assert [row["rank"] for row in latest] == [1, 2, 3]
    assert {row["kind"] for row in latest} == {"fact"}
    # 2025-03-07 is the 41st session: 10, 20 and 40 sessions before it predictions were made that come out on it.
    assert [(row["memory_id"], row["horizon"], row["sources"]) for row in latest] == [
        ("2025-03-07/801170/10d", 10, ["2025-02-21/801170"]),
        ("2025-03-07/801170/20d", 20, ["2025-02-07/801170"]),
        ("2025-03-07/801170/40d", 40, ["2025-01-02/801170"]),
    ]
    assert not any(row["session"] < "2025-01-16" for row in shown)  # nothing has come out before


def test_it_is_not_there_unless_it_is_installed():
    with pytest.raises(SettingsError, match="'last_outcomes': not among"):
        mechanism_class("last_outcomes")


def test_the_guide_shows_this_very_module():
    assert f"```python\n{(EXAMPLE / 'last_outcomes.py').read_text('utf-8')}```" in GUIDE.read_text("utf-8")


def test_the_guide_lists_every_built_in_mechanism_with_its_settings():
    rows = [line.strip("|").split("|") for line in GUIDE.read_text("utf-8").splitlines() if line.startswith("| `")]
    listed = {row[0].strip(" `"): set(re.findall(r"`(\w+)`", row[4])) for row in rows if len(row) == 6}
    assert listed == {name: set(kind.settings_model.model_fields) for name, kind in BUILT_IN.items()}
