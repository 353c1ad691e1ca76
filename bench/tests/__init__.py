"""Tests of the benchmark itself: an unchecked yardstick measures nothing."""
