"""Reel on Ray Serve: see README.md beside this folder."""
