"""The model part behind the door."""
