"""The benchmarks of Headgate: each section measures one promise beside its peers, as ratios of one run."""
