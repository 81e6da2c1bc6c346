"""What every command but `import` says to bad arguments, settings and homes: an exit code and one line each.

`{home}` and `{config}` in a line stand for the home folder and the settings file of the test.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from finevolve_pipeline.cli import main

SETTINGS = """\
[benchmark]
first_session = 2025-01-02
last_session = 2025-01-13
horizons = [1, 2, 4]

[market]
first_session = 2024-12-26
last_session = 2025-01-17

[news]
first_day = 2024-12-24
last_day = 2025-01-31
sources = ["cls", "sina"]
"""

EXPERIMENTS = "pipe-rules, mem0-rules, memrl-rules, reflexion-rules, expel-rules, reasoningbank-rules"
WINDOW = "2025-01-02..2025-01-13"
TABLE = "beyond the XSHG table of 2024-2026; extend data/xshg_sessions.csv to use it"


@dataclass(frozen=True)
class Outcome:
    """Exit code, standard output and the last line of standard error."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The last line for the user."""
        return self.err.strip().splitlines()[-1]


Finevolve = Callable[..., Outcome]


@pytest.fixture
def config(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A settings file in force."""
    path = tmp_path / "settings.toml"
    path.write_text(SETTINGS)
    monkeypatch.setenv("FINEVOLVE_CONFIG", str(path))
    return path


@pytest.fixture
def finevolve(config: Path, capsys: pytest.CaptureFixture[str]) -> Finevolve:
    """Run a command as a user would."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = ended.value.code
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run


def news_only(home: Path) -> None:
    """An import of one article and no closes."""
    article = home.parent / "a.jsonl"
    article.write_text('{"time":"2025-01-03 09:00","title":"good","source":"cls"}\n')
    with pytest.raises(SystemExit):
        main(["import", "news", str(article)])


def closes_of_industries_only(home: Path) -> None:
    """An import of one industry's closes and none of CSI1000."""
    closes = home.parent / "closes.csv"
    closes.write_text("date,code,close\n" + "".join(f"2025-01-{day:02},801170,100\n" for day in (2, 3, 6, 7, 8)))
    with pytest.raises(SystemExit):
        main(["import", "market", "--industries", str(closes)])


def a_file(home: Path) -> None:
    """A file where the home folder should be."""
    home.write_text("")


def nothing(home: Path) -> None:
    """No home yet."""


Prepare = Callable[[Path], None]

BAD_ARGUMENTS: dict[str, tuple[list[str], int, str]] = {
    "no such command": (["frobnicate"], 2, "Error: No such command 'frobnicate'."),
    "no such option": (["run", "--xyzzy", "1"], 2, "Error: No such option '--xyzzy'."),
    "run: no calendar day": (
        ["run", "--from", "2025-02-30"], 2, "error: --from '2025-02-30': not a calendar day (use YYYY-MM-DD)"
    ),
    "run: no day at all": (
        ["run", "--to", "yesterday"], 2, "error: --to 'yesterday': not a calendar day (use YYYY-MM-DD)"
    ),
    "run: a closed day": (
        ["run", "--from", "2025-01-04", "--to", "2025-01-05"], 2,
        f"error: sessions 2025-01-04..2025-01-05: none lies in the prediction window {WINDOW}; "
        "choose other days or change [benchmark] in finevolve.toml",
    ),
    "run: after the window": (
        ["run", "--from", "2025-02-01"], 2,
        f"error: sessions 2025-02-01..2025-01-13: none lies in the prediction window {WINDOW}; "
        "choose other days or change [benchmark] in finevolve.toml",
    ),
    "run: beyond the calendar": (["run", "--to", "2027-01-04"], 2, f"error: session 2027-01-04: {TABLE}"),
    "run: before the calendar": (["run", "--from", "2023-12-29"], 2, f"error: session 2023-12-29: {TABLE}"),
    "run: a reversed range": (
        ["run", "--from", "2025-01-10", "--to", "2025-01-03"], 2,
        "error: sessions 2025-01-10..2025-01-03: the first lies after the last; exchange --from and --to",
    ),
    "run: no such mechanism": (
        ["run", "--mechanism", "dreams"], 2,
        "error: mechanism 'dreams': not among pipe, mem0, memrl, reflexion, expel, reasoningbank; add it under "
        "[experiments] in finevolve.toml",
    ),
    "run: no such backbone": (
        ["run", "--backbone", "gpt"], 2,
        "error: backbone 'gpt': not among rules; add it under [experiments] in finevolve.toml",
    ),
    "run: no process at all": (
        ["run", "--jobs", "0"], 2, "Error: Invalid value for '--jobs': 0 is not in the range 1<=x<=64."
    ),
    "status: a reversed range": (
        ["status", "--from", "2025-01-10", "--to", "2025-01-03"], 2,
        "error: sessions 2025-01-10..2025-01-03: the first lies after the last; exchange --from and --to",
    ),
    "status: beyond the calendar": (["status", "--to", "2030-01-03"], 2, f"error: session 2030-01-03: {TABLE}"),
    "alpha: no such code": (
        ["alpha", "801999", "2025-01-03"], 2,
        "error: sector '801999': not one of the 31 Shenwan level-1 industries; `finevolve doctor --sectors` lists them",
    ),
    "alpha: an empty name": (
        ["alpha", "", "2025-01-03"], 2,
        "error: sector '': not one of the 31 Shenwan level-1 industries; `finevolve doctor --sectors` lists them",
    ),
    "alpha: a Saturday": (
        ["alpha", "801170", "2025-02-01"], 2,
        "error: session 2025-02-01: the exchange was closed; nearest sessions are 2025-01-27 and 2025-02-05",
    ),
    "alpha: no calendar day": (
        ["alpha", "801170", "2025-02-30"], 2, "error: day '2025-02-30': not a calendar day (use YYYY-MM-DD)"
    ),
    "alpha: beyond the calendar": (["alpha", "801170", "2027-01-04"], 2, f"error: session 2027-01-04: {TABLE}"),
    "alpha: a horizon beyond the calendar": (
        ["alpha", "801170", "2026-12-31"], 2, f"error: session 2026-12-31 +1: {TABLE}"
    ),
    "alpha: no day": (["alpha", "801170"], 2, "Error: Missing argument 'DAY'."),
    "reset: no such experiment": (
        ["reset", "dreams-rules", "--from", "2025-01-03"], 2,
        f"error: experiment 'dreams-rules': not among {EXPERIMENTS}; add it under [experiments] in finevolve.toml",
    ),
    "reset: from where": (["reset", "pipe-rules"], 2, "Error: Missing option '--from'."),
    "reset: a closed day": (
        ["reset", "pipe-rules", "--from", "2025-01-04", "--yes"], 2,
        "error: session 2025-01-04: the exchange was closed; nearest sessions are 2025-01-03 and 2025-01-06",
    ),
    "audit: no such experiment": (
        ["audit", "dreams"], 2,
        f"error: experiment 'dreams': not among {EXPERIMENTS}; add it under [experiments] in finevolve.toml",
    ),
    "audit: no calendar day": (
        ["audit", "--cut", "2025-13-01"], 2, "error: --cut '2025-13-01': not a calendar day (use YYYY-MM-DD)"
    ),
    "audit: nothing replayed again": (
        ["audit", "--sessions", "0"], 2, "Error: Invalid value for '--sessions': 0 is not in the range x>=1."
    ),
    "ic: no such stage": (
        ["ic", "--stage", "early"], 2,
        "Error: Invalid value for '--stage': 'early' is not one of 'overall', 'cold_start', 'exploitation'.",
    ),
    "ic: no such method": (
        ["ic", "--method", "kendall"], 2,
        "Error: Invalid value for '--method': 'kendall' is not one of 'spearman', 'pearson'.",
    ),
    "export: no such thing": (["export", "everything"], 2, "Error: No such command 'everything'."),
    "synth: no folder": (["synth"], 2, "Error: Missing argument 'FOLDER'."),
    "synth: a negative seed": (
        ["synth", "world", "--seed", "-1"], 2, "Error: Invalid value for '--seed': -1 is not in the range x>=0."
    ),
    "synth: no articles": (
        ["synth", "world", "--articles-per-day", "0"], 2,
        "Error: Invalid value for '--articles-per-day': 0 is not in the range x>=1.",
    ),
    "synth: no session": (
        ["synth", "world", "--from", "2025-02-01", "--to", "2025-02-02"], 2,
        "error: synthetic world: last_session 2025-02-02: no session from 2025-02-01 on",
    ),
    "synth: a signal that is no number": (
        ["synth", "world", "--signal", "nan"], 2, "error: synthetic world: signal nan: use a finite number"
    ),
    "synth: bars beyond the calendar": (
        ["synth", "world", "--to", "2026-12-20"], 2, f"error: session 2026-12-18 +40: {TABLE}"
    ),
    "synth: into a file": (
        ["synth", "{config}"], 2, "Error: Invalid value for 'FOLDER': Directory '{config}' is a file."
    ),
    "synth: below a file": (["synth", "{config}/world"], 2, "error: {config}/world: Not a directory"),
    "demo: a negative seed": (
        ["demo", "--seed", "-1"], 2, "Error: Invalid value for '--seed': -1 is not in the range x>=0."
    ),
    "demo: a seed that is no number": (
        ["demo", "--seed", "x"], 2, "Error: Invalid value for '--seed': 'x' is not a valid integer range."
    ),
    "doctor: an argument": (["doctor", "now"], 2, "Error: Got unexpected extra argument (now)"),
}  # fmt: skip


def said(line: str, home: Path, config: Path) -> str:
    return line.replace("{home}", str(home)).replace("{config}", str(config))


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_a_bad_argument_gets_one_line_and_touches_nothing(
    case: str, finevolve: Finevolve, home: Path, config: Path
) -> None:
    arguments, code, line = BAD_ARGUMENTS[case]
    outcome = finevolve(*(said(argument, home, config) for argument in arguments))
    assert outcome.line == said(line, home, config)
    assert (outcome.code, outcome.out) == (code, "")
    assert not home.exists()
    assert not Path("world").exists()


NOT_THERE: dict[str, tuple[Prepare, list[str], int, str]] = {
    "run on nothing": (
        nothing, ["run"], 1,
        f"error: news {WINDOW}: nothing has been imported for these days; "
        "`finevolve import news FILE` or `finevolve synth` brings some",
    ),
    "run without closes": (
        news_only, ["run"], 1,
        "error: industry_bars 2024-12-26: no bar has been imported for this session (12 of 12 are missing); "
        "`finevolve import market --industries FILE` brings them",
    ),
    "report on nothing": (nothing, ["report"], 1, "error: ic_matrix all: not materialised; `finevolve run` does it"),
    "ic on nothing": (nothing, ["ic"], 1, "error: comparison all: not materialised; `finevolve run` does it"),
    "sensitivity on nothing": (
        nothing, ["sensitivity"], 1, "error: sensitivity all: not materialised; `finevolve run` does it"
    ),
    "export on nothing": (
        nothing, ["export", "release"], 1,
        "error: release: no session has both news and bars yet; `finevolve run` makes them",
    ),
    "audit on nothing": (
        nothing, ["audit"], 1, "error: audit: no experiment has been replayed yet; `finevolve run` does it"
    ),
    "audit of what has not run": (
        nothing, ["audit", "pipe-rules"], 1, "error: replay pipe-rules: nothing is stored; `finevolve run` makes it"
    ),
    "reset of what has not run": (
        nothing, ["reset", "pipe-rules", "--from", "2025-01-03", "--yes"], 1,
        "error: experiment pipe-rules: no stored day from 2025-01-03 on; nothing to reset",
    ),
    "alpha without closes": (
        nothing, ["alpha", "801170", "2025-01-03"], 1,
        "error: industry_bars 2025-01-03: no closes have been imported for this session; "
        "`finevolve import market --industries FILE` brings them",
    ),
    "alpha without closes of the benchmark": (
        closes_of_industries_only, ["alpha", "801170", "2025-01-03"], 1,
        "error: benchmark_bars 2025-01-03: no closes have been imported for this session; "
        "`finevolve import market --benchmark FILE` brings them",
    ),
    "demo where data lies": (
        news_only, ["demo"], 2,
        "error: home {home}: holds imported data; name another folder for the demo with --home",
    ),
    **{
        f"{command[0]} in a file": (
            a_file, command, 2, "error: home {home}: {home} is a file; name a folder with --home or FINEVOLVE_HOME"
        )
        for command in (
            ["run"], ["status"], ["report"], ["ic"], ["audit"], ["doctor"], ["export", "release"],
            ["alpha", "801170", "2025-01-03"], ["reset", "pipe-rules", "--from", "2025-01-03", "--yes"], ["demo"],
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_THERE)
def test_what_is_not_there_is_named_with_what_brings_it(
    case: str, finevolve: Finevolve, home: Path, config: Path
) -> None:
    prepare, arguments, code, line = NOT_THERE[case]
    prepare(home)
    outcome = finevolve(*arguments)
    assert outcome.line == said(line, home, config)
    assert (outcome.code, outcome.out) == (code, "")


@pytest.mark.parametrize("command", [["run"], ["report"], ["demo"]])
def test_a_home_that_cannot_be_written_is_one_line(
    command: list[str], finevolve: Finevolve, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = home.parent / "locked" / "home"
    locked.parent.mkdir(mode=0o500)
    if os.geteuid() == 0:
        # Permissions do not bind the superuser, but nobody makes a folder in /proc.
        if not Path("/proc/self").exists():
            pytest.skip("no folder here that the superuser cannot write to")
        locked = Path("/proc/finevolve")
    monkeypatch.setenv("FINEVOLVE_HOME", str(locked))
    outcome = finevolve(*command)
    assert outcome.code in (1, 2)
    assert outcome.err.count("\n") == 1
    assert outcome.line.startswith("error: ")
    assert str(locked) in outcome.line or "nothing has been imported" in outcome.line


def test_doctor_says_what_is_missing_by_its_exit_code(finevolve: Finevolve, home: Path) -> None:
    outcome = finevolve("doctor")
    assert outcome.code == 1
    assert "finevolve import news" in outcome.out
    assert not home.exists()


NOT_SETTINGS: dict[str, tuple[bytes, str]] = {
    "no TOML": (b"[news\n", "{config}: not valid TOML: Expected ']' at the end of a table declaration (at line 1"),
    "UTF-16": (SETTINGS.encode("utf-16"), "{config}: not valid TOML: 'utf-8' codec can't decode byte 0xff"),
    "zeros": (b"\0\0", "{config}: not valid TOML: Invalid statement (at line 1, column 1)"),
    "no such day": (b"[benchmark]\nlast_session = 2025-02-30\n", "{config}: not valid TOML: Invalid date or datetime"),
    "an unknown section": (b"[bench]\nx = 1\n", "{config}: bench: Extra inputs are not permitted"),
    "a value for a section": (b"benchmark = 1\n", "{config}: benchmark: Input should be a valid dictionary"),
    "a window of closed days": (
        b"[benchmark]\nfirst_session = 2025-02-01\nlast_session = 2025-02-02\n",
        "{config}: benchmark: no session between 2025-02-01 and 2025-02-02",
    ),
    "news beyond the calendar": (
        b"[news]\nfirst_day = 0001-01-01\n", "{config}: news: day 0001-01-01 lies beyond the exchange calendar"
    ),
    "closes beyond the calendar": (
        b"[market]\nfirst_session = 2023-01-03\n", f"{{config}}: session 2023-01-03: {TABLE}"
    ),
    "closes of closed days": (
        b"[market]\nfirst_session = 2025-02-01\nlast_session = 2025-02-02\n",
        "{config}: market: no session between 2025-02-01 and 2025-02-02",
    ),
    "a source that is no id": (
        b'[news]\nsources = ["cls", "a|b"]\n', "{config}: news.sources.1: String should match pattern"
    ),
    "a source that leaves its folder": (
        b'[news]\nsources = ["../x"]\n', "{config}: news.sources.0: String should match pattern"
    ),
    "no source": (b"[news]\nsources = []\n", "{config}: news.sources: Tuple should have at least 1 item"),
    "a source twice": (b'[news]\nsources = ["cls", "cls"]\n', "{config}: news: 'cls' is listed twice"),
    "a mechanism twice": (
        b'[experiments]\nmechanisms = ["pipe", "pipe"]\n', "{config}: experiments: 'pipe' is listed twice"
    ),
    "no mechanism": (
        b"[experiments]\nmechanisms = []\n", "{config}: experiments.mechanisms: Tuple should have at least 1 item"
    ),
    "a mechanism nobody offers": (
        b'[experiments]\nmechanisms = ["mine"]\n[mechanisms.mine]\n',
        "mechanism 'mine': not among pipe, mem0, memrl, reflexion, expel, reasoningbank, mem0_full, ",
    ),
    "a mechanism's value": (
        b"[mechanisms.mem0]\ntop_k = -1\n",
        "mechanisms.mem0.top_k: Input should be greater than or equal to 1 (keys of mem0: top_k, min_similarity)",
    ),
    "a mechanism's key": (
        b"[mechanisms.pipe]\ntop_k = 1\n", "mechanisms.pipe.top_k: Extra inputs are not permitted (keys of pipe: none)"
    ),
    "a backbone that leaves its folder": (
        b'[experiments]\nbackbones = ["../x"]\n[backbones."../x"]\nkind = "rules"\n',
        "{config}: settings: backbone '../x': use letters, digits, _ . and - only",
    ),
    "a backbone of another kind": (
        b'[backbones.gpt]\nkind = "gpt"\n', "{config}: backbones.gpt: Input tag 'gpt' found using 'kind' does not match"
    ),
    "a tagger nobody has": (
        b'[tagging]\nbackbone = "gpt"\n', "{config}: settings: backbone 'gpt' has no [backbones.gpt] section"
    ),
    "n-grams of nothing": (
        b"[embedders.hashing]\nngrams = [0]\n",
        "{config}: embedders.hashing.ngrams.0: Input should be greater than or equal to 1",
    ),
    "stages by a date without one": (
        b'[evaluation]\nstage_split = "date"\n',
        "{config}: evaluation: stage_split is 'date', so stage_date must say the first later session",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_SETTINGS)
def test_settings_that_cannot_be_used_get_one_line(case: str, finevolve: Finevolve, home: Path, config: Path) -> None:
    data, line = NOT_SETTINGS[case]
    config.write_bytes(data)
    for command in (["status"], ["run"], ["doctor"]):
        outcome = finevolve(*command)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith(f"error: {said(line, home, config)}")
        assert outcome.err.count("\n") == 1
    assert not home.exists()


def test_a_settings_file_that_is_not_there_or_a_folder(finevolve: Finevolve, tmp_path: Path) -> None:
    absent = finevolve("--config", tmp_path / "absent.toml", "status")
    assert (absent.code, absent.err) == (2, f"error: {tmp_path / 'absent.toml'}: no such settings file\n")
    folder = finevolve("--config", tmp_path, "status")
    assert (folder.code, folder.err) == (2, f"error: {tmp_path}: cannot be read as settings (Is a directory)\n")


def test_settings_saved_with_a_byte_order_mark_are_read(finevolve: Finevolve, config: Path) -> None:
    config.write_bytes(b"\xef\xbb\xbf" + SETTINGS.encode())
    outcome = finevolve("status", "--json")
    assert outcome.code == 0
    assert '"sessions": 8' in outcome.out
