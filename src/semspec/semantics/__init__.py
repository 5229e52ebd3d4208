"""What the models would say in a context, and which of it means the same: contexts, samples, clusters, labels."""
