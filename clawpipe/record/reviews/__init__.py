"""What people decide about rows before these teach: approve, reject or edit them; who decided, and when."""
