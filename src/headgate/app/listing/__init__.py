"""`headgate listing`: what clients would see of the tools, in every mode, without serving."""
