"""Texts with secrets as programs print them, and the secret in each that must not be shown.

The secrets are made up, and put together from parts, so that scanners of repositories do not report them.
"""

A = "16C7e42F292c6912E7710c838347Ae178B4a"
B = "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2Rl"
HEX = "9f86d081884c7d659a2feaa0c55ad015"
GITHUB = "gh" + "p_" + A
GITHUB_OAUTH = "gh" + "o_" + A
GITHUB_APP = "gh" + "s_" + A
GITHUB_FINE = "github" + "_pat_11ABCDEFG0" + A[:11] + "_" + B + A[:23]
GITLAB = "gl" + "pat-" + "aB3dE5fG7hJ9kL1mN3pQ"
OPENAI = "s" + "k-" + "abcdefghijklmnopqrstuvwxyz123456"
OPENAI_PROJECT = "s" + "k-proj-" + "AbC_dEf-123456789012345678901234"
ANTHROPIC = "s" + "k-ant-api03-" + B + "-" + A + "AA"
SLACK_BOT = "xox" + "b-123456789012-123456789012-" + A[:24]
SLACK_USER = "xox" + "p-1234567890-1234567890-" + HEX
AWS_ID = "AKI" + "AIOSFODNN7EXAMPLE"
AWS_TEMPORARY_ID = "ASI" + "AY34FZKBOKMUTVV7A"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY"
GOOGLE = "AI" + "zaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY"
STRIPE = "s" + "k_live_" + "4eC39HqLyjWDarjtT1zdp7dc"
STRIPE_RESTRICTED = "r" + "k_live_" + "51H8abcdEFGHijklMNOPqrst"
STRIPE_WEBHOOK = "wh" + "sec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NPM = "np" + "m_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789"
PYPI = "pypi-" + "AgEIcHlwaS5vcmcCJDU3YzM0YmQ0LWE0NzYtNDY1Zi1hYjQxLTgwN2Q2Y2Q"
HUGGING_FACE = "h" + "f_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
SENDGRID = "S" + "G." + "ngeVfQFYQlKU0ufo8x5d1A" + "." + "TwL2iGABf9DHoTf-09kqeF8tAmbihYzrnopKc-1s5cr"
DIGITAL_OCEAN = "do" + "p_v1_" + HEX + HEX
JWT_HEAD = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"
JWT = (
    JWT_HEAD
    + ".eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkFubiJ9."
    + "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
)
PEM_LINES = ["MIIEowIBAAKCAQEAn0eXrT" + A + "qrs", B + "wxyzABCDEFGHIJKLMNOPQRSTUV12", "Qx7tZ0pL3sV=="]
BEGIN, END = "-----BEGIN RSA PRIV" + "ATE KEY-----", "-----END RSA PRIV" + "ATE KEY-----"
PEM = "\n".join((BEGIN, *PEM_LINES, END))
HEADGATE = "h" + "g_" + "Ab3dE6gH_" + B + "1234567"
BASIC = "YWxhZGRpbjpvcGVuc2VzYW1l"

# The text, and each part of it that must be gone.
SECRETS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # Arguments of commands.
    ("npx -y some-mcp --token abc123def --verbose", ("abc123def",)),
    ("npx -y some-mcp --token=abc123def --verbose", ("abc123def",)),
    ("spawn uvx ['server', '--api-key', 's3cr3tvalue', '--port', '80']", ("s3cr3tvalue",)),
    ('{"command":"node","args":["x.js","--access-token","zzTop99"]}', ("zzTop99",)),
    ('"args": ["--password", "hunter2"]', ("hunter2",)),
    ("psql --password hunter2 -h db failed", ("hunter2",)),
    ('server --secret "two words" started', ("two words",)),
    ("node index.js --apiKey supersecret", ("supersecret",)),
    ("cli --client-secret=QWERTY-9876-zxcv", ("QWERTY-9876-zxcv",)),
    ("mcp-remote https://h/sse --header Authorization:tok_12345678", ("tok_12345678",)),
    ("curl -H 'X-API-Key: 0123456789abcdef' https://h/", ("0123456789abcdef",)),
    ('curl -H "Authorization: Bearer ' + B + '" https://h/', (B,)),
    ('curl -H "Authorization: token abcdef0123" https://h/', ("abcdef0123",)),
    ("curl -u ann:hunter2 https://h/", ("hunter2",)),
    ("mysql -u root -pS3cret42 -h db shop", ("S3cret42",)),
    ("sshpass -p hunter2 ssh ann@host", ("hunter2",)),
    # Tokens that are known by how they begin.
    (f"git clone failed for {GITHUB}: 403", (A,)),
    (f"remote: {GITHUB_OAUTH}.", (A,)),
    (f"installation token {GITHUB_APP} expired", (A,)),
    (f"using {GITHUB_FINE}", (A[:11], B)),
    (f"glab: 401 with {GITLAB}", (GITLAB[6:],)),
    (f"Incorrect API key provided: {OPENAI}. You can find your API key at https://h/keys.", (OPENAI[3:],)),
    (f"openai: {OPENAI_PROJECT} is invalid", (OPENAI_PROJECT[10:],)),
    (f"anthropic.AuthenticationError: invalid x-api-key {ANTHROPIC}", (B, A)),
    (f"slack said invalid_auth ({SLACK_BOT})", (A[:24],)),
    (f"posting as {SLACK_USER}", (HEX,)),
    (f"The AWS Access Key Id {AWS_ID} you provided does not exist", (AWS_ID,)),
    (f"credentials {AWS_TEMPORARY_ID} have expired", (AWS_TEMPORARY_ID,)),
    (f"aws_secret_access_key = {AWS_SECRET}", (AWS_SECRET[:20], "bPxRfiCY")),
    (f"AWS_SECRET_ACCESS_KEY={AWS_SECRET} aws s3 ls", (AWS_SECRET[:20], "bPxRfiCY")),
    (f"GET https://maps.example.com/api?key={GOOGLE}&q=x 400", (GOOGLE,)),
    (f"API key not valid: {GOOGLE}", (GOOGLE,)),
    (f"Invalid API Key provided: {STRIPE}", (STRIPE[8:],)),
    (f"stripe used {STRIPE_RESTRICTED} here", (STRIPE_RESTRICTED[8:],)),
    (f"signature mismatch for {STRIPE_WEBHOOK}", (STRIPE_WEBHOOK[6:],)),
    (f"npm ERR! code E401 {NPM}", (NPM[4:],)),
    (f"//registry.npmjs.org/:_authToken={NPM}", (NPM[4:],)),
    (f"twine: 403 for {PYPI}", (PYPI[8:],)),
    (f"huggingface_hub: {HUGGING_FACE}", (HUGGING_FACE[3:],)),
    (f"sendgrid {SENDGRID}", ("ngeVfQFYQlKU0ufo8x5d1A", "TwL2iGABf9DHoTf")),
    (f"doctl: {DIGITAL_OCEAN}", (HEX,)),
    (f"the key {HEADGATE} was refused", (B,)),
    ("POST https://hooks.slack.com/services/T00000000/B00000000/" + A[:24] + " 404", (A[:24],)),
    ("https://api.telegram.org/bot123456789:AA" + B[:33] + "/getMe", (B[:33],)),
    # JWT, PEM.
    (f"jwt {JWT} expired at 12:00", ("eyJzdWIi", "SflKxwRJ")),
    (f"cut: {JWT[:60]}", ("eyJzdWIi",)),
    (f"bad key:\n{PEM}\nin config", tuple(PEM_LINES)),
    ("key " + PEM.replace("\n", "\\n") + " is wrong", tuple(PEM_LINES)),
    ('{"private_key": "' + PEM.replace("\n", "\\n") + '\\n", "client_email": "a@b"}', tuple(PEM_LINES)),
    ("started with " + "\n".join((BEGIN, *PEM_LINES[:2])), tuple(PEM_LINES[:2])),
    (
        "cut off: " + "\\n".join((BEGIN, PEM_LINES[0], PEM_LINES[1][:30])) + "...",
        (PEM_LINES[0], PEM_LINES[1][:30]),
    ),
    (PEM.replace("RSA ", "OPENSSH "), tuple(PEM_LINES)),
    (PEM.replace("RSA ", "ENCRYPTED "), tuple(PEM_LINES)),
    (PEM.replace("\n", " "), tuple(PEM_LINES)),
    (PEM.replace("RSA ", "").replace("\n", "\\\\n"), tuple(PEM_LINES)),
    # Headers.
    ("> Cookie: session=abc123def456; theme=dark", ("abc123def456",)),
    ("< Set-Cookie: sid=s%3Aabc123.def456; Path=/; HttpOnly", ("s%3Aabc123.def456",)),
    ("{'Cookie': 'JSESSIONID=0123456789ABCDEF; x=1'}", ("0123456789ABCDEF",)),
    ('headers: {"set-cookie": ["a=secretvalue1; Secure"]}', ("secretvalue1",)),
    ("[(b'cookie', b'sid=abcdef123456')]", ("abcdef123456",)),
    ("PHPSESSID=el4ukv0kqbvoirg7nkp4dncpk3 was rejected", ("el4ukv0kqbvoirg7nkp4dncpk3",)),
    ("Authorization: Basic " + BASIC, (BASIC,)),
    ("sent Basic " + BASIC + " to the proxy", (BASIC,)),
    ("Proxy-Authorization: Basic " + BASIC, (BASIC,)),
    ("'Authorization': 'Bearer abc'", ("'Bearer abc'",)),
    ('"authorization":"Bearer ' + B + '"', (B,)),
    ('["authorization","Bearer ' + B + '"]', (B,)),
    ('Authorization: Digest username="ann", realm="r", response="' + HEX + '"', (HEX,)),
    (f"Authorization: AWS4-HMAC-SHA256 Credential={AWS_ID}/2026/s3, Signature={HEX}", (AWS_ID, HEX)),
    ("X-Auth-Token: abcdef", ("abcdef",)),
    ("PRIVATE-TOKEN: abcdefgh", ("abcdefgh",)),
    ("request with bearer " + B + " failed", (B,)),
    ("bearer 0123456789abcdef", ("0123456789abcdef",)),
    # URLs.
    ("fatal: unable to access 'https://ann:hunter2@git.example.com/x.git/': 403", ("hunter2",)),
    (f"https://x-access-token:{GITHUB}@github.com/org/repo.git", (A,)),
    (f"https://{GITHUB}@github.com/org/repo.git", (A,)),
    ("postgresql://app:p%40ss@db.internal:5432/shop?sslmode=require", ("p%40ss",)),
    ("postgres://app:p@ssw0rd@db/shop", ("p@ss", "w0rd")),
    ("postgres://app:pa/ss#w0rd@db/shop", ("pa/ss", "w0rd")),
    ("mongodb+srv://app:hunter2@cluster0.x.mongodb.net/test", ("hunter2",)),
    ("redis://:hunter2@cache:6379/0", ("hunter2",)),
    ("amqp://guest:guest1@rabbit:5672//", ("guest1",)),
    ("ann:hunter2@tcp(127.0.0.1:3306)/shop", ("hunter2",)),
    ("jdbc:oracle:thin:scott/tiger@db:1521:orcl", ("tiger",)),
    ("jdbc:mysql://db/shop?user=ann&password=hunter2", ("hunter2",)),
    ("https://h/cb?access_token=abc&state=1", ("=abc",)),
    ("https://h/cb?code=4%2F0AX4XfWh8Kq1234567890abcd&state=1", ("0AX4XfWh8Kq1234567890abcd",)),
    (f"https://b.s3.amazonaws.com/k?X-Amz-Credential={AWS_ID}%2F2026&X-Amz-Signature={HEX}", (HEX, AWS_ID)),
    ("https://a.blob.core.windows.net/c/b?sv=2022&sig=" + B[:30] + "%3D", (B[:30],)),
    ("wss://h/ws?token=abcdef", ("abcdef",)),
    # Names.
    ("export GITHUB_TOKEN=abcdef", ("abcdef",)),
    ("OPENAI_KEY=abc", ("=abc",)),
    ("DB_PASS=hunter2 DB_USER=ann", ("hunter2",)),
    ("PGPASSWORD=hunter2 psql", ("hunter2",)),
    ("Server=db;User Id=ann;Password=hunter2;Encrypt=true", ("hunter2",)),
    ("host=db user=ann password=hunter2 dbname=shop", ("hunter2",)),
    ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + B + "==;", (B,)),
    ("{'password': 'hunter''2'}", ("hunter",)),
    ('{"user":"ann","password":"hunter2"}', ("hunter2",)),
    ('{"client_secret" : "a b c"}', ("a b c",)),
    (r"{\"refresh_token\":\"1234abcd\"}", ("1234abcd",)),
    (r'"{\\\"apiKey\\\":\\\"1234abcd\\\"}"', ("1234abcd",)),
    ("config.password => 'hunter2'", ("hunter2",)),
    ("passphrase: hunter2", ("hunter2",)),
    ("invalid token: abc123", ("abc123",)),
    ("secret_key: 'django-insecure-abc'", ("django-insecure-abc",)),
    ("token = 'abcdef'", ("abcdef",)),
    ("SLACK_TOKEN_PROD=abcdef", ("abcdef",)),
    ("SecretAccessKey: " + AWS_SECRET, (AWS_SECRET[:20],)),
    ("password:\n  hunter2", ("hunter2",)),
    ("machine h login ann password: hunter2", ("hunter2",)),
    ("encryption_key=" + HEX, (HEX,)),
    ("key=" + B, (B,)),
    ("rejected token abc123def456ghi", ("abc123def456ghi",)),
    ("my password is 'hunter2'", ("hunter2",)),
    ("PASSWORD=secret", ("=secret",)),
    ("--token secret", ("secret",)),
    ("redirect=https%3A%2F%2Fh%2F%3Faccess_token%3Dabc", ("abc",)),
)
