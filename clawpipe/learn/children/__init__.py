"""Child processes that answer one request, such as a training: functions for the child and for its parent."""
