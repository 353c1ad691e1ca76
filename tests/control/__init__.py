"""The work of an operator, over values and fakes of its Protocols."""
