"""The configuration of the gateway.

In: flags, environment variables, the configuration file and `.env` files. Out: one frozen `Settings` with
its servers, or a ConfigError with the place and the fix; changes of the file while the gateway runs. May
import `delivery` (argument templates) and `domain`.
"""
