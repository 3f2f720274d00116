"""Children: processes that answer one request, such as a training, with what they and their parent have in common."""
