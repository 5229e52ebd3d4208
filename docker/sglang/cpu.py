"""SGLang on a CPU without its compiled kernels: slow, and right. For tests; docker/sglang/cpu.sh prepares all it needs.

SGLang imports kernels that are built for CUDA, and operators of torchvision that PyTorch's CPU build can't load. None
of them is used with the options below, so each has a stand-in that can be imported. SGLang's processes each import
this module again, so the stand-ins are there in all of them.

    python docker/sglang/cpu.py --model-path FOLDER --port 30000 [any other option of SGLang's]
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

OPTIONS = [
    *("--device", "cpu"),
    *("--attention-backend", "torch_native"),
    *("--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"),
    "--disable-overlap-schedule",
    "--sleep-on-idle",
    *("--grammar-backend", "none"),
    *("--mem-fraction-static", "0.3", "--max-total-tokens", "8192", "--max-running-requests", "16"),
]


class StandIn(ModuleType):
    """A module with whatever is imported from it; calling that is an error. There is no module below it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__spec__ = ModuleSpec(name, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"{self.__name__}.{name} is not there on a CPU")

        return missing


def prepare() -> None:
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
    import torch

    sys.modules["sgl_kernel"] = StandIn("sgl_kernel")
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")


prepare()

if __name__ == "__main__":
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    try:
        run_server(prepare_server_args([*OPTIONS, *sys.argv[1:]]))
    finally:
        kill_process_tree(os.getpid(), include_parent=False)
