"""Which of the gateway's variables a child process inherits."""

import pytest

from headgate.domain.child_environment import inherited_environment, loads_code, withheld_variables

PUBLIC = {
    "npm_config_registry": "https://npm.example.com/",
    "NPM_CONFIG_REGISTRY": "https://npm.example.com/api/npm/@scope/",
    "npm_config_@scope:registry": "https://npm.example.com:8443/@scope/x",
    "npm_config_cafile": "/etc/ca.pem",
    "npm_config_userconfig": "/srv/npmrc",
    "npm_config_user_agent": "npm/10 node/v20 linux x64",
    "npm_config_init_author_name": "Ada",
    "npm_config_proxy": "http://proxy.example.com:3128",
    "UV_INDEX_URL": "https://pypi.example.com/simple",
    "UV_KEYRING_PROVIDER": "subprocess",
    "UV_NATIVE_TLS": "1",
    "UV_EXTRA_INDEX_URL": "https://a.example.com/simple https://b.example.com/simple",
    "UV_FIND_LINKS": "git+https://example.com/x.git@v1",
    "PIP_INDEX_URL": "https://pypi.example.com/simple",
    "PIP_CERT": "/etc/ca.pem",
    "PIP_CLIENT_CERT": "/etc/me.pem",
    "PIP_TRUSTED_HOST": "pypi.example.com:8080",
}
WITH_CREDENTIALS = {
    "npm_config_//npm.example.com/:_authToken": "npm_abc",
    "npm_config_//npm.example.com/:_password": "cGFzcw==",
    "npm_config_//npm.example.com/:username": "ada",
    "npm_config__auth": "YTpi",
    "NPM_CONFIG__AUTHTOKEN": "x",
    "npm_config_otp": "123456",
    "npm_config_key": "x",
    "npm_config_cert": "-----BEGIN EC PRIVATE KEY-----\nx",
    "npm_config_registry": "https://ada:pa@npm.example.com/",
    "npm_config_https_proxy": "ada:pa@proxy.example.com:3128",
    "UV_INDEX_X_PASSWORD": "pa",
    "UV_INDEX_X_USERNAME": "ada",
    "UV_PUBLISH_TOKEN": "pypi-x",
    "UV_GITHUB_TOKEN": "x",
    "UV_INDEX_URL": "https://token@pypi.example.com/simple",
    "UV_EXTRA_INDEX_URL": "https://a.example.com/simple https://ada:pa/ss@b.example.com/simple",
    "UV_FIND_LINKS": "https://x.blob.example.com/wheels?sv=1&sig=abc",
    "PIP_INDEX_URL": "https://ada:@pypi.example.com/simple",
    "PIP_PASSWORD": "x",
}
LOADERS = [
    "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "NODE_OPTIONS", "NODE_PATH", "PYTHONPATH",
    "PYTHONSTARTUP", "PYTHONHOME", "PERL5OPT", "PERL5LIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS",
    "BASH_ENV", "ENV", "npm_config_node_options", "NPM_CONFIG_NODE_OPTIONS", "npm_config_script-shell",
]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "HOME", "LANG", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
        *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    ],
)
def test_what_reaches_the_network_is_inherited(name: str) -> None:
    assert inherited_environment({name: "x"}, ()) == {name: "x"}


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_proxy_is_inherited_with_its_password_because_it_is_of_no_use_without(name: str) -> None:
    environ = {name: "http://ada:pa@proxy.example.com:3128"}
    assert inherited_environment(environ, ()) == environ


@pytest.mark.parametrize("name", PUBLIC)
def test_where_packages_come_from_is_inherited(name: str) -> None:
    environ = {name: PUBLIC[name]}
    assert inherited_environment(environ, ()) == environ
    assert withheld_variables(environ, ()) == []


@pytest.mark.parametrize("name", WITH_CREDENTIALS)
def test_a_credential_is_inherited_only_if_it_is_named(name: str) -> None:
    environ = {name: WITH_CREDENTIALS[name]}
    assert inherited_environment(environ, ()) == {}
    assert withheld_variables(environ, ()) == [name]
    assert inherited_environment(environ, (name,)) == environ
    assert inherited_environment(environ, (f"{name[:4]}*",)) == environ
    assert withheld_variables(environ, (name,)) == []


@pytest.mark.parametrize("name", LOADERS)
def test_what_loads_code_is_inherited_only_by_its_whole_name(name: str) -> None:
    environ = {name: "x"}
    assert loads_code(name)
    assert inherited_environment(environ, ("*", f"{name[:-1]}*")) == {}
    assert inherited_environment(environ, (name,)) == environ


@pytest.mark.parametrize(
    "name", ["API_KEY", "AWS_SECRET_ACCESS_KEY", "HEADGATE_PORT", "UVX", "PIPX_HOME", "USER"]
)
def test_everything_else_is_inherited_only_if_it_is_named(name: str) -> None:
    environ = {name: "x"}
    assert inherited_environment(environ, ()) == {}
    assert inherited_environment(environ, (name,)) == inherited_environment(environ, ("*",)) == environ
    assert inherited_environment(environ, (name.lower(), name[:-1], f"X{name}*")) == {}
