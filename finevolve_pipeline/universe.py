"""The 31 Shenwan level-1 industry indices (2021 scheme) and the market benchmark CSI1000."""

from __future__ import annotations

import re
from typing import NamedTuple

from finevolve_pipeline.errors import UniverseError


class Industry(NamedTuple):
    """One Shenwan level-1 industry index. `code` has six digits; people write it with `.SI` behind."""

    code: str
    name_zh: str
    name_en: str


INDUSTRIES: tuple[Industry, ...] = (
    Industry("801010", "农林牧渔", "Agriculture"),
    Industry("801030", "基础化工", "Basic Chemicals"),
    Industry("801040", "钢铁", "Steel"),
    Industry("801050", "有色金属", "Non-ferrous Metals"),
    Industry("801080", "电子", "Electronics"),
    Industry("801110", "家用电器", "Household Appliances"),
    Industry("801120", "食品饮料", "Food & Beverage"),
    Industry("801130", "纺织服饰", "Textiles & Apparel"),
    Industry("801140", "轻工制造", "Light Manufacturing"),
    Industry("801150", "医药生物", "Pharmaceuticals & Biotech"),
    Industry("801160", "公用事业", "Utilities"),
    Industry("801170", "交通运输", "Transportation"),
    Industry("801180", "房地产", "Real Estate"),
    Industry("801200", "商贸零售", "Retail & Trade"),
    Industry("801210", "社会服务", "Social Services"),
    Industry("801230", "综合", "Conglomerates"),
    Industry("801710", "建筑材料", "Building Materials"),
    Industry("801720", "建筑装饰", "Construction & Decoration"),
    Industry("801730", "电力设备", "Power Equipment"),
    Industry("801740", "国防军工", "Defense & Military"),
    Industry("801750", "计算机", "Computers"),
    Industry("801760", "传媒", "Media"),
    Industry("801770", "通信", "Telecommunications"),
    Industry("801780", "银行", "Banks"),
    Industry("801790", "非银金融", "Non-bank Financials"),
    Industry("801880", "汽车", "Automobiles"),
    Industry("801890", "机械设备", "Machinery"),
    Industry("801950", "煤炭", "Coal"),
    Industry("801960", "石油石化", "Petroleum & Petrochemicals"),
    Industry("801970", "环保", "Environmental Protection"),
    Industry("801980", "美容护理", "Beauty & Personal Care"),
)

_CODE = re.compile(r"(?<!\d)801\d{3}(?!\d)")
_DECORATION = re.compile(r"^申万(?:一级)?|[（(][^（）()]*[）)]|(?:一级)?行业$|板块$|指数$")

CODES: tuple[str, ...] = tuple(industry.code for industry in INDUSTRIES)

BENCHMARK = "000852"
"""CSI1000, the market benchmark of every excess return. Not the Shenzhen stock of the same number."""

_LOOKUP = {key: i for i in INDUSTRIES for key in (i.code, f"{i.code}.SI", i.name_zh, i.name_en.lower())}


_ALIASES = {
    # Level-1 names of the 2014 edition that became one industry of today's under another name.
    "801030": ("化工",),
    "801130": ("纺织服装", "纺织", "服装"),
    "801140": ("轻工",),
    "801150": ("医药", "生物医药", "医疗", "医药行业"),
    "801160": ("公用", "电力"),
    "801170": ("交运", "物流", "航运", "交通"),
    "801180": ("地产", "房地产业"),
    "801200": ("商业贸易", "零售", "商贸"),
    "801210": ("休闲服务", "社服", "旅游"),
    "801710": ("建材",),
    "801720": ("建筑",),
    "801730": ("电气设备", "电新", "新能源设备"),
    "801740": ("军工", "国防"),
    "801750": ("软件",),
    "801780": ("银行业",),
    "801790": ("非银", "证券", "保险", "券商"),
    "801880": ("汽车行业", "汽车整车"),
    "801890": ("机械",),
    "801950": ("煤炭行业",),
    "801960": ("石油", "石化", "石油化工"),
    "801970": ("环境保护",),
    "801980": ("美护", "化妆品"),
    "801010": ("农业", "农林牧渔业"),
    "801040": ("钢铁行业",),
    "801050": ("有色", "有色金属行业"),
    "801080": ("半导体", "电子行业", "消费电子"),
    "801120": ("食品", "饮料", "白酒"),
}
"""Further names by code, each of which means that industry and no other. Names that mean several (`采掘`, `新能源`,
`金融`) are none of them."""

_NAMED = _LOOKUP | {alias: _LOOKUP[code] for code, aliases in _ALIASES.items() for alias in aliases}


def industry_named(text: str) -> Industry | None:
    """The industry that a model means by a code, a name, or one of the known further names; None if it is none.

    Decorations that models add are read over: `申万`, `行业`, `(801170)`, `.SI`.
    """
    key = text.strip()
    code = _CODE.search(key)
    if code is not None and code.group() in _LOOKUP:
        return _LOOKUP[code.group()]
    key = _DECORATION.sub("", key).strip()
    return _NAMED.get(key) or _NAMED.get(key.lower())


def industry(text: str) -> Industry:
    """The industry named by a code (`801170`, `801170.SI`), a Chinese or an English name.

    Raises:
        UniverseError: no such industry (codes of older Shenwan schemes included).
    """
    key = text.strip()
    found = _LOOKUP.get(key) or _LOOKUP.get(key.upper()) or _LOOKUP.get(key.lower())
    if found is None:
        raise UniverseError(
            f"sector {text!r}: not one of the 31 Shenwan level-1 industries; `finevolve doctor --sectors` lists them"
        )
    return found
