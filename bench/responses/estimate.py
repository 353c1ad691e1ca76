"""How far the estimate of tokens is off, for each kind of text: `python -m bench.responses.estimate`."""

import base64
import json
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from bench.pages import Table, markdown
from bench.process import ROOT
from bench.responses.workloads import deep, items, log
from headgate.results.token_estimate import estimate_tokens
from headgate.search.token_counter import count_tokens

_SEED: Final = 20_261_118
_BYTES: Final = 60_000
_SENTENCES: Final = {
    "Chinese": (
        "服务器在凌晨三点重新启动,所有未完成的订单都被保存到磁盘。",
        "请检查配置文件中的端口号,然后再次运行安装程序。",
        "用户可以在设置页面修改密码,新密码立即生效。",
        "这个函数返回一个列表,其中每个元素都是一个字典。",
    ),
    "Japanese": (
        "サーバーは午前三時に再起動され、未完了の注文はすべてディスクに保存されました。",
        "設定ファイルのポート番号を確認してから、もう一度インストールを実行してください。",
        "この関数はリストを返し、各要素は辞書です。",
    ),
    "Korean": (
        "서버가 새벽 세 시에 다시 시작되었고 완료되지 않은 주문은 모두 디스크에 저장되었습니다.",
        "설정 파일의 포트 번호를 확인한 다음 설치 프로그램을 다시 실행하십시오.",
        "이 함수는 목록을 반환하며 각 요소는 사전입니다.",
    ),
    "Russian": (
        "Сервер был перезапущен в три часа ночи, и все незавершённые заказы сохранены на диск.",
        "Проверьте номер порта в файле настроек и запустите установку ещё раз.",
        "Пользователь может изменить пароль на странице настроек, новый пароль действует сразу.",
    ),
    "Arabic": (
        "أعيد تشغيل الخادم في الساعة الثالثة صباحا وتم حفظ جميع الطلبات غير المكتملة على القرص.",
        "يرجى التحقق من رقم المنفذ في ملف الإعدادات ثم تشغيل برنامج التثبيت مرة أخرى.",
        "يمكن للمستخدم تغيير كلمة المرور في صفحة الإعدادات.",
    ),
    "Hindi": (
        "सर्वर रात तीन बजे फिर से चालू किया गया और सभी अधूरे आदेश डिस्क पर सहेजे गए।",
        "कृपया सेटिंग फ़ाइल में पोर्ट संख्या जाँचें और फिर से स्थापना चलाएँ।",
    ),
    "German": (
        "Der Server wurde um drei Uhr neu gestartet, und alle offenen Bestellungen wurden gespeichert.",
        "Bitte prüfen Sie die Portnummer in der Konfigurationsdatei und richten Sie es erneut ein.",
        "Benutzer können ihr Kennwort auf der Einstellungsseite ändern; es gilt sofort für alle Geräte.",
    ),
    "English": (
        "The server was restarted at three in the morning, and every unfinished order was written to disk.",
        "Check the port number in the configuration file, then run the installer again.",
        "Users can change their password on the settings page; the new one takes effect immediately.",
        "Nobody expected the migration to finish before lunch, but the last table took only a minute.",
    ),
}
_EMOJI: Final = "😀😂🥰😎🤔🙄😴🤖👍🙏🎉🔥✨🚀💡📦📈🐛🔒🌍🍕🐍"
# The largest error in percent that the documentation promises for each kind.
BOUNDS: Final = {
    "English prose": 10,
    "code": 15,
    "JSON": 10,
    "indented JSON": 10,
    "logs": 12,
    "base64": 8,
    "hexadecimal": 12,
    "ANSI colours": 12,
    "emoji": 20,
    "chat with emoji": 12,
    "Chinese": 25,
    "Japanese": 25,
    "Korean": 25,
    "Russian": 25,
    "Arabic": 25,
    "Hindi": 25,
    "German": 25,
    "CSV of numbers": 8,
    "columns of spaces": 15,
    "minified JavaScript": 15,
    "HTML": 15,
    "URLs": 25,
    "UUIDs": 8,
}


def kinds() -> dict[str, str]:
    """One text of each kind, made from a fixed seed.

    The weights of Chinese, Korean, Russian, Arabic, German and emoji were adjusted to these texts; the others
    were fitted to other texts.
    """
    draw = random.Random(_SEED)
    languages = {name: _spoken(draw, name) for name in _SENTENCES if name != "English"}
    return {
        "English prose": _spoken(draw, "English"),
        "code": _code(),
        "JSON": items(_BYTES),
        "indented JSON": json.dumps(json.loads(deep()), indent=2),
        "logs": log(_BYTES),
        "base64": base64.b64encode(draw.randbytes(_BYTES)).decode(),
        "hexadecimal": draw.randbytes(_BYTES // 2).hex(),
        "ANSI colours": _lines(draw, _coloured),
        "emoji": "".join(draw.choices(_EMOJI, k=_BYTES // 4)),
        "chat with emoji": _lines(draw, _chat),
        **languages,
        "CSV of numbers": _lines(
            draw, lambda one: ",".join(f"{one.uniform(-999, 9999):.2f}" for _ in range(8))
        ),
        "columns of spaces": _lines(
            draw, lambda one: f"{_word(one):<24}{_word(one):>30}{one.randrange(999):>9}"
        ),
        "minified JavaScript": _lines(draw, _minified, ""),
        "HTML": _lines(draw, _markup),
        "URLs": _lines(
            draw, lambda one: f"https://shop.example.org/{_word(one)}/{_word(one)}?id={one.randrange(9999)}"
        ),
        "UUIDs": _lines(draw, lambda one: str(uuid.UUID(int=one.getrandbits(128)))),
    }


def _spoken(draw: random.Random, language: str) -> str:
    return _lines(draw, lambda one: " ".join(one.choices(_SENTENCES[language], k=3)))


def _lines(draw: random.Random, line: Callable[[random.Random], str], end: str = "\n") -> str:
    made: list[str] = []
    size = 0
    while size < _BYTES:
        made.append(line(draw))
        size += len(made[-1].encode()) + len(end)
    return end.join(made)


def _word(draw: random.Random) -> str:
    return draw.choice(("server", "order", "account", "invoice", "shipment", "status", "customer", "region"))


def _code() -> str:
    """Modules of this package that change rarely."""
    package = ROOT / "src" / "headgate" / "search"
    return "\n".join(Path(package / name).read_text() for name in ("token_counter.py",))


def _coloured(draw: random.Random) -> str:
    colour, state = draw.choice((31, 32, 33)), draw.choice(("PASSED", "FAILED", "SKIPPED"))
    test = f"\x1b[1mtests/test_{_word(draw)}.py\x1b[0m::test_{_word(draw)}"
    return f"{test} \x1b[{colour}m{state}\x1b[0m [{draw.randrange(100):3}%]"


def _chat(draw: random.Random) -> str:
    return f"{draw.choice(_SENTENCES['English'])} {draw.choice(_EMOJI)}{draw.choice(_EMOJI)}"


def _minified(draw: random.Random) -> str:
    one, other = draw.choices("abcdefnrt", k=2)
    return (
        f"function {one}({other}){{return {other}.{_word(draw)}&&{other}.length>{draw.randrange(99)}?"
        f"{one}({other}.{_word(draw)},!0):null}}var {other}="
        f'{{type:"{_word(draw)}",{_word(draw)}:{draw.randrange(999)}}};'
    )


def _markup(draw: random.Random) -> str:
    word = _word(draw)
    link = f'<a href="/{word}/{draw.randrange(999)}" title="{_word(draw)}">{word} details</a>'
    return f'<li class="{word}-item">{link}</li>'


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """What was estimated of one kind of text, and what is right."""

    kind: str
    tokens: int
    estimated: int
    earlier: int

    def percent(self, estimated: int) -> float:
        """How far an estimate is off."""
        return (estimated / self.tokens - 1) * 100


def errors() -> list[Error]:
    """Every kind."""
    return [
        Error(kind=kind, tokens=count_tokens(data), estimated=estimate_tokens(data), earlier=_earlier(data))
        for kind, data in ((kind, text.encode()) for kind, text in kinds().items() if kind in BOUNDS)
    ]


# The weights of signs by which tokens were estimated before.
_EARLIER: Final = (
    (b"abcdefghijklmnopqrstuvwxyz", 0.176),
    (b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", 0.190),
    (b"0123456789", 0.632),
    (b" \t\r\n", 0.256),
    (bytes(range(0x80, 0x100)), 0.189),
)


def _earlier(data: bytes) -> int:
    tokens, left = 0.0, len(data)
    for kind, weight in _EARLIER:
        count = len(data) - len(data.translate(None, kind))
        tokens += count * weight
        left -= count
    return round(tokens + left * 0.631)


def table(measured: list[Error]) -> Table:
    """The errors as the documentation has them."""
    header = ("text", "tokens", "error before", "error", "promised")
    return header, [
        (
            one.kind,
            f"{one.tokens:,}",
            f"{one.percent(one.earlier):+.0f} %",
            f"{one.percent(one.estimated):+.1f} %",
            f"±{BOUNDS[one.kind]} %",
        )
        for one in measured
    ]


if __name__ == "__main__":
    print(markdown(table(errors())))
