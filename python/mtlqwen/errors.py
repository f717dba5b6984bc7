"""The exception classes of mtlqwen; the core raises them too.

Every message reads ``[area] subject: what is wrong (got X, want Y); what to do``.
"""

from __future__ import annotations


class MtlqwenError(Exception):
    """Base of all errors that are mtlqwen's own."""


class FormatError(MtlqwenError, ValueError):
    """A file is not valid GGUF, safetensors or JSON, or its offsets leave the file."""


class ModelError(MtlqwenError, ValueError):
    """The file is valid, but it is not a Qwen 3.5 model that this version runs."""


class CapacityError(MtlqwenError, RuntimeError):
    """Memory or context does not suffice."""


class DeviceError(MtlqwenError, RuntimeError):
    """The device is missing, refused, or failed while it ran a pass."""
