"""clawpipe: one honest night from agent trajectories to a served model."""

import logging

__version__ = "0.1.0"

for _name in ("torchao", "torch.utils._pytree", "bitsandbytes"):  # at import they tell what they lack; nobody here needs it
    logging.getLogger(_name).setLevel(logging.ERROR)
