"""Large results: truncation, storage rules, and the tools that read stored results."""
