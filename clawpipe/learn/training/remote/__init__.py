"""Train through a service that keeps the weights: this machine reads the rows, plans the steps and says what each of them costs."""
