"""Collaborative fairness in federated learning: FedAKD and its baselines, leak-free and fast."""

__version__ = "0.1.0"
