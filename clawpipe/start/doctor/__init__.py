"""What `clawpipe doctor` checks on this machine."""
