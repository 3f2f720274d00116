"""clawpipe: one honest night from agent trajectories to a served model."""

import logging

__version__ = "0.2.0"

for _name in ("torchao", "torch.utils._pytree", "bitsandbytes"):  # on import they log what they lack, which clawpipe does not use
    logging.getLogger(_name).setLevel(logging.ERROR)
