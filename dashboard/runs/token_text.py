"""Conversion of recorded rounds to displayed tokens by the pair's tokenizer, without loading a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tokenizers import Tokenizer

from fsd_core.decoding.trace import RoundRecord
from fsd_core.errors import ModelUnavailable
from fsd_core.models.local_models import obtained
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.thoughts import read_marks
from fsd_core.models.tokenizer_files import with_marks
from fsd_core.storage.playground_chunks import EmittedToken
from fsd_core.worker.token_builder import TokenBuilder


def displayed_tokens(pair: str, records: Sequence[RoundRecord], marks: str = "") -> list[EmittedToken]:
    """Return the output tokens. Their joined texts are the decoded text, with the ``marks`` of thoughts of the run.

    Raises ``UnknownName`` or ``ModelUnavailable`` if the pair's tokenizer is unavailable.
    """
    builder = TokenBuilder(_tokenizer(pair, marks))
    rounds = enumerate(records, 1)
    return [token for number, record in rounds for token in builder.add(record, last=number == len(records))]


@lru_cache(maxsize=4)
def _tokenizer(pair: str, marks: str) -> Tokenizer:
    spec = get_pair(pair)
    models = [model for model in (spec.target, spec.draft) if model is not None]
    folders = [folder for model in models if (folder := obtained(model)) is not None]
    # A draft on its target's embedding has no tokenizer of its own.
    with_tokenizer = [folder for folder in folders if (folder / "tokenizer.json").is_file()]
    folder = next(iter(with_tokenizer or folders), None)
    if folder is None:
        raise ModelUnavailable(f"The tokenizer of the pair '{pair}' is not on this machine: run the pair once.")
    path = folder / "tokenizer.json"
    try:
        return with_marks(Tokenizer.from_file(str(path)), read_marks(marks))
    except Exception as error:  # tokenizers raises bare Exception for a file that is missing or damaged
        raise ModelUnavailable(
            f"The tokenizer of the pair '{pair}' cannot be read ({path.name}: {error}). Put its model folder back."
        ) from None
