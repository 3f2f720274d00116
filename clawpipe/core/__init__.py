"""The ground: settings, stored artifacts, contracts, messages, child processes; it knows nothing of models."""
