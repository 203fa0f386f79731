"""The shell outside the server: the command line, the private cluster, installation."""
