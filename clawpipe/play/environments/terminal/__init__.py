"""`terminal`: tasks that are done in a shell, generated ones and folders in Harbor's form."""
