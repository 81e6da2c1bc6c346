"""Settings: defaults, overrides from a file, and one clear line for every mistake."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.settings import config_path, load_settings


def test_defaults_are_the_paper_window_on_the_real_calendar(home: Path) -> None:
    settings = load_settings()
    assert len(settings.benchmark.sessions) == 299
    assert len(settings.news.sources) == 9
    assert [e.key for e in settings.all_experiments] == [
        *("pipe-rules", "mem0-rules", "memrl-rules"),
        *("reflexion-rules", "expel-rules", "reasoningbank-rules"),
    ]


def test_a_mechanism_s_seeds_stand_together_and_seed_0_is_in_no_key() -> None:
    chosen = {"mechanisms": ["pipe", "mem0"], "backbones": ["rules", "rules-noisy"], "seeds": [0, 2]}
    settings = load_settings(overrides={"experiments": chosen})
    keys = [e.key for e in settings.all_experiments]
    assert keys == [
        *("pipe-rules", "pipe-rules@2", "mem0-rules", "mem0-rules@2"),
        *("pipe-rules-noisy", "pipe-rules-noisy@2", "mem0-rules-noisy", "mem0-rules-noisy@2"),
    ]
    assert [settings.experiment(key) for key in keys] == list(settings.all_experiments)
    assert settings.experiment("mem0-rules-noisy@2").seed == 2
    assert settings.experiment("mem0-rules-noisy").seed == 0


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("mem0-rules@3", r"'mem0-rules@3': seed 3 is not among 1, 2; add it to \[experiments\] seeds"),
        ("mem0-rules", r"'mem0-rules': seed 0 is not among 1, 2; add it to \[experiments\] seeds"),
        ("mem0-rules@x", r"'mem0-rules@x': seed x is not among 1, 2; "),
        ("mem0-rules@", r"'mem0-rules@': seed  is not among 1, 2; "),
        ("mem0-rules@01", r"'mem0-rules@01': seed 01 is not among 1, 2; "),
        ("mem0@1", r"'mem0@1': not among pipe-rules@1, pipe-rules@2, mem0-rules@1, mem0-rules@2; add it under"),
        ("mem0", r"; do you mean mem0-rules@1 or mem0-rules@2\?$"),
    ],
)
def test_a_key_of_no_experiment_gets_one_error_that_says_what_is_meant(key: str, told: str) -> None:
    settings = load_settings(overrides={"experiments": {"mechanisms": ["pipe", "mem0"], "seeds": [1, 2]}})
    with pytest.raises(SettingsError, match=told):
        settings.experiment(key)


def test_seed_0_written_into_a_key_is_refused_with_the_right_one() -> None:
    with pytest.raises(SettingsError, match=r"seed 0 stands in no key; name it mem0-rules$"):
        load_settings().experiment("mem0-rules@0")


def test_a_backbone_that_has_no_samples_is_told_where_there_are_several_seeds() -> None:
    both = {"backbones": ["rules", "rules-noisy", "deepseek-v4-flash"]}
    assert load_settings(overrides={"experiments": both}).seed_doubts == ()
    (doubt,) = load_settings(overrides={"experiments": {**both, "seeds": [0, 1]}}).seed_doubts
    assert doubt.startswith("backbone rules answers alike for every seed: ")


@pytest.mark.parametrize(
    "evaluation",
    [
        {"stage_split": "date", "stage_date": dt.date(2025, 1, 3)},
        {"stage_split": "date", "stage_date": dt.date(2026, 3, 31)},
        {"stage_split": "date", "stage_date": dt.date(2025, 6, 7)},  # a Saturday
        {"stage_split": "first_n", "stage_first_n": 298},
        {"stage_split": "third", "stage_date": dt.date(2030, 1, 1), "stage_first_n": 1000},
    ],
)
def test_a_boundary_that_leaves_both_stages_a_session_or_that_nothing_reads_is_taken(evaluation) -> None:
    assert load_settings(overrides={"evaluation": evaluation}).evaluation.stage_split == evaluation["stage_split"]


def test_a_window_too_small_for_a_coefficient_names_the_setting_and_may_be_run_all_the_same() -> None:
    few = load_settings(
        overrides={"benchmark": {"industries": ["801170", "801180"]}, "evaluation": {"min_sessions": 300}}
    )
    assert [doubt.split(", so ")[0] for doubt in few.evaluation_doubts] == [
        "evaluation.min_industries 5: only 2 industries are predicted",
        "evaluation.min_sessions 300: only 299 sessions are predicted",
    ]
    just = load_settings(overrides={"evaluation": {"min_industries": 31, "min_sessions": 299}})
    assert just.evaluation_doubts == ()


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
        ("[experiments]\nseeds = []\n", "experiments.seeds: Tuple should have at least 1 item"),
        ("[experiments]\nseeds = [0, 1, 0]\n", "0 is listed twice"),
        ("[experiments]\nseeds = [-1]\n", "experiments.seeds.0: Input should be greater than or equal to 0"),
        ("[experiments]\nseeds = [0, 1000]\n", "experiments.seeds.1: Input should be less than or equal to 999"),
        ("[experiments]\nseeds = [true]\n", "experiments.seeds.0: Input should be a valid integer"),
        (f"[experiments]\nseeds = {list(range(17))}\n", "experiments.seeds: Tuple should have at most 16 items"),
        ("[market]\nfirst_session = 2024-12-20\n", "bars are needed from"),
        ("[market]\nlast_session = 2026-03-20\n", "lies before the window's end"),
        ("[news]\nlast_day = 2026-01-01\n", "lies outside the news span"),
        ("[prompts]\nlanguage = 'fr'\n", "prompts.language: Input should be 'zh' or 'en'"),
        ("[embedding]\nembedder = 'bert'\n", "embedder 'bert' has no [embedders.bert] section"),
        ("[backbones.deepseek-v4-flash]\nprovider = 'x'\n", "provider 'x' has no [providers.x] section"),
        ("[benchmark]\nindustries = ['801999']\n", "'801999' is none of the 31 codes"),
        ("[cache]\nmode = 'offline'\n", "cache.mode: Input should be 'use', 'refresh' or 'replay-only'"),
        ("[backbones.rules]\nknowledge_cutoff = '2025-05'\n", "backbones.rules.knowledge_cutoff: Input should be a"),
        ("[evaluation]\nlabel_base = 'open_t'\n", "evaluation.label_base: Input should be 'close_t', 'open_next' or"),
        (
            "[evaluation]\nstage_split = 'date'\nstage_date = 2025-01-02\n",
            "evaluation.stage_date 2025-01-02: leaves the window 2025-01-02..2026-03-31 one stage only; name",
        ),
        (
            "[evaluation]\nstage_split = 'date'\nstage_date = 2026-04-01\n",
            "evaluation.stage_date 2026-04-01: leaves the window 2025-01-02..2026-03-31 one stage only; name",
        ),
        (
            "[evaluation]\nstage_split = 'first_n'\nstage_first_n = 299\n",
            "evaluation.stage_first_n 299: leaves the window 2025-01-02..2026-03-31 one stage only; give",
        ),
        ("[budget]\nusd = -1\n", "budget.usd: Input should be greater than or equal to 0"),
        ("[market]\ndeadline_seconds = inf\n", "market.deadline_seconds: Input should be less than or equal to 86400"),
        ("[tushare]\ndeadline_seconds = nan\n", "tushare.deadline_seconds: Input should be"),
        ("[budget]\nusd = inf\n", "budget.usd: Input should be a finite number"),
        ("[benchmark]\nindustries = ['801170', '801170']\n", "'801170' is listed twice"),
        (
            "[backbones.x]\nkind = 'openai'\nprovider = 'local'\nmodel = 'm'\nmax_tokens = 99\ncontext_windw = 9999\n",
            "backbones.x.context_windw: Extra inputs are not permitted; the packaged finevolve.toml has all keys",
        ),
        (
            "[providers.local]\napi_key = 'sk-1'\n",
            "providers.local.api_key: Extra inputs are not permitted; a key never",
        ),
        ("[backbones.x]\nkind = 'openai'\nprovider = 'local'\nmodel = ''\n", "backbones.x.model: "),
        (
            "[experiments]\nbackbones = ['deepseek-v4-flash']\n[prompts]\nnews_tokens = 20000\n",
            "news 20000 + experience 8000 + instructions 2500 + max_tokens 6000 = 36500 tokens are more than its",
        ),
        (
            "[tagging]\nbackbone = 'deepseek-v4-flash'\nbatch = 8\n",
            "8 articles of 6000 + instructions 2500 + max_tokens 6000 = 56500 tokens are more than its",
        ),
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


@pytest.mark.parametrize(
    "line",
    [
        "base_url = 'https://me:sk-secret@host/v1'",
        "base_url = 'https://host/v1?key=sk-secret'",
        "base_url = 'sk-secret'",
        "key_variable = 'sk-secret'",
    ],
)
def test_a_key_that_stands_in_the_settings_is_refused_and_not_repeated(tmp_path: Path, line: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"[providers.deepseek]\n{line}\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert "providers.deepseek" in str(caught.value)
    assert "sk-secret" not in str(caught.value)


def test_a_provider_of_ones_own_needs_its_address_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "[providers.mine]\nbase_url = 'http://127.0.0.1:9/v1/'\n"
        "[backbones.mine]\nkind = 'openai'\nprovider = 'mine'\nmodel = 'm'\ncontext_window = 32768\n"
        "max_tokens = 1000\n[experiments]\nbackbones = ['mine']\n"
    )
    settings = load_settings(path)
    assert settings.providers["mine"].served_by == "http://127.0.0.1:9/v1"
    assert [e.key for e in settings.all_experiments] == [
        *("pipe-mine", "mem0-mine", "memrl-mine"),
        *("reflexion-mine", "expel-mine", "reasoningbank-mine"),
    ]


def test_a_knowledge_cutoff_is_declared_by_backbone_and_none_is_by_default(tmp_path: Path) -> None:
    assert load_settings().knowledge_cutoffs == {}
    path = tmp_path / "mine.toml"
    path.write_text(
        "[backbones.rules]\nknowledge_cutoff = 2025-05-31\n[backbones.rules-noisy]\nknowledge_cutoff = 2024-01-01\n"
    )
    assert load_settings(path).knowledge_cutoffs == {"rules": dt.date(2025, 5, 31)}, "of compared backbones alone"


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "qwen3.6-35b-a3b"])
def test_the_backbones_of_the_paper_have_ready_profiles_that_fit_their_window(name: str) -> None:
    settings = load_settings(overrides={"experiments": {"backbones": [name]}, "tagging": {"backbone": name}})
    model = settings.backbones[name]
    assert model.kind == "openai"
    assert model.context_window == 32_768
    assert model.thinking_request == model.thinking_on != model.thinking_off


def test_cache_and_budget_of_the_command_line_reach_child_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FINEVOLVE_CACHE", "replay-only")
    monkeypatch.setenv("FINEVOLVE_BUDGET", "2.5")
    settings = load_settings()
    assert (settings.cache.mode, settings.budget.usd) == ("replay-only", 2.5)
    monkeypatch.setenv("FINEVOLVE_BUDGET", "much")
    with pytest.raises(SettingsError, match=r"budget\.usd"):
        load_settings()


def test_a_price_counts_cached_tokens_at_their_own_rate() -> None:
    price = load_settings().backbones["deepseek-v4-flash"].price
    assert price.cost(1_000_000, 400_000, 500_000) == pytest.approx(0.6 * 0.14 + 0.4 * 0.0028 + 0.5 * 0.28)


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"market": {"industries": ["csindex"]}}, r"market\.industries"),
        ({"market": {"benchmark": ["csindex", "csindex"]}}, "'csindex' is listed twice"),
        ({"market": {"sources": ["akshare"]}}, r"market\.sources: .* the packaged finevolve\.toml has all keys"),
        ({"tushare": {"token": "f00dfeed12345678"}}, r"tushare\.token: .*a token never stands in the settings"),
        ({"tushare": {"token_variable": "f00dfeed12345678"}}, r"tushare\.token_variable"),
        ({"tushare": {"base_url": "https://f00dfeed12345678@api.tushare.pro"}}, "base_url must hold no user"),
    ],
)
def test_a_wrong_market_source_is_refused_and_no_token_repeated(section: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError, match=told) as refused:
        load_settings(overrides=section)
    assert "f00dfeed" not in str(refused.value)


@pytest.mark.parametrize(
    ("waits", "needed"),
    [
        ({"delay_seconds": 20, "timeout_seconds": 15, "longest_wait_seconds": 1}, 35),
        ({"delay_seconds": 1, "timeout_seconds": 1, "longest_wait_seconds": 35}, 35),
    ],
)
def test_a_crawl_is_not_stopped_while_it_waits_as_it_is_told_to(waits: dict[str, float], needed: int) -> None:
    load_settings(overrides={"crawl": {**waits, "silence_seconds": needed + 1}})
    with pytest.raises(SettingsError, match=rf"silence_seconds {needed} must exceed every wait \({needed} s\)"):
        load_settings(overrides={"crawl": {**waits, "silence_seconds": needed}})
