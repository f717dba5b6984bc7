"""The C++ of a library's kernel table (abi.h): every kernel, and its twins where it has some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rewriter import DATA_TYPES, Kernel
from tokens import MslError

ABI = Path(__file__).resolve().parent / "abi.h"
TWIN_PREFIXES = ("twin_", "dot_twin_")  # of the symbols, in the order of the table

Record = dict[str, Any]


def kernel_record(kernel: Kernel) -> Record:
    """Return what the table says of a kernel, as JSON can hold it."""
    return {
        "name": kernel.name,
        "symbol": kernel.symbol,
        "buffer_mask": kernel.signature.buffer_mask,
        "n_threadgroup_args": kernel.signature.n_threadgroup_args,
        "constants": [[c.index, DATA_TYPES[c.type], c.name] for c in kernel.constants],
    }


def reject_duplicates(kernels: Sequence[Record]) -> None:
    """Raise MslError where two kernels have one name."""
    seen: set[str] = set()
    for kernel in kernels:
        if kernel["name"] in seen:
            raise MslError(f"[msl] kernel {kernel['name']} is defined in two files")
        seen.add(kernel["name"])


def reject_strangers(twins: Mapping[str, str], kernels: Sequence[Record]) -> None:
    """Raise MslError where a twin (symbol to kernel name) is of no kernel."""
    known = {kernel["name"] for kernel in kernels}
    strangers = sorted(set(twins.values()) - known)
    if strangers:
        raise MslError(f"[msl] twins of kernels that do not exist: {', '.join(strangers)}")


def add_twins(kernels: Sequence[Record], twins: Mapping[str, str]) -> None:
    """Note in each record the symbols of its twins, None where there is none."""
    for kernel in kernels:
        symbols = [prefix + kernel["name"] for prefix in TWIN_PREFIXES]
        kernel["twins"] = [symbol if symbol in twins else None for symbol in symbols]


def kernel_table(kernels: Sequence[Record]) -> str:
    """Return the C++ of the table and of the library's one exported function."""
    head = [f'#include "{ABI}"']
    rows = []
    for kernel in kernels:
        symbol, constants = kernel["symbol"], kernel["constants"]
        head.append(f'extern "C" void {symbol}();')
        listed = ", ".join(f'{{{i}, {kind}, "{name}"}}' for i, kind, name in constants)
        if constants:
            head.append(f"static const MslConstant {symbol}_constants[] = {{{listed}}};")
        twins = kernel.get("twins", [None] * len(TWIN_PREFIXES))
        head += [
            f'extern "C" int {twin}(const MslDispatch*, uint64_t, uint64_t);'
            for twin in twins
            if twin
        ]
        values = [
            f'"{kernel["name"]}"',
            f"{kernel['buffer_mask']:#x}u",
            f"{kernel['n_threadgroup_args']}u",
            f"{len(constants)}u",
            f"{symbol}_constants" if constants else "nullptr",
            f"(const void*){symbol}",
            *(twin or "nullptr" for twin in twins),
        ]
        rows.append(f"  {{{', '.join(values)}}},")
    tail = [
        'extern "C" int msl_run(const MslDispatch*, uint64_t, uint64_t, char*, uint64_t);',
        "static const MslKernel kernels[] = {",
        *(rows or ["  {}"]),
        "};",
        f"static const MslLibrary library = {{MSL_ABI_VERSION, MSL_ISA, {len(kernels)}, kernels,"
        " msl_run};",
        'extern "C" __attribute__((visibility("default"))) const MslLibrary* msl_library() {',
        "  return &library;",
        "}",
    ]
    return "\n".join([*head, *tail]) + "\n"
