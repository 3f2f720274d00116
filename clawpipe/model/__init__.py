"""A policy on this machine or elsewhere: its weights, the engines that sample from it, and the memory that it needs."""
