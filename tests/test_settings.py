"""Settings: defaults, overrides from a file, and one clear line for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.settings import config_path, load_settings


def test_defaults_are_the_paper_window_on_the_real_calendar(home: Path) -> None:
    settings = load_settings()
    assert len(settings.benchmark.sessions) == 299
    assert len(settings.news.sources) == 9
    assert [e.key for e in settings.all_experiments] == ["pipe-rules", "mem0-rules", "memrl-rules"]


def test_a_file_overrides_only_the_keys_it_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[news]\nmin_importance = 6\n[mechanisms.mem0]\ntop_k = 3\n")
    settings = load_settings(path)
    assert settings.news.min_importance == 6
    assert settings.news.window.days == 5
    assert settings.mechanisms["mem0"] == {"top_k": 3, "min_similarity": 0.1}


def test_the_digest_changes_with_any_value(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[evaluation]\nmin_sessions = 21\n")
    assert load_settings(path).digest != load_settings().digest


def test_the_working_directory_is_searched_before_the_packaged_defaults(home: Path) -> None:
    assert config_path() is None
    Path("finevolve.toml").write_text("[news]\nmin_importance = 7\n")
    assert load_settings().news.min_importance == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[news]\nmin_importanc = 6\n", "news.min_importanc: Extra inputs are not permitted"),
        ("[news]\nmin_importance = 11\n", "news.min_importance: Input should be less than or equal to 10"),
        ("[news\n", "not valid TOML"),
        (
            "[benchmark]\nfirst_session = 2026-05-01\n",
            "first_session 2026-05-01 lies after last_session 2026-03-31",
        ),
        ("[benchmark]\nlast_session = 2027-01-04\n", "beyond the XSHG table of 2024-2026"),
        ("[benchmark]\nhorizons = [20, 10]\n", "horizons must be positive, ascending and distinct"),
        ("[benchmark]\nhorizons = []\n", "benchmark.horizons"),
        ("[experiments]\nmechanisms = ['expel2']\n", "mechanism 'expel2' has no [mechanisms.expel2] section"),
        ("[experiments]\nbackbones = ['gpt']\n", "backbone 'gpt' has no [backbones.gpt] section"),
        ("[market]\nfirst_session = 2024-12-20\n", "bars are needed from"),
        ("[market]\nlast_session = 2026-03-20\n", "lies before the window's end"),
        ("[news]\nlast_day = 2026-01-01\n", "lies outside the news span"),
        ("[prompts]\nlanguage = 'fr'\n", "prompts.language: Input should be 'zh' or 'en'"),
    ],
)
def test_a_mistake_gets_one_line_that_names_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    said = str(caught.value)
    assert str(path) in said
    assert message in said
    assert "\n" not in said


def test_a_missing_file_is_an_error_and_not_the_defaults(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such settings file"):
        load_settings(tmp_path / "absent.toml")
