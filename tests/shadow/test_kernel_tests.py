"""The tests of tests/kernels once more, in the shadow build: same values, no report.

Those of the linear kernels are too large; test_kernels.py has smaller ones.
"""

from __future__ import annotations

import pytest
import test_attention
import test_edit
import test_embed
import test_filter
import test_gdn
import test_gdn_tape
import test_logprob
import test_norm
import test_sample
from again import taking

pytestmark = pytest.mark.slow

MODULES = (
    test_attention,
    test_edit,
    test_embed,
    test_filter,
    test_gdn,
    test_gdn_tape,
    test_logprob,
    test_norm,
    test_sample,
)

globals().update(taking("runner", MODULES))
