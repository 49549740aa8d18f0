"""The port to a Kubernetes API and its adapters."""
