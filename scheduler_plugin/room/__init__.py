"""What nodes and their boards have left, however it is counted, and what a pod takes of it."""
