"""What Kubernetes objects say of pods, gangs, claims and power, in a snapshot's terms. Pure."""
