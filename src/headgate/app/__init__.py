"""Joins the edges: builds everything that the settings ask for, runs it, and takes it down again."""
