"""The rewriter: what it makes of a kernel file, and what it refuses."""

from __future__ import annotations

import sys

import pytest
from msl.runner import MSL_FOLDER

sys.path.insert(0, str(MSL_FOLDER))

from rewriter import Rewriter, Unit
from tokens import MslError

HEAD = '# 1 "k.metal"\n'


def rewrite(source: str, *, strict: bool = False) -> Unit:
    return Rewriter("k", strict=strict).rewrite(HEAD + source, "k.metal")


def kernel(body: str, parameters: str = "device float* out [[buffer(0)]]") -> str:
    return f"kernel void run({parameters}) {{\n{body}\n}}\n"


def test_lines_keep_their_numbers() -> None:
    source = (
        "constant uint\n  kN\n  [[function_constant(1)]];\n"
        '[[host_name("a")]]\nkernel\nvoid run(\n  device float* out\n    [[buffer(0)]],\n'
        "  uint i [[thread_position_in_grid]])\n{\n"
        "  threadgroup float\n    s[2];\n  s[0] = kN;\n}\n"
        "static int last;\n"
    )
    text = rewrite(source).text
    after_marker = text[text.index('"k.metal"') :].split("\n")[1:]
    assert after_marker[source.split("\n").index("static int last;")] == "static int last;"


def test_constants_are_followed_through_names() -> None:
    source = (
        "constant uint kA [[function_constant(5)]];\nconstant bool kB [[function_constant(2)]];\n"
        "constant float kC [[function_constant(7)]];\nconstant int kD [[function_constant(9)]];\n"
        "namespace inner { inline uint deep() { return kA; } }\n"
        "struct S { uint f() const thread { return inner::deep(); } };\n"
        "template <typename T> T g(T x) { S s; return x + s.f(); }\n"
        "struct V { float x; }; inline V operator+(V a, V b) { return kB ? a : b; }\n"
        "inline int unused() { return kD; }\n"
        "template <typename T> kernel void run(device T* out [[buffer(3)]]) { *out = g(*out); }\n"
        'template [[host_name("x")]] [[kernel]] decltype(run<uint>) run<uint>;\n'
    )
    (found,) = rewrite(source).kernels
    assert [(c.name, c.index) for c in found.constants] == [("kB", 2), ("kA", 5)]
    assert found.signature.buffer_mask == 8


def test_a_member_is_not_a_constant() -> None:
    source = "constant uint k [[function_constant(0)]];\n" + kernel("  out[0] = s.k + p->k + k;")
    text = rewrite(source).text
    assert text.count("constant_value<uint, 0>") == 1


def test_only_used_swizzles_are_defined() -> None:
    text = rewrite(kernel("  out[0] = v.zx + v.rgb;")).text
    width_2, width_3 = text.split("\n")[:2]
    assert "(zx, 2, 2, 0)" in width_3
    assert "zx" not in width_2
    assert "(rgb, 3, 0, 1, 2)" in width_3
    assert "xyz" not in width_3


def test_threadgroup_pointers_stay() -> None:
    text = rewrite(kernel("  threadgroup float a[2 * 4];\n  threadgroup float* p = a;")).text
    assert "MSL_THREADGROUP_ARRAY(MSL_TYPE(float), a, [2*4], 0)" in text
    assert "threadgroup float* p = a;" in text


def test_strict_keeps_the_identifier_of_a_constant() -> None:
    text = rewrite("constant uint kA [[function_constant(0)]];\n" + kernel(""), strict=True).text
    assert "extern __constant const uint kA;" in text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (kernel("  out[0] = 0.5;"), "k.metal:2: float literal 0.5 needs a suffix"),
        (kernel("  out[0] = 1e3;"), "k.metal:2: float literal 1e3 needs a suffix"),
        (kernel("", "device float* out"), "k.metal:1: a parameter of kernel run has no attribute"),
        (kernel("", "device float* out [[buffer(kA)]]"), "needs an explicit number"),
        (kernel("", "device float* out [[buffer(31)]]"), "buffer index 31 is over 30"),
        (kernel("", "device float* out [[function_constant(k)]]"), "not supported"),
        (kernel("", "threadgroup float* out [[buffer(0)]]"), "a device or constant pointer"),
        (kernel("", "device float* out [[threadgroup(0)]]"), "a threadgroup pointer"),
        (kernel("") + kernel(""), "kernel run is defined twice"),
        (kernel("  if (is_function_constant_defined(kA)) return;"), "set every constant"),
        ("constant uint kA [[function_constant(64)]];", "index 64 is over 63"),
        ("constant uint2 kA [[function_constant(0)]];", "of type uint2 is not supported"),
        ("constant uint kA [[function_constant(0)]], kB;", "is declared as"),
        ('template [[host_name("x")]] kernel void f<4>();', "f is not a kernel template"),
        ("kernel void run(", "'(' is never closed"),
        ("inline int f() {", "'{' is never closed"),
    ],
)
def test_refusals(source: str, message: str) -> None:
    with pytest.raises(MslError) as caught:
        rewrite(source)
    assert message in str(caught.value)
    assert str(caught.value).startswith("k.metal:")
