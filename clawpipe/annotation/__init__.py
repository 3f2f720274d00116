"""A process that scores and hints training rows before a round trains on them."""
