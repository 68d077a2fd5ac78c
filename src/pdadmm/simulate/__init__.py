"""How long an epoch would take on workers and links that one does not have, and why."""
