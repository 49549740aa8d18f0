"""Which nodes a pod may use, whatever is free there."""
