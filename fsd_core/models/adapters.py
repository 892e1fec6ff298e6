"""LoRA adapters (Hu et al. 2021), read by PEFT and merged into the weights of the model that they were trained on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from fsd_core.errors import ModelUnavailable
from fsd_core.models.conformity import apart, logits_of_twelve, relative_distance, tolerance
from fsd_core.models.json_files import check_sizes
from fsd_core.models.load_failures import quote
from fsd_core.models.tokenizer_files import tokenizer_folder
from fsd_core.models.vocabularies import load_tokenizer


def adapted(model: PreTrainedModel, adapter: Path) -> PreTrainedModel:
    """Return the model with an adapter merged into its weights.

    A model with fewer tokens than the adapter's own tokenizer gets more rows, as PEFT's ``AutoPeftModel`` does it. A
    head on the embedding's matrix gets one of its own, if the adapter changes either. Raises ``ModelUnavailable`` for
    files that cannot be read or do not fit, and for an adapter that cannot be merged: twelve tokens must give the
    logits of the model with the adapter beside it.
    """
    from peft import PeftModel

    check_sizes(adapter)
    try:
        _add_tokens(model, adapter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PEFT warns of shared matrices, which are looked after here
            warnings.filterwarnings("error", "Found missing adapter keys")  # parts of it would be random
            beside: Any = PeftModel.from_pretrained(model, str(adapter), local_files_only=True).eval()
            expected = logits_of_twelve(beside, model)
            _untie(model)
            merged = beside.merge_and_unload()
            distance = relative_distance(logits_of_twelve(merged, merged), expected)
    except ModelUnavailable:
        raise
    except Exception as error:
        raise ModelUnavailable(
            f"The adapter in {adapter} cannot be loaded ({type(error).__name__}: {quote(str(error))}): expected "
            "adapter_config.json and adapter_model.safetensors that fit the model. Choose the model that it was "
            "trained on, or fetch the adapter again."
        ) from error
    if not distance <= tolerance(model.dtype):
        raise ModelUnavailable(
            f"The adapter in {adapter} cannot be merged: against those before, the merged model's logits "
            f"{apart(distance)}. Give the model that its authors merged, or another adapter."
        )
    return merged


def _add_tokens(model: PreTrainedModel, adapter: Path) -> None:
    """Give a model rows for the tokens that an adapter's tokenizer adds. The adapter holds their weights.

    Raises ``ModelUnavailable`` if it does not, since they would be random.
    """
    if tokenizer_folder(adapter.parent, adapter) != adapter:
        return
    embedding: Any = model.get_input_embeddings()
    count, rows = len(load_tokenizer(adapter)), len(embedding.weight)
    if count <= rows:
        return
    from peft import PeftConfig, load_peft_weights

    trained = any(count in tensor.shape for tensor in load_peft_weights(str(adapter), device="cpu").values())
    if not trained and not getattr(PeftConfig.from_pretrained(str(adapter)), "trainable_token_indices", None):
        raise ModelUnavailable(
            f"The tokenizer of the adapter in {adapter} has {count} tokens, the model {rows}, and the adapter no "
            "weights for the others: save it with its embedding layers, or without its tokenizer."
        )
    model.resize_token_embeddings(count, mean_resizing=False)


def _untie(model: PreTrainedModel) -> None:
    """Give the head a matrix of its own, if it shares the embedding's and an adapter is to change one of the two."""
    ends: tuple[Any, Any] = model.get_input_embeddings(), model.get_output_embeddings()
    embedding, head = (getattr(end, "base_layer", end) for end in ends)
    if head is None or (embedding, head) == ends or head.weight is not embedding.weight:
        return
    head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    for config in (model.config, model.config.get_text_config(decoder=True)):
        config.tie_word_embeddings = False
