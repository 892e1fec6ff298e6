"""``fsd_core.generate`` inside transformers' own ``generate``."""

from __future__ import annotations

import pytest
import torch
from transformers import StoppingCriteria, TextStreamer
from transformers.generation import GenerateDecoderOnlyOutput

import fsd_core
from fsd_core.errors import InvalidSetting
from fsd_core.testing import toy_head, toy_pair


@pytest.fixture(scope="module")
def pair():
    return toy_pair(noise=0.1)


@pytest.fixture
def generate(pair):
    def call(text="Hello there, hello", **kwargs):
        options = {"padding": True, "padding_side": "left"} if isinstance(text, list) else {}
        inputs = pair.tokenizer(text, return_tensors="pt", return_token_type_ids=False, **options)
        settings = {"max_new_tokens": 30, "do_sample": False, "custom_generate": fsd_core.generate}
        settings |= {"assistant_model": pair.draft.module} if "draft_model" not in kwargs else {}
        return pair.target.module.generate(**inputs, **{**settings, **kwargs})

    return call


@pytest.mark.parametrize("text", ["Hello there, hello", ["Hello there, hello", "Hi"]])
def test_greedy_speculative_is_what_generate_returns(pair, generate, text):
    plain = generate(text, custom_generate=None, assistant_model=None)
    assert torch.equal(generate(text, acceptance="speculative"), plain)


@pytest.mark.parametrize("tree", [False, True])
def test_a_head_drafts_in_place_of_a_draft_model(pair, generate, tree):
    plain = generate(custom_generate=None, assistant_model=None)
    head = toy_head(pair.target.module, 3, seed=5)
    out = generate(acceptance="speculative", drafter="eagle", head=head, assistant_model=None, tree=tree)
    assert torch.equal(out, plain)


def test_the_documented_call_works(generate):
    out = generate(acceptance="fsd-reducible", divergence="js", threshold=0.2)
    assert out.dtype == torch.int64
    assert out.shape[0] == 1


def test_the_draft_is_used_under_either_name(generate, pair):
    """T = ∞ writes what the draft writes, so the draft must have arrived."""
    alone = pair.draft.module.generate(
        **pair.tokenizer("Hello there, hello", return_tensors="pt", return_token_type_ids=False),
        max_new_tokens=12, do_sample=False,
    )  # fmt: skip
    for name in ("assistant_model", "draft_model"):
        out = generate(acceptance="fsd", divergence="tv", threshold=1.0, max_new_tokens=13, **{name: pair.draft.module})
        assert torch.equal(out[:, : alone.shape[1]], alone)


def test_sampling_settings_come_from_the_generation_config(generate):
    a, b, other = (generate(do_sample=True, temperature=0.9, top_k=20, top_p=0.9, seed=s) for s in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, other)
    torch.manual_seed(0)
    first = generate(do_sample=True)
    torch.manual_seed(0)
    assert torch.equal(generate(do_sample=True), first)


def test_a_dict_is_returned_where_one_is_asked_for(generate):
    out = generate(acceptance="speculative", return_dict_in_generate=True)
    assert isinstance(out, GenerateDecoderOnlyOutput)


def test_a_streamer_gets_every_token(generate, pair, capsys):
    out = generate(acceptance="speculative", streamer=TextStreamer(pair.tokenizer))
    assert capsys.readouterr().out.strip() == pair.tokenizer.decode(out[0]).strip()


def test_a_stopping_criterion_is_honoured_at_its_very_token(generate):
    class AfterSeven(StoppingCriteria):
        start = 17  # bytes of the prompt

        def __call__(self, input_ids, scores, **kwargs):
            return torch.full((input_ids.shape[0],), input_ids.shape[1] >= self.start + 7)

    assert generate(acceptance="speculative", stopping_criteria=[AfterSeven()]).shape[1] == 17 + 7


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"divergence": "js", "threshold": 5.0}, "beyond the range"),
        ({"repetition_penalty": 1.2}, "RepetitionPenalty"),
        ({"acceptance": "nonsense"}, "nonsense"),
        (
            {"tree_tokens": 30},
            "tree_tokens does not apply to the shape 'chain': .*choose from dynamic-tree, search-tree",
        ),
        ({"topology": "bush"}, "topology 'bush' is not known"),
        ({"shape": "bush"}, "topology 'bush' is not known"),  # as it was called before
        ({"tree": True, "tree_width": 0}, "tree_top_k is 0"),
        ({"drafter": "eagle"}, r"give head=load_head\(folder, model\)"),
        ({"assistant_model": None, "acceptance": "speculative"}, "needs a draft model"),
    ],
)
def test_what_cannot_be_honoured_is_refused(generate, kwargs, words):
    with pytest.raises(InvalidSetting, match=words):
        generate(**kwargs)


@pytest.mark.parametrize("name", ["output_scores", "output_logits", "output_hidden_states", "output_attentions"])
def test_what_is_not_computed_for_each_token_is_refused(generate, name):
    with pytest.raises(InvalidSetting, match=f"^{name} cannot be returned"):
        generate(return_dict_in_generate=True, **{name: True})


def test_a_prompt_of_embeddings_is_refused(pair):
    embeddings = pair.target.module.get_input_embeddings()(torch.tensor([[1, 2, 3]]))
    with pytest.raises(InvalidSetting, match="embeddings"):
        pair.target.module.generate(
            inputs_embeds=embeddings, custom_generate=fsd_core.generate, assistant_model=pair.draft.module,
            max_new_tokens=4, acceptance="speculative",
        )  # fmt: skip
