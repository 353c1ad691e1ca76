"""Tests of the benchmark itself: a yardstick that nobody checks measures nothing."""
