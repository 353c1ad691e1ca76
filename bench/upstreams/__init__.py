"""Upstream servers written by hand with prepared answers, so that the upstream is not the bottleneck."""
