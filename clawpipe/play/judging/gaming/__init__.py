"""Detect signs that a judge is gamed, or that it does not read the turns; a night warns of them, or holds on them."""

from clawpipe.play.judging.gaming.signs import GamingSigns as GamingSigns
