"""A fleet that trains: gangs, small jobs, waiting boards and empty servers, as Acme's were."""
