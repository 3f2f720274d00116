"""Foreign trajectory formats become rows under contract; what cannot is set aside with its reason, never dropped."""
