"""The mathematics: pure updates, activations, losses, the Lagrangian."""
