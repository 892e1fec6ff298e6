"""The worker process, its devices, the services of the web process, and their locks."""
