"""Make a GGUF file with other formats of its matrices.

python tools/requantise.py SOURCE.gguf OUT.gguf Q4_K [token_embd=Q6_K ffn_down=Q6_K ..]

The first format is that of all matrices, but for those whose name has a part that is named with
another one. Matrices that are float32 in the source stay so. Needs the packages gguf and numpy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, quants

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mtlqwen.conversion.formats import FORMATS, quantise


def copy_metadata(reader: GGUFReader, writer: gguf.GGUFWriter) -> None:
    """Add every value of the source but those that the writer adds itself."""
    for field in reader.fields.values():
        if field.name == gguf.Keys.General.ARCHITECTURE or field.name.startswith("GGUF."):
            continue
        kind = field.types[0]
        sub_kind = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=sub_kind)


def format_of(name: str, formats: Sequence[str]) -> str:
    """What a matrix becomes."""
    first, *others = formats
    for part, _, chosen in (other.partition("=") for other in others):
        if part in name:
            return chosen
    return first


def requantise(source: Path, target: Path, formats: Sequence[str]) -> None:
    """Write the file; formats as the command line names them."""
    for name in formats:
        if name.partition("=")[2] not in FORMATS and name not in FORMATS:
            raise SystemExit(f"[requantise] {name}: want one of {', '.join(FORMATS)}")
    reader = GGUFReader(source)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    writer = gguf.GGUFWriter(target, architecture)
    copy_metadata(reader, writer)
    for tensor in reader.tensors:
        if tensor.tensor_type == GGMLQuantizationType.F32:
            writer.add_tensor(tensor.name, tensor.data)
            continue
        values = quants.dequantize(tensor.data, tensor.tensor_type)
        chosen = format_of(tensor.name, formats)
        stored = np.ascontiguousarray(quantise(values, chosen))
        writer.add_tensor(tensor.name, stored, raw_dtype=GGMLQuantizationType[chosen])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("formats", nargs="+", metavar="FORMAT")
    options = parser.parse_args()
    requantise(options.source, options.target, options.formats)


if __name__ == "__main__":
    main()
