"""Loops over packs: what all have in common, the policy's, the preferences', and TRL's for pairs of text."""
