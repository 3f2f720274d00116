"""Read people's reactions: whether what a user says next praises or blames the answer, or says nothing of it."""
