"""Makes tools small: names, types and a few telling words, with everything else left to expandSchema."""
