"""Any model that `sentence-transformers` loads, from a folder or by its name on the hub.

A model on the hub is identified by its commit, one in a folder by a digest of its files; nobody needs the model, nor
the library, to look up vectors that are cached. The library is imported, and the model loaded, when the first text is
embedded.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import httpx2

from finevolve_pipeline.digests import digest_json
from finevolve_pipeline.embedding import Vectors
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.settings import SentenceTransformerSettings
from resources.embedders.model import Encoded, encodable, library, unit_rows

PACKAGE = "sentence-transformers"
RELEASE = "6."
"""Versions that give the vectors meant."""
EXTRA = "embeddings"

_COMMIT = re.compile(r"[0-9a-f]{40}")
_NOT_LOADED = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.gguf"]
"""Files on the hub for other runtimes."""
_UNLIMITED = 10**9
"""Tokenizers without a limit name an astronomical one."""


@dataclass(frozen=True)
class _Loaded:
    """A model ready to embed.

    Attributes:
        limit: tokens that it reads of a text; None: all.
        prompt: what it is told before every text.
    """

    model: Any
    limit: int | None
    prompt: str

    def is_cut(self, text: str) -> bool:
        """Whether the text is longer than what the model reads, by its own tokenizer."""
        if self.limit is None:
            return False
        tokens = self.model.tokenizer(self.prompt + text, truncation=False, verbose=False)["input_ids"]
        return len(tokens) > self.limit

    def raw_vectors(self, texts: list[str]) -> Any:
        """What the model gives for the texts, in its own precision, shape (texts, dimensions)."""
        # Set each time: the model is shared by all who read more or less of a text.
        if self.limit is not None:
            self.model.max_seq_length = self.limit
        return self.model.encode(
            texts, prompt=self.prompt, batch_size=len(texts), show_progress_bar=False, normalize_embeddings=False
        )


class SentenceTransformerModel:
    """A model of `sentence-transformers`.

    Args:
        name: of the embedder in the settings.
        settings: its section.
    """

    def __init__(self, name: str, settings: SentenceTransformerSettings) -> None:
        self._name = name
        self._settings = settings

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._settings.dimensions

    @cached_property
    def identity(self) -> dict[str, object]:
        """Which weights, read by which library, how precisely, and how much of a text.

        Raises:
            SettingsError: it is not known which weights are meant.
        """
        settings = self._settings
        return {
            "kind": settings.kind,
            "library": f"{PACKAGE} {RELEASE}x",
            # A folder's name says nothing; its digest does.
            "model": "folder" if self._is_folder else settings.model,
            "revision": self._revision,
            "dimensions": settings.dimensions,
            "precision": settings.precision,
            "max_tokens": settings.max_tokens,
            "prefix": settings.prefix,
        }

    def encode(self, texts: Sequence[str]) -> Iterator[Encoded]:
        """The texts' vectors, longest texts first, so that a batch has texts of like length. Raises `SettingsError`."""
        loaded = self._loaded
        ordered = sorted(range(len(texts)), key=lambda row: (-len(texts[row]), row))
        for start in range(0, len(ordered), self._settings.batch):
            rows = tuple(ordered[start : start + self._settings.batch])
            some = [encodable(texts[row]) for row in rows]
            yield Encoded(rows, self._vectors(loaded, some), tuple(loaded.is_cut(text) for text in some))

    def _vectors(self, loaded: _Loaded, texts: list[str]) -> Vectors:
        try:
            raw = loaded.raw_vectors(texts)
        except (RuntimeError, IndexError) as failed:  # out of memory, or more tokens than the model has positions
            raise self._refusal(f"{_first_line(failed)}; lower batch or max_tokens") from failed
        self._require_dimensions(raw.shape[1])
        try:
            return unit_rows(raw)
        except ValueError as unusable:
            raise self._refusal(
                f"{self._settings.model} gives {unusable} in {self._settings.precision}; use another precision"
            ) from None

    @cached_property
    def _loaded(self) -> _Loaded:
        settings = self._settings
        folder = self._folder if self._is_folder else self._fetched()
        if self._is_folder and settings.revision:
            self._require_digest(folder)
        model, own_limit = self._opened(folder)
        known = model.get_embedding_dimension()
        if known is not None:
            self._require_dimensions(known)
        default = model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None
        return _Loaded(model, self._limit(model, own_limit), settings.prefix or default or "")

    def _opened(self, folder: Path) -> tuple[Any, int | None]:
        package = self._library()
        try:
            return _model(package, folder, self._settings.precision, self._settings.device)
        # Whatever is wrong with a model's files comes out as one of these.
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, ImportError, AttributeError) as refused:
            raise self._refusal(
                f"{self._settings.model} cannot be loaded ({_first_line(refused)}); name a folder with a model for "
                f"{PACKAGE}, or one on the hub"
            ) from refused

    def _library(self) -> Any:
        # Nothing about this run is anybody else's business, and tokenizers warn when a process forks later.
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        return library(self._name, PACKAGE, "sentence_transformers", RELEASE, EXTRA)

    def _limit(self, model: Any, own: int | None) -> int | None:
        """Tokens to be read of a text: max_tokens, or as many as the model can."""
        asked = self._settings.max_tokens
        config = getattr(model.transformers_model, "config", None)
        positions = getattr(config, "max_position_embeddings", None)
        if asked and positions and asked > positions:
            raise self._refusal(f"max_tokens is {asked}, the model reads at most {positions}; lower it")
        limit = asked or min(own or _UNLIMITED, positions or _UNLIMITED)
        if limit >= _UNLIMITED or math.isinf(limit):
            return None
        return int(limit)

    def _require_dimensions(self, given: int) -> None:
        if given != self.dimensions:
            raise self._refusal(
                f"dimensions is {self.dimensions}, {self._settings.model} gives {given}; set dimensions = {given} in "
                f"[embedders.{self._name}]"
            )

    @cached_property
    def _folder(self) -> Path:
        return Path(self._settings.model).expanduser()

    @cached_property
    def _is_folder(self) -> bool:
        """Whether the settings name a folder, be it there or not, and not a model on the hub (`owner/name`)."""
        return self._folder.is_dir() or not re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+)?", self._settings.model)

    @cached_property
    def _revision(self) -> str:
        """What names the weights: a commit of the hub, or the digest of a folder."""
        if not self._is_folder:
            return self._commit()
        # A digest that the settings give is believed until the model is loaded, so that cached vectors can be looked
        # up without it.
        return self._settings.revision or self._digest_of_folder()

    def _digest_of_folder(self) -> str:
        if not self._folder.is_dir():
            raise self._refusal(
                f"no folder {self._settings.model}; correct `model`, or, to use cached vectors without the model, give "
                "the digest of its files as `revision` (it stands in the identity of the run that made them)"
            )
        return folder_digest(self._folder.resolve())

    def _require_digest(self, folder: Path) -> None:
        digest = self._digest_of_folder()
        if digest != self._settings.revision:
            raise self._refusal(
                f"revision is {self._settings.revision}, the files in {self._settings.model} have digest {digest}; "
                "give that, or leave revision empty"
            )

    def _commit(self) -> str:
        """The commit that the revision names in the hub's cache on this machine: nothing is asked over the network."""
        named = self._settings.revision or "main"
        if _COMMIT.fullmatch(named):
            return named
        reference = self._hub_cache() / f"models--{self._settings.model.replace('/', '--')}" / "refs" / named
        try:
            return reference.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise self._refusal(
                f"which commit of {self._settings.model} is {named!r}? It is not cached on this machine; give the "
                f"commit (40 hexadecimal digits, shown on the hub) as revision in [embedders.{self._name}]"
            ) from None

    def _hub_cache(self) -> Path:
        try:
            return Path(importlib.import_module("huggingface_hub.constants").HF_HUB_CACHE)
        except ImportError:
            raise self._refusal(
                f"huggingface-hub is not installed; `pip install -e '.[{EXTRA}]'` in the checkout, or give a commit as "
                f"revision in [embedders.{self._name}]"
            ) from None

    def _fetched(self) -> Path:
        """The folder with the files of that commit, downloaded if they are not here."""
        self._library()
        hub = importlib.import_module("huggingface_hub")
        hub.utils.disable_progress_bars()
        # It would tell of every attempt to reach the hub; what comes of them is told below.
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
        try:
            return Path(
                hub.snapshot_download(self._settings.model, revision=self._commit(), ignore_patterns=_NOT_LOADED)
            )
        except (OSError, ValueError, httpx2.HTTPError) as refused:
            raise self._refusal(
                f"{self._settings.model} is neither a folder nor on this machine, and the hub does not give it "
                f"({_first_line(refused)}); download it, or name a folder"
            ) from None

    def _refusal(self, text: str) -> SettingsError:
        return SettingsError(f"embedder {self._name}: {text}")


@lru_cache(maxsize=1)
def _model(package: Any, folder: Path, precision: str, device: str) -> tuple[Any, int | None]:
    """The model in a folder, and how many tokens of a text it reads by itself; one a process, however many experiments
    use it."""
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)
    log = importlib.import_module("transformers.utils.logging")
    log.set_verbosity_error()
    log.disable_progress_bar()
    precise = getattr(importlib.import_module("torch"), precision)
    model = package.SentenceTransformer(
        str(folder), device=device or None, local_files_only=True, model_kwargs={"dtype": precise}
    )
    return model, model.max_seq_length


@lru_cache(maxsize=8)
def folder_digest(folder: Path) -> str:
    """Digest of a model's files, descriptions and hidden ones apart; read once a process.

    Raises:
        SettingsError: a file cannot be read.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not path.is_file() or path.suffix == ".md" or any(part.startswith(".") for part in name.parts):
            continue
        try:
            with path.open("rb") as file:
                found[name.as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as refused:
            raise SettingsError(f"model file {path}: cannot be read ({refused.strerror}); correct that") from None
    return digest_json(found)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
