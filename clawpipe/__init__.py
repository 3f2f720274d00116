"""clawpipe: one honest night from agent trajectories to a served model."""

import logging
import os

from clawpipe.moved import install as _find_old_names

__version__ = "0.3.0"

_find_old_names()

for _name in ("torchao", "torch.utils._pytree", "bitsandbytes"):  # on import they log what they lack, which clawpipe does not use
    logging.getLogger(_name).setLevel(logging.ERROR)

# Who holds ATen below AVX-512 wants the bits of other CPUs. oneDNN asks the CPU alone: on one with AMX it packs the keys of
# attention in bfloat16 for it, and ATen refuses them ("pack_vnni2 is only supported when avx512 is supported").
if os.environ.get("ATEN_CPU_CAPABILITY") in ("default", "avx2"):
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
