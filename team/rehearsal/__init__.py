"""The whole system for nothing: a scripted model, a demo project, and the scripts that drive agents."""
